#!/usr/bin/env bash
# HTTP routers side by side in one run: kvr-serve (in process, and over the three-process pipeline), the
# routers of PyPI, HAProxy and nginx as plain proxies. The router on core 0, four mock workers and the
# load (wrk) on core 1. One line of JSON a router and round; processor time is the router's and its
# children's. Needs wrk; haproxy, nginx and the routers (a virtual environment under build/) where they
# can be had. Prompts are words of random letters, the worst that a vocabulary can meet, or pieces of a
# file (TEXT).   SECONDS_EACH=4 ROUNDS=2 SIZE=1024 TEXT=FILE tests/bench/serve.sh [NAME...]
set -u
cd "$(dirname "$0")/../.." || exit 3
. tests/bench/lib.sh
BUILD=${BUILD:-build}
PATH=$PWD/$BUILD/bin:$PATH
export no_proxy='*' NO_PROXY='*' SIZE=${SIZE:-1024}
seconds=${SECONDS_EACH:-4} rounds=${ROUNDS:-2}
command -v wrk >/dev/null || { echo "bench serve: needs wrk" >&2; exit 4; }
work=$(mktemp -d)
ports=(18401 18402 18403 18404)
front=18400
urls=()
for port in "${ports[@]}"; do urls+=("http://127.0.0.1:$port"); done
list=$(IFS=,; echo "${urls[*]}")
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
    rm -rf "$work"
}
trap finish EXIT

cat >"$work/bodies.lua" <<'LUA'
local size, pool, groups, n, bodies = tonumber(os.getenv("SIZE")), 1000, 16, 0, {}
math.randomseed(7)
local corpus = os.getenv("TEXT") and io.open(os.getenv("TEXT")):read("*a"):gsub('[%c"\\\128-\255]', " ")
local function text(length)
  if corpus then
    local at = math.random(1, #corpus - length)
    return string.sub(corpus, at, at + length - 1)
  end
  local words, at = {}, 0
  while at < length do
    local word = {}
    for i = 1, math.random(2, 9) do word[i] = string.char(97 + math.random(0, 25)) end
    words[#words + 1] = table.concat(word) .. " "
    at = at + #words[#words]
  end
  return string.sub(table.concat(words), 1, length)
end
init = function()
  local shared = {}
  for group = 1, groups do shared[group] = text(size / 2) end
  for i = 1, pool do
    bodies[i] = wrk.format("POST", "/v1/chat/completions", {["Content-Type"] = "application/json"},
      '{"model":"mock","max_tokens":1,"stream":false,"messages":[{"role":"user","content":"' ..
      shared[1 + i % groups] .. text(size / 2) .. '"}]}')
  end
end
local unique = os.getenv("UNIQUE")
request = function()
  n = n % pool + 1
  if not unique then return bodies[n] end
  return wrk.format("POST", "/v1/chat/completions", {["Content-Type"] = "application/json"},
    '{"model":"mock","max_tokens":1,"stream":false,"messages":[{"role":"user","content":"' .. text(size) .. '"}]}')
end
done = function(summary, latency)
  io.write(string.format("%d %d %d %d %d", summary.requests, summary.requests / summary.duration * 1e6,
    latency:percentile(50), latency:percentile(99), summary.errors.status + summary.errors.connect +
    summary.errors.read + summary.errors.write + summary.errors.timeout))
end
LUA
cat >"$work/haproxy.cfg" <<END
global
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend f
    bind 127.0.0.1:$front
    default_backend b
backend b
    balance leastconn
    http-reuse always
$(for i in 0 1 2 3; do echo "    server w$i 127.0.0.1:${ports[$i]}"; done)
END
cat >"$work/nginx.conf" <<END
worker_processes 1; daemon off; pid $work/nginx.pid; error_log stderr warn;
events { worker_connections 4096; }
http { access_log off; client_body_temp_path $work; proxy_temp_path $work; keepalive_requests 1000000;
  upstream u { least_conn; keepalive 256; keepalive_requests 1000000; $(for p in "${ports[@]}"; do echo "server 127.0.0.1:$p;"; done) }
  server { listen 127.0.0.1:$front; location / { proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; client_max_body_size 64m; } } }
END
# the routers' environments, once
environment() { # NAME PACKAGE
    [ -x "$BUILD/venv-$1/bin/python" ] || { python3 -m venv "$BUILD/venv-$1" && "$BUILD/venv-$1/bin/pip" install -q "$2"; } >&2
    [ -x "$BUILD/venv-$1/bin/python" ]
}
router() { # NAME: the command of one
    case $1 in
    direct) echo "sleep 3600" ;;
    kvr-round-robin) echo "kvr-serve -q -l $front -w $list --policy round-robin --no-tokens" ;;
    kvr-cost) echo "kvr-serve -q -l $front -w $list --policy cost -t ${TOKENIZER:-cl100k_base}" ;;
    kvr-cost-bytes) echo "kvr-serve -q -l $front -w $list --policy cost -t bytes -b 64" ;;
    kvr-pipeline) echo "kvr-serve -q -l $front -w $list --decision-timeout 5s -- $work/pipeline" ;;
    sglang-router) environment routers sglang-router==0.3.2 && echo "$BUILD/venv-routers/bin/python -m sglang_router.launch_router --host 127.0.0.1 --port $front --prometheus-port 18499 --prometheus-host 127.0.0.1 --log-level warn --policy cache_aware --worker-urls ${urls[*]}" ;;
    smg) environment smg smg==1.13.0 && echo "$BUILD/venv-smg/bin/python -m smg launch --host 127.0.0.1 --port $front --prometheus-port 18499 --prometheus-host 127.0.0.1 --log-level warn --policy cache_aware --worker-urls ${urls[*]}" ;;
    haproxy) command -v haproxy >/dev/null && echo "haproxy -f $work/haproxy.cfg" ;;
    nginx) command -v nginx >/dev/null && echo "nginx -c $work/nginx.conf" ;;
    esac
}
printf '#!/bin/sh\nkvr-tokenize | kvr-match -b 16 | kvr-route --policy cost\n' >"$work/pipeline"
chmod +x "$work/pipeline"
family() { # PID: it and all its children
    local child
    echo "$1"
    # shellcheck disable=SC2013
    for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do family "$child"; done
}
ticks() { for pid in $(family "$1"); do cut -d')' -f2- "/proc/$pid/stat" 2>/dev/null; done | awk '{t += $12 + $13} END {print t + 0}'; }
rss() { for pid in $(family "$1"); do awk '/VmRSS/ {print $2}' "/proc/$pid/status" 2>/dev/null; done | awk '{t += $1} END {print t + 0}'; }
load() { taskset -c 1 wrk -t1 -c"$1" -d"${2}s" -s "$work/bodies.lua" "http://127.0.0.1:$3" | tail -n 1; }

taskset -c 1 "$BUILD/mock/mock-worker" --no-cache --tokens 1 "${ports[@]}" >/dev/null &
pids+=($!)
names=("$@")
[ $# -gt 0 ] || names=(direct kvr-round-robin kvr-cost-bytes kvr-cost kvr-pipeline haproxy nginx sglang-router smg)
for ((round = 1; round <= rounds; round++)); do
    for name in "${names[@]}"; do
        command=$(router "$name") || { echo "bench serve: no $name here" >&2; continue; }
        # shellcheck disable=SC2086
        taskset -c 0 $command >"$work/$name.log" 2>&1 &
        pid=$!
        pids+=("$pid")
        to=$front
        [ "$name" = direct ] && to=${ports[0]}
        for ((i = 0; i < 150; i++)); do
            [ "$(curl -s -m 2 -o /dev/null -w '%{http_code}' -d '{"model":"mock","messages":[{"role":"user","content":"x"}]}' "http://127.0.0.1:$to/v1/chat/completions")" = 200 ] && break
            sleep 0.2
        done
        sleep 1
        before=$(ticks $pid)
        read -r n rps _ _ bad <<<"$(load 32 "$seconds" "$to")"
        after=$(ticks $pid)
        read -r _ _ p50 p99 bad1 <<<"$(load 1 "$seconds" "$to")"
        # prompts that no one has sent before: what each adds to the router's memory
        held=$(rss $pid)
        read -r new _ _ _ _ <<<"$(UNIQUE=1 load 8 "$seconds" "$to")"
        grown=$(awk "BEGIN {printf \"%d\", ($(rss $pid) - $held) * 1024 / ($new ? $new : 1)}")
        printf '{"router":"%s","round":%d,"bytes":%d,"cpu_us":%.1f,"requests_per_s":%d,"p50_us":%d,"p99_us":%d,"rss_kib":%d,"growth_bytes_per_prompt":%d,"failed":%d}\n' \
            "$name" "$round" "$SIZE" "$(awk "BEGIN {print ($after - $before) * 1e6 / $(getconf CLK_TCK) / ($n ? $n : 1)}")" \
            "$rps" "$p50" "$p99" "$held" "$grown" "$((bad + bad1))" | tee -a "$work/runs"
        kill "$pid"
        wait "$pid" 2>/dev/null
    done
done
jq -cn '[inputs] | group_by(.router) | map({(.[0].router): (min_by(.cpu_us))}) | add as $best
    | ({"sglang-router": "0.3.2", "smg": "1.13.0", "haproxy": "", "nginx": ""} | to_entries[] | select($best[.key])) as $peer
    | ({metric: "processor time of a request", of: "kvr-cost", is: "cpu_us", unit: "us", asked: "40 us"},
       {metric: "processor time of a request over three programs", of: "kvr-pipeline", is: "cpu_us", unit: "us", asked: "60 us"},
       {metric: "memory that a new prompt adds", of: "kvr-cost", is: "growth_bytes_per_prompt", unit: "bytes", asked: "half"})
    | select($best[.of] and $best[$peer.key][.is] > 0)
    | {metric: "\(.metric) of \($best[.of].bytes) bytes, policy cost", kvr: $best[.of][.is], unit, peer: $peer.key,
       peer_version: $peer.value, theirs: $best[$peer.key][.is], asked}' "$work/runs" | record serve
