#!/usr/bin/env bats
# What a first user meets: input that is not there, a log of another program, a pipeline without its
# loop, goals that were not given.

load helper

# shellcheck disable=SC2154 # stderr is set by run --separate-stderr
@test "a study of a trace that cannot be read prints no table, and its pipeline ends in time" {
    for study in '--compare round-robin,cost' '--slo-ttft 2s --sweep rate=1:4' --summary; do
        # shellcheck disable=SC2086
        run --separate-stderr kvr-sim -w 2 $study "$BATS_TEST_TMPDIR/nosuch"
        assert_equal "$status" 3
        assert_output ""
    done
    run --separate-stderr kvr-sim -w 2 --compare cost,bogus "$(trace_slice)"
    assert_equal "$status" 2
    assert_output ""
    SECONDS=0
    run kvr-sim -w 2 -- 'kvr-match | kvr-route' /dev/null
    assert_success
    assert_output ""
    [ "$SECONDS" -lt 8 ]
}

@test "without goals kvr-sim tells no share within them; no line of its table ends in blanks" {
    run kvr-sim -w 8 --compare cost "$(trace_slice)"
    assert_line --regexp '^cost .* - +- +[0-9.]+ +0 +0$'
    refute_output --regexp '100\.0%'
    refute_line --regexp ' $'
}

@test "kvr-match without a loop says at the end that nothing can match" {
    run --separate-stderr kvr-match -w 2 "$(trace_slice)"
    assert_success
    assert_equal "$(grep -c '1000 requests have passed and no placement came back' <<<"$stderr")" 1
    run --separate-stderr kvr-match --against any "$(trace_slice)"
    assert_equal "$stderr" ""
}

@test "kvr-stats names what its verdict lacks, and only that" {
    run kvr-stats "$(trace_slice)"
    assert_output --partial "cannot tell: needs what each worker held (kvr-match), the worker chosen (route.worker);"
    run kvr-stats --from litellm "$DATA/formats/litellm.jsonl"
    assert_line "  cannot tell: needs block ids (kvr-tokenize), what each worker held (kvr-match)"
}

@test "done lines that repeat what requests brought along are not lost; others are, and in partials too" {
    kvr-sim -w 2 --events "$(trace_slice)" >"$BATS_TEST_TMPDIR/live"
    cd "$BATS_TEST_TMPDIR"
    assert_equal "$(grep -c '"event":"done"' live)" 1000
    run kvr-stats live
    refute_output --partial "without their request"
    run kvr-stats --merge < <(split -n l/3 --filter='kvr-stats --partial' live)
    refute_output --partial "done lines"
    run kvr-stats < <(grep -v '"request:7",' live; grep '"event":"done".*"request:7",' live)
    assert_line "  1000 done lines without their request"
    run kvr-stats <<<'{"event": "done", "timestamp": 1, "response": {"status": 200}}'
    assert_line "  1 done lines without their request"
}

@test "kvr-stats knows a log that tells it nothing, and prints no nan" {
    run kvr-stats <<<'{"ts": "03:00", "path": "/v1/chat/completions", "code": 200}'
    assert_output --partial "another program's log? --from and --map read those"
    run kvr-stats --from nginx "$DATA/formats/nginx.json"
    refute_output --partial nan
    refute_output --partial "another program's log"
}

@test "kvr-tokenize says when no line had anything to tokenize" {
    for threads in 1 2; do
        run --separate-stderr kvr-tokenize -j "$threads" <<<'{"text": "hi"}'
        assert_output '{"text": "hi"}'
        assert_equal "$(grep -c 'nothing was tokenized' <<<"$stderr")" 1
        run --separate-stderr kvr-tokenize -j "$threads" < <(printf '%s\n' '{"text": "hi"}' '{"prompt": "hi"}')
        assert_equal "$stderr" ""
        run --separate-stderr kvr-tokenize -j "$threads" <<<'{"hash_ids": [1]}'
        assert_equal "$stderr" ""
    done
}

@test "long names of workers stay apart in tables" {
    run kvr-stats <<'END'
{"input_length": 10, "route": {"worker": "vllm-deployment-7d9f8b6c5d-abcde"}}
{"input_length": 10, "route": {"worker": "vllm-deployment-7d9f8b6c5d-fghij"}}
END
    assert_line --regexp '9f8b6c5d-abcde +1 '
    assert_line --regexp '9f8b6c5d-fghij +1 '
}

@test "a line that jq cannot read is said like any other bad line" {
    run kvr-stats --map '"\(.a)"' <<<'{"a": 1'
    assert_equal "$status" 1
    assert_line 'kvr-stats: stdin:1: the JSON ends too early'
}
