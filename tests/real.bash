# Real llama.cpp workers on loopback, for those who ask for them (KVR_REAL_WORKER=1): a tiny model of
# random weights whose prompt cache is a real one. They need PyPI once.
# shellcheck shell=bash

# real_folder: where their environment and model are kept.
real_folder() {
    echo "${KVR_REAL_WORKER_DIR:-$REPO/build/real-worker}"
}

# real_worker VARIABLE [LINE]: starts a worker on a free port, which VARIABLE gets; LINE is Python that
# changes its settings (p).
real_worker() {
    local -n real_port=$1
    local folder port pid
    folder=$(real_folder)
    port=$(free_port)
    mkdir -p "$folder"
    if [ ! -s "$folder/tiny.gguf" ] || [ ! -x "$folder/venv/bin/python" ]; then
        PORT=$port "$SHARED/worker/ci_worker.sh" "$folder" >"$folder/log" 2>&1 3>&- || return 1
        kill "$(cat "$folder/worker-$port.pid")"
        port=$(free_port)
    fi
    sed "s/^s = x.Server/${2:-pass}\n&/" "$SHARED/worker/worker.py" >"$BATS_TEST_TMPDIR/worker.py"
    "$folder/venv/bin/python" "$BATS_TEST_TMPDIR/worker.py" "$folder/tiny.gguf" "$port" 2 16384 >"$BATS_TEST_TMPDIR/worker-$port.log" 2>&1 3>&- &
    pid=$!
    echo "$pid" >>"$BATS_TEST_TMPDIR/pids"
    wait_for "curl -sf http://127.0.0.1:$port/health"
    # shellcheck disable=SC2034
    real_port=$port
}
