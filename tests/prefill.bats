#!/usr/bin/env bats
# kvr-prefill: what it adds, what it skips, what it measures, what it says is missing.

load helper

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    tiny=(--backend cpu --model tiny --threads 2 --capacity 4096)
}

# counts LINES OPTION...: "tokens cached" a request.
counts() {
    local lines=$1
    shift
    kvr-prefill "${tiny[@]}" "$@" <<<"$lines" | jq -r '[.prefill.tokens, .prefill.cached] | join(" ")'
}

@test "prefill has its members, behind all others, and replaces an old one" {
    run kvr-prefill "${tiny[@]}" <<<'{"id":7,"prefill":1,"input_length":300,"x":[1.0]}'
    assert_success
    assert_output --regexp '^\{"id":7,"input_length":300,"x":\[1.0\],"prefill":\{"ms":[0-9.]+,"tokens":300,"cached":0,"tflops":[0-9.]+,"mfu":[0-9.]+,"backend":"cpu","device":".*2 threads.*"\}\}$'
    run jq -e '.prefill.ms > 0 and .prefill.tflops > 0 and .prefill.mfu > 0' <<<"$output"
    assert_success
}

@test "events and rejected requests pass" {
    input='{"event":"done","id":1}
{"id":2,"route":{"worker":null,"reason":"rejected"},"input_length":5}'
    run kvr-prefill "${tiny[@]}" <<<"$input"
    assert_success
    assert_output "$input"
}

@test "the line's word: cache.hit, then match of the worker, then route.matched" {
    run counts '{"input_length":300,"cache":{"hit":64},"match":{"a":10}}
{"input_length":300,"match":{"a":10,"b":20},"route":{"worker":"a","matched":30}}
{"input_length":300,"match":{"a":10,"b":20}}
{"input_length":300,"match":{},"route":{"worker":"a","matched":30}}
{"input_length":300,"route":{"worker":"a","matched":30}}
{"input_length":300,"route":{"worker":"a","matched":900}}'
    assert_success
    assert_output "236 64
290 10
280 20
300 0
270 30
1 299"
}

@test "its own cache: leading blocks, LRU, the last token always computed" {
    local input='{"input_length":1100,"hash_ids":[1,2,3]}
{"input_length":1024,"hash_ids":[1,2]}
{"input_length":1500,"hash_ids":[1,9,8]}'
    run counts "$input"
    assert_output "1100 0
1 1023
988 512"
    run counts "$input" --cached none
    assert_output "1100 0
1024 0
1500 0"
    run counts "$input" --cached line
    assert_output "1100 0
1024 0
1500 0"
    # four blocks of room: 5 and 6 push out the end of 1, 2 and then its beginning
    run counts '{"input_length":1024,"hash_ids":[1,2]}
{"input_length":1536,"hash_ids":[5,6,7]}
{"input_length":1024,"hash_ids":[1,2]}
{"input_length":600,"hash_ids":[5,99]}' --capacity 2048
    assert_output "1024 0
1536 0
512 512
88 512"
    run counts '{"input_length":100,"hash_ids":[1,2],"block_size":64}
{"input_length":100,"hash_ids":[1,3],"block_size":64}'
    assert_output "100 0
36 64"
}

@test "a skipped prefix takes no time: 99 % cached is several times faster" {
    kvr-prefill "${tiny[@]}" --table -n 2048 --repeats 3 >table
    run awk '/^ *0 %/ { whole = $5 } /^ *99 %/ { print (whole > 5 * $5) ? "faster" : "not: " whole " " $5 }' table
    assert_output faster
    run grep -c '%' table
    assert_output 4
}

@test "bad lines are told and the others go on" {
    run bash -c 'printf "%s\n" "{\"hash_ids\":[]}" "{\"input_length\":9999}" "{\"input_length\":5,\"match\":{\"a\":\"x\"}}" \
        "{\"token_ids\":[1,\"x\"]}" "{\"token_ids\":[1,2]}" | kvr-prefill --backend cpu --model tiny --capacity 4096 2>err | jq .prefill.tokens; cat err'
    assert_line 2
    assert_line --partial "stdin:1: the prompt has no tokens"
    assert_line --partial "stdin:2: a prompt of 9999 tokens does not fit"
    assert_line --partial "stdin:3: 'match'"
    assert_line --partial "stdin:4: 'token_ids'"
}

@test "what a line says wrongly is that line's fault alone" {
    run bash -c 'printf "%s\n" "{\"input_length\":50,\"block_size\":7}" "{\"input_length\":50,\"block_size\":1000000}" \
        "{\"input_length\":5,\"token_ids\":\"x\"}" "{\"input_length\":5,\"cache\":{\"hit\":null}}" | kvr-prefill --backend cpu --model tiny --capacity 1024 2>err | jq -c [.prefill.tokens,.prefill.cached]; cat err'
    assert_line --index 0 "[5,0]"
    assert_line --partial "stdin:1: a block of 7 tokens is no multiple"
    assert_line --partial "stdin:2: the capacity is less than a block of 1000000"
    assert_line --partial "stdin:3: 'token_ids'"
    # a line that is refused leaves nothing in the cache of its own
    python3 "$REPO/tests/model_files.py" . llama BF16
    run bash -c 'printf "%s\n" "{\"token_ids\":[1,2,3,999],\"hash_ids\":[5,6]}" "{\"token_ids\":[1,2,3,4],\"hash_ids\":[5,6]}" |
        kvr-prefill --weights . -b 2 --page-size 1 --capacity 16 2>/dev/null | jq -c [.prefill.tokens,.prefill.cached]'
    assert_output "[4,0]"
}

# end PID: tells a program to end; its status is then in $status.
end() {
    status=0
    kill -TERM "$1"
    wait "$1" || status=$?
}

@test "a signal ends a measurement and a long prefill at once, after what was whole" {
    kvr-prefill --backend cpu --model tiny --capacity 400000 --table -n 400000 >table 3>&- &
    sleep 1
    end $!
    assert_equal "$status" 143
    printf '%s\n' '{"input_length":5}' '{"input_length":400000}' >lines
    kvr-prefill "${tiny[@]}" --capacity 400384 lines >out 3>&- &
    for _ in $(seq 600); do
        [ ! -s out ] || break
        sleep 0.1
    done
    end $!
    assert_equal "$status" 143
    run jq -c .prefill.tokens out
    assert_output 5
}

@test "the model backend predicts what kvr-route predicts" {
    line='{"input_length":4096,"match":{"w0":1000}}'
    routed=$(kvr-route -w 1 --model llama-3.1-70b --gpu 8xh100 <<<"$line" | jq .route.prefill_ms)
    run bash -c "kvr-prefill --backend model --model llama-3.1-70b --gpu 8xh100 <<<'$line' | jq .prefill.ms"
    assert_success
    assert_output "$routed"
    run kvr-prefill --backend model --model nosuch <<<"$line"
    assert_equal "$status" 2
    run kvr-prefill --backend model --table
    assert_equal "$status" 2
}

@test "a calibration is a cost file that others take, and says how well it fits" {
    kvr-prefill "${tiny[@]}" --calibrate -n 256 --repeats 1 --disk . >cost.json
    run jq -e '.prefill.token_ms > 0 and .kv_bytes_per_token == 1536
        and (.description | .prefill_fit_error < 5 and .decode_fit_error > 0 and (.decode | length) == 8 and ([.decode[].sequences] | unique) == [1,4,16] and .disk_read_gb_per_s > 0 and .memory_copy_gb_per_s > 0 and .kv_to_host_gb_per_s > 0 and .kv_from_host_gb_per_s > 0 and (.prefill | length) == 9)' cost.json
    assert_success
    run kvr-route --cost cost.json -w 2 <<<'{"input_length":1000}'
    assert_success
    kvr-route --cost cost.json --explain-cost
    # a decode step of the file's samples is predicted as the file says
    run kvr-sim -w 1 --cost cost.json -- 'kvr-match | kvr-route' <<<'{"timestamp":0,"input_length":1000,"output_length":20,"hash_ids":[1]}'
    assert_success
    assert_output --partial '"e2e_ms"'
    run kvr-prefill --backend model --cost cost.json <<<'{"input_length":1000}'
    assert_success
    # the prediction is the formula of the file
    run jq -e --slurpfile cost cost.json '($cost[0].prefill | .overhead_ms + 1000 * .token_ms + 500000 * .pair_ms) as $expected
        | (.prefill.ms - $expected) | fabs < 0.01' <<<"$output"
    assert_success
    assert [ -z "$(find . -name 'kvr-prefill-*')" ]
}

@test "the KV codec: ratio, rates and errors of KV that was computed, by level" {
    for level in fine medium coarse; do
        run kvr-prefill "${tiny[@]}" --kv-codec "$level" -n 400 --repeats 1
        assert_success
        echo "$output" >>measured
    done
    run jq -es 'map(.kv_codec) | map(.level) == ["fine", "medium", "coarse"]
        and all(.tokens == 384 and .raw_bytes == 384 * 1536 and .logits.tokens == 16
            and (.ratio * .bytes / .raw_bytes - 1 | fabs) < 1e-3
            and .pack_mb_per_s > 0 and .unpack_mb_per_s > 0 and .error > 0 and .backend == "cpu")
        and (.[0].ratio < .[1].ratio and .[1].ratio < .[2].ratio and .[1].ratio > 3)
        and (.[0].error < .[1].error and .[1].error < .[2].error and .[0].error < 0.05)
        and (.[0].logits.error < .[2].logits.error and .[0].logits.same_top >= 0.9)' measured
    assert_success
    # the same bytes on any number of threads, and any page size
    for threads in 1 3; do
        kvr-prefill "${tiny[@]}" --kv-codec coarse -n 400 --repeats 1 --threads "$threads" --page-size $((threads * 5)) |
            jq -c '.kv_codec | [.bytes, .error, .logits]'
    done >some
    run bash -c 'sort -u some | wc -l'
    assert_output 1
}

@test "the KV codec takes the tokens of files, and stands in a cost file" {
    printf '%s\n' '{"input_length":3}' '{"token_ids":[5,6,7,8,9,10,11,12]}' '{"token_ids":[1,2,3,4]}' >lines
    run kvr-prefill "${tiny[@]}" --kv-codec medium --repeats 1 lines
    assert_success
    run jq -c '.kv_codec | [.tokens, .logits.tokens]' <<<"$output"
    assert_output '[9,3]'
    run kvr-prefill "${tiny[@]}" --kv-codec medium <(echo '{"input_length":3}')
    assert_equal "$status" 3
    assert_output --partial "have no 'token_ids'"
    kvr-prefill "${tiny[@]}" --calibrate --kv-codec fine -n 64 --repeats 1 >cost.json
    run jq -e '.description.kv_codec.ratio > 1' cost.json
    assert_success
    run kvr-route --cost cost.json -w 2 <<<'{"input_length":1000}'
    assert_success
    run kvr-prefill "${tiny[@]}" --kv-codec fine -n 4000
    assert_equal "$status" 2
    assert_output --partial "see --capacity"
    run kvr-prefill "${tiny[@]}" --kv-codec rough
    assert_equal "$status" 2
    run kvr-prefill "${tiny[@]}" --kv-codec fine --table
    assert_equal "$status" 2
}

@test "smoke: the processor is tested, TAP is TAP, a missed rate fails" {
    run kvr-prefill --smoke --tap "${tiny[@]}" --seconds 0.1
    assert_success
    assert_line --index 0 "TAP version 13"
    assert_line --partial "- cached prefix"
    assert_line --partial "- sustained load: 0 changed"
    assert_line "1..5"
    run kvr-prefill --smoke "${tiny[@]}" --expect 100000
    assert_equal "$status" 1
    assert_line --regexp '^FAIL +matrix product'
    assert_line "1 of 4 checks failed"
}

@test "without a GPU: says what is missing, exits 4, and the rest works" {
    run -0 bash -c 'ldconfig -p 2>/dev/null | grep -c libcuda.so.1 || true'
    [ "$output" = 0 ] || skip "there is a CUDA driver here"
    run kvr-prefill --backend cuda --model tiny <<<'{"input_length":5}'
    assert_equal "$status" 4
    assert_output --regexp '^kvr-prefill: no CUDA: the driver.s libcuda.so.1'
    run kvr-prefill --smoke
    assert_equal "$status" 4
    assert_output --regexp '^kvr-prefill: no GPU: '
    run kvr-prefill --model tiny <<<'{"input_length":5}'
    assert_success
    assert_output --partial '"backend":"cpu"'
}

@test "options out of range" {
    for options in "--page-size 0" "--capacity 0" "--block-size 0" "--threads 5000" "--repeats 0" "--table --smoke" \
        "--table -n 0" "--table -n 100000" "--calibrate -n 10" "--model mixtral-8x7b" "--backend tpu" "--seconds x" "--tp 0" "--tp 2" --fp8; do
        # shellcheck disable=SC2086
        run kvr-prefill --backend cpu --model tiny $options </dev/null
        assert_equal "$options $status" "$options 2"
    done
    run kvr-prefill --backend cpu --model llama-3.1-405b </dev/null
    assert_equal "$status" 4
    assert_output --regexp 'takes [0-9.]+ GiB and this machine has'
    run kvr-prefill --backend cpu --model tiny --page-size 10 <<<'{"input_length":5}'
    assert_equal "$status" 2
    assert_output --partial "no multiple of a page of 10"
}

# top OPTION...: the likeliest tokens of the prompts on standard input, a line each.
top() {
    kvr-prefill --backend cpu --threads 2 --capacity 2048 --block-size 64 --top 5 "$@" | jq -c .prefill.top
}

@test "--weights: both formats, whole or in pieces, give the same next tokens to the last digit" {
    for family in llama qwen2 qwen3; do
        python3 "$REPO/tests/model_files.py" "$family" "$family" BF16
        prompts=$(jq -cn 'range(20) as $i | {token_ids: [range(3 + $i * 7) | (. * 31 + $i) % 200]}')
        top --weights "$family/model.gguf" <<<"$prompts" >gguf
        assert_equal "$(jq -s 'length == 20 and all(length == 5 and .[0].logprob < 0)' gguf)" true
        assert [ "$(sort -u gguf | wc -l)" -gt 10 ]
        for other in "$family" "$family/model.safetensors" "$family/pieces" "$family/pieces/model.safetensors.index.json"; do
            top --weights "$other" <<<"$prompts" >again
            run cmp gguf again
            assert_success
        done
        # threads, pages and what else is cached change nothing
        top --weights "$family" --threads 1 --page-size 1 <<<"$prompts" >again
        run cmp gguf again
        assert_success
    done
    run cmp <(top --weights llama <<<"$prompts") <(top --weights qwen3 <<<"$prompts")
    assert_failure
}

@test "--weights: a cached prefix is skipped and changes no digit" {
    python3 "$REPO/tests/model_files.py" . llama F16
    line='{"token_ids":'$(jq -cn '[range(200) | . * 7 % 200]')',"hash_ids":[11,12,13],"match":{"w0":128}}'
    kvr-prefill --weights model.gguf --top 3 --capacity 1024 --block-size 64 <<<"$line
$line" >out
    run jq -c '[.prefill.tokens, .prefill.cached]' out
    assert_output "[200,0]
[8,192]"
    run jq -s '.[0].prefill.top == .[1].prefill.top' out
    assert_output true
}

@test "--weights: what is wrong is said by name" {
    python3 "$REPO/tests/model_files.py" . llama BF16
    run kvr-prefill --weights model.gguf --top 1 <<<'{"token_ids":[1,200]}'
    assert_equal "$status" 1
    assert_output --partial "stdin:1: token 200 is not in the model's vocabulary of 200"
    for options in "--backend cuda" "--backend model" "--smoke" "--top 5000" "--top 1 --table" "--top 1 --cached line"; do
        # shellcheck disable=SC2086
        run kvr-prefill --weights model.gguf $options </dev/null
        assert_equal "$options $status" "$options 2"
    done
    head -c 5000 model.gguf >short.gguf
    run kvr-prefill --weights short.gguf </dev/null
    assert_equal "$status" 3
    assert_output --regexp "'short.gguf': (tensor|damaged)"
    for missing in nosuch.gguf /dev/null . ; do
        (cd pieces && mkdir -p empty && cd empty && run kvr-prefill --weights "$missing" </dev/null && assert_equal "$status" 3)
    done
    echo '{"weight_map":{"x":"../model.safetensors"}}' >pieces/model.safetensors.index.json
    run kvr-prefill --weights pieces </dev/null
    assert_equal "$status" 3
    assert_output --partial "not in its own folder"
    sed -i 's/"llama"/"mamba"/' config.json
    run kvr-prefill --weights . </dev/null
    assert_equal "$status" 4
    assert_output --partial "architecture 'mamba'"
    rm config.json
    mkfifo config.json
    run timeout 20 kvr-prefill --weights . </dev/null
    assert_equal "$status" 3
    assert_output --partial "config.json' is no regular file"
}

@test "--weights: a model that computes no numbers is said to, and not measured" {
    python3 "$REPO/tests/model_files.py" . qwen3 BF16
    python3 - <<'END'
import struct
data = bytearray(open("model.safetensors", "rb").read())
first = 8 + struct.unpack("<Q", data[:8])[0]
for at in range(first, len(data), 2):
    data[at:at + 2] = b"\xc0\x7f" # not a number
open("model.safetensors", "wb").write(data)
END
    run kvr-prefill --backend cpu --weights . --top 1 <<<'{"token_ids":[1,2,3]}'
    assert_equal "$status" 1
    assert_output --partial "stdin:1: the logits are not finite numbers"
    run kvr-prefill --backend cpu --weights . --kv-codec medium -n 64 --repeats 1
    assert_equal "$status" 3
    assert_output --partial "the model's keys and values are not finite numbers"
}

# The peer is llama.cpp, from PyPI: KVR_REAL_WORKER=1 asks for it.
@test "--weights: the next tokens are those of llama.cpp" {
    [ "${KVR_REAL_WORKER:-}" ] || skip "KVR_REAL_WORKER=1 asks for it"
    need_shared worker/ci_worker.sh
    folder=${KVR_REAL_WORKER_DIR:-$REPO/build/real-worker}
    PORT=18481 "$SHARED/worker/ci_worker.sh" "$folder" >/dev/null 2>&1 3>&-
    kill "$(cat "$folder/worker-18481.pid")"
    for family in "" qwen2 qwen3; do
        run env ${family:+FAMILY=$family} "$folder/venv/bin/python" "$REPO/tests/llama_peer.py" "$folder/tiny.gguf" 20
        echo "$output"
        assert_success
    done
}
