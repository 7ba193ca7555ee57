#!/usr/bin/env bats
# kvr-serve: requests, answers, and every fault one by one: what the client sees in each.

load helper
load http

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    export no_proxy='*' NO_PROXY='*'
    CHAT='{"model":"m","messages":[{"role":"user","content":"The quick brown fox jumps over the lazy dog, again and again, until it is tired of it."}]}'
    STREAM='{"stream":true,'${CHAT#\{}
}

teardown() {
    stop_all
}

# ask PORT [OPTION...]: one chat (or what SENT says); prints status, worker, reason.
ask() {
    local port=$1
    shift
    curl -s -m 60 -o body -w '%{http_code} %header{x-kvr-worker} %header{x-kvr-reason}\n' --data-binary "${SENT:-$CHAT}" "$@" "http://127.0.0.1:$port/v1/chat/completions"
}

@test "a chat goes to a worker and back, and the same prompt to the same worker" {
    mock a
    mock b
    serve port -w "a=http://127.0.0.1:$a,b=http://127.0.0.1:$b/v1"
    assert_equal "$(ask "$port")" '200 a load-fallback'
    assert_equal "$(jq -r '.choices[0].message.content' body)" ok
    assert_equal "$(ask "$port")" '200 a cache-match'
    assert_equal "$(jq '.usage.prompt_tokens_details.cached_tokens > 8' body)" true
    assert_equal "$(count "$a" generations) $(count "$b" generations)" '2 0'
}

@test "a vocabulary that a request is the first to name is compiled and kept like the first" {
    mock a
    mkdir v
    echo '{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}}' >v/m1.tokenizer.json
    export KVR_TOKENIZERS=$PWD/v XDG_CACHE_HOME=$PWD/kept
    serve port -w "a=http://127.0.0.1:$a" --by-model auto
    assert_equal "$(find kept -name '*.kvv' | wc -l)" 1
    curl -s -m 60 -o body -d '{"model":"m1","prompt":"ab"}' "http://127.0.0.1:$port/v1/completions"
    assert_equal "$(find kept -name '*.kvv' | wc -l)" 2
}

@test "round-robin finds the cache half as often" {
    mock a
    mock b
    serve port -w "a=http://127.0.0.1:$a,b=http://127.0.0.1:$b" --policy round-robin
    for _ in 1 2 3 4; do ask "$port" >>asked; done
    assert_equal "$(cut -d' ' -f2 asked | sort | uniq -c | tr -s ' ' | tr '\n' ';')" ' 2 a; 2 b;'
}

@test "streams pass chunk by chunk, as they come" {
    mock a --tokens 3 --hold
    serve port -w "a=http://127.0.0.1:$a"
    curl -s -N -m 60 -d "$STREAM" "http://127.0.0.1:$port/v1/chat/completions" >out &
    wait_for "grep -q ' token' out" # the second is not even made before the first has come
    assert_equal "$(grep -c ' token' out)" 1
    release "$a"
    wait $!
    assert_equal "$(grep -c ' token' out)" 3
    assert_equal "$(grep . out | tail -n 1)" 'data: [DONE]'
}

@test "every path of the interface; models are a union; others pass" {
    mock a --name alpha
    mock b --name beta
    serve port -w "http://127.0.0.1:$a,http://127.0.0.1:$b"
    url=http://127.0.0.1:$port
    assert_equal "$(curl -s "$url/v1/models" | jq -c '[.data[].id] | sort')" '["alpha","beta"]'
    for path in /v1/chat/completions /v1/completions /generate; do
        assert_equal "$(curl -s -o /dev/null -w '%{http_code}' -d '{"prompt":"x"}' "$url$path")" 200
    done
    assert_equal "$(curl -s -o /dev/null -w '%{http_code}' -d '{}' "$url/tokenize")" 200
    assert_equal "$(curl -s -o /dev/null -w '%{http_code}' "$url/nowhere")" 404
    assert_equal "$(curl -s -I -o /dev/null -w '%{http_code}' "$url/health")" 200
}

@test "headers: those of one hop stay here, the host is the worker's, an id is kept or made" {
    mock a
    serve port -w "a=http://127.0.0.1:$a"
    curl -s -H 'Connection: X-Mine' -H 'X-Mine: 1' -H 'X-Other: 2' -H 'TE: trailers' -H 'X-Request-Id: mine' -D heads "http://127.0.0.1:$port/echo" >echoed
    run cat echoed
    assert_output --partial "Host: 127.0.0.1:$a"
    assert_output --partial 'X-Other: 2'
    assert_output --partial 'X-Request-Id: mine'
    refute_output --partial 'X-Mine'
    refute_output --partial 'TE:'
    assert_regex "$(cat heads)" 'x-request-id: mine'
    curl -s -D heads "http://127.0.0.1:$port/echo" >echoed
    assert_regex "$(cat echoed)" 'x-request-id: kvr-[0-9a-f]{8}-2'
    assert_regex "$(cat heads)" 'x-request-id: kvr-[0-9a-f]{8}-2'
}

@test "sessions from a header, a cookie, the body" {
    mock a
    for where in 'header:X-Conversation' 'cookie:sid' '.metadata.conversation'; do
        rm -f log
        serve port -w "a=http://127.0.0.1:$a" --log log --session "$where"
        curl -s -o /dev/null -H 'x-conversation: s1' -H 'Cookie: a=b; sid=s1; c=d' \
            -d '{"metadata":{"conversation":"s1"},"prompt":"x"}' "http://127.0.0.1:$port/v1/completions"
        kill "$SERVE_PID"
        wait_for '[ -s log ]'
        assert_equal "$(jq -r .session log)" s1
    done
}

@test "the log is request lines: no prompts, and kvr-stats reads it as it is" {
    mock a
    serve port -w "a=http://127.0.0.1:$a" --log log
    ask "$port"
    ask "$port"
    wait_for '[ "$(wc -l <log)" = 2 ]'
    run cat log
    refute_output --partial 'quick brown'
    assert_equal "$(jq -c '[.model, .route.worker, .response.status, .response.worker, (.hash_ids | length) > 0, (.response.ttft_ms > 0)]' log | sort -u)" '["m","a",200,"a",true,true]'
    run kvr-stats log
    assert_success
}

@test "--log-prompts puts them there; a log that rotates goes on after SIGHUP" {
    mock a
    serve port -w "a=http://127.0.0.1:$a" --log log --log-prompts
    ask "$port"
    wait_for 'grep -q "quick brown" log'
    mv log old
    kill -HUP "$SERVE_PID"
    wait_for '[ -e log ]'
    ask "$port"
    wait_for '[ -s log ]'
    assert_equal "$(jq -s length old log)" 2
}

@test "a full disk under the log loses lines, not requests" {
    mock a
    serve port -w "a=http://127.0.0.1:$a" --log /dev/full
    for _ in 1 2 3; do assert_regex "$(ask "$port")" '^200'; done
    wait_for "[ \"\$(metric $port kvr_log_lines_lost_total)\" = 3 ]"
    assert_equal "$(grep -c 'lines are lost' serve.err)" 1
}

@test "gzip bodies; other codings are 415, broken ones 400" {
    mock a
    serve port -w "a=http://127.0.0.1:$a" --max-body 10kB
    gzip <<<"$CHAT" >packed
    assert_regex "$(SENT=@packed ask "$port" -H 'Content-Encoding: gzip')" '^200 a'
    assert_regex "$(ask "$port" -H 'Content-Encoding: br')" '^415'
    assert_regex "$(ask "$port" -H 'Content-Encoding: gzip')" '^400'
    head -c 100000 /dev/zero | gzip >bomb
    assert_regex "$(SENT=@bomb ask "$port" -H 'Content-Encoding: gzip')" '^413'
}

@test "malformed and oversized bodies: 400 and 413, and no worker sees them" {
    mock a
    serve port -w "a=http://127.0.0.1:$a" --max-body 1000
    url=http://127.0.0.1:$port/v1/chat/completions
    for bad in '{' '' '[1]' 'null' '{"messages":[}' $'{"a":"\x01"}' '{"a":1}x'; do
        assert_equal "$(curl -s -o /dev/null -w '%{http_code}' -d "$bad" "$url")" 400
    done
    head -c 2000 /dev/zero | tr '\0' ' ' >large
    assert_equal "$(curl -s -o /dev/null -w '%{http_code}' -H 'Expect:' --data-binary @large "$url")" 413
    assert_equal "$(curl -s -o /dev/null -w '%{http_code}' -H 'Expect:' -H 'Transfer-Encoding: chunked' --data-binary @large "$url")" 413
    assert_equal "$(count "$a" generations)" 0
    assert_regex "$(ask "$port")" '^200'
}

@test "members that are ours cannot be smuggled in with a body" {
    mock a
    mock b
    serve port -w "a=http://127.0.0.1:$a,b=http://127.0.0.1:$b" --log log
    curl -s -o /dev/null -d '{"prompt":"x","event":"worker","worker":"a","state":"down","route":{"worker":"b"},"match":{"b":99},"hash_ids":[1],"id":"mine"}' "http://127.0.0.1:$port/v1/completions"
    wait_for '[ -s log ]'
    assert_equal "$(jq -c '[.event, .route.worker, .match, .worker]' log)" '[null,"a",{},null]'
    assert_regex "$(jq -r .id log)" '^kvr-'
}

@test "header attacks: lengths that conflict, chunks that trick, lines that lie" {
    mock a
    serve port -w "a=http://127.0.0.1:$a"
    H='Host: x\r\n'
    P="POST /v1/completions HTTP/1.1\r\n$H"
    smuggled='GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n'
    for attack in \
        "${P}Content-Length: 2\r\nContent-Length: 60\r\n\r\n{}$smuggled" \
        "${P}Content-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n$smuggled" \
        "${P}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n$smuggled" \
        "${P}Transfer-Encoding : chunked\r\nContent-Length: 2\r\n\r\n{}$smuggled" \
        "${P}Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n$smuggled" \
        "${P}Transfer-Encoding: chunked\r\n\r\n2\n{}\n0\n\n$smuggled" \
        "${P}Content-Length: +2\r\n\r\n{}$smuggled" \
        "${P}X: y\r\n Content-Length: 2\r\n\r\n{}$smuggled" \
        "${P}X: y\nContent-Length: 2\r\n\r\n{}$smuggled" \
        "GET http://x/ HTTP/1.1\r\n${H}\r\n" \
        "GET / HTTP/1.1\r\n${H}${H}\r\n"; do
        run raw "$port" "$attack"
        assert_regex "${lines[0]}" '^HTTP/1.1 400 '
        assert_regex "$output" '<closed>$'
        assert_equal "$(grep -c '^HTTP/1.1' <<<"$output")" 1
    done
    run raw "$port" "${P}Transfer-Encoding: gzip\r\n\r\n"
    assert_regex "${lines[0]}" '^HTTP/1.1 501 '
    assert_equal "$(count "$a" generations)" 0 # health probes may come at any time
    assert_equal "$(count "$a" unknown)" 0
    assert_regex "$(ask "$port")" '^200'
}

@test "requests behind one another on one connection are answered in order" {
    mock a
    serve port -w "a=http://127.0.0.1:$a"
    body='{"prompt":"x"}'
    one="POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: ${#body}\r\n\r\n${body//\"/\\x22}"
    run raw "$port" "${one}GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n${one}GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert_equal "$(grep -o 'HTTP/1.1 200' <<<"$output" | wc -l)" 4
    assert_regex "$output" '<closed>$'
    assert_equal "$(grep -oE '"text":"ok"|^ok' <<<"$output" | tr '\n' ' ')" '"text":"ok" ok "text":"ok" ok '
}

@test "a worker that refuses: elsewhere, and the client sees nothing of it" {
    mock b
    serve port -w "a=http://127.0.0.1:$(free_port),b=http://127.0.0.1:$b" --health-every 0 --log log
    assert_equal "$(ask "$port")" '200 b retry'
    wait_for '[ -s log ]'
    assert_equal "$(jq -c '[.route.worker, .response.worker, .response.attempts]' log)" '["b","b",2]'
}

@test "a worker killed before its answer: elsewhere; in mid-stream: the client's stream breaks off" {
    mock a --fault reset:1
    mock b
    serve port -w "a=http://127.0.0.1:$a,b=http://127.0.0.1:$b" --health-every 0 --log log
    assert_equal "$(ask "$port")" '200 b retry'
    curl -s "http://127.0.0.1:$a/fault/break:1"
    curl -s "http://127.0.0.1:$b/fault/break:1"
    run curl -s -N -m 10 -d "$STREAM" "http://127.0.0.1:$port/v1/chat/completions"
    assert_failure 18 # the transfer closed with data outstanding
    assert_output --partial ' token'
    refute_output --partial 'DONE'
    wait_for '[ "$(wc -l <log)" = 2 ]'
    assert_equal "$(tail -n 1 log | jq -r .response.error)" 'broken by worker'
    assert_regex "$(ask "$port")" '^200'
}

@test "all workers refuse: 502 after bounded tries; none is there: 503 with Retry-After" {
    serve port -w "a=http://127.0.0.1:$(free_port),b=http://127.0.0.1:$(free_port)" --retries 1 --health-every 0
    assert_regex "$(ask "$port")" '^502'
    for _ in 1 2 3 4 5 6; do ask "$port" >last; done
    assert_regex "$(cat last)" '^503'
    run curl -s -i -d "$CHAT" "http://127.0.0.1:$port/v1/chat/completions"
    assert_output --partial 'Retry-After: 1'
    assert_equal "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/readyz")" 503
    assert_equal "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/healthz")" 200
}

@test "a worker's error status is passed on, not hidden and not tried elsewhere" {
    mock a --fault 500:1
    mock b
    serve port -w "a=http://127.0.0.1:$a,b=http://127.0.0.1:$b"
    assert_equal "$(ask "$port")" '500 a load-fallback'
    assert_equal "$(jq -r .error.message body)" 'on demand'
    assert_equal "$(count "$b" generations)" 0
}

@test "a worker that answers before it has read the request, and closes: its answer" {
    python3 - >early 3>&- <<'END' &
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    s, _ = listener.accept()
    s.recv(4096)
    s.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
    s.close()  # with most of the request unread
END
    echo $! >>pids
    wait_for '[ -s early ]'
    mock b
    serve port -w "a=http://127.0.0.1:$(cat early),b=http://127.0.0.1:$b" --health-every 0
    (printf '{"prompt":"'; head -c 20000000 /dev/zero | tr '\0' a; printf '"}') >large
    # what the kernel loses of it (a reset) is a worker that breaks: then another one answers
    run curl -s -m 60 -o body -w '%{http_code} %header{x-kvr-worker}' -H Expect: --data-binary @large "http://127.0.0.1:$port/v1/completions"
    assert_regex "$output" '^(413 a|200 b)$'
}

@test "a worker that talks nonsense, or gives two lengths: another one" {
    for fault in garbage twice; do
        mock a --fault "$fault:1"
        mock b
        serve port -w "a=http://127.0.0.1:$a,b=http://127.0.0.1:$b" --health-every 0
        assert_equal "$(ask "$port")" '200 b retry'
    done
}

@test "a worker that never answers: 504 after --timeout, and it is told to stop" {
    mock a --fault silent:1
    serve port -w "a=http://127.0.0.1:$a" --timeout 300ms --health-every 0
    assert_regex "$(ask "$port")" '^504'
    wait_for "[ \"\$(count $a cancelled)\" = 1 ]"
}

@test "a client that goes away cancels the worker's work at once" {
    mock a --hold
    serve port -w "a=http://127.0.0.1:$a" --log log
    curl -s -d "$CHAT" "http://127.0.0.1:$port/v1/chat/completions" &
    wait_for "[ \"\$(count $a generations)\" = 1 ]"
    kill $!
    wait_for "[ \"\$(count $a cancelled)\" = 1 ]"
    wait_for '[ -s log ]'
    assert_equal "$(jq -c '[.response.status, .response.error]' log)" '[499,"client gone"]'
}

@test "the breaker opens after three failures, tries one request, and closes again" {
    mock b
    a=$(free_port)
    serve port -w "a=http://127.0.0.1:$a,b=http://127.0.0.1:$b" --policy round-robin --health-every 0
    for _ in 1 2 3 4 5 6; do assert_regex "$(ask "$port")" '^200 b'; done
    assert_equal "$(($(metric "$port" kvr_breaker_opened_total) >= 1))" 1
    assert_equal "$(curl -s "http://127.0.0.1:$port/kvr/workers" | jq -r '.workers[0].breaker')" open
    "$BUILD/mock/mock-worker" "$a" >/dev/null 3>&- &
    echo $! >>pids
    wait_for "ask $port | grep -q '^200 a'"
    assert_equal "$(curl -s "http://127.0.0.1:$port/kvr/workers" | jq -r '.workers[0].breaker')" closed
}

@test "health checks find a worker that is gone, and one that is back" {
    a=$(free_port)
    "$BUILD/mock/mock-worker" "$a" >/dev/null 3>&- &
    first=$!
    mock b
    serve port -w "a=http://127.0.0.1:$a,b=http://127.0.0.1:$b" --health-every 100ms
    kill $first
    wait_for "curl -s http://127.0.0.1:$port/kvr/workers | jq -e '.workers[0].healthy == false'"
    for _ in 1 2 3; do assert_regex "$(ask "$port")" '^200 b (load-fallback|cache-match|least-loaded)'; done
    "$BUILD/mock/mock-worker" "$a" >/dev/null 3>&- &
    echo $! >>pids
    wait_for "curl -s http://127.0.0.1:$port/kvr/workers | jq -e '.workers[0].healthy'"
}

@test "workers drain, come back, leave, and are added while it runs" {
    mock a
    mock b
    serve port -w "a=http://127.0.0.1:$a" --policy round-robin
    url=http://127.0.0.1:$port
    assert_equal "$(curl -s -d "{\"worker\":\"b\",\"url\":\"http://127.0.0.1:$b\"}" "$url/kvr/workers" | jq '.workers | length')" 2
    curl -s -o /dev/null -X POST "$url/kvr/workers/a/drain"
    for _ in 1 2 3; do assert_regex "$(ask "$port")" '^200 b'; done
    curl -s -o /dev/null -X POST "$url/kvr/workers/a/activate"
    curl -s -o /dev/null -X POST "$url/kvr/workers/b/remove"
    for _ in 1 2 3; do assert_regex "$(ask "$port")" '^200 a'; done
    assert_equal "$(curl -s -o /dev/null -w '%{http_code}' -X POST "$url/kvr/workers/x/drain")" 404
    assert_equal "$(curl -s -o /dev/null -w '%{http_code}' -d '{"worker":"c"}' "$url/kvr/workers")" 400
    assert_equal "$(curl -s -o /dev/null -w '%{http_code}' -d '{"worker":"c","url":"https://x"}' "$url/kvr/workers")" 400
}

@test "SIGHUP reads the workers again, under load, and nothing fails" {
    mock a
    mock b
    echo "{\"event\":\"worker\",\"worker\":\"a\",\"url\":\"http://127.0.0.1:$a\"}" >workers
    serve port -w ./workers --policy round-robin
    (for _ in $(seq 60); do ask "$port"; done >asked) &
    asker=$!
    sleep 0.2
    echo "{\"event\":\"worker\",\"worker\":\"b\",\"url\":\"http://127.0.0.1:$b\"}" >workers
    kill -HUP "$SERVE_PID"
    wait_for "curl -s http://127.0.0.1:$port/kvr/workers | jq -e '[.workers[].worker] == [\"b\"]'"
    wait $asker
    assert_equal "$(grep -vc '^200' asked)" 0
    assert_regex "$(ask "$port")" '^200 b'
    echo 'nonsense' >workers
    kill -HUP "$SERVE_PID"
    wait_for 'grep -q "the workers stay as they were" serve.err'
    assert_regex "$(ask "$port")" '^200 b'
}

@test "SIGTERM ends when what is under way has ended; a second generation takes over" {
    mock a --hold
    port=$(free_port)
    serve _ -w "a=http://127.0.0.1:$a" --listen "$port"
    first=$SERVE_PID
    (ask "$port" >slow) &
    asker=$!
    wait_for "[ \"\$(count $a generations)\" = 1 ]"
    serve _ -w "a=http://127.0.0.1:$a" --listen "$port"
    kill "$first"
    # only the second one is asked once the first has let go of the port
    wait_for "[ \"\$(grep -c ':$(printf %04X "$port") 00000000:0000 0A' /proc/net/tcp)\" = 1 ]"
    kill -0 "$first" # it still has a request
    assert_equal "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/readyz")" 200
    release "$a"
    wait $asker
    assert_regex "$(cat slow)" '^200'
    wait_for "! kill -0 $first"
    assert_regex "$(ask "$port")" '^200'
}

@test "a slow client does not fill memory; its worker's stream waits" {
    mock a --tokens 400000
    serve port -w "a=http://127.0.0.1:$a"
    python3 - "$port" "$STREAM" <<'END' &
import os, socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
s.connect(("127.0.0.1", int(sys.argv[1])))
b = sys.argv[2].encode()
s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(b) + b)
s.recv(100)
for _ in range(600):
    if os.path.exists("seen"):
        break
    time.sleep(0.1)
END
    reader=$!
    # Of the 30 MB that its worker has made, a quarter of a megabyte and a read are here.
    wait_for "[ \"\$(metric $port kvr_connection_bytes)\" -ge 200000 ]"
    for _ in 1 2 3 4 5 6 7 8 9 10; do metric "$port" kvr_connection_bytes; done >sizes
    touch seen
    wait $reader
    assert_equal "$(sort -n sizes | tail -n 1 | jq '. < 2000000')" true
    assert_equal "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/readyz")" 200
}

@test "a head that never ends and a body that never comes are let go" {
    mock a
    serve port -w "a=http://127.0.0.1:$a" --client-timeout 300ms
    run raw "$port" 'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{'
    assert_regex "${lines[0]}" '^HTTP/1.1 408 '
    assert_regex "$output" '<closed>$'
    run raw "$port" 'POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-'
    assert_output '<closed>'
}

@test "half-open connections and 10,000 idle ones cost little, and others are served" {
    [ "$(ulimit -Hn)" -ge 15000 ] || skip "needs 15000 descriptors"
    mock a
    serve port -w "a=http://127.0.0.1:$a"
    assert_regex "$(ask "$port")" '^200' # vocabularies and indexes are in memory from here on
    before=$(awk '/RssAnon/ {print $2}' "/proc/$SERVE_PID/status")
    python3 - "$port" <<'END' &
import os, resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
idle = []
for i in range(10000):
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    if i % 2:
        s.sendall(b"GET /he")  # half a head
    elif i % 10 == 0:
        s.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Padding: %s\r\n\r\n" % (b"x" * 8000))
        s.recv(100)  # asked once, and kept
    idle.append(s)
open("opened", "w").write("yes")
for _ in range(600):
    if os.path.exists("seen"):
        break
    time.sleep(0.1)
END
    holder=$!
    wait_for '[ -e opened ]'
    wait_for "[ \"\$(metric $port kvr_connections)\" -ge 10000 ]"
    assert_regex "$(ask "$port")" '^200'
    # What a connection costs as the program counts it: under half a kilobyte, once those that have
    # asked have given their buffers back.
    wait_for "[ \"\$(metric $port kvr_connection_bytes)\" -le 5120000 ]"
    after=$(awk '/RssAnon/ {print $2}' "/proc/$SERVE_PID/status")
    connections=$(metric "$port" kvr_connections)
    touch seen
    wait $holder
    assert_equal "$((connections >= 10000))" 1
    # And as the system does, with much room for its moods: buffers of 16 kB would be 160 MB.
    [[ $BUILD == */san ]] || assert_equal "$((after - before < 65536))" 1
    wait_for "[ \"\$(metric $port kvr_connections)\" -lt 10 ]"
}

@test "keys: none is 401, a wrong one too, health needs none; a worker never sees ours" {
    mock a
    printf 'sk-one\nsk-two\n' >keys
    serve port -w "a=http://127.0.0.1:$a" --api-key-file keys
    assert_regex "$(ask "$port")" '^401'
    assert_regex "$(ask "$port" -H 'Authorization: Bearer sk-on')" '^401'
    assert_regex "$(ask "$port" -H 'Authorization: Bearer sk-two')" '^200'
    assert_regex "$(ask "$port" -H 'x-api-key: sk-one')" '^200'
    assert_equal "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/healthz")" 200
    assert_equal "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/metrics")" 401
    run curl -s -H 'Authorization: Bearer sk-one' "http://127.0.0.1:$port/echo"
    refute_output --partial sk-one
}

@test "early rejection is 429 with Retry-After; too many at once is 503" {
    mock a --hold
    serve port -w "a=http://127.0.0.1:$a" --slo-ttft 0.001ms
    run curl -s -i -d "$CHAT" "http://127.0.0.1:$port/v1/chat/completions"
    assert_output --partial 'HTTP/1.1 429 '
    assert_output --partial 'Retry-After: '
    # which time is predicted depends on the share of the GPU's peak
    mock b
    serve port -w "b=http://127.0.0.1:$b" --slo-ttft 1s --mfu 0.00001
    assert_equal "$(curl -s -o /dev/null -w '%{http_code}' -d "$CHAT" "http://127.0.0.1:$port/v1/chat/completions")" 429
    serve port -w "b=http://127.0.0.1:$b" --slo-ttft 1s
    assert_equal "$(curl -s -o /dev/null -w '%{http_code}' -d "$CHAT" "http://127.0.0.1:$port/v1/chat/completions")" 200
    serve port -w "a=http://127.0.0.1:$a" --max-requests 1
    ask "$port" >/dev/null &
    asker=$!
    wait_for "[ \"\$(count $a generations)\" -ge 1 ]"
    assert_regex "$(cd / && curl -s -o /dev/null -w '%{http_code}' -d "$CHAT" "http://127.0.0.1:$port/v1/chat/completions")" '^503'
    release "$a"
    wait $asker
}

@test "placements of another replica's log are learned from -m" {
    mock a
    mock b
    serve first -w "a=http://127.0.0.1:$a,b=http://127.0.0.1:$b" --log log
    ask "$first"
    ask "$first"
    wait_for '[ "$(wc -l <log)" = 2 ]'
    jq -c '.route.worker = "b"' log >other
    serve second -w "a=http://127.0.0.1:$a,b=http://127.0.0.1:$b" -m other
    wait_for "[ \"\$(metric $second kvr_merged_lines_total)\" = 2 ]"
    assert_equal "$(ask "$second")" '200 b cache-match'
}

@test "embeddings and responses are routed by what they ask, in each form" {
    mock a
    mock b
    serve port -w "a=http://127.0.0.1:$a,b=http://127.0.0.1:$b" --log log
    text='The quick brown fox jumps over the lazy dog, again and again, until it is tired of it.'
    other='Far away, behind the mountains of words, live the blind texts, quite alone and content.'
    answer() { # PATH BODY: twice; the worker and the reason of the second
        for _ in 1 2; do
            curl -s -m 60 -o /dev/null -w '%{http_code} %header{x-kvr-reason}\n' -d "$2" "http://127.0.0.1:$port$1" >got
        done
        cat got
    }
    assert_equal "$(answer /v1/embeddings '{"model":"e","input":"'"$text"'"}')" '200 cache-match'
    tokens=$(seq -s, 1000 1040)
    assert_equal "$(answer /v1/embeddings '{"model":"e","input":['"$tokens"']}')" '200 cache-match'
    assert_equal "$(answer /v1/responses '{"model":"r","input":"'"$text"'"}')" '200 cache-match'
    assert_equal "$(answer /v1/responses '{"model":"r","input":[{"role":"user","content":"'"$other"'"}]}')" '200 cache-match'
    assert_equal "$(answer /v1/completions '{"model":"c","prompt":['"$tokens"']}')" '200 cache-match'
    assert_equal "$(answer /generate '{"text":"'"$other"'"}')" '200 cache-match'
    # several prompts at once have no one prefix: they go where there is room
    assert_equal "$(answer /v1/embeddings '{"model":"e","input":["a","b"]}')" '200 load-fallback'
    wait_for '[ "$(wc -l <log)" = 14 ]'
    assert_equal "$(jq -s 'map(.input_length) | .[2] == 41 and .[8] == 41 and .[0] > 16' log)" true
}

@test "SIGTERM under load: what was accepted is answered, nothing is cut" {
    mock a --gap 1 --tokens 4
    serve port -w "a=http://127.0.0.1:$a" --log log
    # each client asks until the port is closed to it; an answer that began has its end
    for i in 1 2 3 4 5 6; do
        (while curl -s -m 60 -d "$STREAM" "http://127.0.0.1:$port/v1/chat/completions" >part.$i; do
            grep -q DONE part.$i || echo cut >>cut
            echo done >>finished.$i
        done
        echo $? >last.$i) &
    done
    for i in 1 2 3 4 5 6; do wait_for "[ -s finished.$i ]"; done
    kill "$SERVE_PID"
    status=0
    wait "$SERVE_PID" || status=$?
    wait_for '[ "$(cat last.* | wc -l)" = 6 ]'
    assert [ ! -e cut ]
    assert_equal "$status" 143
    # one line a request that was answered, and none of them failed
    assert_equal "$(jq -s 'map(.response.status) | unique' -c log)" '[200]'
    assert_equal "$(jq -s 'map(select(.response.error)) | length' log)" 0
    assert_equal "$(wc -l <log)" "$(cat finished.* | wc -l)"
}

@test "--scrape-every: load that others bring is seen" {
    mock a --hold
    mock b
    serve port -w "a=http://127.0.0.1:$a,b=http://127.0.0.1:$b" --policy least-loaded --scrape-every 50ms
    for _ in 1 2; do curl -s -o /dev/null -d "$CHAT" "http://127.0.0.1:$a/v1/chat/completions" & done
    wait_for "[ \"\$(count $a generations)\" = 2 ]"
    loads=$(metric "$port" kvr_loads_total)
    wait_for "[ \"\$(metric $port kvr_loads_total)\" -ge $((loads + 4)) ]"
    for _ in 1 2 3; do assert_regex "$(ask "$port")" '^200 b'; done
    release "$a"
    run kvr-serve -w "http://127.0.0.1:$a" --scrape-every 1ms
    assert_failure 2
}

# events_of WORKER: publishes that it holds CHAT's blocks, as its engine would, to one who listens.
events_of() {
    jq -c . <<<"$CHAT" | kvr-tokenize -q --ids -b 16 | jq -c --arg worker "$1" '{event: "stored",
        worker: $worker, model, hash_ids, token_ids: .token_ids[:16 * (.hash_ids | length)], block_size}' |
        timeout 100 kvr-events -q --publish "ipc://$PWD/pub" --wait 1 --linger 60s 3>&- &
    echo $! >>pids
}

@test "--events: kvr-events is run, and what a worker says it holds is matched" {
    mock a
    mock b
    workers="a=http://127.0.0.1:$a,b=http://127.0.0.1:$b"
    events_of b
    serve port -w "$workers" --events "-q b=ipc://$PWD/pub,model=m"
    wait_for "[ \"\$(metric $port kvr_merged_lines_total)\" -ge 2 ]" # cleared, stored
    assert_equal "$(ask "$port")" '200 b cache-match'
    # it ends with kvr-serve, and is started again when it ends alone
    child=$(pgrep -P "$SERVE_PID")
    kill -9 "$child"
    wait_for "pgrep -P $SERVE_PID | grep -vx $child"
    child=$(pgrep -P "$SERVE_PID")
    assert_regex "$(ask "$port")" '^200'
    kill "$SERVE_PID"
    wait_for "! kill -0 $SERVE_PID"
    wait_for "! kill -0 $child"
}

@test "--events before a pipeline" {
    mock a
    mock b
    events_of b
    serve port -w "a=http://127.0.0.1:$a,b=http://127.0.0.1:$b" --events "-q b=ipc://$PWD/pub,model=m" \
        --decision-timeout 20s -- 'kvr-tokenize -b 16 | kvr-match -b 16 | kvr-route --policy cost'
    wait_for "[ \"\$(metric $port kvr_merged_lines_total)\" -ge 2 ]"
    assert_equal "$(ask "$port")" '200 b cache-match'
}

@test "metrics are Prometheus' and count what happened" {
    mock a
    serve port -w "a=http://127.0.0.1:$a"
    ask "$port"
    ask "$port"
    curl -s "http://127.0.0.1:$port/metrics" >metrics
    assert_equal "$(grep -vcE '^(# (HELP|TYPE) |[a-z0-9_]+(\{[^}]*\})? -?[0-9.e+-]+$)' metrics)" 0
    assert_equal "$(metric "$port" kvr_requests_total)" 2
    assert_equal "$(metric "$port" kvr_ttft_seconds_count)" 2
    assert_equal "$(metric "$port" kvr_decisions_total)" 2
}

@test "a worker that moves is asked where it is, also over kept connections" {
    mock a --name old
    mock b --name new
    serve port -w "w=http://127.0.0.1:$a"
    url=http://127.0.0.1:$port
    ask "$port"
    assert_equal "$(jq -r .model body)" old
    curl -s -o /dev/null -d "{\"worker\":\"w\",\"url\":\"http://127.0.0.1:$b\"}" "$url/kvr/workers"
    ask "$port"
    assert_equal "$(jq -r .model body)" new
}

@test "a worker's name cannot write headers; /kvr/ is not for proxies and pages" {
    mock a
    serve port
    url=http://127.0.0.1:$port
    assert_regex "$(cat serve.err)" 'no worker yet'
    post() { curl -s -o /dev/null -w '%{http_code}' "$@"; }
    assert_equal "$(post -d '{"worker":"e\r\nX-Evil: 1","url":"http://127.0.0.1:'"$a"'"}' "$url/kvr/workers")" 200
    run curl -s -i -d "$CHAT" "$url/v1/chat/completions"
    assert_output --partial 'x-kvr-worker: e??X-Evil: 1'
    for sign in 'Origin: http://evil.example' 'X-Forwarded-For: 1.2.3.4' 'Forwarded: for=1.2.3.4' 'Via: 1.1 proxy' 'X-Forwarded-Proto: https' 'X-Client-IP: 1.2.3.4' 'True-Client-IP: 1.2.3.4' 'CF-Connecting-IP: 1.2.3.4' 'Host: evil.example:80'; do
        assert_equal "$(post -H "$sign" "$url/kvr/workers")" 403
    done
    for host in localhost "node7:$port" 127.0.0.1 '[::1]:8080'; do
        assert_equal "$(post -H "Host: $host" "$url/kvr/workers")" 200
    done
    assert_equal "$(post "$url/kvr/workers/e/drain")" 405
    assert_equal "$(post "$url/kvr/nothing")" 404
    assert_equal "$(post -d '{}' "$url/kvr/nothing")" 404
    for bad in 'http://127.0.0.1:99999' 'http://127.0.0.1:0' 'http://127.0.0.1:' 'http://127.0.0.1:x'; do
        assert_equal "$(post -d '{"worker":"q","url":"'"$bad"'"}' "$url/kvr/workers")" 400
    done
}

@test "bad options and addresses" {
    for bad in '-w a=http://127.0.0.1:1,a=http://127.0.0.1:2' '--policy random -- cat' '-t bytes -- cat' '--max-requests 0' '--listen x' '--listen :' '--listen 65537' '--listen 127.0.0.1:99999' '-w nothing://x' '-w ftp://x' '--policy nonsense' '--health-path x' '--mfu 2' '--mfu 0.5 -- cat' '--gpu h200 -- cat' '-- a b'; do
        # shellcheck disable=SC2086
        run kvr-serve $bad
        assert_failure 2
    done
    run kvr-serve -w ./missing
    assert_failure 3
    for address in 19180 127.0.0.1:19180 http://127.0.0.1:8001 '[::1]:80' :80; do
        run timeout 20 kvr-serve -l 0 -w http://127.0.0.1:1 "$address"
        assert_failure 2
        assert_output "kvr-serve: '$address' is no pipeline; --listen says where to listen, -w names workers"
    done
    run timeout 20 kvr-serve -l 0 -- ' '
    assert_failure 2
}

@test "what cannot be run is told at the start, not started for ever" {
    for events in nonsense w0=tcp://127.0.0.1 'w0=ipc://@' '--no-such-option' 'w0=tcp://127.0.0.1:1 --reorder x'; do
        run timeout 20 kvr-serve -l 0 -t bytes -w w0=http://127.0.0.1:1 --events "$events"
        assert_failure 2
        assert_line --partial 'kvr-events: '
        assert_line "kvr-serve: --events: kvr-events does not take this: $events"
    done
    run timeout 20 kvr-serve -l 0 -w w0=http://127.0.0.1:1 -- 'kvr-tokenize | kvr-nosuch'
    assert_failure 2
    assert_line 'kvr-serve: the pipeline cannot be run (exit status 127): kvr-tokenize | kvr-nosuch'
    run timeout 20 kvr-serve -l 0 -w w0=http://127.0.0.1:1 -- 'kvr-tokenize | kvr-route --no-such-option'
    assert_failure 2
    assert_line --partial "there is no option '--no-such-option'"
    assert_line --partial 'the pipeline cannot be run (exit status 2)'
    run kvr-serve --policy list
    assert_success
    assert_output --partial cost
}

# ---- the pipeline as a failure domain ----

# pipeline VARIABLE WORKERS COMMAND: kvr-serve over a pipeline, once that answers.
pipeline() {
    serve "$1" -w "$2" --log log --decision-timeout 3s -- "$3"
    local -n ready_port=$1
    wait_for "ask $ready_port | grep -qv ' fallback\$'"
}

@test "a pipeline decides as the same policy in process does" {
    mock a
    mock b
    pipeline port "a=http://127.0.0.1:$a,b=http://127.0.0.1:$b" 'kvr-tokenize | kvr-match | kvr-route --policy cost'
    CHAT=${CHAT/quick/slow}
    assert_regex "$(ask "$port")" '^200 (a|b) (load-fallback|cache-match)$'
    assert_regex "$(ask "$port")" '^200 (a|b) cache-match$'
    assert_equal "$(tail -n 1 log | jq -c '[.messages, (.match | length > 0), .route.policy]')" '[null,true,"cost"]'
}

@test "the pipeline is killed: requests go on, it is started again and told its workers" {
    mock a
    pipeline port "a=http://127.0.0.1:$a" 'exec kvr-route'
    restarts=$(metric "$port" kvr_pipeline_restarts_total)
    kill -9 "$(pgrep -P "$SERVE_PID")"
    for _ in 1 2 3; do assert_regex "$(ask "$port")" '^200 a'; done
    wait_for "ask $port | grep -q '^200 a load-fallback'"
    assert_equal "$(metric "$port" kvr_pipeline_restarts_total)" $((restarts + 1))
}

@test "the pipeline stalls: each request waits for the decision timeout only, then it is restarted" {
    mock a
    pipeline port "a=http://127.0.0.1:$a" 'exec kvr-route'
    timeouts=$(metric "$port" kvr_decision_timeouts_total)
    restarts=$(metric "$port" kvr_pipeline_restarts_total)
    kill -STOP "$(pgrep -P "$SERVE_PID")"
    assert_regex "$(ask "$port")" '^200 a fallback$'
    assert_equal "$(metric "$port" kvr_decision_timeouts_total)" $((timeouts + 1))
    wait_for "[ \"\$(metric $port kvr_pipeline_restarts_total)\" -gt $restarts ]"
    wait_for "ask $port | grep -q '^200 a load-fallback'"
}

@test "a client cannot make the pipeline drop its line, nor look hung" {
    mock a
    pipeline port "a=http://127.0.0.1:$a" 'kvr-tokenize | kvr-match | kvr-route'
    timeouts=$(metric "$port" kvr_decision_timeouts_total)
    for bad in '"model":[1]' '"model":{}' '"priority":"high"' '"priority":1.5' '"max_tokens":-1' '"max_tokens":1e30' \
        '"user":{"a":1}' '"cache_salt":[1]' '"chat_template_kwargs":"x"' '"tools":"x"' '"x":1'; do
        for messages in '[{"role":"user","content":"x"}]' '"x"' '[1]' '[[]]' '{}' '[{}]' '[{"role":1,"content":{}}]'; do
            curl -s -m 60 -o /dev/null -w '%{http_code}\n' -d "{$bad,\"messages\":$messages}" "http://127.0.0.1:$port/v1/chat/completions" >>codes
        done
    done
    for prompt in '[1.5]' '[-1]' '[4294967296]' '["a","b"]' '[[1],[2]]' '{}' '7' '[]'; do
        curl -s -m 60 -o /dev/null -w '%{http_code}\n' -d "{\"prompt\":$prompt}" "http://127.0.0.1:$port/v1/completions" >>codes
    done
    assert_equal "$(sort -u codes)" 200
    assert_equal "$(metric "$port" kvr_decision_timeouts_total)" "$timeouts"
    assert_equal "$(metric "$port" kvr_pipeline_restarts_total)" 0
    run kvr-stats -q log
    assert_success
}

@test "a pipeline that drops lines is not one that hangs" {
    mock a --hold
    serve port -w "a=http://127.0.0.1:$a" --decision-timeout 300ms -- \
        'exec grep --line-buffered -v timestamp' # passes events on, drops requests
    (ask "$port" >held) &
    asker=$!
    # its worker is at it for longer than a hang takes to be seen
    wait_for "[ \"\$(metric $port kvr_decision_timeouts_total)\" = 1 ]"
    sleep 6.5
    assert_equal "$(metric "$port" kvr_pipeline_restarts_total)" 0
    release "$a"
    wait $asker
    assert_equal "$(cat held)" '200 a fallback'
}

@test "the pipeline prints nonsense: what waits goes on at once, and it is restarted with growing pauses" {
    mock a
    serve port -w "a=http://127.0.0.1:$a" --decision-timeout 10s -- 'grep -q timestamp; echo nonsense; sleep 60'
    assert_regex "$(ask "$port")" '^200 a fallback$'
    assert_regex "$(cat serve.err)" 'the pipeline wrote a line that is no decision'
    wait_for "[ \"\$(metric $port kvr_pipeline_restarts_total)\" -ge 1 ]"
    assert_regex "$(ask "$port")" '^200 a fallback$'
}

@test "a pipeline that cannot be run: least loaded from the start, and the restarts grow rarer" {
    mock a
    began=$(date +%s%3N)
    serve port -w "a=http://127.0.0.1:$a" -- 'exit 3'
    for _ in 1 2 3; do assert_regex "$(ask "$port")" '^200 a fallback$'; done
    wait_for "[ \"\$(metric $port kvr_pipeline_restarts_total)\" -ge 3 ]"
    restarts=$(metric "$port" kvr_pipeline_restarts_total)
    # pauses of 0.1, 0.2, 0.4 ... seconds lie between them, whatever the machine's speed
    assert_equal "$((100 * ((1 << restarts) - 1) <= $(date +%s%3N) - began + 1))" 1
}

@test "SIGTERM ends the pipeline's programs as well" {
    mock a
    pipeline port "a=http://127.0.0.1:$a" 'kvr-tokenize | kvr-match | kvr-route'
    shell=$(pgrep -P "$SERVE_PID")
    kill "$SERVE_PID"
    wait_for "! kill -0 $SERVE_PID"
    wait_for "! kill -0 -- -$shell"
}

@test "two replicas share placements over a real Redis" {
    # Debian's server is this program under another name; the package that adds the name also
    # starts a service, which no test should do to a machine
    [ -x /usr/bin/redis-check-rdb ] || skip "needs redis-tools"
    ln -s /usr/bin/redis-check-rdb redis-server
    mock a
    mock b
    redis=$(free_port)
    ./redis-server --port "$redis" --bind 127.0.0.1 --save '' --dir . >/dev/null 2>&1 3>&- &
    echo $! >>pids
    wait_for "redis-cli -p $redis ping"
    mkfifo others
    workers="a=http://127.0.0.1:$a,b=http://127.0.0.1:$b"
    serve first -w "$workers" --log log
    # each log line into a stream; each replica reads it into its -m
    tail -n +1 -F --pid="$SERVE_PID" log 2>/dev/null 3>&- |
        while read -r line; do redis-cli -p "$redis" xadd placements '*' line "$line"; done >/dev/null 3>&- &
    (last=0; while kill -0 "$SERVE_PID"; do
        lines=$(redis-cli -p "$redis" --json xread block 100 streams placements "$last")
        jq -r '.placements[]? | .[1][1]' <<<"$lines"
        last=$(jq -r --arg last "$last" '.placements[-1]?[0] // $last' <<<"$lines")
    done >others 2>/dev/null) 3>&- &
    serve second -w "$workers" -m others
    curl -s -o /dev/null -X POST "http://127.0.0.1:$first/kvr/workers/a/drain"
    assert_regex "$(ask "$first")" '^200 b'
    wait_for "[ \"\$(metric $second kvr_merged_lines_total)\" -ge 1 ]"
    assert_equal "$(ask "$second")" '200 b cache-match'
}
