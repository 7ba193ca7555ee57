# What the bats files of HTTP programs share: mock workers, started and ended by their pids.
# shellcheck shell=bash

# mock VARIABLE OPTION...: starts a mock worker on a free port, which VARIABLE gets.
mock() {
    local -n port_of=$1
    local out
    shift
    out=$(mktemp "$BATS_TEST_TMPDIR/mock.XXXXXX")
    "$BUILD/mock/mock-worker" "$@" 0 >"$out" 2>/dev/null 3>&- &
    echo $! >>"$BATS_TEST_TMPDIR/pids"
    wait_for "[ -s '$out' ]"
    # shellcheck disable=SC2034
    port_of=$(head -n 1 "$out")
}

# wait_for COMMAND: until it succeeds, at most a minute: a test that waits for something to have
# happened is as good on a slow machine as on a fast one.
wait_for() {
    local until=$((SECONDS + 60))
    while ((SECONDS < until)); do
        eval "$1" >/dev/null 2>&1 && return 0
        sleep 0.05
    done
    echo "never came: $1" >&2
    return 1
}

# stop_all: ends what the test started, by pid.
stop_all() {
    local pid
    [ -e "$BATS_TEST_TMPDIR/pids" ] || return 0
    while read -r pid; do
        kill -CONT "$pid" 2>/dev/null
        kill "$pid" 2>/dev/null
    done <"$BATS_TEST_TMPDIR/pids"
    return 0
}

# count PORT NAME: a counter of a mock worker.
count() {
    curl -s --noproxy '*' "http://127.0.0.1:$1/counts" | jq ".$2"
}

# release PORT: what a mock worker holds goes on.
release() {
    curl -s --noproxy '*' -o /dev/null "http://127.0.0.1:$1/release"
}

# free_port: a port where nobody listens.
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# serve VARIABLE OPTION...: starts kvr-serve on a free port, which VARIABLE gets; SERVE_PID is its pid.
serve() {
    local -n served_port=$1
    shift
    : >"$BATS_TEST_TMPDIR/serve.err"
    kvr-serve --listen 0 "$@" 2>>"$BATS_TEST_TMPDIR/serve.err" 3>&- &
    SERVE_PID=$!
    echo "$SERVE_PID" >>"$BATS_TEST_TMPDIR/pids"
    wait_for "grep -q 'listening on port' '$BATS_TEST_TMPDIR/serve.err'"
    # shellcheck disable=SC2034
    served_port=$(sed -n 's/.*listening on port //p' "$BATS_TEST_TMPDIR/serve.err" | head -n 1)
}

# raw PORT TEXT [WAIT]: sends bytes (printf escapes) as they are and prints what comes back, until the
# other side closes or is silent.
raw() {
    python3 - "$@" <<'END'
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.settimeout(float(sys.argv[3]) if len(sys.argv) > 3 else 30)
s.sendall(sys.argv[2].encode().decode("unicode_escape").encode("latin-1"))
try:
    while True:
        got = s.recv(65536)
        if not got:
            print("<closed>")
            break
        sys.stdout.write(got.decode("latin-1"))
except socket.timeout:
    print("<silent>")
except ConnectionResetError:
    print("<reset>")
END
}

# metric PORT NAME: a value of kvr-serve's.
metric() {
    curl -s "http://127.0.0.1:$1/metrics" | sed -n "s/^$2\({.*}\)\{0,1\} //p" | jq -s add
}
