#!/usr/bin/env bash
# KV events at speed: frames into the index, a socket into lines, the time from a message sent to its
# line read; beside what a router in Python pays only to decode (msgspec), and Dynamo's own indexer
# service on the same socket (ai-dynamo-runtime from PyPI).
# kvr is pinned to one core, its publisher to another; interleaved.
#   events.sh        about two minutes
#   events.sh alone  without the PyPI peers
# NDJSON of every run, then a table.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/bench/lib.sh
BUILD=${BUILD:-build}
bench=$BUILD/bench/bench_events
core=${CORE:-$(($(nproc) - 1))}
other=$((core ? core - 1 : 0))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python=
if [ "${1:-}" != alone ]; then
    venv=$BUILD/venv-events
    "$venv/bin/python" -c 'import zmq, msgspec' 2>/dev/null ||
        { python3 -m venv "$venv" && "$venv/bin/pip" install -q pyzmq msgspec; } || :
    "$venv/bin/python" -c 'import dynamo._core' 2>/dev/null || "$venv/bin/pip" install -q ai-dynamo-runtime==1.6.1 || :
    if "$venv/bin/python" -c 'import zmq, msgspec' 2>/dev/null; then python=$venv/bin/python; else echo "no peers: pyzmq and msgspec could not be installed"; fi
fi
dynamo=
if [ -n "$python" ] && "$python" -c 'import dynamo._core' 2>/dev/null; then dynamo=y; else echo "no peer: ai-dynamo-runtime 1.6.1"; fi

"$bench" make "$work/stored" 2000000 stored
"$bench" make "$work/churn" 2000000 churn
"$bench" make "$work/few" 400000 stored
for _ in 1 2 3; do
    for mix in stored churn; do
        timeout 120 taskset -c "$core" "$bench" index "$work/$mix" 1
        timeout 120 taskset -c "$other" "$bench" socket "taskset -c $core $BUILD/bin/kvr-events" "$work/$mix" "ipc://$work/socket"
        [ -z "$python" ] || timeout 120 taskset -c "$core" "$python" tests/bench/events_peer.py decode "$work/$mix"
    done
    if [ -n "$dynamo" ]; then
        for who in kvr dynamo; do timeout 150 taskset -c "$other" "$python" tests/bench/events_peer.py index "$work/few" "$who" "$core" "$BUILD/bin"; done
    fi
    timeout 120 taskset -c "$other" "$bench" latency "taskset -c $core $BUILD/bin/kvr-events --native" "ipc://$work/socket" 50000 3
done | tee "$work/runs"
jq -rn '
    [inputs] | group_by([.figure, .program, .blocks // 0])[] | .[0] as $first
    | if $first.figure == "latency" then "latency at 50 k blocks/s\t\($first.program)\tp50 \(map(.p50_us) | min) us\tp99 \(map(.p99_us) | min) us (worst run \(map(.p99_us) | max) us)"
      else "\($first.figure), \($first.blocks) blocks\t\($first.program)\t\(map(.blocks_per_s) | max / 1e4 | round / 100) M blocks/s\t\(map(.blocks_per_processor_s // empty) | if length > 0 then "\(max / 1e4 | round / 100) M by its processor time" else "" end)" end
' "$work/runs" | column -t -s "$(printf '\t')"
jq -rn '[inputs | select(.figure == "socket to index")] | group_by(.program | startswith("kvr")) | map(map(.blocks_per_processor_s) | max)
    | if length == 2 then "socket to index, by processor time: kvr is \(.[1] / .[0] * 10 | round / 10) times dynamo.indexer" else empty end' "$work/runs"
jq -cn '
    [inputs] as $runs
    | def rate($figure; $program): [$runs[] | select(.figure == $figure and (.program | test($program))) | .blocks_per_processor_s // .blocks_per_s] | max;
      (rate("socket to index"; "^kvr") | select(.) | {metric: "socket to index", kvr: ., unit: "blocks/s", peer: "dynamo.indexer", peer_version: "1.6.1",
          theirs: rate("socket to index"; "dynamo"), asked: "1 M/s"} | if .theirs then . else del(.peer, .peer_version, .theirs) end),
      ([$runs[] | select(.figure == "latency")] | {metric: "publish to printed line, p99 at 50 k blocks/s", kvr: (map(.p99_us) | min), unit: "us", asked: "1000 us"}),
      ($runs | map(select(.figure != "latency" and .figure != "socket to index" and (.program | test("kvr"))))
          | group_by([.figure, .program, .blocks])[] | {metric: "\(.[0].figure), \(.[0].blocks) blocks", kvr: (map(.blocks_per_s) | max), unit: "blocks/s"})' \
    "$work/runs" | record events
if [ -n "$python" ]; then
    echo "== published lines, read by pyzmq and msgspec"
    seq 1 1000 | sed 's/.*/{"event":"stored","worker":"w0","hash_ids":[&],"block_size":16,"medium":"gpu"}/' >"$work/lines"
    timeout 60 "$BUILD/bin/kvr-events" -q "$work/lines" --wait 1 --linger 2s --publish "ipc://$work/pub,replay=ipc://$work/replay" &
    timeout 60 "$python" tests/bench/events_peer.py read "ipc://$work/pub" "ipc://$work/replay" 1000
    wait $!
    if [ -n "$dynamo" ]; then timeout 120 "$python" tests/bench/events_peer.py published "$BUILD/bin"; fi
fi
