#!/usr/bin/env bash
# kvr-stats beside DuckDB and Miller on routed lines of the conversation trace, pinned to one core,
# interleaved; the same through Spark; and its memory on a long stream.
#   stats.sh         about five minutes: 1 GB of lines, 10 GB through a pipe
#   stats.sh small   a tenth of it
# All answer the hit rate and p50 and p99 of the TTFT by worker: kvr-stats --brief, DuckDB and Miller
# nothing much besides; kvr-stats its whole default report (ceiling, regret, match lengths, all
# latencies by kind, reasons, windows). MB/s are of processor time, so that a busy machine spoils
# less; on a core of its own that is the time by the clock. Miller is measured on a tenth of the file.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/bench/lib.sh
SHARED=${SHARED:-../shared}
BUILD=${BUILD:-build}
trace=$SHARED/traces/mooncake_conversation.jsonl.gz
[ -e "$trace" ] || { echo "skipped: needs traces/mooncake_conversation.jsonl.gz of the shared data"; exit 0; }
core=${CORE:-$(($(nproc) - 1))}
mb=1000 spark_mb=300 soak=10
[ "${1:-}" != small ] || { mb=100 spark_mb=30 soak=1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pin() { taskset -c "$core" "$@"; }

venv=$BUILD/venv-stats
if ! "$venv/bin/python" -c 'import duckdb' 2>/dev/null; then
    { python3 -m venv "$venv" && "$venv/bin/pip" install -q duckdb; } || echo "no peer: duckdb could not be installed"
fi

echo "== lines: the conversation trace through kvr-match and kvr-route, with responses, $mb MB"
gzip -dc "$trace" >"$work/trace"
mkfifo "$work/loop"
"$BUILD/bin/kvr-match" -w 8 -c 3000000 --loop "$work/loop" "$work/trace" | "$BUILD/bin/kvr-route" |
    tee "$work/loop" >"$work/routed"
python3 tests/bench/stats_lines.py "$work/routed" "$mb" "$work/lines"
head -c $((mb * 100000)) "$work/lines" | sed '$d' >"$work/tenth"

TIMEFORMAT='%R %U %S'
# measure NAME FILE COMMAND...: a line of NDJSON
measure() {
    local name=$1 file=$2
    shift 2
    { time pin "$@" >/dev/null 2>"$work/said"; } 2>"$work/time"
    read -r wall user system <"$work/time"
    jq -cn --arg program "$name" --argjson bytes "$(stat -c %s "$file")" --argjson wall "$wall" --argjson cpu "$(jq -n "$user + $system")" \
        '{program: $program, mb: ($bytes / 1e6 | round), wall_s: $wall, cpu_s: $cpu, mb_per_s: ($bytes / 1e6 / $cpu), mb_per_s_by_the_clock: ($bytes / 1e6 / $wall)}'
}
cat "$work/lines" >/dev/null
for _ in 1 2 3; do
    measure "kvr-stats" "$work/lines" "$BUILD/bin/kvr-stats" "$work/lines"
    measure "kvr-stats --brief" "$work/lines" "$BUILD/bin/kvr-stats" --brief "$work/lines"
    if [ -x "$venv/bin/python" ]; then
        measure "duckdb" "$work/lines" "$venv/bin/python" tests/bench/stats_duckdb.py "$work/lines"
    fi
    if command -v mlr >/dev/null; then
        # shellcheck disable=SC2016
        measure "miller" "$work/tenth" mlr --ijsonl --ojson --records-per-batch 500 \
            put -q 'emit1 {"worker": $route.worker, "ttft": $response.ttft_ms, "in": $input_length, "hit": $response.cached_tokens}' \
            'then' stats1 -a p50,p99,sum -f ttft,in,hit -g worker "$work/tenth"
    fi
done | tee "$work/runs"
jq -rn '[inputs] | group_by(.program) | map(max_by(.mb_per_s)) | (map(select(.program == "kvr-stats --brief"))[0].mb_per_s) as $ours | sort_by(-.mb_per_s)[]
    | "\(.program)\t\(.mb_per_s | round) MB/s of processor time\t\(.mb_per_s_by_the_clock | round) by the clock\tkvr-stats --brief is \($ours / .mb_per_s * 100 | round / 100) x"' "$work/runs" | column -t -s "$(printf '\t')"

jq -cn --arg duckdb "$(version_of "$venv/bin/python" duckdb)" --arg miller "$(mlr --version 2>/dev/null | tr -dc 0-9.)" '
    [inputs] | group_by(.program) | map({(.[0].program): (map(.mb_per_s) | max)}) | add as $best
    | {metric: "kvr-stats, its whole report", kvr: $best["kvr-stats"], unit: "MB/s", asked: "400 MB/s"},
      ({metric: "hit rate and TTFT by worker", kvr: $best["kvr-stats --brief"], unit: "MB/s", asked: "1 x"}
       + ({peer: "DuckDB", peer_version: $duckdb, theirs: $best.duckdb}, {peer: "Miller", peer_version: $miller, theirs: $best.miller} | select(.theirs)))
' "$work/runs" | record stats

echo "== memory: $soak times the file through a pipe"
mkfifo "$work/pipe"
"$BUILD/bin/kvr-stats" --json "$work/pipe" >"$work/soaked" &
pid=$!
for turn in $(seq "$soak"); do
    cat "$work/lines"
    awk -v turn="$turn" '/VmRSS/ { printf "after %d: %.1f MB\n", turn, $2 / 1024 }' "/proc/$pid/status" >&2
done >"$work/pipe"
wait "$pid"
jq -c '{requests, late_lines: .windows.late_lines}' "$work/soaked"

echo "== Spark, local mode, rdd.pipe, $spark_mb MB"
if ! "$venv/bin/python" -c 'import pyspark' 2>/dev/null; then
    "$venv/bin/pip" install -q pyspark || true
fi
if ! command -v java >/dev/null || ! "$venv/bin/python" -c 'import pyspark' 2>/dev/null; then
    echo "skipped: needs java and pyspark"
else
    head -c $((spark_mb * 1000000)) "$work/lines" | sed '$d' >"$work/some"
    "$venv/bin/python" tests/bench/stats_spark.py "$PWD/$BUILD/bin/kvr-stats" "$work/some" 2>"$work/spark" || { tail -n 5 "$work/spark"; exit 1; }
fi
