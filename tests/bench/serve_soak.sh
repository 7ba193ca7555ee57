#!/usr/bin/env bash
# A soak of kvr-serve: REQUESTS requests, half of them streams, at high concurrency on mock workers one
# of which breaks now and then. Memory must be flat after the first quarter, and no descriptor may be
# left over. With BUILD=build/san the sanitizers watch as well (memory is then not judged).
#   REQUESTS=200000 CONNECTIONS=512 tests/bench/serve_soak.sh [OPTION OF KVR-SERVE...]
set -u
cd "$(dirname "$0")/../.." || exit 3
BUILD=${BUILD:-build}
PATH=$PWD/$BUILD/bin:$PATH
requests=${REQUESTS:-200000} connections=${CONNECTIONS:-512} limit_s=${LIMIT_S:-600}
export no_proxy='*' NO_PROXY='*'
command -v wrk >/dev/null || { echo "serve_soak: needs wrk" >&2; exit 4; }
work=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
    rm -rf "$work"
}
trap finish EXIT
cat >"$work/soak.lua" <<'LUA'
local n = 0
math.randomseed(11)
request = function()
  n = n + 1
  local words = {}
  for i = 1, 40 do words[i] = tostring(math.random(1, 5000)) end
  local body = '{"model":"mock","stream":' .. tostring(n % 2 == 0) ..
    ',"messages":[{"role":"system","content":"Be brief and kind, group ' .. n % 50 ..
    '."},{"role":"user","content":"' .. table.concat(words, " ") .. '"}]}'
  return wrk.format("POST", "/v1/chat/completions", {["Content-Type"] = "application/json"}, body)
end
LUA
"$BUILD/mock/mock-worker" --tokens 8 18701 18702 18703 >/dev/null &
pids+=($!)
kvr-serve -l 18700 -w http://127.0.0.1:18701,http://127.0.0.1:18702,http://127.0.0.1:18703 -c 100000 \
    --log "$work/log" "$@" 2>"$work/err" &
pid=$!
pids+=("$pid")
for ((i = 0; i < 100; i++)); do curl -sf -o /dev/null http://127.0.0.1:18700/readyz && break; sleep 0.1; done
descriptors() { find "/proc/$pid/fd" -mindepth 1 | wc -l; }
rss() { awk '/VmRSS/ {print $2}' "/proc/$pid/status"; }
total() { curl -s http://127.0.0.1:18700/metrics | sed -n 's/^kvr_requests_total{.*} //p' | awk '{t += $1} END {print t + 0}'; }
before=$(descriptors)
started=$(date +%s)
marks=()
while [ "$(total)" -lt "$requests" ] && [ $(($(date +%s) - started)) -lt "$limit_s" ]; do
    curl -s -o /dev/null "http://127.0.0.1:18701/fault/reset:3"
    wrk -t1 -c"$connections" -d5s -s "$work/soak.lua" http://127.0.0.1:18700 >"$work/wrk"
    marks+=("$(rss)")
    kill -0 "$pid" 2>/dev/null || { echo "serve_soak: kvr-serve has ended"; cat "$work/err"; exit 1; }
done
sleep 1
after=$(descriptors)
ended=$(total)
quarter=${marks[$((${#marks[@]} / 4))]}
last=${marks[-1]}
lines=$(wc -l <"$work/log")
kill "$pid"
wait "$pid"
status=$?
printf '{"requests":%d,"log_lines":%d,"connections":%d,"rss_kib_quarter":%d,"rss_kib_end":%d,"descriptors_before":%d,"descriptors_after":%d,"status":%d}\n' \
    "$ended" "$lines" "$connections" "$quarter" "$last" "$before" "$after" "$status"
# kept connections to workers stay open: at most one a request under way
fine=1
[ "$status" -eq 143 ] && [ "$after" -le $((before + connections * 2)) ] || fine=0
[ "$BUILD" = build/san ] || [ "$last" -le $((quarter + quarter / 10 + 2048)) ] || fine=0
[ "$fine" -eq 1 ] || { cat "$work/err"; exit 1; }
