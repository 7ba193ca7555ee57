#!/usr/bin/env bats
# kvr-match: the exact figures on the real trace, the loop, events, state, and what it refuses.

load helper

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    trace=$SHARED/traces/mooncake_conversation.jsonl.gz
}

# total EXPRESSION [FILE]: its sum over the request lines
total() {
    jq -n "[inputs | select(.event | not) | $1 // 0] | add" "${2:--}"
}

routed_to_w0() {
    gzip -dc "$trace" | sed 's/}$/,"route":{"worker":"w0"}}/'
}

# take_turns: the chooser of the loop tests that needs nothing but jq
take_turns() {
    jq -c --unbuffered 'if .event then . else .route = {worker: "w\(input_line_number % 8)"} end'
}

@test "the members of match, after all others, before the line's own placement" {
    run kvr-match -b 16 <<<'{"x":1.0,"hash_ids":[1,2],"route":{"worker":"a"}}
{"hash_ids":[1,2,3],"input_length":40,"route":{"worker":"b"}}
{"match":"old","hash_ids":[1,2,3],"input_length":40}'
    assert_success
    assert_output '{"x":1.0,"hash_ids":[1,2],"route":{"worker":"a"},"match":{}}
{"hash_ids":[1,2,3],"input_length":40,"route":{"worker":"b"},"match":{"a":32}}
{"hash_ids":[1,2,3],"input_length":40,"match":{"a":32,"b":40}}'
}

@test "the whole trace against any: 54,098,411 of 144,793,823 tokens" {
    need_shared traces/mooncake_conversation.jsonl.gz
    kvr-match --against any "$trace" >out
    assert_equal "$(total .match.any out)" 54098411
    assert_equal "$(total .input_length out)" 144793823
}

@test "one worker: 31,238,981 with 10,000 blocks, 6,575,459 with 1,000, 52,347,371 with 50,000" {
    need_shared traces/mooncake_conversation.jsonl.gz
    assert_equal "$(routed_to_w0 | kvr-match -w w0 -c 10000b | total .match.w0)" 31238981
    assert_equal "$(routed_to_w0 | kvr-match -w w0 -c 1000b | total .match.w0)" 6575459
    assert_equal "$(routed_to_w0 | kvr-match -c 25600000 | total .match.w0)" 52347371
}

@test "the loop over the whole trace in turns: 16,733,353 tokens found, 51,074,963 at best" {
    need_shared traces/mooncake_conversation.jsonl.gz
    mkfifo loop
    kvr-match -w 8 -c 3000000 --loop loop "$trace" | kvr-route --policy round-robin | tee loop >out
    assert_equal "$(total '.match[.route.worker]' out)" 16733353
    assert_equal "$(total '[.match[]] | max' out)" 51074963
}

@test "the loop decides as a log replayed in process does" {
    mkfifo loop
    kvr-match -w 4 -c 2000b --loop loop "$(trace_slice)" | kvr-route | tee loop >out
    assert_equal "$(grep -c '"route"' out)" 1000
    # The same placements as a log: every match again the same.
    jq -c 'select(.event | not) | del(.match)' out | kvr-match -w 4 -c 2000b |
        jq -c 'select(.event | not) | .match' >again
    run diff <(jq -c 'select(.event | not) | .match' out) again
    assert_success
}

@test "the loop pairs placements by id where there is one, and learns from foreign choosers" {
    mkfifo loop
    gzip -dc "$(trace_slice)" | jq -c '.id = "r\(input_line_number)"' >with_ids
    kvr-match -w 8 -c 2000b --loop loop with_ids | take_turns | tee loop >out
    assert_equal "$(jq -n '[inputs | select(.route)] | length' out)" 1000
    jq -c 'select(.event | not) | del(.match)' out | kvr-match -w 8 -c 2000b |
        jq -c 'select(.event | not) | .match' >again
    run diff <(jq -c 'select(.event | not) | .match' out) again
    assert_success
}

@test "a loop that nobody writes into: said once, one timeout, all lines out" {
    mkfifo loop
    printf '{"hash_ids":[1]}\n%.0s' 1 2 3 >lines
    run --separate-stderr kvr-match --loop loop --loop-timeout 200 lines
    assert_success
    assert_equal "$(wc -l <<<"$output")" 3
    assert_equal "$stderr" "kvr-match: loop: no placement came back in 200 ms; going on without"
}

@test "more event lines than pipes hold do not stop the loop" {
    mkfifo loop
    { seq 1 3000 | sed 's/.*/{"event":"stored","worker":"w1","hash_ids":[&,&1,&2,&3,&4,&5,&6,&7]}/'; echo '{"hash_ids":[7]}'; } >lines
    timeout 20 sh -c 'kvr-match -w 4000 --loop loop lines | kvr-route | tee loop' >out
    assert_equal "$(wc -l <out)" 7001
    assert_equal "$(tail -n 1 out | jq -c .match)" '{"w1":512}'
}

@test "a loop that is no FIFO, or is not there" {
    run kvr-match --loop missing <<<'{}'
    assert_failure 3
    touch plain
    run kvr-match --loop plain <<<'{}'
    assert_failure 3
    assert_output "kvr-match: plain is no FIFO (mkfifo makes one)"
}

@test "an open loop is told once" {
    yes '{"hash_ids":[1]}' | head -n 12000 >lines
    run --separate-stderr kvr-match -o /dev/null lines
    assert_success
    assert_equal "$(grep -c '5000 requests have passed' <<<"$stderr")" 1
    run --separate-stderr kvr-match --against any -o /dev/null lines
    assert_equal "$stderr" ""
    run --separate-stderr kvr-match -q -o /dev/null lines
    assert_equal "$stderr" ""
}

@test "requests without hash_ids pass with an empty match, told once" {
    run --separate-stderr kvr-match <<<'{"prompt":"a"}
{"prompt":"b"}'
    assert_success
    assert_output '{"prompt":"a","match":{}}
{"prompt":"b","match":{}}'
    assert_equal "$stderr" "kvr-match: requests without hash_ids match nothing (kvr-tokenize adds them)"
}

@test "the workers of -w are told to the programs behind" {
    run kvr-match -w 2 -c 10000b <<<''
    assert_success
    assert_output '{"event":"worker","worker":"w0","state":"active","capacity":"10000b"}
{"event":"worker","worker":"w1","state":"active","capacity":"10000b"}'
    cat >workers.jsonl <<<'{"event":"worker","worker":"a","url":"http://h:1","role":"prefill","weight":2,"capacity":1000}'
    run kvr-match -w workers.jsonl -c 5 <<<''
    assert_output '{"event":"worker","worker":"a","state":"active","url":"http://h:1","role":"prefill","capacity":1000,"weight":2}'
}

@test "worker lines: capacity, down, and a stranger" {
    run kvr-match -b 16 <<<'{"event":"worker","worker":"a","capacity":32}
{"hash_ids":[1,2,3],"route":{"worker":"a"}}
{"hash_ids":[1,2,3],"route":{"worker":"b"}}
{"hash_ids":[1,2,3]}
{"event":"worker","worker":"b","state":"down"}
{"hash_ids":[1,2,3]}'
    assert_success
    assert_equal "$(jq -c 'select(.event | not) | .match' <<<"$output")" '{}
{"a":32}
{"a":32,"b":48}
{"a":32}'
}

@test "events: stored and removed are counted by reference and medium, cleared empties" {
    run kvr-match -b 16 --tiers <<<'{"event":"stored","worker":"a","hash_ids":[1,2,3]}
{"event":"stored","worker":"a","hash_ids":[2],"medium":"cpu"}
{"hash_ids":[1,2,3]}
{"event":"removed","worker":"a","hash_ids":[2]}
{"hash_ids":[1,2,3]}
{"event":"removed","worker":"a","hash_ids":[2],"medium":"cpu"}
{"hash_ids":[1,2,3]}
{"event":"stored","worker":"a","hash_ids":[2],"medium":"disk"}
{"hash_ids":[1,2,3],"input_length":20}
{"event":"cleared","worker":"a"}
{"hash_ids":[1,2,3]}'
    assert_success
    assert_equal "$(jq -c 'select(.event | not) | [.match, .tiers]' <<<"$output")" '[{"a":48},{"a":{"gpu":48}}]
[{"a":48},{"a":{"gpu":32,"cpu":16}}]
[{"a":16},{"a":{"gpu":16}}]
[{"a":20},{"a":{"gpu":16,"disk":4}}]
[{},{}]'
}

@test "placements of a worker that sends events are ignored" {
    run kvr-match -b 16 <<<'{"event":"stored","worker":"a","hash_ids":[1]}
{"hash_ids":[1,2],"route":{"worker":"a"}}
{"hash_ids":[1,2]}'
    assert_equal "$(jq -c 'select(.event | not) | .match' <<<"$output")" '{"a":16}
{"a":16}'
}

@test "event mode fed by another run's own events equals approximate mode" {
    # An engine of one unbounded cache a worker says what it stored: what its mirror would hold.
    gzip -dc "$(trace_slice)" | jq -c '.route = {worker: "w\(.hash_ids[-1] % 3)"}' >log
    kvr-match log | jq -c .match >approximate
    jq -c '{hash_ids, input_length}, {event: "stored", worker: .route.worker,
        hash_ids: .hash_ids[((.match[.route.worker] // 0) + 511) / 512 | floor:]}' \
        <(kvr-match log) | kvr-match | jq -c 'select(.event | not) | .match' >exact
    run cmp approximate exact
    assert_success
}

@test "namespaces and block sizes do not match each other" {
    run kvr-match -b 16 <<<'{"hash_ids":[1],"model":"m","route":{"worker":"a"}}
{"hash_ids":[1]}
{"hash_ids":[1],"model":"n"}
{"hash_ids":[1],"model":"m","lora":"l"}
{"hash_ids":[1],"model":"m","salt":"s"}
{"hash_ids":[1],"model":"m","block_size":32}
{"hash_ids":[1],"model":"m"}'
    assert_success
    assert_equal "$(jq -c .match <<<"$output" | tr -d '\n')" '{}{}{}{}{}{}{"a":16}'
}

@test "a worker keeps its block size: another one is a bad line; a fleet may have several" {
    run --separate-stderr kvr-match -b 16 <<<'{"hash_ids":[1],"route":{"worker":"a"}}
{"hash_ids":[1],"block_size":64,"route":{"worker":"a"}}
{"hash_ids":[1],"block_size":64,"route":{"worker":"b"}}
{"hash_ids":[1],"block_size":64}'
    assert_failure 1
    assert_line --index 2 '{"hash_ids":[1],"block_size":64,"match":{"b":64}}'
    assert_equal "${stderr_lines[0]}" "kvr-match: stdin:2: worker 'a' holds blocks of 16 tokens, these have 64"
}

@test "--ttl forgets what was not placed again" {
    run kvr-match -b 16 --ttl 1s <<<'{"timestamp":0,"hash_ids":[1,2],"route":{"worker":"a"}}
{"timestamp":600,"hash_ids":[1],"route":{"worker":"a"}}
{"timestamp":999,"hash_ids":[1,2]}
{"timestamp":1000,"hash_ids":[1,2]}
{"timestamp":1600,"hash_ids":[1,2]}'
    assert_success
    assert_equal "$(jq -c .match <<<"$output" | tr -d '\n')" '{}{"a":16}{"a":32}{"a":16}{}'
}

@test "--top and --min" {
    stream='{"hash_ids":[1],"route":{"worker":"a"}}
{"hash_ids":[1,2,3],"route":{"worker":"b"}}
{"hash_ids":[1,2],"route":{"worker":"c"}}
{"hash_ids":[1,2,3]}'
    run kvr-match -b 16 --top 2 <<<"$stream"
    assert_line --index 3 '{"hash_ids":[1,2,3],"match":{"b":48,"c":32}}'
    run kvr-match -b 16 --min 33 <<<"$stream"
    assert_line --index 3 '{"hash_ids":[1,2,3],"match":{"b":48}}'
}

@test "capacities in bytes go through the model" {
    run kvr-match -w 1 -c 1GiB --model llama-3.1-8b <<<''
    assert_output '{"event":"worker","worker":"w0","state":"active","capacity":8192}'
    run kvr-match -w 1 -c 1GiB <<<''
    assert_failure 2
    assert_output --partial "needs a model"
}

@test "more capacity never lowers a match" {
    last=0
    for blocks in 10 100 1000 5000 20000; do
        now=$(gzip -dc "$(trace_slice)" | sed 's/}$/,"route":{"worker":"w0"}}/' |
            kvr-match -c ${blocks}b | total .match.w0)
        [ "$now" -ge "$last" ]
        last=$now
    done
    [ "$last" -gt 0 ]
}

@test "a state saved at the end gives the same answers after a restart" {
    gzip -dc "$(trace_slice)" | jq -c '.route = {worker: "w\(.hash_ids[-1] % 3)"}' >log
    kvr-match -c 500b log >whole
    kvr-match -c 500b --state state <(head -n 600 log) >first
    kvr-match -c 500b --state state <(tail -n +601 log) >second
    run cmp whole <(cat first second)
    assert_success
}

@test "SIGUSR1 saves the state of a run that goes on" {
    mkfifo in
    kvr-match --state state in >out &
    pid=$!
    exec 7>in
    echo '{"hash_ids":[1,2],"route":{"worker":"a"}}' >&7
    for _ in $(seq 100); do [ -s out ] && break; sleep 0.05; done
    kill -USR1 $pid
    for _ in $(seq 100); do [ -s state ] && break; sleep 0.05; done
    run kvr-match --state state <<<'{"hash_ids":[1,2,3]}'
    assert_output '{"hash_ids":[1,2,3],"match":{"a":1024}}'
    exec 7>&-
    wait $pid
}

@test "a truncated, foreign or unreadable state is a warning and a cold start" {
    kvr-match --state state <<<'{"hash_ids":[1,2],"route":{"worker":"a"}}'
    head -c 100 state >cut
    run --separate-stderr kvr-match --state cut <<<'{"hash_ids":[1,2]}'
    assert_success
    assert_output '{"hash_ids":[1,2],"match":{}}'
    assert_equal "$stderr" "kvr-match: starting cold: 'cut' is damaged"
    echo hello >foreign
    run --separate-stderr kvr-match --state foreign <<<'{"hash_ids":[1,2]}'
    assert_success
    assert_equal "$stderr" "kvr-match: starting cold: 'foreign' is no state of a prefix index"
    run kvr-match --state /nonexistent/state <<<'{}'
    assert_failure 3
}

@test "SIGHUP reads the workers again" {
    mkfifo in
    echo '{"event":"worker","worker":"a"}' >workers.jsonl
    kvr-match -b 16 -w ./workers.jsonl in >out &
    pid=$!
    exec 7>in
    echo '{"hash_ids":[1],"route":{"worker":"a"}}' >&7
    for _ in $(seq 100); do grep -q hash_ids out && break; sleep 0.05; done
    echo '{"event":"worker","worker":"b"}' >workers.jsonl
    kill -HUP $pid
    sleep 0.2
    echo '{"hash_ids":[1]}' >&7
    exec 7>&-
    wait $pid
    run cat out
    assert_output '{"event":"worker","worker":"a","state":"active"}
{"hash_ids":[1],"route":{"worker":"a"},"match":{}}
{"event":"worker","worker":"b","state":"active"}
{"event":"worker","worker":"a","state":"down"}
{"hash_ids":[1],"match":{}}'
}

@test "routed lines from -m are learned and not passed on" {
    echo '{"hash_ids":[1,2],"route":{"worker":"a"}}' >other
    run kvr-match -b 16 -m other <<<'{"hash_ids":[1,2]}'
    assert_output '{"hash_ids":[1,2],"match":{"a":32}}'
}

@test "--max-memory bounds the index, and the run ends well" {
    seq 1 200000 | awk '{ printf "{\"hash_ids\":[%d,%d,%d],\"route\":{\"worker\":\"w%d\"}}\n", $1, $1 + 1000000, $1 + 2000000, $1 % 7 }' >log
    run kvr-match --max-memory 1MiB --state state -o /dev/null log
    assert_success
    [ "$(stat -c %s state)" -lt 1048576 ]
    [ "$(stat -c %s state)" -gt 200000 ]
}

@test "a soak of a million requests: memory is flat after warm-up" {
    cd "$REPO" || return 1
    SAMPLE_SECONDS=0.05 run tests/bench/soak.sh 1000000
    assert_success
    [ "$(jq .samples <<<"$output")" -ge 10 ]
}

@test "bad lines and bad options" {
    for line in '{"hash_ids":[1.5]}' '{"hash_ids":"x"}' '{"hash_ids":[-1]}' '{"hash_ids":[1],"block_size":0}' \
        '{"hash_ids":[1],"model":7}' '{"route":7}' '{"route":{"worker":7}}' '{"route":{"worker":""}}' \
        '{"input_length":"x"}' '{"event":"stored","worker":"a"}' '{"event":"stored","hash_ids":[1]}' \
        '{"event":"removed","worker":"a","hash_ids":[1],"medium":"tape"}' '{"event":"worker"}' \
        "{\"hash_ids\":[1],\"route\":{\"worker\":\"$(printf 'x%.0s' {1..300})\"}}"; do
        run --separate-stderr kvr-match <<<"$line"
        assert_failure 1
        assert_output ""
    done
    for options in "-b 0" "--against both" "--against any -w 2" "--against any -c 5" "--ttl 30d" "-w ," "--ttl -1" "--loop"; do
        # shellcheck disable=SC2086
        run kvr-match $options <<<'{}'
        assert_failure 2
    done
}

@test "--audit: a mirror that is right is found right, and events do not take its place" {
    # What each worker really holds: everything that was placed on it, told after each placement.
    gzip -dc "$(trace_slice)" | jq -c '.route = {worker: "w\(input_line_number % 4)"} | .,
        {event: "stored", worker: .route.worker, hash_ids: .hash_ids}' >log
    kvr-match --audit log >out
    kvr-match <(grep -v '"event"' log) | jq -c .match >plain
    run diff plain <(jq -c 'select(.event | not) | .match' out)
    assert_success
    tail -n 1 out | jq -c '[.event, .requests, .differing, .not_there, .not_known, .lost]' >figures
    assert_equal "$(cat figures)" '["audit",1000,0,0,0,0]'
    assert_equal "$(tail -n 1 out | jq '.promised == .there and .there > 1000000')" true
    assert_equal "$(grep -c '"event":"stored"' out)" 1000
}

@test "--audit: tokens promised and not there, there and not known, by hand" {
    run kvr-match --audit -b 16 <<'END'
{"hash_ids":[1,2,3],"route":{"worker":"a"}}
{"event":"stored","worker":"a","hash_ids":[1,2,3]}
{"event":"stored","worker":"b","hash_ids":[7]}
{"event":"removed","worker":"a","hash_ids":[3,2]}
{"hash_ids":[1,2,3,4]}
{"hash_ids":[7,8]}
{"event":"cleared","worker":"a"}
{"event":"stored","worker":"b","hash_ids":[1,2]}
{"hash_ids":[1,2,3],"input_length":40}
END
    assert_success
    # 1-4 on a: 48 promised, 16 there. 7-8 on b: none promised, 16 there. 1-3: a 40 and 0, b 0 and 32.
    assert_line --index 9 '{"event":"audit","requests":4,"differing":4,"promised":88,"there":64,"not_there":72,"not_known":48,"lost":48,"workers":{"a":{"requests":3,"differing":2,"promised":88,"there":16,"not_there":72,"not_known":0},"b":{"requests":3,"differing":2,"promised":0,"there":48,"not_there":0,"not_known":48}}}'
    # A worker that sends no events is not compared; with -v there is a table.
    run --separate-stderr kvr-match --audit -v -b 16 <<<'{"hash_ids":[1],"route":{"worker":"a"}}
{"hash_ids":[1]}'
    assert_line --index 2 '{"event":"audit","requests":2,"differing":0,"promised":0,"there":0,"not_there":0,"not_known":0,"lost":0,"workers":{}}'
    # shellcheck disable=SC2154 # stderr is set by run
    [[ $stderr == *"tokens lost by believing the mirror: 0 of 2 requests"* ]]
}

@test "--audit: against a real engine's model, a mirror with its capacity is closer than without" {
    gzip -dc "$(trace_slice)" | jq -c '.route = {worker: "w0"}' >requests
    kvr-evict --engine vllm -b 512 -c 2000b --events requests | jq -c 'del(.cache)' >both
    off() { kvr-match --audit -b 512 "$@" both | tail -n 1 | jq '.not_there + .not_known'; }
    local close far
    close=$(off -c 2000b) far=$(off)
    assert [ "$close" -lt $((far / 4)) ]
    assert [ "$far" -gt 100000 ]
    run kvr-match --audit --against any both
    assert_failure 2
}

@test "a worker's name with a NUL is a bad line, not a second worker of the same name" {
    run --separate-stderr kvr-match <<<'{"hash_ids":[1],"route":{"worker":"a\u0000b"}}
{"event":"stored","worker":"a\u0000c","hash_ids":[1]}
{"hash_ids":[1],"route":{"worker":"a"}}
{"hash_ids":[1]}'
    assert_failure 1
    assert_equal "$(tail -n 1 <<<"$output")" '{"hash_ids":[1],"match":{"a":512}}'
    assert_equal "$(grep -c 'NUL' <<<"$stderr")" 2
}

@test "every tool takes the same names of workers, escaped or not" {
    long=$(printf 'x%.0s' {1..256})
    for name in 3 '""' '"a\u0000b"' "\"$long\"" '{}'; do
        for tool in "kvr-match -w w0" "kvr-evict" "kvr-evict --curve"; do
            run $tool <<<"{\"hash_ids\":[1,2],\"input_length\":1024,\"route\":{\"worker\":$name}}"
            assert_failure 1
            assert_output --partial "stdin:1: member"
            assert_output --partial "is not a name"
        done
    done
    # the same name, written in two ways
    run --separate-stderr kvr-evict --events <<'END'
{"hash_ids":[1],"route":{"worker":"a\"b"}}
{"hash_ids":[1],"route":{"worker":"\u0061\u0022b"}}
END
    assert_success
    assert_equal "$(jq -c 'select(.cache).cache.hit' <<<"$output" | paste -sd,)" 0,512
    assert_equal "$(jq -r 'select(.event).worker' <<<"$output")" 'a"b'
}

@test "a state that is no regular file is neither read nor replaced; a link stays one" {
    mkfifo fifo
    run timeout 10 kvr-match --state fifo <<<'{"hash_ids":[1]}'
    assert_failure 3
    assert_line "kvr-match: starting cold: 'fifo' is no regular file"
    [ -p fifo ]
    ln -s /dev/zero zero
    run timeout 10 kvr-match --state zero <<<'{"hash_ids":[1]}'
    assert_failure 3
    [ -c "$(readlink -f zero)" ]
    kvr-match --state file <<<'{"hash_ids":[1],"route":{"worker":"a"}}'
    chmod 640 file
    ln -s file link
    run kvr-match --state link <<<'{"hash_ids":[1],"route":{"worker":"b"}}'
    assert_output --partial '{"a":512}'
    [ -L link ]
    assert_equal "$(stat -c %a file)" 640
    run kvr-match --state file <<<'{"hash_ids":[1]}'
    assert_output --partial '{"a":512,"b":512}'
}

@test "--against any starts cold from the state of a fleet" {
    kvr-match --state file <<<'{"hash_ids":[1],"route":{"worker":"a"}}'
    run kvr-match --against any --state file <<<'{"hash_ids":[1]}
{"hash_ids":[1]}'
    assert_success
    assert_line --partial "starting cold: the state is of a fleet"
    assert_line '{"hash_ids":[1],"match":{}}'
    assert_line '{"hash_ids":[1],"match":{"any":512}}'
    run kvr-match --against any --state file <<<'{"hash_ids":[1]}'
    assert_output '{"hash_ids":[1],"match":{"any":512}}'
}

@test "a file that may not grow ends with a message and leaves nothing half written" {
    seq 1 2000 | sed 's/.*/{"hash_ids":[&],"route":{"worker":"a"}}/' >lines
    run bash -c 'ulimit -f 8; kvr-match --state new lines | tail -n 1; exit "${PIPESTATUS[0]}"'
    assert_failure 3
    assert_line --partial "cannot write 'new': File too large"
    assert_equal "$(echo new*)" 'new*'
}

@test "bad lines of a loop count in the status, and -q says nothing of them" {
    mkfifo loop
    for quiet in "" -q; do
        { kvr-match $quiet -w 1 --loop loop <<<'{"hash_ids":[1]}' 2>err || echo $? >rc; } |
            kvr-route | sed -u 's/^{"hash_ids".*/garbage\n&/' | tee loop >/dev/null
        assert_equal "$(cat rc)" 1
        assert_equal "$(grep -c 'not JSON' err)" "$([ "$quiet" ] && echo 0 || echo 1)"
    done
}

@test "--ttl after a wrong timestamp, behind another trace, and with a state of another trace" {
    printf '{"timestamp":%s,"hash_ids":[1],"route":{"worker":"a"}}\n' 90000000 1e30 1000 1500 2600 >lines
    run kvr-match --ttl 1s --state file lines
    assert_equal "$(jq -c .match <<<"$output" | tr '\n' ' ')" '{} {"a":512} {"a":512} {"a":512} {} '
    printf '{"timestamp":%s,"hash_ids":[1],"route":{"worker":"a"}}\n' 10 1010 >lines
    run kvr-match --ttl 1s --state file lines
    assert_equal "$(jq -c .match <<<"$output" | tr '\n' ' ')" '{"a":512} {} '
}
