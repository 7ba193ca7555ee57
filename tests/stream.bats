#!/usr/bin/env bats
# The rules of kvr-stream(7), for every tool there is, from three tables. A tool is one row: its command
# as a reader of request lines. FILTERS write every line on, whatever it has; NEEDY need members that
# filters do not (so all lines below that are not the point of a test have an input_length and a
# prompt); ENDERS answer when their input has ended, or wait for its next line.

load helper

FILTERS=(
    "kvr-match"
    "kvr-route -w 2"
    "kvr-evict"
    "kvr-tokenize"
)
NEEDY=(
    "kvr-prefill --backend model"
    "kvr-send -u http://127.0.0.1:9 --speed 0 --concurrency 1"
)
ENDERS=(
    "kvr-sim -w 2 --closed 1"
    "kvr-stats --json"
    "kvr-evict --json"
)

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    unset http_proxy HTTP_PROXY all_proxy ALL_PROXY
}

# each_of ROWS CHECK: runs the function for each row; the tool's words are in the array `tool`. No ||
# or if round the call: they would switch off errexit inside it, and its checks with that.
each_of() {
    local -n rows=$1
    local row
    for row in "${rows[@]}"; do
        read -ra tool <<<"$row"
        echo "tool: $row"
        "$2"
    done
}

each_filter() {
    each_of FILTERS "$1"
}

# each_live: those that write a line before the next one is there.
each_live() {
    each_of FILTERS "$1"
    each_of NEEDY "$1"
}

each() {
    each_live "$1"
    each_of ENDERS "$1"
}

# writes_lines: whether the tool's output is its input's lines.
writes_lines() {
    [[ ${tool[*]} != *--json ]]
}

# assert_ids IDS [FILE]: these requests came out of FILE (or of run), in this order; of a tool that
# answers instead of writing lines, that it counted so many.
assert_ids() {
    local text=$output
    [ $# -eq 1 ] || text=$(cat "$2")
    if writes_lines; then
        assert_equal "$(jq -c 'select(.event | not).id' <<<"$text" | tr '\n' ' ')" "$1"
    else
        assert_equal "$(jq '.requests' <<<"$text")" "$(wc -w <<<"$1")"
    fi
}

# steady: what the same input gives again; all but the times that kvr-send measures.
steady() {
    sed -E 's/"response":\{.*//'
}

# request ID [MEMBERS]: a line that every tool can use.
request() {
    echo "{\"id\":$1,\"input_length\":9,\"prompt\":\"x\"${2:+,$2}}"
}

# requests COUNT
requests() {
    seq -f '{"id":%.0f,"input_length":9,"prompt":"x"}' "$1"
}

@test "a damaged file that an option names is 3, in every program, and no bad line" {
    cd "$BATS_TEST_TMPDIR"
    echo '{bad' >bad
    while read -r command; do
        # shellcheck disable=SC2086
        run $command bad </dev/null
        assert_equal "$command $status" "$command 3"
        refute_output --partial 'lines were bad'
    done <<'END'
kvr-match -w
kvr-route -w
kvr-route --cost
kvr-sim -w
kvr-sim --cost
kvr-send -w
kvr-serve --listen 0 -w
kvr-serve --listen 0 -w http://127.0.0.1:1 -t
kvr-prefill --backend model --cost
kvr-stats --alerts
kvr-tokenize -t
kvr-tokenize --by-model
END
}

@test "a standard input that is closed is no empty one" {
    for program in match route stats tokenize; do
        run bash -c "kvr-$program <&-"
        assert_failure 3
        assert_output --partial 'cannot read: Bad file descriptor'
        run bash -c "kvr-$program /dev/null <&-"
        assert_success
    done
}

@test "unknown members pass byte for byte and numbers keep their digits" {
    check() {
        local line='{"id":"a","x": 1.50e+3 ,"big":18446744073709551615,"u":"\u00e9é\/","n":null,"hash_ids":[1, 2]'
        run --separate-stderr bash -c '"${@:2}" <<<"$1"' _ "$line}" "${tool[@]}"
        assert_success
        [[ $output == "$line"[,}]* ]]
        jq -e . <<<"$output" >/dev/null
    }
    each_filter check
}

@test "an event that a tool does not know passes as it is" {
    check() {
        run "${tool[@]}" <<<'{ "event":"weather","n":1.0 }'
        assert_success
        assert_output '{ "event":"weather","n":1.0 }'
    }
    each_filter check
}

@test "gzip, several files, standard input and a dash are the same lines" {
    printf '{"id":1,"hash_ids":[1],"input_length":9,"prompt":"x"}\n{"id":2,"input_length":9,"prompt":"x"}\n' >a
    printf '{"id":3,"hash_ids":[1],"input_length":9,"prompt":"x"}' >b
    gzip -k a
    cat a.gz a.gz >aa.gz
    check() {
        "${tool[@]}" a b >got
        assert_ids "1 2 3 " got
        steady <got >expected
        "${tool[@]}" a.gz b | steady | cmp - expected
        "${tool[@]}" - b <a.gz | steady | cmp - expected
        cat a b | "${tool[@]}" | steady | cmp - expected
        run --separate-stderr "${tool[@]}" aa.gz
        assert_ids "1 2 1 2 "
    }
    each check
}

@test "bad lines are named by file and line, dropped, counted; the rest is processed" {
    printf '{"id":1,"input_length":9,"prompt":"x"}\n{"id":2\n[1]\n\n{"id":"\xff"}\n{"id":4,"input_length":9,"prompt":"x"}\nnull\n{"a":"\x01"}\n' >bad
    check() {
        run --separate-stderr "${tool[@]}" bad
        assert_equal "$status" 1
        assert_ids "1 4 "
        assert_regex "$stderr" "${tool[0]}: bad:2: the JSON ends too early"
        assert_regex "$stderr" "${tool[0]}: bad:3: not a JSON object"
        assert_regex "$stderr" "${tool[0]}: bad:5: invalid UTF-8"
        assert_regex "$stderr" "${tool[0]}: bad:7: not a JSON object"
        assert_regex "$stderr" "${tool[0]}: bad:8: a raw control character in a string"
        assert_regex "$stderr" "5 of 7 lines were bad"
    }
    each check
}

@test "--strict stops at the first bad line, --keep-bad passes it on, -q is silent" {
    printf '{"id":1,"input_length":9,"prompt":"x"}\n{bad\n{"id":2,"input_length":9,"prompt":"x"}\n' >bad
    check() {
        run --separate-stderr "${tool[@]}" --strict bad
        assert_equal "$status" 1
        assert_ids "1 "
        run --separate-stderr "${tool[@]}" --keep-bad bad
        assert_equal "$status" 1
        assert_line '{bad'
        if writes_lines; then assert_equal "${#lines[@]}" 3; fi
        run --separate-stderr "${tool[@]}" -q bad
        assert_equal "$status" 1
        assert_equal "$stderr" ""
    }
    each check
}

@test "line ends: CRLF, no newline at the end, a byte order mark, blank lines, an empty file" {
    printf '\xef\xbb\xbf{"id":1,"input_length":9,"prompt":"x"}\r\n\r\n  \n{"id":2,"input_length":9,"prompt":"x"}' >ends
    : >empty
    check() {
        run --separate-stderr "${tool[@]}" ends empty
        assert_success
        assert_ids "1 2 "
        refute_regex "$output" $'\r'
        run "${tool[@]}" empty
        assert_success
        if writes_lines; then assert_output ""; fi
        run "${tool[@]}" /dev/null
        assert_success
    }
    each check
}

@test "NUL bytes are bad lines" {
    printf '{"id":1,"input_length":9,"prompt":"x"}\n{"id":"\0"}\n\0\n{"id":2,"input_length":9,"prompt":"x"}\0\n{"id":3,"input_length":9,"prompt":"x"}\n' >nul
    check() {
        run --separate-stderr "${tool[@]}" nul
        assert_equal "$status" 1
        assert_ids "1 3 "
        assert_regex "$stderr" "3 of 5 lines were bad"
    }
    each check
}

@test "a line over the limit is a bad line, and memory stays small" {
    { printf '{"id":1,"input_length":9,"prompt":"x"}\n{"id":"'; head -c 100000000 /dev/zero | tr '\0' x; printf '"}\n{"id":2,"input_length":9,"prompt":"x"}\n'; } >long
    check() {
        run --separate-stderr bash -c 'ulimit -v 1000000; "$@"' _ "${tool[@]}" long
        assert_equal "$status" 1
        assert_ids "1 2 "
        assert_regex "$stderr" "long:2: the line is longer than 67108864 bytes"
    }
    if [[ $BUILD != */san* ]]; then each check; else skip "address space limits and ASan do not mix"; fi
}

@test "a line of 60 MiB passes whole" {
    { printf '{"id":"'; head -c 62914560 /dev/zero | tr '\0' x; printf '"}\n'; } >long
    check() {
        local length
        length=$("${tool[@]}" long | wc -c)
        [ "$length" -ge 62914570 ]
    }
    each_filter check
}

@test "of two members of one name the last counts, and only ours is replaced" {
    check() {
        run "${tool[@]}" <<<'{"id":1,"match":{"w1":5},"route":{"x":1},"hash_ids":["x"],"hash_ids":[1],"z":0}'
        assert_success
        assert_equal "$(jq -c '.hash_ids,.z' <<<"$output" | tr '\n' ' ')" "[1] 0 "
        assert_equal "$(grep -o '"match":' <<<"$output" | wc -l)" 1
        assert_equal "$(grep -o '"route":' <<<"$output" | wc -l)" 1
    }
    each_filter check
}

@test "broken gzip: what came whole is used, status 1" {
    requests 20000 | gzip >whole.gz
    head -c 20000 whole.gz >cut.gz
    { head -c 10000 whole.gz; head -c 3000 /dev/urandom; } >damaged.gz
    check() {
        run --separate-stderr "${tool[@]}" cut.gz
        assert_equal "$status" 1
        if writes_lines; then [ "${#lines[@]}" -gt 1000 ]; else [ "$(jq .requests <<<"$output")" -gt 1000 ]; fi
        assert_regex "$stderr" "cut.gz:[0-9]+: the gzip data ends too early"
        run --separate-stderr "${tool[@]}" damaged.gz
        assert_equal "$status" 1
        assert_regex "$stderr" "gzip data"
    }
    each check
}

@test "-o - is standard output" {
    run kvr-tokenize --count -o - <<<'{"prompt":"x"}'
    assert_output '{"prompt":"x","input_length":1}'
    [ ! -e - ]
}

@test "unreadable input is status 3 and the other files are read" {
    echo '{"id":1,"input_length":9,"prompt":"x"}' >a
    check() {
        run --separate-stderr "${tool[@]}" nosuch . a
        assert_equal "$status" 3
        assert_regex "$stderr" "cannot open nosuch: No such file"
        assert_regex "$stderr" "is a directory"
        if writes_lines; then assert_ids "1 "; else assert_equal "$(jq .requests <<<"$output")" 1; fi
    }
    each check
}

@test "where nothing could be opened the error is all there is" {
    while read -r -a tool; do
        run --separate-stderr "${tool[@]}" nosuch .
        assert_equal "${tool[*]}: $status" "${tool[*]}: 3"
        assert_equal "${tool[*]}: $output" "${tool[*]}: "
        assert_equal "${#stderr_lines[@]}" 2
        assert_regex "${stderr_lines[0]}" "cannot open nosuch: No such file"
        assert_regex "${stderr_lines[1]}" "\\. is a directory"
    done <<'END'
kvr-tokenize
kvr-match
kvr-match --against any
kvr-route
kvr-route -w 2
kvr-evict
kvr-evict --json -c 1000
kvr-evict --table -c 1000
kvr-evict --curve
kvr-evict --advise
kvr-evict --free-queue -c 1000
kvr-stats
kvr-stats --json
kvr-stats --csv
kvr-stats --prom
kvr-stats --partial
kvr-stats --merge
kvr-stats --compare
kvr-sim -w 2
kvr-prefill --backend model
kvr-send -u http://127.0.0.1:1
END
    # an input that is empty is another thing: nothing came
    : >empty
    run --separate-stderr kvr-stats nosuch empty
    assert_failure 3
    assert_output --partial '0 requests'
    run --separate-stderr kvr-match --audit nosuch
    assert_failure 3
    assert_output ""
    # a comparison with what could not be read would be one with nothing
    echo '{"id":1,"input_length":9}' >a
    run --separate-stderr kvr-stats --compare a nosuch
    assert_failure 3
    assert_output ""
}

@test "a full disk is status 3 with a message" {
    requests 100000 >many
    request 1 >one
    check() {
        for file in many one; do
            run "${tool[@]}" -o /dev/full $file
            assert_equal "$status" 3
            assert_output --partial "cannot write output: No space left on device"
            run bash -c '"$@" >/dev/full' _ "${tool[@]}" $file
            assert_equal "$status" 3
        done
        run bash -c '"$@" >&-' _ "${tool[@]}" one
        assert_equal "$status" 3
        run bash -c '"$1" --help >/dev/full' _ "${tool[@]}"
        assert_equal "$status" 3
    }
    each check
}

@test "a reader that closes ends the tool quietly" {
    requests 300000 >many
    check() {
        run --separate-stderr bash -c 'set -o pipefail; "$@" -q many | head -n 1' _ "${tool[@]}"
        assert_success
        assert_equal "$stderr" ""
        assert_equal "${#lines[@]}" 1
    }
    each check
}

@test "output is flushed when the next read would wait" {
    check() {
        rm -f in out && mkfifo in
        "${tool[@]}" in >out &
        local pid=$! i
        exec 7>in
        echo '{"id":1,"input_length":9,"prompt":"x"}' >&7
        for i in $(seq 100); do [ -s out ] && break; sleep 0.05; done
        [ "$(jq .id out)" = 1 ]
        exec 7>&-
        wait $pid
    }
    each_live check
}

@test "SIGTERM and SIGINT write what is whole and end with 128 + the signal" {
    check() {
        local signal pid code i
        for signal in TERM INT; do
            rm -f in out pid && mkfifo in
            # job control, or INT would be ignored in the background
            bash -mc '"$@" in >out & echo $! >pid; wait $!; echo $? >code' _ "${tool[@]}" 3>&- &
            exec 7>in
            printf '{"id":1,"input_length":9,"prompt":"x"}\n{"id":2' >&7
            for i in $(seq ${patience:-100}); do [ -s out ] && break; sleep 0.05; done
            for i in $(seq 100); do [ -s pid ] && break; sleep 0.05; done
            kill -$signal "$(cat pid)"
            for i in $(seq 100); do [ -s code ] && break; sleep 0.05; done
            exec 7>&-
            code=$(cat code)
            rm -f code
            [ "$code" -eq $((128 + $(kill -l $signal))) ]
            [ "${patience:-}" ] || [ "$(jq -c .id out)" = 1 ]
        done
    }
    each_live check
    patience=4 # nothing comes out before the end
    each_of ENDERS check
}

@test "a second signal ends a tool whose output nobody reads" {
    jq -nc 'range(200000) | {id: ., input_length: 9, prompt: "x"}' >lines
    check() {
        local i
        rm -f out code pid && mkfifo out
        exec 8<>out # open, and never read
        bash -mc '"$@" lines >out & echo $! >pid; wait $!; echo $? >code' _ "${tool[@]}" 3>&- 8>&- &
        for i in $(seq 100); do [ -s pid ] && break; sleep 0.05; done
        sleep 0.3
        kill -TERM "$(cat pid)"
        for i in $(seq 100); do
            [ -s code ] && break
            sleep 0.6
            kill -TERM "$(cat pid)" || true
        done
        exec 8>&-
        assert_equal "$(cat code)" 143
    }
    each_live check
}

@test "-m merges: a regular file comes first, a FIFO as it arrives, a second writer is heard" {
    echo '{"event":"first"}' >events
    check() {
        run "${tool[@]}" -m events - <<<'{"id":1,"input_length":9,"prompt":"x"}'
        assert_success
        assert_equal "${lines[0]}" '{"event":"first"}'
        rm -f side in out && mkfifo side in
        "${tool[@]}" -m side in >out &
        local pid=$! i
        exec 7>in
        echo '{"event":"one"}' >side
        for i in $(seq 100); do grep -q one out && break; sleep 0.05; done
        echo '{"event":"two"}' >side
        for i in $(seq 100); do grep -q two out && break; sleep 0.05; done
        echo '{"id":9,"input_length":9,"prompt":"x"}' >&7
        exec 7>&-
        wait $pid
        grep -q one out
        grep -q two out
        [ "$(jq -c 'select(.id).id' out)" = 9 ]
    }
    each_live check
}

@test "-m takes a unix socket" {
    cat >serve.py <<'PY'
import os, socket
s = socket.socket(socket.AF_UNIX); s.bind("sock"); s.listen(1); open("ready", "w").close()
c, _ = s.accept(); c.sendall(b'{"event":"from-socket"}\n'); c.close()
PY
    check() {
        rm -f sock ready out in && mkfifo in
        timeout 20 python3 serve.py &
        local i
        for i in $(seq 100); do [ -e ready ] && break; sleep 0.05; done
        "${tool[@]}" -m sock in >out &
        local pid=$!
        exec 7>in
        for i in $(seq 100); do grep -q socket out && break; sleep 0.05; done
        exec 7>&-
        wait $pid
        grep -q from-socket out
    }
    each_live check
}

@test "--where keeps request lines and lets events pass; a bad expression is status 2" {
    { request 1 '"turn":1' && echo '{"event":"x"}' && request 2 '"turn":2'; } >turns
    check() {
        run --separate-stderr "${tool[@]}" --where '.turn > 1' turns
        assert_success
        assert_ids "2 "
        if writes_lines; then assert_line '{"event":"x"}'; fi
        run --separate-stderr "${tool[@]}" --where '.turn |' turns
        assert_equal "$status" 2
    }
    each check
}

@test "--time-unit, --map and --from make request lines" {
    request 1 '"timestamp":1.5' >seconds
    request 1 '"timestamp":1500' >micros
    printf 'TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n' >azure
    echo '{"chat_id":1,"timestamp":61.114,"input_length":20,"hash_ids":[5]}' >bailian
    echo '{"timestamp":1760995773940169,"input":"a","output":"b","session_id":"s"}' >agent
    # became FILE OPTIONS FILTER VALUE: what the line has become where it is passed on. Without a prompt
    # kvr-send has nothing to send, without a length kvr-prefill and kvr-sim nothing to compute.
    became() {
        case $1-${tool[0]} in azure-kvr-send | bailian-kvr-send | agent-kvr-prefill | agent-kvr-sim) return ;; esac
        # shellcheck disable=SC2086
        run --separate-stderr "${tool[@]}" $2 "$1"
        assert_success
        if writes_lines; then assert_equal "$(jq -c "$3" <<<"$output")" "$4"; fi
    }
    check() {
        # a simulation's clock starts where it likes
        if [ "${tool[0]}" != kvr-sim ]; then
            became seconds '--time-unit s' .timestamp 1500
            became micros '--time-unit us' .timestamp 1.5
            became azure '--from azure --where .input_length==374' .timestamp 1700158546680.59
            became bailian '--from bailian' '[.timestamp,.block_size]' '[61114,16]'
        fi
        became azure '--from azure' '[.input_length,.output_length]' '[374,44]'
        became agent '--from agent' '[.session,.prompt]' '["s","a"]'
        run --separate-stderr "${tool[@]}" --map '.requests[] | {id:.n,input_length:9,prompt:"x"}' <<<'{"requests":[{"n":7},{"n":8}]}'
        assert_ids "7 8 "
        run --separate-stderr "${tool[@]}" --map '.a + 1' <<<'{"a":"secret"}'
        assert_equal "$status" 1
        refute_regex "$stderr" secret
        run --separate-stderr "${tool[@]}" --from nosuch <<<'{}'
        assert_equal "$status" 2
    }
    each check
}

@test "ragpulse: content ids are chained, so that the same content after another prefix differs" {
    cat >rag <<'J'
{"timestamp":"82","input_length":40,"output_length":5,"hash_ids":{"sys_prompt":[1],"passages_ids":[2],"history":[],"web_search":[],"user_input":[3]},"session_id":"s"}
{"timestamp":"83","input_length":40,"output_length":5,"hash_ids":{"sys_prompt":[1],"passages_ids":[2],"history":[],"web_search":[],"user_input":[4]},"session_id":"s"}
{"timestamp":"84","input_length":40,"output_length":5,"hash_ids":{"sys_prompt":[9],"passages_ids":[2],"history":[],"web_search":[],"user_input":[3]},"session_id":"s"}
J
    check() {
        run "${tool[@]}" --from ragpulse rag
        assert_success
        jq -es '[.[].hash_ids] as [$a,$b,$c] | $a[:2]==$b[:2] and $a[2]!=$b[2] and ($a-$c)==$a and .[0].timestamp==82000' <<<"$output"
    }
    each_filter check
}

@test "ragpulse with its lengths beside it: blocks of 16 tokens, every record" {
    need_shared traces/ragpulse/0_trace.jsonl.gz
    check() {
        "${tool[@]}" --from ragpulse "$SHARED/traces/ragpulse/0_trace.jsonl.gz" >out
        [ "$(wc -l <out)" -eq 7106 ]
        jq -es 'all(.[]; .block_size==16 and (.hash_ids|length)*16 <= .input_length and (.hash_ids|length)*16 > .input_length-64)' out
    }
    each_filter check
}

@test "accepts the lines that another strict JSON reader accepts, and says the same" {
    check() {
        python3 "$REPO/tests/json_differential.py" 1 20000 "${tool[@]}"
    }
    each_filter check
}

@test "help, version and bad options" {
    check() {
        run "${tool[0]}" -h
        assert_success
        assert_output --partial "usage: ${tool[0]}"
        run "${tool[0]}" --help
        assert_success
        assert_output --partial "--keep-bad"
        run "${tool[0]}" -V
        assert_output --regexp "^${tool[0]} [0-9]+\.[0-9]+\.[0-9]+$"
        run "${tool[0]}" --no-such-option
        assert_equal "$status" 2
        assert_output --partial "there is no option '--no-such-option'"
        run bash -c 'printf "\033[2J" >"$(printf "x\033[2J")"; "$@" "$(printf "y\033[2J")"' _ "${tool[@]}"
        refute_output --partial $'\033'
    }
    each check
}

@test "every option of --help is in the manual page and the completions" {
    for program in "$BUILD"/bin/kvr-*; do
        name=${program##*/}
        [ ! -e "$REPO/scripts/$name" ] || continue # without an option table
        grep -qx '@options@' "$REPO/man/$name.1.scd"
        "$program" --help=scdoc >table
        "$program" --help=bash >completion
        for option in $("$program" --help | grep -oE '^ +(-., )?--[a-z-]+' | grep -oE -- '--[a-z-]+'); do
            [ "$option" = --help ] && continue
            grep -qF -- "$option" table
            grep -qF -- "$option" completion
        done
        bash -n completion
        mandoc -Tlint -Wwarning "$BUILD/man/$name.1"
    done
}

@test "the same input gives the same bytes" {
    zcat "$(trace_slice)" | head -n 300 | jq -c '.prompt = "x" | .id = input_line_number' >trace
    check() {
        "${tool[@]}" trace | steady | cksum >one
        "${tool[@]}" <trace | steady | cksum >two
        cmp one two
    }
    each check
}

@test "a signal while a FIFO's writer is waited for: told to the program, and the wait goes on" {
    mkfifo in
    kvr-match -w 1 --state state in >out 2>err &
    program=$!
    for _ in $(seq 100); do [ -s out ] && break; sleep 0.05; done # -w is out before the wait
    kill -USR1 $program
    for _ in $(seq 100); do [ -s state ] && break; sleep 0.05; done
    [ -s state ]
    kill -HUP $program
    for _ in $(seq 100); do [ "$(wc -l <out)" -eq 2 ] && break; sleep 0.05; done
    echo '{"hash_ids":[1]}' >in
    wait $program
    assert_equal "$(cat err)" ""
    assert_equal "$(tail -n 1 out)" '{"hash_ids":[1],"match":{}}'
    kvr-match in >out 2>err &
    program=$!
    sleep 0.2
    kill -TERM $program
    status=0
    wait $program || status=$?
    assert_equal "$status" 143
    assert_equal "$(cat err)" ""
}

@test "-o that is also an input is refused before it is emptied" {
    request 1 >file
    ln file same
    check() {
        for inputs in file "-m same /dev/null" -; do
            # shellcheck disable=SC2086
            run "${tool[@]}" -o file $inputs <file
            assert_equal "$status" 2
            assert_output --partial "file is input and output at once"
        done
        assert_equal "$(cat file)" "$(request 1)"
        seq 100 >longer
        "${tool[@]}" -o longer file
        assert_equal "$(wc -l <longer)" 1
    }
    each check
}

@test "32 of a tool at once, each with its own input" {
    zcat "$(trace_slice)" | head -n 200 | jq -c '.prompt = "x"' >trace
    check() {
        local i
        "${tool[@]}" trace | steady | cksum >expected
        for i in $(seq 32); do
            { "${tool[@]}" trace 2>/dev/null | steady | cksum >"out.$i"; } &
        done
        wait
        for i in $(seq 32); do cmp expected "out.$i"; done
    }
    each check
}

@test "the locale changes nothing: C, UTF-8, and one that writes 1.5 as 1,5" {
    zcat "$(trace_slice)" | head -n 200 | jq -c '.prompt = "größe 1.5" | .session = "é" | .timestamp += 0.5' >trace
    locales=(C C.UTF-8 "")
    # a numeric locale with a decimal comma: made here, for a bare machine has none
    if command -v localedef >/dev/null && [ -e /usr/share/i18n/locales/de_DE ]; then
        localedef -i de_DE -f UTF-8 ./de_DE.UTF-8 || [ -d de_DE.UTF-8 ]
        locales+=(de_DE.UTF-8)
        assert_equal "$(LOCPATH=$PWD LC_ALL=de_DE.UTF-8 locale decimal_point)" ,
    fi
    check() {
        "${tool[@]}" --where '.timestamp >= 0.5' trace | steady >expected
        local locale
        for locale in "${locales[@]}"; do
            LOCPATH=$PWD LC_ALL=$locale "${tool[@]}" --where '.timestamp >= 0.5' trace | steady | cmp - expected
        done
        [ -s expected ]
    }
    each check
    [ ${#locales[@]} -eq 4 ] || skip "the first three the same; no localedef and no de_DE to make the fourth of"
}
