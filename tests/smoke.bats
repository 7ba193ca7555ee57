#!/usr/bin/env bats
# kvr-smoke: a good worker passes, each fault is found. On real engines: real.bats.

load helper
load http

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    export no_proxy='*' NO_PROXY='*'
}

teardown() {
    stop_all
}

@test "a worker with its cache on passes, in TAP" {
    mock port --tokens 8 --gap 2 --prefill 20
    run kvr-smoke "http://127.0.0.1:$port/v1"
    assert_success
    assert_line 'ok 1 - http://127.0.0.1:'"$port"' is up'
    assert_line '# mock'
    assert_equal "${lines[-1]}" 1..9
}

@test "a cache that is off is found: the first mistake of the field" {
    mock port --tokens 8 --gap 2 --no-cache
    run kvr-smoke "http://127.0.0.1:$port"
    assert_failure 1
    assert_line --regexp '^not ok . - its prefix cache is on'
}

@test "several endpoints, one of them down" {
    mock port --tokens 8 --gap 2
    run kvr-smoke "http://127.0.0.1:$port" "http://127.0.0.1:$(free_port)"
    assert_failure 1
    assert_line --regexp '^not ok 10 - '
    assert_equal "$(grep -c 'SKIP it is not up' <<<"$output")" 8
    assert_equal "${lines[-1]}" 1..18
}

@test "through kvr-serve as well" {
    mock a --tokens 8 --gap 2
    serve port -w "a=http://127.0.0.1:$a"
    run kvr-smoke "http://127.0.0.1:$port"
    assert_success
}

@test "bad options" {
    run kvr-smoke
    assert_failure 2
    for bad in '-n x' '-n 0' '-n 1.5' '-nx' '--ratio .' '--ratio=x' '--ratio 1.2.3' '--nosuch' '-m x'; do
        # shellcheck disable=SC2086
        run kvr-smoke $bad http://127.0.0.1:1
        assert_failure 2
    done
    run kvr-smoke --model
    assert_failure 2
    assert_line "kvr-smoke: --model needs a value"
    run kvr-smoke --help
    assert_success
    assert_output "$(kvr-smoke -h)"
    run kvr help
    assert_output --regexp 'smoke +find out in thirty seconds'
}
