#!/usr/bin/env bash
# Chat templates against jinja2 3.1.6 (PyPI), which servers in Python use: the same templates and
# messages, JSON in and text out, CPU time on one pinned core, the two in turn, best of ROUNDS rounds.
#   ROUNDS=3 tests/bench/template.sh [TEMPLATE...]
set -eu
cd "$(dirname "$0")/../.."
. tests/bench/lib.sh
shared=${SHARED:-../shared} build=${BUILD:-build} rounds=${ROUNDS:-2}
core=${CORE:-$(($(nproc) - 1))}
venv=$build/venv
[ $# -gt 0 ] || set -- "$shared/tokenizers/qwen3.tokenizer_config.json.gz" \
    "$shared/tokenizers/deepseek_v3.tokenizer_config.json.gz"
[ -e "$1" ] || { echo "template.sh: $1 is missing: nothing measured" >&2; exit 3; }
if ! "$venv/bin/python" -c 'import jinja2' 2>/dev/null; then
    python3 -m venv "$venv" && "$venv/bin/pip" -q install jinja2==3.1.6
fi
printf '%-34s %8s %6s %10s %10s %7s\n' template bytes turns 'kvr MB/s' 'jinja2' ratio
results=$(mktemp)
for template; do
    for work in "100 3" "1000 9" "8000 20"; do
        log=$(mktemp)
        for _ in $(seq "$rounds"); do
            # shellcheck disable=SC2086
            taskset -c "$core" "$build/bench/bench_template" "$template" $work >>"$log"
            # shellcheck disable=SC2086
            taskset -c "$core" "$venv/bin/python" tests/bench/template_jinja2.py "$template" $work >>"$log"
        done
        jq -rs --arg name "$(basename "$template" .gz)" '
            (map(select(.bench == "template")) | max_by(.mb_per_s)) as $ours
            | (map(select(.bench == "jinja2")) | max_by(.mb_per_s)) as $theirs
            | if $ours.text_bytes != $theirs.text_bytes then error("the texts differ in length") else . end
            | [$name, $ours.message_bytes, $ours.turns, $ours.mb_per_s, $theirs.mb_per_s,
               ($ours.mb_per_s / $theirs.mb_per_s * 10 | round / 10)] | @tsv' "$log" |
            awk -F'\t' '{ printf "%-34s %8s %6s %10s %10s %7s\n", $1, $2, $3, $4, $5, $6 }'
        jq -cs --arg name "$(basename "$template" .tokenizer_config.json.gz)" '
            (map(select(.bench == "template")) | max_by(.mb_per_s)) as $ours
            | {metric: "\($name), \($ours.turns) turns of \($ours.message_bytes) bytes", kvr: $ours.mb_per_s, unit: "MB/s",
               peer: "jinja2", peer_version: "3.1.6", theirs: (map(select(.bench == "jinja2").mb_per_s) | max)}' "$log" >>"$results"
        rm -f "$log"
    done
done
record template <"$results"
rm -f "$results"
