#!/usr/bin/env bats
# The programs as one product: one decision pipeline, three ways to drive it; and all of them in one
# pipe.

load helper
load http

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    export no_proxy='*' NO_PROXY='*'
}

teardown() {
    stop_all
}

# texts COUNT: requests of a real trace, those that share more than the first block with another, as
# prompts in words, so that every way has to tokenize: a block becomes a sentence that its id names, and
# so equal ids are equal text. The second block is the talk that a request belongs to.
texts() {
    zcat "$(trace_slice)" | jq -nc --argjson count "$1" '
        [inputs] | (group_by(.hash_ids[1]) | map(select(length > 1)[0].hash_ids[1] | {(tostring): true}) | add) as $shared
        | limit($count; to_entries[] | select($shared[.value.hash_ids[1] | tostring]))
        | .key as $line | .value.hash_ids as $ids
        | {id: "r\($line)", model: "m", output_length: 4, session: (if $line % 4 == 0 then null else "s\($ids[1])" end), prompt:
            ([$ids[:10][] | "Block \(.) of what somebody has asked before, or will ask again in the \(. % 97)th sentence of a long talk. "] | add)}'
}

# chosen FILE: who got each request, in the order of the input.
chosen() {
    jq -r 'select(.event | not) | [.id, .route.worker, .route.reason, .route.matched] | @tsv' "$1"
}

# ask_each PORT: sends the requests, one after the other, over one connection.
ask_each() {
    jq -r --arg url "http://127.0.0.1:$1/v1/completions" '
        {model, prompt, max_tokens: 4, metadata: {talk: .session}} | tojson
        | "next", "url = \($url | tojson)", "silent", "output = /dev/null", "data = \(tojson)"' requests |
        tail -n +2 >asked
    timeout 120 curl -q -K asked
}

# Requests one after the other, each ended before the next: then no clock has a say, and the decisions
# of a shell pipeline, of a simulation and of a live front end must be the same, for every policy.
@test "plain shell, kvr-sim and kvr-serve decide the same" {
    local a b c port policy way decide
    mock a
    mock b
    mock c
    texts 150 >requests
    # in plain shell somebody has to say that a request has ended
    jq -c '., {event: "done", id}' requests >ended
    for policy in round-robin session prefix-hash cache-aware cost least-loaded \
        'session(ttl=1h) > prefix-hash(tokens=64) > least-loaded'; do
        echo "policy: $policy"
        rm -f loop log
        mkfifo loop
        kvr-tokenize ended | kvr-match -w a,b,c -c 4000 -b 16 --loop loop |
            kvr-route -b 16 --policy "$policy" | tee loop >shell
        chosen shell >by_shell
        assert_equal "$(wc -l <by_shell)" 150

        kvr-tokenize requests | kvr-sim -w a,b,c -c 4000 -b 16 --closed 1 --policy "$policy" >simulated
        chosen simulated | diff by_shell -

        kvr-tokenize requests | kvr-sim -w a,b,c -c 4000 -b 16 --closed 1 \
            -- "kvr-match -c 4000 -b 16 | kvr-route -b 16 --policy '$policy'" >simulated
        chosen simulated | diff by_shell -

        for way in process pipeline; do
            rm -f log
            if [ $way = process ]; then
                decide=(-c 4000 --policy "$policy")
            else
                decide=(-- "kvr-tokenize | kvr-match -c 4000 -b 16 | kvr-route -b 16 --policy '$policy'")
            fi
            serve port -w "a=http://127.0.0.1:$a,b=http://127.0.0.1:$b,c=http://127.0.0.1:$c" \
                --session .metadata.talk --health-every 0 --decision-timeout 10s --log log "${decide[@]}"
            ask_each "$port"
            kill "$SERVE_PID"
            wait_for '[ "$(wc -l <log)" -eq 150 ]'
            chosen log | cut -f 2- | diff <(cut -f 2- by_shell) -
        done
        cut -f 3 by_shell >>reasons
    done
    # not all of it the same answer
    assert_equal "$(sort -u reasons | tr '\n' ' ')" "cache-match least-loaded load-fallback prefix-hash rotation session "
    [ "$(cut -f 4 by_shell | sort -n | tail -n 1)" -ge 200 ]
}

@test "all the tools in one pipe over 20 MB: nothing lost, nothing said, the parts are the whole" {
    run timeout 500 "$REPO/tests/soak" 20
    assert_success
    assert_equal "$(jq -c '[.mb, .requests > 60000, .events]' <<<"$output")" '[20,true,20000]'
}

@test "the same under valgrind" {
    [[ $BUILD != */san* ]] || skip "valgrind and ASan do not mix"
    command -v valgrind >/dev/null || skip "needs valgrind"
    RUN='valgrind -q --error-exitcode=99' run timeout 500 "$REPO/tests/soak" 0.2
    assert_success
}

@test "a signal from the terminal ends a whole pipeline, in mid-line, and what came out is whole" {
    mkfifo in loop
    # a terminal's Ctrl-C goes to the whole process group
    setsid bash -c 'trap : INT; kvr-match -w 2 --loop loop in | kvr-route | tee loop | kvr-evict -c 1M >out; echo "${PIPESTATUS[@]}" >codes' 3>&- &
    local group=$!
    exec 7>in
    printf '{"id":1,"input_length":9,"hash_ids":[1]}\n{"id":2,"inp' >&7
    wait_for '[ "$(wc -l <out)" -ge 1 ]'
    kill -INT -- "-$group"
    wait_for '[ -s codes ]'
    exec 7>&-
    assert_equal "$(jq -c 'select(.event | not) | [.id, .cache.hit]' out)" '[1,0]'
    assert_regex "$(cat codes)" '^130 '
}
