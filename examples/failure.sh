#!/bin/sh
# What a worker's end does to open conversations. One of eight, w3, goes down at half time: without
# warning (killed), or after draining for DRAIN seconds (300), in which its sessions stay with it (drained),
# are handed on at their next turn (handed on), or are handed on with their KV (pulled). Prints, for
# the conversations whose last turn before all this was on w3, and for all others, the time to first
# token of their turns from the beginning of the drain to ten minutes after half time, and how many
# requests of the whole trace had to be decided again or failed.
#   examples/failure.sh [TRACE]
set -eu
# shellcheck source=examples/common
. "$(dirname "$0")/common"
find_trace "$@"
policy=${POLICY:-session}
options=${OPTIONS:---model llama-3.1-70b --gpu 8xh100 -c 3000000}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

half=$(gzip -dcf "$trace" | jq -n 'last(inputs).timestamp / 2 | floor')
drain=${DRAIN:-$((half < 600000 ? half / 2000 : 300))}
start=$((half - drain * 1000))
# gives w3 a state at a time
worker() {
    echo "{\"event\":\"worker\",\"worker\":\"w3\",\"state\":\"$1\",\"timestamp\":$2}"
}
: >"$folder/stays"
worker down "$half" >"$folder/killed"
{ worker draining "$start" && worker down "$half"; } >"$folder/drained"

report() {
    jq -c 'select(.response) | {t: .timestamp, s: .session, w: .response.worker, ttft: .response.ttft_ms,
        a: .response.attempts, status: .response.status, hit: .cache.hit, n: .input_length}' |
        jq -sr --arg case "$1" --argjson half "$half" --argjson start "$start" '
            def quantile($p): sort | if length == 0 then "-" else .[(length * $p | ceil) - 1] | floor end;
            def row($name): [$case, $name, length, (map(.ttft // empty) | quantile(.5), quantile(.9), quantile(.99)),
                (((map(.hit) | add) * 100 / (map(.n) | add)) | floor | tostring) + "%"];
            (map(select(.a)) | length) as $again | (map(select(.status != 200)) | length) as $failed
            | sort_by(.t)
            | reduce .[] as $r ({home: {}, turns: []};
                if $r.t < $start then .home[$r.s] = ($r.w // "none")
                elif $r.t < $half + 600000 and .home[$r.s] then .turns += [$r + {home: .home[$r.s]}]
                else . end)
            | .turns
            | (map(select(.home == "w3")) | row("of w3") + [$again, $failed]),
              (map(select(.home != "w3")) | row("of others") + ["", ""])
            | @tsv' |
        awk -F'\t' '{printf "%-10s %-13s %6s %8s %8s %8s %6s %8s %7s\n", $1, $2, $3, $4, $5, $6, $7, $8, $9}'
}
# simulate CASE CHANGES OPTION...
simulate() {
    name=$1 changes=$2
    shift 2
    # shellcheck disable=SC2086
    kvr-sim -w 8 $options --policy "$policy" --derive-sessions "$@" -m "$folder/$changes" "$trace" | report "$name"
}

printf '%-10s %-13s %6s %8s %8s %8s %6s %8s %7s\n' w3 conversations turns 'TTFT p50' p90 p99 hit retried failed
simulate stays stays
simulate killed killed
simulate drained drained --drain "${drain}s"
simulate 'handed on' drained --drain 0
simulate pulled drained --drain 0 --pull
