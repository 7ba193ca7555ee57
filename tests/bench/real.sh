#!/usr/bin/env bash
# Two real llama.cpp workers on loopback (a tiny model, a real prompt cache; needs ../shared/worker and
# PyPI): what they cost is fitted from cold prompts, then (1) two-turn conversations through kvr-serve:
# how often turn two is found in the cache, by policy, in process and over the pipeline; (2) a slice of
# the conversation trace, blocks of 32 tokens for 512, sent open loop by kvr-send: predicted against
# measured time to first token. One line of JSON a result.   REQUESTS=100 RATE=1 tests/bench/real.sh
set -u
cd "$(dirname "$0")/../.." || exit 3
BUILD=${BUILD:-build}
PATH=$PWD/$BUILD/bin:$PATH
SHARED=${SHARED:-../shared}
folder=${KVR_REAL_WORKER_DIR:-$PWD/$BUILD/real-worker}
requests=${REQUESTS:-100} rate=${RATE:-1} conversations=${CONVERSATIONS:-32}
export no_proxy='*' NO_PROXY='*'
[ -x "$SHARED/worker/ci_worker.sh" ] || { echo "bench real: needs $SHARED/worker" >&2; exit 4; }
vocabulary=$SHARED/tokenizers/mistral_v0_1.tokenizer.json.gz
work=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
    rm -rf "$work"
}
trap finish EXIT
for port in 18581 18582; do
    PORT=$port "$SHARED/worker/ci_worker.sh" "$folder" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 4; }
    pids+=("$(cat "$folder/worker-$port.pid")")
done
a=http://127.0.0.1:18581 b=http://127.0.0.1:18582

# ---- what prefill costs: cold prompts of several lengths, least squares of the three coefficients
for i in $(seq 30); do
    echo "{\"hash_ids\":[$(seq -s, $((i * 1000)) $((i * 1000 + i % 10 * 8 + 3)))],\"block_size\":32,\"input_length\":$(((i % 10 * 8 + 4) * 32)),\"output_length\":1}"
done | kvr-send -q --url $a --synthesize -t "$vocabulary" --speed 0 --concurrency 1 >"$work/cold"
python3 - "$work/cold" >"$work/cost.json" <<'END'
import json, sys
rows = [(r["input_length"], r["response"]["ttft_ms"]) for r in map(json.loads, open(sys.argv[1]))]
best = {}  # the quickest of a length: what the machine's other work does not touch
for n, t in rows:
    best[n] = min(t, best.get(n, t))
x = [(1.0, n, n * n / 2) for n in best]
y = list(best.values())
w = [1 / t for t in y]  # relative errors
m = [[sum(w[k] ** 2 * x[k][i] * x[k][j] for k in range(len(y))) for j in range(3)] + [sum(w[k] ** 2 * x[k][i] * y[k] for k in range(len(y)))] for i in range(3)]
for i in range(3):
    p = max(range(i, 3), key=lambda r: abs(m[r][i]))
    m[i], m[p] = m[p], m[i]
    for r in range(3):
        if r != i:
            f = m[r][i] / m[i][i]
            m[r] = [u - f * v for u, v in zip(m[r], m[i])]
o, t, q = (max(0.0, m[i][3] / m[i][i]) for i in range(3))
print(json.dumps({"prefill": {"overhead_ms": round(o, 4), "token_ms": round(t, 6), "pair_ms": round(q, 9)}}))
END
jq -c '{result: "cost"} + .prefill' "$work/cost.json"

# ---- two turns
two_turns() { # NAME OPTION...
    local name=$1 i text
    shift
    kvr-serve -q -l 18580 -w "a=$a,b=$b" --decision-timeout 5s --log "$work/$name.log" "$@" 2>"$work/err" &
    local pid=$!
    pids+=("$pid")
    until curl -sf -o /dev/null http://127.0.0.1:18580/readyz; do sleep 0.1; done
    for i in $(seq 0 $((conversations - 1))) $(seq 0 $((conversations - 1)) | shuf --random-source=<(yes)); do
        text="$name conversation $i: $(seq -s ' ' $((100 * i)) $((100 * i + 150)))"
        curl -s -o /dev/null -d '{"model":"kvr-tiny","max_tokens":2,"messages":[{"role":"user","content":"'"$text"'"}]}' http://127.0.0.1:18580/v1/chat/completions
    done
    kill "$pid"
    wait "$pid" 2>/dev/null
    jq -s -c --arg name "$name" --argjson n "$conversations" '.[$n:] | {result: "two turns", policy: $name,
        turn_two: length, found: map(select(.response.cached_tokens * 2 > .response.input_length)) | length,
        cached_share: ((map(.response.cached_tokens) | add) / (map(.response.input_length) | add) * 1000 | round / 1000),
        ttft_ms_median: (map(.response.ttft_ms) | sort | .[length / 2 | floor])}' "$work/$name.log"
}
two_turns cost -t "$vocabulary" --policy cost --cost "$work/cost.json"
two_turns round-robin -t "$vocabulary" --policy round-robin
two_turns pipeline -- "kvr-tokenize -b 16 -t '$vocabulary' | kvr-match -b 16 | kvr-route --policy cost --cost '$work/cost.json'"

# ---- a slice of the trace
gzip -cd tests/data/mooncake_conversation_1k.jsonl.gz | head -n "$requests" |
    jq -c --argjson rate "$rate" '.block_size = 32 | .input_length = (.input_length / 16 | ceil) |
        .output_length = 2 | .timestamp = (input_line_number * 1000 / $rate | round)' >"$work/trace"
printf '{"event":"worker","worker":"a","url":"%s"}\n{"event":"worker","worker":"b","url":"%s"}\n' $a $b >"$work/workers"
for policy in cost round-robin; do
    rm -f "$work/loop"
    mkfifo "$work/loop"
    # other ids each time: the workers' caches are warm with the last run's
    jq -c --arg p "$policy" '.hash_ids |= map(. + if $p == "cost" then 1000000 else 2000000 end)' "$work/trace" |
        kvr-match -q -w "$work/workers" -b 32 --loop "$work/loop" |
        kvr-route --policy $policy --cost "$work/cost.json" | tee "$work/loop" |
        kvr-send -q --synthesize -t "$vocabulary" --events >"$work/sent"
    kvr-stats -q "$work/sent" >"$work/report" 2>&1 || cat "$work/report" >&2
    jq -s -c --arg policy "$policy" 'map(select(.event | not)) | map({p: .route.prefill_ms, t: .route.ttft_ms, m: .response.ttft_ms, f: .route.matched, c: .response.cached_tokens, n: .response.input_length}) |
        def at(q): sort | .[length * q | floor]; {result: "trace", policy: $policy, requests: length,
        matched_share: ((map(.f) | add) / (map(.n) | add) * 1000 | round / 1000),
        cached_share: ((map(.c) | add) / (map(.n) | add) * 1000 | round / 1000),
        predicted_ttft_ms: {median: (map(.t) | at(0.5)), p90: (map(.t) | at(0.9)), sum: (map(.t) | add | round)},
        measured_ttft_ms: {median: (map(.m) | at(0.5)), p90: (map(.m) | at(0.9)), sum: (map(.m) | add | round)},
        measured_over_predicted: {p10: (map(.m / .t) | at(0.1)), median: (map(.m / .t) | at(0.5)), p90: (map(.m / .t) | at(0.9))}}' "$work/sent"
done
