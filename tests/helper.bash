# What the bats files share: paths, a scratch folder, gentle comparison.
# shellcheck shell=bash
bats_require_minimum_version 1.8.0
bats_load_library bats-support
bats_load_library bats-assert

REPO=$(cd "${BATS_TEST_DIRNAME:-tests}/.." && pwd)
export REPO BUILD=${BUILD:-build}
case $BUILD in /*) ;; *) BUILD=$REPO/$BUILD ;; esac
export PATH=$BUILD/bin:$PATH
SHARED=${SHARED:-../shared}
case $SHARED in /*) ;; *) SHARED=$REPO/$SHARED ;; esac
export SHARED
DATA=$REPO/tests/data
export DATA

# need_shared FILE: skips the test by name where the shared data is not laid.
need_shared() {
    [ -e "$SHARED/$1" ] || skip "needs $1 of the shared data"
}

# trace_slice: a small real trace that is in the repository.
trace_slice() {
    echo "$DATA/mooncake_conversation_1k.jsonl.gz"
}
