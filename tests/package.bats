#!/usr/bin/env bats
# kvr as others take it: the library through pkg-config, Debian packages, the tarball.

load helper

setup() {
    cd "$REPO" || return 1
    [[ $BUILD != */san* ]] || skip "a sanitizer's build is not for others"
    root=$BATS_TEST_TMPDIR/root
}

# foreign_symbols FILE...: what they export and is not ours
foreign_symbols() {
    nm -D --defined-only "$@" | awk 'NF == 3 && $2 != "A" && $3 !~ /^kvr_/ { print $3 }'
}

@test "a program finds libkvr by pkg-config, is compiled, and runs" {
    make -s install prefix="$root"
    export PKG_CONFIG_PATH=$root/lib/pkgconfig
    assert_equal "$(pkg-config --modversion kvr)" "$(kvr -V | cut -d' ' -f2)"
    # shellcheck disable=SC2046
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror examples/embed.c $(pkg-config --cflags --libs kvr) -o "$BATS_TEST_TMPDIR/embed"
    LD_LIBRARY_PATH=$root/lib run "$BATS_TEST_TMPDIR/embed"
    assert_success
    assert_output "w1 holds 64 of 128 tokens"
    readelf -d "$BATS_TEST_TMPDIR/embed" | grep -F 'libkvr.so.0]'
    assert_equal "$(foreign_symbols "$root/lib/libkvr.so")" ""
    cd "$root/include/kvr"
    for header in */*.h; do # each stands alone
        ${CC:-cc} -std=gnu11 -Wall -Werror -fsyntax-only -I. -xc - <<<"#include \"$header\""
    done
    printf '#include "%s"\n' */*.h >"$BATS_TEST_TMPDIR/all.c" # and all of them together
    ${CC:-cc} -std=gnu11 -Wall -Werror -fsyntax-only -I. "$BATS_TEST_TMPDIR/all.c"
    cd "$BATS_TEST_TMPDIR"
    # The examples find their trace and programs there too.
    run env -u SHARED PATH=/usr/bin:/bin "$root/share/kvr/examples/failure.sh"
    assert_line --regexp '^drained +of w3 '
    cd "$REPO"
    make -s uninstall prefix="$root"
    assert_equal "$(find "$root" -not -type d)" ""
    assert_equal "$(find "$root" -name '*kvr*')" ""
}

@test "Debian packages: their parts, their dependencies, lintian" {
    command -v dpkg-shlibdeps >/dev/null || skip "needs dpkg-dev"
    make -s deb
    version=$(kvr -V | cut -d' ' -f2)_$(dpkg --print-architecture)
    for package in kvr libkvr0 libkvr-dev; do
        dpkg-deb -x "$BUILD/${package}_$version.deb" "$root"
    done
    "$root/usr/bin/kvr-match" -V
    env -u SHARED "$root/usr/bin/kvr" help | grep 'find the longest reusable prefix'
    zcat "$root"/usr/share/man/man7/kvr-stream.7.gz | mandoc -Tlint -Wwarning
    for library in libjq1 libsimdjson14 libcurl4 libopenblas0; do
        dpkg-deb -f "$BUILD/kvr_$version.deb" Depends | grep -F "$library"
    done
    run dpkg-deb -f "$BUILD/libkvr0_$version.deb" Depends
    refute_output --regexp 'curl|zmq|openblas'
    if command -v lintian >/dev/null; then
        run lintian --allow-root --fail-on error,warning "$BUILD"/*kvr*_"$version".deb
        assert_success
    fi
}

@test "the tarball runs from where it is unpacked" {
    make -s tarball
    mkdir -p "$root"
    tar -xzf "$BUILD"/kvr-*-linux-*.tar.gz -C "$root" --strip-components 1
    run ldd "$root/bin/kvr-match"
    assert_output --partial "$root/bin/../lib/kvr/libjq"
    assert_output --partial "$root/bin/../lib/kvr/libonig"
    refute_output --regexp 'lib(z|xxhash|curl)\.'
    "$root/bin/kvr" help | grep 'choose a worker'
    MANPAGER=cat "$root/bin/kvr" help tutorial | grep 'from a log to a router that is watched'
    MANPAGER=cat "$root/bin/kvr" help match | grep 'find the longest reusable prefix'
    for program in "$root"/bin/kvr-*; do "$program" -V; done
    cd "$BATS_TEST_TMPDIR"
    mkfifo loop
    PATH=$root/bin:/usr/bin:/bin
    kvr-match -w 4 --loop loop "$(trace_slice)" | kvr-route | tee loop | kvr-stats --json >report
    assert_equal "$(jq .requests report)" 1000
}
