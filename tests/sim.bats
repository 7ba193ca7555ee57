#!/usr/bin/env bats
# kvr-sim: both ways of deciding give the same bytes; every request leaves once; what it refuses.

load helper

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
}

policies() {
    kvr-route --policy list | awk '{print $1}'
}

# both POLICY-OPTIONS SIM-OPTIONS FILE: in process and by real programs, compared byte by byte.
both() {
    local policy=$1 options=$2 file=$3
    # shellcheck disable=SC2086
    kvr-sim $options --policy "$policy" "$file" >here || return
    # shellcheck disable=SC2086
    kvr-sim $options -- "kvr-match | kvr-route --policy '$policy' $4" "$file" >there || return
    cmp here there
}

# A trace of two sessions and a stranger on four workers, with a drain, a death and a return.
changes() {
    local i
    for i in $(seq 0 79); do
        echo "{\"id\":$i,\"timestamp\":$((i * 250)),\"input_length\":$((600 + i * 40)),\"output_length\":$((20 + i % 7 * 30)),\"session\":\"s$((i % 5))\",\"hash_ids\":[1,$(seq -s, $((100 * (i % 5) + 10)) $((100 * (i % 5) + 11 + i / 5)))],\"model\":\"m$((i % 2))\"}"
        case $i in
        20) echo '{"event":"worker","worker":"w1","state":"draining","timestamp":5100}' ;;
        40) echo '{"event":"worker","worker":"w2","state":"down","timestamp":10020}' ;;
        41) echo '{"event":"alert","name":"x"}' ;;
        60) echo '{"event":"worker","worker":"w2","state":"active","timestamp":15003,"weight":2}' ;;
        70) echo '{"event":"worker","worker":"new","timestamp":17600,"capacity":100000}' ;;
        esac
    done
}

# Not there, or a zombie that nobody has reaped yet.
is_gone() {
    ! grep -qs '^State:.*[RSDT] ' "/proc/$1/status"
}

@test "in process and by real programs: the same bytes, for every policy" {
    local policy count=0
    for policy in $(policies); do
        both "$policy" '-w 8 --rate 2' "$(trace_slice)" || fail "$policy"
        count=$((count + 1))
    done
    [ "$count" -ge 14 ]
    assert_equal "$(wc -l <here)" 1000
}

@test "the same bytes with drains, deaths, namespaces and sessions, for every policy" {
    local policy
    changes >changes.ndjson
    for policy in $(policies); do
        both "$policy" '-w 4 --retries 2' changes.ndjson || fail "$policy"
    done
    assert_equal "$(jq -r 'select(.response) | .id' here | sort -un | wc -l)" 80
}

@test "worker lines of any form pass through a pipeline" {
    local line
    for line in '{"timestamp":3000,"event":"worker","worker":"w1","state":"down"}' \
        '{ "worker":"w1", "state":"draining", "event":"worker" }'; do
        gzip -dcf "$(trace_slice)" | head -n 60 | sed "30a$line" >trace
        run both cost "-w 3" trace ''
        assert_success
        assert_equal "$(wc -l <here)" 61
    done
    # and such lines without end are no answer
    run timeout 20 kvr-sim -w 1 --decision-timeout 300ms -- "yes '{ \"event\":\"alert\"}'" trace
    assert_failure 3
    assert_output --partial 'did not answer in time'
}

@test "times that a double cannot tell apart are refused, and reports end" {
    run kvr-sim -w 1 <<<'{"timestamp":1764000000000000000,"input_length":5}'
    assert_failure 1
    assert_output --partial "'timestamp' is beyond 1e14 ms"
    run timeout -s KILL 20 kvr-sim -w 2 --load-every 0.000001 <<<'{"timestamp":1764000000000,"input_length":50000,"output_length":100}'
    assert_success
    run kvr-sim -w 1 --rate 1e-300 </dev/null
    assert_failure 2
}

@test "a signal ends a sweep at once, without half a table" {
    local status=0
    awk 'BEGIN { for (i = 0; i < 40000; i++) print "{\"timestamp\":" i * 10 ",\"input_length\":3000,\"output_length\":500}" }' >long
    # hundreds of simulations: minutes, were they all made
    timeout --preserve-status -k 20 2 kvr-sim -w 8 --slo-ttft 1s --compare cost,dynamo,llm-d,preble --sweep rate=0.1:6:0.1 long >table 2>why || status=$?
    assert_equal "$status" 143
    refute [ -s table ]
}

@test "the same bytes with pools, pulls, rejection, load lines and a closed loop" {
    both mooncake '-w 8 --decoders 4 --rate 3 --slo-ttft 500 --reject' "$(trace_slice)" '--slo-ttft 500'
    grep -q '"decode_worker"' here
    grep -q '"status":429' here
    both cost '-w 8 --pull' "$(trace_slice)" --pull
    both least-loaded '-w 8 --load-every 500' "$(trace_slice)"
    both 'session(ttl=10m) > prefix-hash(tokens=1024) > least-loaded' '-w 8 --closed 24 --derive-sessions' "$(trace_slice)"
    both random '-w 8 --seed 7' "$(trace_slice)" '--seed 7'
}

@test "cache events: the same bytes, and the index holds what the cache does" {
    local engine
    changes >changes.ndjson
    for engine in block vllm sglang; do
        both cost "-w 8 -c 200000 --engine $engine --cache-events" "$(trace_slice)" || fail "$engine"
        both session "-w 4 -c 30000 --engine $engine --cache-events" changes.ndjson || fail "$engine"
    done
    # one request at a time: what was matched is what is found, but for the last token of a prompt
    kvr-sim -w 4 -c 200000 --closed 1 --engine vllm --cache-events "$(trace_slice)" >out
    jq -se 'all(.route.matched == .cache.hit or (.route.matched == .input_length and .cache.hit == .input_length - 512))
        and (map(select(.cache.hit > 1000)) | length > 3)' out
    kvr-sim -w 4 -c 200000 --closed 1 --engine vllm "$(trace_slice)" >guessed
    jq -se 'any(.route.matched != .cache.hit)' guessed
}

@test "a pulled prefix is found on the other worker and copied" {
    cat >lines <<'END'
{"timestamp":0,"input_length":5120,"output_length":2000,"hash_ids":[1,2,3,4,5,6,7,8,9,10]}
{"timestamp":900,"input_length":5120,"output_length":1,"hash_ids":[1,2,3,4,5,6,7,8,9,10]}
END
    kvr-sim -w 2 --policy round-robin --pull lines >out
    assert_equal "$(jq -c 'select(.output_length == 1) | [.route.reason, .cache.pulled > 4000]' out)" '["pull",true]'
}

@test "every request leaves exactly once, also with tiny memory, engines and tiers" {
    local engine
    for engine in block vllm sglang 'sglang(reserve=prompt)' lmcache mooncake; do
        kvr-sim -w 4 -c 150000 --engine "$engine" --rate 3 --tier cpu=1000000 --tier remote=4000000@ethernet-100 "$(trace_slice)" >out
        assert_equal "$(jq -r .id out | sort -u | wc -l)" 1000
        assert_equal "$(wc -l <out)" 1000
        jq -se 'all(.cache.hit == ([.cache.gpu, .cache.cpu, .cache.remote] | map(. // 0) | add)) and
            all(.response.status != 200 or (.response.ttft_ms <= .response.e2e_ms and .response.cached_tokens == .cache.hit and .cache.hit < .input_length))' out
    done
}

@test "deterministic, and of the line only what was said of it changes" {
    kvr-sim -w 8 "$(trace_slice)" >one
    zcat "$(trace_slice)" | kvr-sim -w 8 >two
    cmp one two
    zcat "$(trace_slice)" | jq -cS . | sort >before
    jq -cS 'del(.id, .match, .route, .cache, .response)' one | sort >after
    cmp before after
    # its own output is input: decided anew, to the same bytes
    jq -c 'del(.match, .route, .cache, .response)' one | jq -sc 'sort_by(.id | ltrimstr("request:") | tonumber)[]' >stripped
    jq -sc 'sort_by(.id | ltrimstr("request:") | tonumber)[]' one >whole
    kvr-sim -w 8 stripped >first
    kvr-sim -w 8 whole >second
    cmp first second
}

@test "a pipeline may begin with text" {
    words() { yes 'lorem ipsum dolor' | head -"$1" | tr '\n' ' '; }
    printf '{"timestamp":%d,"prompt":"%s","output_length":2}\n' 0 "$(words 200)" 500 "$(words 300)" 900 other >lines
    run kvr-sim -w 2 --engine vllm -- 'kvr-tokenize | kvr-match | kvr-route' lines
    assert_success
    # blocks of 16, so all of the first prompt but its tail is found
    jq -se '.[1] as $r | $r.block_size == 16 and $r.route.reason == "cache-match" and
        $r.cache.hit == $r.route.matched and $r.cache.hit > .[0].input_length - 32' <<<"$output"
}

@test "a session trace is derived from block ids" {
    cat >lines <<'END'
{"timestamp":0,"input_length":1100,"output_length":2,"hash_ids":[1,2,3]}
{"timestamp":1,"input_length":1100,"output_length":2,"hash_ids":[1,12,13]}
{"timestamp":2,"input_length":2100,"output_length":2,"hash_ids":[1,2,4,5,6]}
{"timestamp":3,"input_length":600,"output_length":2,"hash_ids":[1,22]}
{"timestamp":4,"input_length":2100,"output_length":2,"hash_ids":[1,32,33,34,35]}
END
    run kvr-sim -w 1 --derive-sessions lines
    assert_success
    # the fourth ends with the block that all share: nobody continues it
    assert_equal "$(jq -sc 'sort_by(.timestamp) | map(.session)' <<<"$output")" '["s1","s2","s1","s3","s4"]'
    kvr-sim -w 1 --summary --json lines | jq -e '.ttft_new_ms.count == 4 and .ttft_continuation_ms.count == 1'
}

@test "rate scales arrivals, and timestamps say so" {
    printf '{"id":%d,"timestamp":%d,"input_length":10,"output_length":1}\n' 1 1000 2 3000 >lines
    run kvr-sim -w 1 --rate 4 lines
    assert_success
    assert_equal "$(jq -c .timestamp <<<"$output" | paste -sd' ')" "1000 1500"
}

@test "a death: retried once, then 503; its session moves" {
    cat >lines <<'END'
{"id":1,"timestamp":0,"input_length":20000,"output_length":9,"session":"a"}
{"event":"worker","worker":"w0","state":"down","timestamp":100}
{"event":"worker","worker":"w1","state":"down","timestamp":200}
END
    run kvr-sim -w 2 --policy round-robin lines
    assert_success
    assert_equal "$(jq -c 'select(.response) | [.response.status, .response.attempts, .response.e2e_ms, .timestamp]' <<<"$output")" '[503,2,200,0]'
    run kvr-sim -w 2 --policy round-robin --retries 0 lines
    assert_equal "$(jq -c 'select(.response) | .response' <<<"$output")" '{"status":503,"e2e_ms":100,"worker":null}'
    head -2 lines >once
    run kvr-sim -w 2 --policy round-robin once
    assert_equal "$(jq -c 'select(.response) | [.response.status, .response.worker, .response.attempts]' <<<"$output")" '[200,"w1",2]'
}

@test "merged worker lines wait for their time, in any order" {
    cat >lines <<'END'
{"id":1,"timestamp":0,"input_length":20000,"output_length":9}
{"id":2,"timestamp":5000,"input_length":10,"output_length":1}
END
    cat >changes <<'END'
{"event":"worker","worker":"w1","state":"active","timestamp":4000}
{"event":"worker","worker":"w0","state":"down","timestamp":100}
{"event":"worker","worker":"w1","state":"down","timestamp":200}
END
    run kvr-sim -w 2 --policy round-robin -m changes lines
    assert_success
    assert_equal "$(jq -c 'select(.response) | [.id, .timestamp, .response.status, .response.worker]' <<<"$output" | paste -sd' ')" \
        '[1,0,503,null] [2,5000,200,"w1"]'
    kvr-sim -w 2 --policy round-robin --summary --json -m changes lines | jq -e '.completed == 1 and .failed == 1'
    # after the last arrival too
    printf '{"event":"worker","worker":"w1","state":"down","timestamp":%.1f}\n' 5000.1 >late
    run kvr-sim -w w1 -m late lines
    assert_equal "$(jq -c 'select(.response) | .response.status' <<<"$output" | paste -sd' ')" "200 503"
    printf '{"event":"worker","worker":5,"timestamp":3}\n' >bad
    run kvr-sim -w 2 -m bad lines
    assert_failure 1
    assert_output --partial "bad:1: "
    assert_equal "$(grep -c '"status":200' <<<"$output")" 2
}

@test "events: done, stored, removed, load, in the order of time, and kvr-match takes them" {
    kvr-sim -w 2 -c 100000 --events --load-every 1s "$(trace_slice)" >out
    jq -se 'map(.event // empty) | unique == ["done","load","removed","stored"]' out
    assert_equal "$(jq -r 'select(.event == "done") | .id' out | sort | uniq -c | awk '$1 != 1' | wc -l)" 0
    jq -se 'map(select(.event and .timestamp).timestamp) | . == sort' out
    # a cache never holds more than its capacity
    jq -sne '[inputs[] | select(.event == "stored" or .event == "removed") | {w: .worker, n: ((.hash_ids | length) * (if .event == "stored" then 1 else -1 end))}] |
        group_by(.w) | all((reduce .[].n as $n ([0, 0]; [.[0] + $n, ([.[1], .[0] + $n] | max)]))[1] <= 195)' out
    jq -c 'select(.event)' out | kvr-match >/dev/null
}

@test "namespaces: ids of another model never match, and events name it" {
    cat >lines <<'END'
{"timestamp":0,"input_length":1024,"output_length":1,"hash_ids":[1,2],"model":"a"}
{"timestamp":1000,"input_length":1024,"output_length":1,"hash_ids":[1,2],"model":"b"}
{"timestamp":2000,"input_length":1024,"output_length":1,"hash_ids":[1,2],"model":"a"}
END
    run kvr-sim -w 1 --events lines
    assert_equal "$(jq -c 'select(.cache) | .cache.hit' <<<"$output" | paste -sd' ')" "0 0 1023"
    assert_equal "$(jq -c 'select(.event == "stored") | [.model, .hash_ids]' <<<"$output" | paste -sd' ')" '["a",[1,2]] ["b",[1,2]]'
}

@test "compare and sweep print tables; chains keep their commas" {
    run kvr-sim -w 8 --slo-ttft 2s --compare 'round-robin, session(ttl=10m,nodes=50) > cost ,cost' "$(trace_slice)"
    assert_success
    assert_equal "${#lines[@]}" 5
    assert_line --index 3 --partial 'session(ttl=10m,nodes=50) > cost '
    run kvr-sim -w 8 --slo-ttft 2s --compare round-robin,cost --sweep rate=1:9:4 "$(trace_slice)"
    assert_success
    assert_equal "${#lines[@]}" 3
    run kvr-sim -w 8 --slo-ttft 2s --compare round-robin,cost --json "$(trace_slice)"
    assert_equal "$(jq -c '[.policy, .requests, .completed]' <<<"$output" | paste -sd' ')" '["round-robin",1000,1000] ["cost",1000,1000]'
}

@test "the table is what the lines say" {
    kvr-sim -w 8 --slo-ttft 1s --policy cost "$(trace_slice)" >out
    kvr-sim -w 8 --slo-ttft 1s --policy cost --summary --json "$(trace_slice)" >summary
    assert_equal "$(jq -sc '[(map(.cache.hit) | add), (map(select(.response.ttft_ms <= 1000)) | length), (map(.response.ttft_ms) | sort | .[499])]' out)" \
        "$(jq -c '[.cached_tokens, (.in_slo * 1000 | round), .ttft_ms.p50]' summary)"
}

@test "a pipeline that fails says so and leaves nobody behind" {
    local command own
    own=$(mktemp -d /tmp/sim-XXXXXX) # short, and nobody else's simulations are in it
    for command in false 'exit 3' 'cat' 'head -c 100' "jq -c --unbuffered '.route={worker:\"nobody\"}'" 'echo nonsense' \
        'sed -u s/timestamp/x/' 'no-such-program-at-all 2>/dev/null'; do
        TMPDIR=$own run timeout 20 kvr-sim -w 2 --decision-timeout 2s -- "$command" "$(trace_slice)"
        assert_failure 3
        assert_output --partial 'pipeline'
    done
    TMPDIR=$own run timeout 20 kvr-sim -w 2 --decision-timeout 300ms -- 'echo $$ >pid; exec sleep 1000' "$(trace_slice)"
    assert_failure 3
    assert_output --partial 'did not answer in time'
    is_gone "$(cat pid)"
    TMPDIR=$own run timeout 20 kvr-sim -w 2 --decision-timeout 300ms -- "sh -c 'echo \$\$ >inner; trap \"\" TERM; sleep 1000' | cat" "$(trace_slice)"
    assert_failure 3
    is_gone "$(cat inner)"
    rmdir "$own" # empty
}

@test "bad lines are dropped and counted, bad options refused" {
    run kvr-sim -w 1 <<<'{"timestamp":"x"}
{"input_length":-1}
{"hash_ids":[1.5],"input_length":3}
{"event":"worker","state":"down"}
{"input_length":5,"output_length":2}'
    assert_failure 1
    assert_output --partial "stdin:1: member 'timestamp' is not a number"
    assert_equal "$(grep -c '"status":200' <<<"$output")" 1
    local options
    for options in '--rate 0' '--engine nothing' '--tier gpu=5' '--tier cpu' '--sweep rate=1:2' '--sweep rate=2:1 --slo-ttft 1s' \
        '--batch-tokens 10' '--reject' '--decoders 2' '--compare ,' '--gpu l40s --model llama-3.1-405b' '--policy nothing' '--compression 0'; do
        # shellcheck disable=SC2086
        run kvr-sim -w 2 $options <<<'{"input_length":5}'
        assert_failure 2
    done
    run kvr-sim -w 2 --compare cost -- cat <<<'{}'
    assert_failure 2
}

@test "no workers: 503, and an empty trace is an empty answer" {
    run --separate-stderr kvr-sim <<<'{"input_length":5}'
    assert_success
    # shellcheck disable=SC2154 # stderr is set by run --separate-stderr
    assert_equal "$stderr" "kvr-sim: no worker, so every request failed: -w 8 makes eight"
    assert_equal "$(jq -c '[.route.reason, .response.status]' <<<"$output")" '["no-worker",503]'
    run kvr-sim -w 3 </dev/null
    assert_success
    assert_output ''
}

# quantiles FILE: the median and the ninth decile of TTFT and the median of e2e, as vidur_peer.py has
# them, with nothing to be found in any cache.
quantiles() {
    gzip -dcf "$1" | jq -c 'del(.hash_ids)' |
        kvr-sim -w 8 --policy round-robin -c 8000000 --engine-block 512 |
        jq -sc '(map(.response.ttft_ms) | sort) as $first | (map(.response.e2e_ms) | sort) as $last |
            [$first[length / 2 | floor], $first[length * 9 / 10 | floor], $last[length / 2 | floor]] | map(round)'
}

@test "what Vidur 0.0.26 found for the same lengths and costs (tests/bench/vidur_peer.py)" {
    assert_equal "$(quantiles "$(trace_slice)")" '[759,4943,4893]'
    [ -e "$SHARED/traces/mooncake_conversation.jsonl.gz" ] || return 0
    assert_equal "$(quantiles "$SHARED/traces/mooncake_conversation.jsonl.gz")" '[629,4224,4638]'
}

@test "the whole conversation trace, both ways" {
    need_shared traces/mooncake_conversation.jsonl.gz
    both cost '-w 8' "$SHARED/traces/mooncake_conversation.jsonl.gz"
    assert_equal "$(wc -l <here)" 12031
}
