#!/usr/bin/env bats
# The README does what it says: every ```sh block runs as printed, the recipes for workers run with
# stand-ins, and the demonstration prints what is shown.

load helper
load http

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    export no_proxy='*' NO_PROXY='*'
}

teardown() {
    stop_all
}

@test "the README's recipes run" {
    mkdir here
    cd here
    ln -s "$REPO/tests" tests
    mkdir build
    awk -v out=block- '/^```sh$/ { inside = 1; file = out (++n + 10) ".sh"; print "set -euo pipefail" > file; next }
        /^```$/ { inside = 0 } inside { print > file }' "$REPO/README.md"
    blocks=(block-*.sh)
    [ "${#blocks[@]}" -ge 10 ]
    for block in "${blocks[@]}"; do
        cat "$block"
        timeout 60 bash "$block" >"$block.out"
        [ -s "$block.out" ] || [ -s build/simulated.jsonl ]
    done
    # what they leave is where git does not look
    run find . -mindepth 1 -maxdepth 1 ! -name 'block-*' ! -name tests ! -name build
    assert_output ""
    grep -q '"candidates"' block-*.sh.out
    grep -q knee block-*.sh.out
    [ "$(wc -l <build/simulated.jsonl)" -ge 1000 ]
    [ -s build/report.html ] && [ -s build/kvr.prom ]
    grep -q '^ok .* cached prefix' block-*.sh.out
}

@test "the recipes of a router and a smoke test run, with stand-ins for the reader's workers" {
    mock a
    mock b
    grep -A 1 -x '```console' "$REPO/README.md" | grep -E '^kvr-(serve|smoke) ' |
        sed "s/127.0.0.1:8001/127.0.0.1:$a/; s/127.0.0.1:8002/127.0.0.1:$b/" >commands
    assert_equal "$(wc -l <commands)" 2
    grep '^kvr-smoke' commands >smoke
    sed -n 's/^kvr-serve /exec &--listen 0 /p' commands >front
    bash smoke
    bash front 2>said 3>&- &
    echo $! >>pids
    wait_for 'grep -q "listening on port" said'
    port=$(sed -n 's/.*listening on port //p' said | head -n 1)
    for _ in 1 2; do
        curl -s -o answer -D heads -d '{"model":"m","messages":[{"role":"user","content":"A question that is long enough to fill a block or two of sixteen tokens, and is asked twice."}]}' \
            "http://127.0.0.1:$port/v1/chat/completions"
    done
    grep -qi '^x-kvr-reason: cache-match' heads
    wait_for '[ "$(wc -l <access.jsonl)" = 2 ]'
    kvr-stats --every 1s <access.jsonl | grep '2 requests'
}

@test "the demonstration prints what the README shows" {
    need_shared traces/mooncake_conversation.jsonl.gz
    awk '/^```console$/ && !n++ { inside = 1; next } /^```$/ { inside = 0 } inside' "$REPO/README.md" >shown
    "$REPO/tests/demo" demo.png >printed
    diff <(grep -v '^ *picture:' shown) <(grep -v '^ *picture:' printed)
    [ -s demo.png ]
}
