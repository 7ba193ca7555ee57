#!/usr/bin/env bats
# Every ```sh block of the README runs as printed.

load helper

@test "the README's recipes run" {
    mkdir "$BATS_TEST_TMPDIR/here"
    cd "$BATS_TEST_TMPDIR/here"
    ln -s "$REPO/tests" tests
    awk -v out=block- '/^```sh$/ { inside = 1; file = out (++n) ".sh"; print "set -euo pipefail" > file; next }
        /^```$/ { inside = 0 } inside { print > file }' "$REPO/README.md"
    blocks=(block-*.sh)
    [ "${#blocks[@]}" -ge 6 ]
    for block in "${blocks[@]}"; do
        cat "$block"
        timeout 60 bash "$block" >"$block.out"
        [ -s "$block.out" ] || [ -s simulated.ndjson ]
    done
    grep -q '"candidates"' block-*.sh.out
    grep -q knee block-*.sh.out
    [ "$(wc -l <simulated.ndjson)" -ge 1000 ]
}
