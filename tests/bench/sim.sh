#!/bin/sh
# The virtual cluster, one pinned core: the whole conversation trace on 8 and 256 workers, decided in
# process and by real programs, then side by side with Vidur 0.0.26 (PyPI, into build/venv-vidur) on
# the lengths of the first VIDUR_REQUESTS requests (0: leaves Vidur out). See vidur_peer.py for what
# its API allows: the same cost model, batching and memory, no prefix reuse.
set -eu
cd "$(dirname "$0")/../.."
. tests/bench/lib.sh
PATH=$PWD/build/bin:$PATH
trace=${SHARED:-../shared}/traces/mooncake_conversation.jsonl.gz
[ -e "$trace" ] || trace=tests/data/mooncake_conversation_1k.jsonl.gz
requests=${VIDUR_REQUESTS:-2000}
plain=$(mktemp)
trap 'rm -f "$plain" "$plain.first" "$plain.runs"' EXIT
gzip -dc "$trace" >"$plain"

# timed NAME COMMAND...: wall and processor seconds of a command, its children included.
timed() {
    name=$1
    shift
    /usr/bin/env python3 - "$name" "$(wc -l <"$plain")" "$@" <<'END'
import json, os, subprocess, sys, time
begun = time.monotonic()
subprocess.run(sys.argv[3:], check=True, stdout=subprocess.DEVNULL)
wall, used = time.monotonic() - begun, os.times()
print(json.dumps({"bench": "sim", "name": sys.argv[1], "requests": int(sys.argv[2]), "seconds": round(wall, 3),
                  "processor_seconds": round(used.children_user + used.children_system, 3)}))
END
}

for _ in 1 2 3; do
    timed '8 workers, cost, lines out' taskset -c 0 kvr-sim -w 8 --policy cost "$plain"
    timed '256 workers, cost, lines out' taskset -c 0 kvr-sim -w 256 --policy cost --rate 32 "$plain"
    timed '8 workers, every policy, table' taskset -c 0 kvr-sim -w 8 --compare \
        "$(kvr-route --policy list | awk '{print $1}' | paste -sd,)" "$plain"
done
timed '8 workers, kvr-match | kvr-route' kvr-sim -w 8 -- 'kvr-match | kvr-route --policy cost' "$plain"

[ "$requests" -gt 0 ] || exit 0
venv=build/venv-vidur
if ! [ -x $venv/bin/python ] || ! $venv/bin/python -c 'import vidur' 2>/dev/null; then
    if ! python3 -m venv $venv || ! $venv/bin/pip install -q vidur==0.0.26; then
        echo "Vidur cannot be installed here: left out" >&2
        exit 0
    fi
fi
head -n "$requests" "$plain" | jq -c 'del(.hash_ids)' >"$plain.first"
cp "$plain.first" "$plain"
ours() {
    timed 'kvr-sim, the same requests' taskset -c 0 \
        kvr-sim -w 8 --policy round-robin -c 8000000 --engine-block 512 --summary "$plain"
}
{
    ours
    taskset -c 0 $venv/bin/python tests/bench/vidur_peer.py "$plain" "$requests"
    ours
} | tee "$plain.runs"
jq -cn '[inputs] | map(select(.name | test("same requests")).processor_seconds) as $ours | map(select(.name | test("vidur"))) as $theirs
    | {metric: "iteration-level simulation, the same \($theirs[0].requests) requests", kvr: ($ours | min), unit: "s of processor time", peer: "Vidur", peer_version: "0.0.26", theirs: $theirs[0].seconds}' \
    "$plain.runs" | record sim
kvr-sim -w 8 --policy round-robin -c 8000000 --engine-block 512 --summary --json "$plain" |
    jq -c '{bench: "sim", name: "kvr-sim found", requests, ttft_p50_ms: (.ttft_ms.p50 | round), ttft_p90_ms: (.ttft_ms.p90 | round)}'
