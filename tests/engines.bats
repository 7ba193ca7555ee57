#!/usr/bin/env bats
# Runs of the real engines through kvr-evict: every hit, every evicted id in its order, what was
# rejected or cut short, and vLLM's free queue at the end.

load helper

# trace_of RUN: the trace that a run's name says it is of
trace_of() {
    case $(basename "$1") in
    adversarial_*) echo trace_adversarial.json ;;
    dup_*) echo trace_dup.json ;;
    *) echo trace.json ;;
    esac
}

# compare FOLDER RUN...: replays each run's requests as it did and compares all that it says
compare() {
    local folder=$1 run engine capacity live requests wanted got
    shift
    for run; do
        case $(jq -r .engine "$folder/$run") in
        vllm*) engine=vllm ;;
        *) engine="sglang(strategy=$(jq -r .policy "$folder/$run"))" ;;
        esac
        capacity=$(jq -r '(.usable_blocks // .pages) | "\(.)b"' "$folder/$run")
        live=$(jq -r '.overlap // 0' "$folder/$run")
        requests=$(jq '.results | length' "$folder/$run")
        jq -c --argjson n "$requests" '.[:$n] | to_entries[] | .key as $i | .value | {id, hash_ids,
            output_hash_ids: .next_ids, input_length: (16 * (.hash_ids | length) + .tail_tokens),
            output_length: .output_tokens, priority: (if $i % 10 == 0 then 1 else 0 end)}' \
            "$folder/$(trace_of "$run")" >"$BATS_TEST_TMPDIR/trace"
        wanted=$(jq -c '(.results[] | {id, hit: (.hit_blocks // 0), evicted: (.evicted // []),
            truncated: (.truncated // false), rejected: (.rejected // false)}),
            (.final_free_queue // empty)' "$folder/$run")
        got=$(kvr-evict --engine "$engine" -c "$capacity" -b 16 --live "$live" --events --free-queue \
            "$BATS_TEST_TMPDIR/trace" |
            jq -nc '[inputs] | (reduce .[] as $l ([];
                if $l.event == "removed" then .[-1].evicted += $l.hash_ids
                elif $l.event then .
                else . + [{id: $l.id, hit: ($l.cache.hit / 16), evicted: [],
                    truncated: ($l.cache.truncated // false), rejected: ($l.cache.rejected // false)}]
                end) | .[]), (.[] | select(.event == "free_queue") | .hash_ids)')
        # a slice of a run ends before its queue is final
        [ "$(jq 'has("final_free_queue")' "$folder/$run")" = true ] ||
            got=$(jq -c 'select(type == "object")' <<<"$got")
        if [ "$got" != "$wanted" ]; then
            echo "$run differs:"
            diff <(echo "$wanted") <(echo "$got") | cut -c 1-300 | head -n 6
            return 1
        fi
    done
}

@test "slices of the real engines' runs" {
    cd "$DATA/engines" || return 1
    compare . ./*vllm_*.json ./*sglang_*.json
}

@test "the real engines' runs, with vLLM's free queue" {
    need_shared engines/trace.json
    cd "$SHARED/engines" || return 1
    compare . ./*vllm_*.json ./*sglang_*.json
}

@test "the free queue, by hand" {
    run kvr-evict --engine vllm -c 5b --json --free-queue <<<'{"hash_ids":[1,2],"input_length":40,"block_size":16}'
    assert_success
    assert_line --index 0 '{"event":"free_queue","worker":"w0","hash_ids":[null,null,null,2,1],"block_size":16}'
    run kvr-evict --engine sglang -c 5b --json --free-queue <<<'{"hash_ids":[1],"input_length":16,"block_size":16}'
    assert_success
    refute_output --partial free_queue
}

@test "stores beside the engine: chunks of 256 tokens from 16-token ids" {
    request() { jq -nc "{hash_ids:[range($1;$2)],input_length:(16*($2-$1)),block_size:16,timestamp:$3}"; }
    run kvr-evict --engine lmcache -c 4b -b 256 --json <<<"$(request 0 64 0; request 0 64 1; request 64 96 2)"
    assert_success
    assert_equal "$(jq -c '[.hits,.hit_tokens,.evictions]' <<<"$output")" "[4,1023,2]"
    # head first by lease, whole by group
    for group in off request; do
        run kvr-evict --engine "mooncake(lease=1,group=$group,watermark=0.5,ratio=0.1)" -c 6b -b 16 --events \
            <<<"$(request 0 4 0; request 9 10 50)"
        assert_success
        removed=$(jq -c 'select(.event == "removed") | .hash_ids[]' <<<"$output" | tr '\n' ' ')
        case $group in
        off) assert_equal "$removed" "0 1 " ;; # ceil(4 (4/6 - 0.5 + 0.1)) of them
        request) assert_equal "$removed" "0 1 2 3 " ;;
        esac
    done
}
