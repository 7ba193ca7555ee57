#!/usr/bin/env bats
# The build as a packager meets it.

load helper

@test "install into DESTDIR, the installed tools run, uninstall leaves nothing" {
    cd "$REPO"
    run make -s install DESTDIR="$BATS_TEST_TMPDIR/root" prefix=/usr
    assert_success
    root=$BATS_TEST_TMPDIR/root/usr
    for program in "$BUILD"/bin/kvr*; do
        name=${program##*/}
        [ -x "$root/bin/$name" ]
        "$root/bin/$name" -V
        [ -s "$root/share/man/man1/$name.1" ]
        [ -s "$root/share/bash-completion/completions/$name" ]
        [ -s "$root/share/zsh/site-functions/_$name" ]
        [ -s "$root/share/fish/vendor_completions.d/$name.fish" ]
    done
    [ -s "$root/share/man/man7/kvr-stream.7" ]
    run "$root/bin/kvr" help
    assert_output --partial "find the longest reusable prefix on every worker"
    run env -u SHARED "$root/bin/kvr" demo "$BATS_TEST_TMPDIR/demo.png"
    assert_success
    assert_output --regexp '1000 requests of'
    assert_output --regexp 'cache-aware +[0-9.]+ % '
    assert_output --regexp 'picture: .*demo.png'
    [ -s "$BATS_TEST_TMPDIR/demo.png" ]
    make -s uninstall DESTDIR="$BATS_TEST_TMPDIR/root" prefix=/usr
    run find "$root" -type f
    assert_output ""
}

@test "a bare make builds all, whichever fragment comes first" {
    cd "$REPO"
    run bash -c "make -npq 2>/dev/null | grep '^.DEFAULT_GOAL'"
    assert_output ".DEFAULT_GOAL := all"
}

@test "kvr PROGRAM runs the program beside it, and says when there is none" {
    run kvr match -V
    assert_output --regexp '^kvr-match '
    run kvr nosuch
    assert_equal "$status" 2
    run kvr "$(printf 'a\033[2J')"
    assert_equal "$status" 2
    refute_output --partial $'\033'
    run bash -c 'kvr help >/dev/full'
    assert_equal "$status" 3
}

@test "manual pages are clean" {
    for page in "$BUILD"/man/*.[157]; do
        mandoc -Tlint -Wwarning "$page"
    done
}

@test "bash completes options and fixed values" {
    source "$BUILD"/completions/kvr-match.bash
    COMP_WORDS=(kvr-match --from m) COMP_CWORD=2
    _kvr-match
    assert_equal "${COMPREPLY[*]}" mooncake
    COMP_WORDS=(kvr-match --cap) COMP_CWORD=1
    _kvr-match
    assert_equal "${COMPREPLY[*]}" --capacity
    source "$BUILD"/completions/kvr-route.bash
    COMP_WORDS=(kvr-route --gpu = h2) COMP_CWORD=3 # what --gpu=h2 is split into
    _kvr-route
    assert_equal "${COMPREPLY[*]}" h200
    source <(kvr --help=bash)
    COMP_WORDS=(kvr ma) COMP_CWORD=1
    _kvr
    assert_equal "${COMPREPLY[*]}" match
    COMP_WORDS=(kvr evict --poli) COMP_CWORD=2
    _kvr
    assert_equal "${COMPREPLY[*]}" --policy
    COMP_WORDS=(kvr smoke --w) COMP_CWORD=2 # a script
    _kvr
    assert_equal "${COMPREPLY[*]}" --words
}

@test "completion scripts are of their shells" {
    for program in "$BUILD"/bin/kvr*; do
        "$program" --help=bash | bash -n
        ! command -v zsh >/dev/null || "$program" --help=zsh | zsh -n
        ! command -v fish >/dev/null || "$program" --help=fish | fish --no-execute
    done
}

@test "kvr help shows the page of a program or a subject" {
    run env MANPAGER=cat kvr help stream
    assert_output --partial "the lines that kvr programs read and write"
    run env MANPAGER=cat kvr help tutorial
    assert_output --partial "from a log to a router that is watched"
    run env MANPAGER=cat kvr help kvr
    assert_output --partial "one name for the programs"
    run env MANPAGER=cat kvr help kvr-match
    assert_output --partial "find the longest reusable prefix"
}

@test "shell scripts are clean" {
    cd "$REPO"
    run shellcheck -x tests/run tests/deps tests/mutants tests/gpu/check tests/demo tests/soak packaging/deb packaging/tarball examples/*.sh examples/common tests/fuzz/run tests/helper.bash tests/bench/*.sh tests/bench/all tests/bench/table
    assert_success
}

@test "plain make builds every program" {
    cd "$REPO"
    run make -pn
    assert_line ".DEFAULT_GOAL := all"
}

@test "a program links only what it uses" {
    command -v readelf >/dev/null || skip "needs readelf"
    needs() {
        readelf -d "$BUILD/bin/$1" | grep NEEDED
    }
    for program in kvr kvr-match kvr-route kvr-sim; do
        run needs "$program"
        assert_success
        refute_output --regexp 'curl|zmq|openblas|pcre2|msgpack'
    done
    run needs kvr-tokenize
    refute_output --regexp 'curl|zmq|openblas|msgpack'
    run needs kvr-send
    assert_output --partial curl
}
