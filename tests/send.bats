#!/usr/bin/env bats
# kvr-send: what is asked, when, and what is written of the answer.

load helper
load http

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    export no_proxy='*'
}

teardown() {
    stop_all
}

@test "a line gets response, an id where it has none, and keeps all the rest byte for byte" {
    mock port --tokens 3
    run kvr-send --url "http://127.0.0.1:$port/v1" <<<'{"prompt":"hello","x":[1.0],"response":{"old":1}}'
    assert_success
    assert_regex "$output" '^\{"prompt":"hello","x":\[1\.0\],"id":"stdin:1","response":\{"status":200,"ttft_ms":[0-9.]+,"e2e_ms":[0-9.]+,.*"output_length":3,"cached_tokens":[0-9]+,"late_ms":0\}\}$'
}

@test "messages go to chat completions, prompts and token_ids to completions" {
    mock port --fault 404
    run kvr-send -q --url "http://127.0.0.1:$port" --body '{"temperature":0}' <<<'{"messages":[{"role":"user","content":"hi"}],"model":"m"}
{"prompt":"p"}
{"token_ids":[1,2]}'
    assert_success
    assert_equal "$(jq -c '[.response.status, .response.error]' <<<"$output" | sort -u)" '[404,null]'
    assert_equal "$(count "$port" generations)" 3
}

@test "cached tokens of the second turn are those that the worker reports" {
    mock port
    for _ in 1 2; do echo '{"prompt":"The same words again and again, long enough to be cached."}'; done |
        kvr-send --url "http://127.0.0.1:$port" --concurrency 1 >out
    assert_equal "$(jq -s '.[0].response.cached_tokens < 8 and .[1].response.cached_tokens > 8' out)" true
}

@test "the time to the first token is that of the first content chunk" {
    mock port --first 60 --gap 1500 --tokens 3
    kvr-send --url "http://127.0.0.1:$port" --intervals <<<'{"messages":[{"role":"user","content":"hi"}]}' >out
    run jq -c '.response | [.ttft_ms >= 60, .e2e_ms >= .ttft_ms + 500, (.itl_ms | length), .tpot_ms >= 250]' out
    assert_output '[true,true,2,true]'
    kvr-send --url "http://127.0.0.1:$port" --no-stream <<<'{"prompt":"hi"}' >out
    run jq -c '.response | [.ttft_ms == .e2e_ms, .output_length]' out
    assert_output '[true,3]'
}

@test "open loop: a slow answer does not hold back the next request" {
    mock port --hold
    for t in 0 20 40; do echo "{\"timestamp\":$((1000 + t)),\"prompt\":\"x\"}"; done >lines
    kvr-send --url "http://127.0.0.1:$port" lines >out &
    wait_for "[ \"\$(count $port generations)\" = 3 ]" # and none of them is answered
    assert [ ! -s out ]
    release "$port"
    wait $!
    assert_equal "$(wc -l <out)" 3
}

@test "coordinated omission: waiting for room counts from when a request was due" {
    mock port --first 100
    for t in 0 0 0; do echo "{\"timestamp\":$t,\"prompt\":\"x\"}"; done |
        kvr-send -q --url "http://127.0.0.1:$port" --concurrency 1 >out
    run jq -s -c 'map(.response) | [(.[2].ttft_ms >= 299), (.[2].late_ms >= 199), (.[0].late_ms + 199 <= .[2].late_ms)]' out
    assert_output '[true,true,true]'
    run --separate-stderr kvr-send --url "http://127.0.0.1:$port" --concurrency 1 - < <(
        for t in 0 0; do echo "{\"timestamp\":$t,\"prompt\":\"x\"}"; done)
    assert_regex "$stderr" '[12] of 2 requests left more than 10 ms after they were due'
}

@test "--speed and --rate set the pace" {
    mock port
    for t in 0 60000 120000; do echo "{\"timestamp\":$t,\"prompt\":\"x\"}"; done >lines
    run bash -c "time -p kvr-send --speed 1200 --url http://127.0.0.1:$port lines"
    assert_equal "$(jq -n "$(sed -n 's/^real //p' <<<"$output") | . > 0.09 and . < 60")" true
    run bash -c "time -p kvr-send --rate 10 --url http://127.0.0.1:$port lines"
    assert_equal "$(jq -n "$(sed -n 's/^real //p' <<<"$output") | . > 0.19 and . < 60")" true
}

@test "each line goes to its worker; without a url it is a bad line" {
    mock a
    mock b
    run --separate-stderr kvr-send <<END
{"event":"worker","worker":"w0","url":"http://127.0.0.1:$a"}
{"event":"worker","worker":"w1","url":"http://127.0.0.1:$b"}
{"id":1,"prompt":"x","route":{"worker":"w1"}}
{"id":2,"prompt":"x","route":{"worker":"w7"}}
{"id":3,"prompt":"x","route":{"worker":null,"reason":"rejected"}}
{"id":4,"prompt":"x","route":{"worker":null,"reason":"no-worker"}}
END
    assert_failure 1
    assert_regex "$stderr" 'stdin:4: the worker has no url'
    assert_equal "$(jq -c 'select(.response) | [.id, .response.status, .response.worker]' <<<"$output" | sort)" '[1,200,"w1"]
[3,429,null]
[4,503,null]'
    assert_equal "$(count "$a" generations) $(count "$b" generations)" '0 1'
}

@test "a worker line with a url that is none is a bad line, and a header is one header" {
    run kvr-send -q <<<'{"event":"worker","worker":"w0","url":"file:///etc/hosts"}'
    assert_failure 1
    run kvr-send --url http://127.0.0.1:1 -H $'X: a\r\nY: b' <<<'{"prompt":"x"}'
    assert_failure 2
}

@test "done events follow their lines" {
    mock port
    run kvr-send --events --url "http://127.0.0.1:$port" <<<'{"id":7,"prompt":"x","route":{"worker":"w0"}}'
    assert_equal "$(jq -c '[.event, .id, .worker, .response.status]' <<<"${lines[1]}")" '["done",7,"w0",200]'
}

@test "failures: refused, closed, broken in mid-stream, silent, a status" {
    mock port --fault reset:1
    url=http://127.0.0.1:$port
    answer() { jq -c '.response | [.status, .error]'; }
    assert_equal "$(kvr-send -q --url "http://127.0.0.1:$(free_port)" <<<'{"prompt":"x"}' | answer)" '[0,"unreached"]'
    assert_equal "$(kvr-send -q --url "$url" <<<'{"prompt":"x"}' | answer)" '[0,"broken"]'
    curl -s "$url/fault/break:1"
    assert_equal "$(kvr-send -q --url "$url" <<<'{"prompt":"x"}' | answer)" '[200,"broken"]'
    curl -s "$url/fault/silent:1"
    assert_equal "$(kvr-send -q --timeout 200ms --url "$url" <<<'{"prompt":"x"}' | answer)" '[0,"timed out"]'
    curl -s "$url/fault/500:1"
    assert_equal "$(kvr-send -q --url "$url" <<<'{"prompt":"x"}' | answer)" '[500,null]'
}

@test "retries are off unless asked for" {
    mock port --fault reset:2
    run kvr-send -q --retries 2 --url "http://127.0.0.1:$port" <<<'{"prompt":"x"}'
    assert_equal "$(jq -c '.response | [.status, .attempts]' <<<"$output")" '[200,3]'
}

@test "Ctrl-C ends with what was measured" {
    mock port --hold
    { echo '{"id":1,"timestamp":0,"prompt":"x"}'; echo '{"id":2,"timestamp":60000,"prompt":"x"}'; } >lines
    kvr-send -q --url "http://127.0.0.1:$port" lines >out &
    pid=$!
    wait_for "[ \"\$(count $port generations)\" = 1 ]"
    kill -INT $pid
    status=0
    wait $pid || status=$?
    assert_equal "$status" 130
    assert_equal "$(jq -c '[.id, .response.error]' out)" '[1,"cancelled"]'
    wait_for "[ \"\$(count $port cancelled)\" = 1 ]"
}

@test "live: a line is sent and its answer written while the next one is awaited" {
    mock port
    mkfifo in
    kvr-send --url "http://127.0.0.1:$port" <in >out &
    pid=$!
    exec 9>in
    echo '{"prompt":"x"}' >&9
    wait_for '[ -s out ]'
    echo '{"prompt":"y"}' >&9
    wait_for '[ "$(wc -l <out)" = 2 ]'
    exec 9>&-
    wait $pid
}

@test "--synthesize: the same blocks, the same prefix, in a real trace" {
    mock port --tokens 1
    zcat -f "$(trace_slice)" | head -n 40 | kvr-send --url "http://127.0.0.1:$port" --synthesize --rate 400 --concurrency 1 -q >out
    assert_equal "$(jq -s 'map(.response.status) | unique' -c out)" '[200]'
    # the first request's blocks come back: two blocks shared are some thousand bytes in common
    assert_equal "$(jq -s '[.[] | .response.cached_tokens > 500] | any' out)" true
}

@test "--synthesize says what it lacks" {
    run kvr-send --url http://127.0.0.1:1 --synthesize <<<'{"hash_ids":[1]}'
    assert_failure 1
    assert_output --partial 'needs an input_length'
    run kvr-send --url http://127.0.0.1:1 --synthesize <<<'{"hash_ids":"x","input_length":5}'
    assert_output --partial "unreached"
    run kvr-send --url http://127.0.0.1:1 --synthesize <<<'{"hash_ids":[-1],"input_length":5}'
    assert_failure 1
    assert_output --partial "'hash_ids' is not an array of whole numbers"
}

@test "a key is sent and never shown; headers too" {
    mock port
    echo 'sk-secret' >key
    run kvr-send -v --api-key-file key -H 'X-Extra: 1' --url "http://127.0.0.1:$port" <<<'{"prompt":"x"}'
    assert_success
    refute_output --partial secret
    run kvr-send --api-key-file /nonexistent --url http://127.0.0.1:1 <<<'{}'
    assert_failure 3
}

@test "bad options" {
    for bad in '-u ftp://127.0.0.1' '-u file:///etc/hosts' '-H Bad' '-H A:b -H Bad' '--concurrency 0' '--speed -1' '--body [1]' '--body {' '-b 0'; do
        # shellcheck disable=SC2086
        run kvr-send --url http://127.0.0.1:1 $bad <<<'{"prompt":"x"}'
        assert_failure 2
    done
}
