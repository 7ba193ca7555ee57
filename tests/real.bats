#!/usr/bin/env bats
# kvr-serve, kvr-smoke and kvr-send on real engines: two llama.cpp workers with a real prompt cache.
# KVR_REAL_WORKER=1 asks for it; their environment needs PyPI.

load helper
load http
load real

setup() {
    [ "${KVR_REAL_WORKER:-}" ] || skip "KVR_REAL_WORKER=1 asks for it"
    need_shared worker/ci_worker.sh
    cd "$BATS_TEST_TMPDIR" || return 1
    export no_proxy='*' NO_PROXY='*'
    VOCABULARY=$SHARED/tokenizers/mistral_v0_1.tokenizer.json.gz
    LONG=$(seq -s ' ' 300)
    CHAT='{"model":"kvr-tiny","max_tokens":4,"messages":[{"role":"user","content":"'$LONG'"}]}'
}

teardown() {
    stop_all
}

# two [OPTION...]: two workers a and b, and kvr-serve before them on $port.
two() {
    real_worker a
    real_worker b
    serve port -w "a=http://127.0.0.1:$a,b=http://127.0.0.1:$b" --decision-timeout 5s --log log "$@"
    wait_for "curl -sf http://127.0.0.1:$port/readyz"
}

cached() { jq '.usage.prompt_tokens_details.cached_tokens' "$1"; }

# turns: a second turn finds the first in its worker's cache, whole and streamed.
turns() {
    local stream=${CHAT/{/{\"stream\":true,\"stream_options\":{\"include_usage\":true\},}
    post() { curl -s -m 60 -d "$1" "http://127.0.0.1:$port/v1/chat/completions"; }
    post "$CHAT" >one
    post "$CHAT" >two
    assert_equal "$(jq -r '.choices | length' one)" 1
    assert_equal "$(($(cached one) < 100 && $(cached two) > 500))" 1
    post "${stream//1 2 3/3 2 1}" >one
    post "${stream//1 2 3/3 2 1}" >two
    assert_equal "$(grep . two | tail -n 1)" 'data: [DONE]'
    assert_equal "$(grep -c '"delta":{"content"' two | jq '. >= 1')" true
    sed -n 's/^data: {/{/p' two | grep cached_tokens | tail -n 1 >usage
    assert_equal "$(($(cached usage) > 500))" 1
    wait_for '[ "$(grep -c response log)" -ge 4 ]'
    assert_equal "$(jq -s '.[-4:] | map(.response.status) | unique == [200]' log)" true
    assert_equal "$(jq -s '.[-4:] | [.[1,3].response.cached_tokens > 500] == [true, true]' log)" true
    assert_equal "$(jq -s '.[-4:] | .[0].route.worker == .[1].route.worker' log)" true
}

@test "kvr-smoke passes on it, and fails with its cache off" {
    real_worker a
    run kvr-smoke "http://127.0.0.1:$a/v1"
    echo "$output"
    assert_success
    real_worker b 'p.cache_prompt = False'
    run kvr-smoke "http://127.0.0.1:$b"
    assert_failure 1
    assert_line --regexp '^not ok . - its prefix cache is on'
    assert_equal "$(grep -c '^not ok' <<<"$output")" 1
}

@test "kvr-smoke passes through kvr-serve" {
    two -t "$VOCABULARY"
    run kvr-smoke "http://127.0.0.1:$port"
    echo "$output"
    assert_success
}

@test "in process: turn two is cached, whole and streamed" {
    two -t "$VOCABULARY"
    turns
}

@test "over a pipeline: turn two is cached, whole and streamed" {
    two -- "kvr-tokenize -b 16 -t '$VOCABULARY' | kvr-match -b 16 | kvr-route --policy cost"
    turns
    assert_equal "$(metric "$port" kvr_fallbacks_total)" 0
}

@test "what kvr-tokenize counts is what the worker counts" {
    two -t "$VOCABULARY"
    curl -s -o /dev/null -m 60 -d "{\"model\":\"kvr-tiny\",\"max_tokens\":1,\"prompt\":\"$LONG\"}" "http://127.0.0.1:$port/v1/completions"
    wait_for '[ -s log ]'
    # the worker adds its beginning of text
    assert_equal "$(jq -c '.response.input_length - .input_length | . >= 0 and . <= 1' log)" true
}

@test "the openai package: chats, streams, completions, models, errors" {
    folder=$(real_folder)
    [ -x "$folder/openai/bin/python" ] || { python3 -m venv "$folder/openai" && "$folder/openai/bin/pip" install -q openai; }
    two -t "$VOCABULARY"
    for mode in process pipeline; do
        [ $mode = process ] || two -- "kvr-tokenize -b 16 -t '$VOCABULARY' | kvr-match -b 16 | kvr-route --policy cost"
        "$folder/openai/bin/python" - "$port" "$LONG $mode" <<'END'
import sys, openai
client = openai.OpenAI(base_url=f"http://127.0.0.1:{sys.argv[1]}/v1", api_key="none", max_retries=0)
messages = [{"role": "user", "content": sys.argv[2]}]
for turn in 1, 2:
    answer = client.chat.completions.create(model="kvr-tiny", messages=messages, max_tokens=4)
    usage = answer.usage
    assert usage.completion_tokens >= 1 and usage.prompt_tokens > 500
assert usage.prompt_tokens_details.cached_tokens > 500, usage
messages[0]["content"] += " and on"
chunks = list(client.chat.completions.create(model="kvr-tiny", messages=messages, max_tokens=8, stream=True,
    stream_options={"include_usage": True}))
assert sum(1 for c in chunks if c.choices and c.choices[0].delta.content) >= 1
assert chunks[-1].usage.prompt_tokens_details.cached_tokens > 500
done = client.completions.create(model="kvr-tiny", prompt="One two three", max_tokens=3)
assert done.usage.prompt_tokens >= 3
assert [m.id for m in client.models.list()] == ["kvr-tiny"]
raw = client.chat.completions.with_raw_response.create(model="kvr-tiny", messages=messages, max_tokens=1)
assert raw.headers["x-kvr-worker"] in ("a", "b") and raw.headers["x-request-id"]
try:
    client.chat.completions.create(model="kvr-tiny", messages="nonsense", max_tokens=1)
    raise SystemExit("no error")
except openai.APIStatusError as error:
    assert 400 <= error.status_code < 600
END
    done
}

@test "sixteen conversations: turn two is cached with cost, about half as often with round-robin" {
    real_worker a
    real_worker b
    # turn two comes in another order than turn one, as it would: half of them by chance to their worker
    order="0 2 1 3 4 6 5 7 8 10 9 11 12 14 13 15"
    for policy in cost round-robin; do
        serve port -w "a=http://127.0.0.1:$a,b=http://127.0.0.1:$b" -t "$VOCABULARY" --policy $policy --log $policy
        for i in $(seq 0 15) $order; do
            text="$policy conversation $i: $(seq -s ' ' $((100 * i)) $((100 * i + 120)))"
            curl -s -o /dev/null -m 60 -d '{"model":"kvr-tiny","max_tokens":2,"messages":[{"role":"user","content":"'"$text"'"}]}' "http://127.0.0.1:$port/v1/chat/completions"
        done
        wait_for "[ \"\$(wc -l <$policy)\" = 32 ]"
        jq -s '[.[16:][] | select(.response.cached_tokens * 2 > .response.input_length)] | length' $policy >>found
    done
    cat found
    assert_equal "$(head -n 1 found)" 16
    assert_equal "$(tail -n 1 found | jq '. >= 4 and . <= 12')" true
}

@test "kvr-send and kvr-stats on a slice of the conversation trace: what was predicted and what came" {
    real_worker a
    real_worker b
    # blocks of 32 tokens in place of 512, everything else as it was
    zcat -f "$(trace_slice)" | head -n 60 | jq -c '.block_size = 32 | .input_length = (.input_length / 16 | ceil) |
        .output_length = 2' >trace
    printf '{"event":"worker","worker":"a","url":"http://127.0.0.1:%d"}\n{"event":"worker","worker":"b","url":"http://127.0.0.1:%d"}\n' "$a" "$b" >workers
    mkfifo loop
    kvr-match -q -w workers -b 32 --loop loop trace | kvr-route --policy cost | tee loop |
        kvr-send -q --synthesize -t "$VOCABULARY" --rate 8 --events >sent
    assert_equal "$(jq -s 'map(select(.event | not) | .response.status) | unique' -c sent)" '[200]'
    # the worker's tokens are the trace's, but for its beginning of text
    assert_equal "$(jq -s 'map(select(.event | not) | .response.input_length - .input_length) | max - min <= 1 and min >= 0' sent)" true
    # what the mirror matched is what the cache held, but for a last block that it computes again
    jq -s 'map(select(.event | not)) | [(map(.route.matched) | add), (map(.response.cached_tokens) | add)]' -c sent >sums
    cat sums
    assert_equal "$(jq '.[0] > 500 and .[1] > .[0] * 0.8' sums)" true
    run kvr-stats sent
    assert_success
}
