#!/usr/bin/env bats
# kvr-route: what it adds, what it acts on, what it refuses.

load helper

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
}

# route LINES OPTION...: one line "worker reason matched" a request.
route() {
    local lines=$1
    shift
    kvr-route "$@" <<<"$lines" | jq -r 'select(.route) | [.route.worker // "null", .route.reason, .route.matched // "-"] | join(" ")'
}

@test "the members of route, in their order, after all others" {
    run kvr-route -w 2 --gpu h100 <<<'{"id":1,"input_length":1000,"match":{"w1":600},"x":[1.0]}'
    assert_success
    assert_output '{"id":1,"input_length":1000,"match":{"w1":600},"x":[1.0],"route":{"worker":"w1","reason":"cache-match","policy":"cost","matched":600,"queue_ms":0,"prefill_ms":17.533,"ttft_ms":17.533}}'
}

@test "a route that the line has is replaced" {
    run kvr-route -w 1 <<<'{"route":{"worker":"old"},"input_length":1}'
    assert_success
    assert_equal "$(jq -r .route.worker <<<"$output")" w0
    assert_equal "$(grep -o '"route"' <<<"$output" | wc -l)" 1
}

@test "without workers: null and no-worker, and nothing blocks" {
    run --separate-stderr route '{"input_length":5}
{"input_length":5}'
    assert_success
    assert_output "null no-worker -
null no-worker -"
    # shellcheck disable=SC2154 # stderr is set by run --separate-stderr
    assert_equal "$(grep -c '2 requests have passed and no worker is known: -w names them' <<<"$stderr")" 1
}

@test "without matches the least loaded: equal workers take turns" {
    run route "$(for _ in 1 2 3 4; do echo '{"input_length":9}'; done)" -w 3
    assert_output "w0 load-fallback 0
w1 load-fallback 0
w2 load-fallback 0
w0 load-fallback 0"
}

@test "workers are learned from match, and from worker lines" {
    run route '{"match":{"a":1},"input_length":10}
{"event":"worker","worker":"b"}
{"input_length":10}
{"event":"worker","worker":"b","state":"draining"}
{"input_length":10}
{"event":"worker","worker":"a","state":"down"}
{"input_length":10}
{"event":"worker","worker":"b","state":"active"}
{"input_length":10}'
    assert_output "a cache-match 1
b load-fallback 0
a load-fallback 0
null no-worker -
b load-fallback 0"
}

@test "done lines and load lines move the load" {
    run route '{"id":"x","input_length":10}
{"id":7,"input_length":10}
{"event":"done","id":7}
{"id":8,"input_length":10}
{"event":"load","worker":"w0","waiting":0,"running":0}
{"event":"load","worker":"w1","waiting":3,"running":4}
{"id":9,"input_length":10}
{"id":10,"input_length":10}' -w 2 --policy least-loaded
    assert_output "w0 least-loaded 0
w1 least-loaded 0
w1 least-loaded 0
w0 least-loaded 0
w0 least-loaded 0"
}

@test "without done lines a request ends when predicted" {
    # 8B on an H100: 43 ms of prefill and 100 · 6.9 ms of output: the first is over at 900, so both
    # have one request, and w1's is the older
    run route '{"timestamp":0,"input_length":1000,"output_length":100}
{"timestamp":500,"input_length":1000,"output_length":100}
{"timestamp":600,"input_length":1000,"output_length":100}
{"timestamp":900,"input_length":1000,"output_length":100}' -w w0,w1 --policy least-loaded
    assert_output "w0 least-loaded 0
w1 least-loaded 0
w0 least-loaded 0
w1 least-loaded 0"
    kvr-route -w 1 --policy least-loaded --explain >out <<<'{"timestamp":0,"input_length":1000,"output_length":1}
{"timestamp":10,"input_length":1000,"output_length":1}
{"timestamp":100000,"input_length":1000,"output_length":1}'
    assert_equal "$(jq -c '.route.candidates[0].load' out | tr '\n' ' ')" "0 1 0 "
    jq -se '.[1].route | .queue_ms > 30 and (.ttft_ms - .queue_ms - .prefill_ms | fabs) < 0.002' out
}

@test "every event passes as it is, those acted on too" {
    events='{"event":"worker","worker":"a", "x":1.0}
{"event":"load","worker":"a","kv_usage":0.5}
{"event":"done","id":3}
{"event":"stored","worker":"a","hash_ids":[1]}
{"event":"else"}'
    run kvr-route <<<"$events"
    assert_success
    assert_output "$events"
}

@test "members of a wrong type are bad lines, each with its reason" {
    while IFS='|' read -r line why; do
        run --separate-stderr kvr-route -w 1 <<<"$line"
        assert_equal "$status" 1
        assert_output ""
        [[ $stderr == *"stdin:1: $why"* ]] || fail "$line gave: $stderr"
    done <<'END'
{"timestamp":"now"}|member 'timestamp' is not a number
{"input_length":-1}|member 'input_length' is not a whole number
{"input_length":1.5}|member 'input_length' is not a whole number
{"match":[1]}|member 'match' is not an object
{"match":{"a":"b"}}|member 'match' is not of whole numbers
{"match":{"":1}}|member 'worker' is not a name
{"priority":"high"}|member 'priority' is not a whole number
{"slo_ttft_ms":[]}|member 'slo_ttft_ms' is not a number
{"event":"load"}|member 'worker' is not a name
{"event":"worker","worker":"a","weight":0}|member 'weight'
END
}

@test "bad options are refused with what would be right" {
    while IFS='|' read -r options why; do
        eval "run --separate-stderr kvr-route $options </dev/null"
        assert_equal "$status" 2
        [[ $stderr == *"$why"* ]] || fail "$options gave: $stderr"
    done <<'END'
--policy nonsense|no policy 'nonsense'; there are round-robin
--policy 'cache-aware(threshold=7)'|'7' of parameter 'threshold' is not between 0 and 1
--policy 'cache-aware >'|a policy's name is missing
--gpu abacus|no GPU 'abacus'; there are a100
--model gpt-1|no model 'gpt-1'; there are llama-3.1-8b
--mfu 3|mfu 3 is not in (0, 1]
--link string|link 'string' is neither a bandwidth
--compression 0|a compression of 0
-b 0|--block-size is out of range
END
    run --separate-stderr kvr-route --cost missing.json </dev/null
    assert_equal "$status" 3
    echo '{"prefill":{"token_ms":-1}}' >bad.json
    run --separate-stderr kvr-route --cost bad.json </dev/null
    assert_equal "$status" 3
    [[ $stderr == *"bad.json: 'prefill.token_ms' is not a number from 0"* ]]
}

@test "the TTFT table of a 70B on eight H100: about 200, 100, 20 and 2 ms" {
    run kvr-route --explain-cost --model llama-3.1-70b --gpu 8xh100 -n 4096
    assert_success
    awk '/%/ { split("200 100 20 2", about); n++; if ($NF < about[n] * .9 || $NF > about[n] * 1.1) exit 1 } END { exit n != 4 }' <<<"$output"
}

@test "a cost file replaces what it names" {
    echo '{"prefill":{"overhead_ms":5,"token_ms":1,"pair_ms":0}}' >cost.json
    run kvr-route -w 1 --cost cost.json <<<'{"input_length":100,"match":{"w0":40}}'
    assert_equal "$(jq -c '.route | [.prefill_ms, .ttft_ms]' <<<"$output")" "[65,65]"
}

@test "early rejection says when to come back, and spares the important" {
    echo '{"prefill":{"overhead_ms":0,"token_ms":1,"pair_ms":0}}' >cost.json
    kvr-route -w 1 --cost cost.json --slo-ttft 150 >out <<<'{"timestamp":0,"input_length":100}
{"timestamp":0,"input_length":100}
{"timestamp":0,"input_length":100,"priority":2}
{"timestamp":0,"input_length":200,"slo_ttft_ms":10}
{"timestamp":0,"input_length":100,"slo_ttft_ms":1000}'
    assert_equal "$(jq -c '.route | [.worker, .reason, .ttft_ms, .retry_after_ms]' out | tr '\n' ' ')" \
        '["w0","load-fallback",100,null] [null,"rejected",200,50] ["w0","load-fallback",200,null] [null,"rejected",400,null] ["w0","load-fallback",300,null] '
}

@test "pulling is said in route.pull" {
    run kvr-route -w 2 --policy least-loaded --pull --model llama-3.1-70b --gpu 8xh100 --link rdma-400 \
        <<<'{"input_length":8192,"match":{"w1":8000}}'
    assert_success
    assert_equal "$(jq -c '.route | [.worker, .reason, .matched, .pull.from, .pull.tokens, .pull.ms]' <<<"$output")" \
        '["w0","pull",0,"w1",8000,56.998]'
}

@test "prefill workers get a decode worker" {
    run kvr-route <<<'{"event":"worker","worker":"p","role":"prefill"}
{"event":"worker","worker":"d","role":"decode"}
{"input_length":10}'
    assert_equal "$(tail -n 1 <<<"$output" | jq -c '[.route.worker, .route.decode]')" '["p","d"]'
}

@test "routed lines that are merged are another router's placements" {
    echo '{"id":1,"input_length":10,"route":{"worker":"w0"}}' >other
    run route '{"input_length":10}' -w 2 --policy least-loaded -m other
    assert_output "w1 least-loaded 0"
}

@test "a session stays on its worker, a conversation of chat ids too" {
    run route "$(for turn in 1 2 3 4; do echo '{"session":"s","input_length":10}'; echo '{"user":5,"input_length":10}'; done)" \
        -w 8 --policy 'session > least-loaded'
    assert_success
    assert_equal "$(sort -u <<<"$output" | wc -l)" 2
    run route '{"chat_id":10,"parent_chat_id":-1,"input_length":10}
{"chat_id":11,"parent_chat_id":10,"input_length":10}
{"chat_id":12,"parent_chat_id":11,"input_length":10}' -w 8 --policy session
    assert_equal "$(sort -u <<<"$output" | wc -l)" 1
    run route '{"metadata":{"key":"k"},"input_length":10}
{"metadata":{"key":"k"},"input_length":10}' -w 8 --policy session --session .metadata.key
    assert_equal "$(sort -u <<<"$output")" "$(head -n 1 <<<"$output")"
    [[ $output == *session* ]]
}

@test "an empty session or user is nobody's, and no magnet" {
    run route "$(for i in 1 2 3 4; do echo '{"session":"","input_length":10}'; echo '{"user":"","chat_id":"","input_length":10}'; done)" \
        -w 4 --policy 'session > round-robin'
    assert_equal "$(sort <<<"$output" | uniq -c | awk '{print $1}' | paste -sd' ')" '2 2 2 2'
    run route "$(for i in 1 2 3; do echo '{"session":"","user":"u","input_length":10}'; done)" -w 4 --policy session
    assert_equal "$(sort -u <<<"$output" | wc -l)" 1
}

@test "tiers belong to their workers in any order, and a match is cut to the prompt from below" {
    scores() { kvr-route -w 3 --policy dynamo --explain <<<"$1" | jq -c '[.route.candidates[].score]'; }
    # blocks of one token: 100 − hits, and 100 blocks to decode; hits 50 + .75·50, 100 · .25, 80 + .75·20
    assert_equal "$(scores '{"input_length":100,"block_size":1,"match":{"w0":100,"w1":100,"w2":120},"tiers":{"w2":{"cpu":40},"w1":{"disk":100},"w9":{"cpu":5},"w0":{"cpu":50}}}')" '[112.5,175,105,200]'
    # more than 32 bits of them is all of them
    assert_equal "$(scores '{"input_length":100,"block_size":1,"match":{"w0":100},"tiers":{"w0":{"disk":4294967296}}}')" '[175,200,200]'
}

@test "five thousand workers with tiers on every line take no quadratic time" {
    local workers
    workers=$(seq -f '"w%.0f":{"cpu":512}' -s, 0 4999)
    for i in $(seq 60); do
        echo "{\"input_length\":4000,\"match\":{${workers//\{\"cpu\":512\}/512}},\"tiers\":{$workers}}"
    done >many
    run timeout 20 kvr-route -w 5000 --policy cost -o out many
    assert_success
    assert_equal "$(wc -l <out)" 60
}

@test "a KV use beyond 0 to 1 counts as the nearer end" {
    run route '{"event":"load","worker":"w0","running":1,"kv_usage":0}
{"event":"load","worker":"w1","running":0,"kv_usage":-5}
{"input_length":10}' -w 2 --policy 'llm-d(queue=0)' --explain
    assert_success
    run jq -c '[.route.candidates[].score] | select(length > 0)' <<<"$(printf '%s\n' \
        '{"event":"load","worker":"w0","kv_usage":-5}' '{"event":"load","worker":"w1","kv_usage":0}' '{"input_length":10}' |
        kvr-route -w 2 --policy 'llm-d(queue=0)' --explain | tail -n 1)"
    assert_output '[-2,-2]'
}

@test "a draining worker keeps its open sessions for --drain, then hands them on once" {
    turn() { echo "{\"timestamp\":$1,\"session\":\"$2\",\"input_length\":10}"; }
    home=$(kvr-route -w a,b --policy session <<<"$(turn 0 s)" | jq -r .route.worker)
    other=$([ "$home" = a ] && echo b || echo a)
    run route "$(turn 0 s)
{\"event\":\"worker\",\"worker\":\"$home\",\"state\":\"draining\",\"timestamp\":100}
$(turn 5099 s)
$(turn 5099 new)
$(turn 5100 s)
{\"event\":\"worker\",\"worker\":\"$home\",\"state\":\"active\"}
$(turn 5200 s)" -w a,b --policy session --drain 5s
    assert_output "$home session 0
$home session 0
$other session 0
$other drained 0
$other session 0"
}

@test "the load gate passes a choice on to the next link" {
    busy='{"event":"load","worker":"a","running":20}
{"event":"load","worker":"b","running":3}
{"event":"load","worker":"c","running":2}
{"input_length":100,"match":{"a":90,"b":80}}'
    run route "$busy" -w a,b,c --policy cache-aware
    assert_output "a cache-match 90"
    run route "$busy" -w a,b,c --policy cache-aware --escape
    assert_output "c escape 0"
    run route "$busy" -w a,b,c --policy cache-aware --escape --escape-abs 18
    assert_output "a cache-match 90"
    run route "$busy" -w a,b,c --policy 'cache-aware > aibrix(gate=1000,sigma=0)' --escape
    assert_output "b cache-match 80"
}

@test "same input, same options, same bytes; another seed, another chance" {
    zcat "$(trace_slice)" >trace
    for policy in $(kvr-route --policy list | awk '{ print $1 }'); do
        kvr-route -w 5 --policy "$policy" --explain trace >one
        kvr-route -w 5 --policy "$policy" --explain trace | cmp - one
    done
    kvr-route -w 5 --policy random trace >one
    ! kvr-route -w 5 --policy random --seed 2 trace | cmp -s - one
}

@test "every policy is in --policy list, in the option's values, and word for word in kvr-policies(7)" {
    kvr-route --policy list | awk '{ print $1 }' >listed
    run kvr-route --help=bash
    assert_success
    while read -r name; do
        grep -qwF -- "$name" <<<"$output" || fail "$name is not completed"
        kvr-route --policy help | grep -q "^$name: " || fail "$name has no help"
    done <listed
    kvr-route --policy scdoc >chapter
    sed -n '/^# ROUTING POLICIES/,/^# /p' "$REPO/man/kvr-policies.7.scd" | sed -n '/^## /,$p' | sed '/^# /d' >page
    diff <(sed -e '$a\' chapter | sed '/^$/d') <(sed '/^$/d' page)
}

@test "every preset is in kvr-cost(5)" {
    sed -nE 's/^(MODEL|GPU|LINK)\("([^"]*)".*/\2/p' "$REPO/libkvr/cost/presets.def" >presets
    [ "$(wc -l <presets)" -gt 30 ]
    while read -r name; do
        grep -q "^|  $name\$" "$REPO/man/kvr-cost.5.scd" || fail "$name is not in the page"
    done <presets
}

@test "decisions leave as they are made: nothing waits in a buffer" {
    mkfifo in out
    kvr-route -w 2 <in >out &
    exec 7>in 8<out
    for _ in 1 2 3; do
        echo '{"input_length":10}' >&7
        read -r -t 5 line <&8
        [[ $line == *'"route"'* ]]
    done
    exec 7>&- 8<&-
    wait
}

@test "a wrong timestamp, or a second trace behind the first, does not stop the clock" {
    seq 1 200 | sed 's/.*/{"timestamp":&000,"input_length":20000,"output_length":10}/' >trace
    for first in 1e15 -1e300 1e300 90000000; do
        { echo "{\"timestamp\":$first,\"input_length\":10}"; cat trace; } >lines
        run kvr-route -w 2 --policy cost lines
        assert_success
        jq -se 'map(.route.queue_ms) | max < 5000' <<<"$output"
    done
    run kvr-route -w 2 --policy cost trace trace
    jq -se 'map(.route.queue_ms) | max < 5000' <<<"$output"
}

@test "-w: what can only be a mistake is refused" {
    for workers in 0 -3 nothere.jsonl workers.txt /nowhere a,,b; do
        run kvr-route -w "$workers" <<<'{}'
        [[ $status == 2 || $status == 3 ]]
    done
}
