#!/usr/bin/env bash
# The prefix index and kvr-match side by side with others, pinned to one core, interleaved. Times are
# processor times where a program is alone, so that a busy machine spoils less.
#   index.sh        all of it, about two minutes and a half
#   index.sh alone  without the PyPI peer
# NDJSON of every run, then a table with ratios.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/bench/lib.sh
SHARED=${SHARED:-../shared}
BUILD=${BUILD:-build}
trace=$SHARED/traces/mooncake_conversation.jsonl.gz
[ -e "$trace" ] || { echo "skipped: needs traces/mooncake_conversation.jsonl.gz of the shared data"; exit 0; }
core=${CORE:-$(($(nproc) - 1))}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pin() { taskset -c "$core" "$@"; }

python=
if [ "${1:-}" != alone ]; then
    venv=$BUILD/venv-dynamo
    if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import dynamo._core' 2>/dev/null; then
        { python3 -m venv "$venv" && "$venv/bin/pip" install -q ai-dynamo-runtime==1.6.1; } || :
    fi
    if "$venv/bin/python" -c 'import dynamo._core' 2>/dev/null; then python=$venv/bin/python; else echo "no peer: ai-dynamo-runtime 1.6.1 could not be installed"; fi
fi

echo "== the index: conversation trace, 8 workers"
for split in 1 32; do
    for round in 1 2 3; do
        pin "$BUILD/bench/bench_index" "$trace" 8 "$split" 3 "$work/workload" | tee -a "$work/runs"
        [ -z "$python" ] || [ "$split$round" = 323 ] || pin "$python" tests/bench/index_peer.py "$work/workload" 8 $((512 / split)) 1 | tee -a "$work/runs"
    done
done
jq -rn '
    def best($runs; $what): [$runs[] | .[$what] // empty] | if $what == "bytes_per_pair" then min else max end;
    def number: if . == null then "-" elif . >= 1e6 then "\(. / 1e4 | round / 100) M" elif . >= 1e4 then "\(. / 1e3 | round) k" else "\(. * 100 | round / 100)" end;
    [inputs] | group_by(.block_tokens) | reverse[] | .[0].block_tokens as $tokens
    | map(select(.program == "kvr")) as $ours | map(select(.program != "kvr")) as $peers
    | ("stored_per_s", "place_per_s", "churn_per_s", "finds_per_s", "matched_blocks_per_s", "walk_finds_per_s", "walk_matched_blocks_per_s", "bytes_per_pair") as $what
    | best($ours; $what) as $our | best($peers; $what) as $peer
    | [$tokens, $what, ($our | number), ($peer | number), (if $peer then "\($our / $peer * 100 | round / 100) x" else "-" end)] | @tsv
' "$work/runs" >"$work/table"
jq -c '
    def best($runs; $what): [$runs[] | .[$what] // empty] | if $what == "bytes_per_pair" then min else max end;
    [inputs] | group_by(.block_tokens)[] | .[0].block_tokens as $tokens
    | map(select(.program == "kvr")) as $ours | map(select(.program != "kvr")) as $peers
    | ({stored_per_s: "blocks stored by events", finds_per_s: "look-ups", matched_blocks_per_s: "blocks matched", bytes_per_pair: "a block held"} | to_entries[]) as $what
    | {metric: "\($what.value), blocks of \($tokens)", kvr: best($ours; $what.key), unit: (if $what.key == "bytes_per_pair" then "bytes" else "/s" end),
       peer: "ai-dynamo-runtime", peer_version: "1.6.1", theirs: best($peers; $what.key),
       asked: (if $what.key == "bytes_per_pair" then "48 bytes" elif $what.key == "stored_per_s" then "20 M/s"
           elif $what.key == "finds_per_s" and $tokens == 512 then "2 M/s" elif $what.key == "matched_blocks_per_s" and $tokens == 16 then "200 M/s" else null end)}
    | if .theirs then . else del(.peer, .peer_version, .theirs) end' -n "$work/runs" >"$work/results"
{ printf 'block\tfigure\tkvr\tai-dynamo-runtime\tratio\n'; cat "$work/table"; } | column -t -s "$(printf '\t')"
jq -rn '[inputs | select(.find_floor_us)] | if length > 0 then "its call floor: apply_event \([.[].apply_floor_us] | min) us, find_matches \([.[].find_floor_us] | min) us" else empty end' "$work/runs"

echo "== kvr-match: the trace over and over, one core, best of 5, interleaved"
gzip -dc "$trace" >"$work/once"
for _ in $(seq 16); do cat "$work/once"; done >"$work/plain"
sed 's/^.*"hash_ids": \[.*[^0-9]\([0-9]*\)\(\]}\)$/&\t\1/' "$work/once" | awk -F '\t' '{ sub(/}$/, "", $1); printf "%s,\"route\":{\"worker\":\"w%d\"}}\n", $1, $2 % 8 }' >"$work/routed_once"
for _ in $(seq 16); do cat "$work/routed_once"; done >"$work/routed"

# seconds NAME FILE COMMAND...: one line of NDJSON. Processor time: on a core of its own the same as
# time by the clock, and on a shared machine nearly so.
TIMEFORMAT='%U %S'
seconds() {
    local name=$1 file=$2
    shift 2
    { time pin "$@" "$file" >/dev/null 2>&1; } 2>"$work/time"
    read -r user system <"$work/time"
    jq -cn --arg name "$name" --argjson bytes "$(stat -c %s "$file")" --argjson lines "$(wc -l <"$file")" \
        --argjson user "$user" --argjson system "$system" \
        '($user + $system | if . < 0.001 then 0.001 else . end) as $s | {name: $name, mb_per_s: ($bytes / 1e6 / $s), lines_per_s: ($lines / $s)}'
}
for _ in 1 2 3 4 5; do
    seconds "cat" "$work/plain" cat
    seconds "jq -c ." "$work/once" jq -c .
    seconds "kvr-match -w 8" "$work/plain" "$BUILD/bin/kvr-match" -q -w 8
    seconds "kvr-match --against any" "$work/plain" "$BUILD/bin/kvr-match" --against any
    seconds "kvr-match -w 8, placements in the lines" "$work/routed" "$BUILD/bin/kvr-match" -w 8
    seconds "kvr-match -w 8 -c 3000000, placements in the lines" "$work/routed" "$BUILD/bin/kvr-match" -w 8 -c 3000000
done >"$work/programs"
jq -rn '[inputs] | ([.[] | select(.name == "jq -c .").mb_per_s] | max) as $jq | group_by(.name) | map(max_by(.mb_per_s)) | sort_by(-.mb_per_s)[]
    | "\(.name)\t\(.mb_per_s | round) MB/s\t\(.lines_per_s | round) lines/s\t\(.mb_per_s / $jq * 10 | round / 10) x jq"' "$work/programs" | column -t -s "$(printf '\t')"

jq -cn --arg version "$(jq --version | tr -dc 0-9.)" '[inputs] | ([.[] | select(.name == "jq -c .").mb_per_s] | max) as $jq
    | group_by(.name)[] | max_by(.mb_per_s) | select(.name | test("kvr-match -w 8$|in the lines$"))
    | {metric: .name, kvr: .mb_per_s, unit: "MB/s", peer: "jq -c .", peer_version: $version, theirs: $jq} + if .name == "kvr-match -w 8" then {asked: "400 MB/s, 20 x"} else {} end' "$work/programs" >>"$work/results"

echo "== the closed loop: kvr-match | kvr-route | tee, all on one core, best of 5"
mkfifo "$work/loop"
lines=$(wc -l <"$work/once")
TIMEFORMAT='%R %U %S'
for policy in round-robin cache-aware; do
    for _ in 1 2 3 4 5; do
        { time pin sh -c "'$BUILD/bin/kvr-match' -w 8 -c 3000000 --loop '$work/loop' '$work/once' | '$BUILD/bin/kvr-route' --policy $policy | tee '$work/loop' >/dev/null"; } 2>&1
    done | awk -v lines="$lines" -v policy="$policy" '{
            if (NR == 1 || $1 < wall) wall = $1
            if (NR == 1 || $2 + $3 < busy) busy = $2 + $3
        } END {
            printf "%s: %d decisions/s by the clock, %d by processor time of all three\n", policy, lines / wall, lines / busy >"/dev/stderr"
            printf "{\"metric\": \"closed loop in shell, %s\", \"kvr\": %d, \"unit\": \"/s\", \"asked\": \"40 k/s\"}\n", policy, lines / wall
        }' >>"$work/results"
done
record index <"$work/results"
