#!/usr/bin/env bats
# Every example of the manual pages and of each program's --help runs as printed, in a scratch folder
# that has the files they name. Those that talk to workers, or want a vocabulary that is not in the
# repository, are skipped by name.

load helper
load http

setup() {
    cd "$BATS_TEST_TMPDIR" || return
    mkdir blocks
    export no_proxy='*' NO_PROXY='*'
}

teardown() {
    stop_all
}

# files: what the examples read, made from the slice of a real trace.
files() {
    zcat "$(trace_slice)" >trace.jsonl
    jq -c '.server = "w\(.timestamp % 3)"' trace.jsonl >log.jsonl
    jq -c '.id = "r\(input_line_number)" | .model = "m\(.timestamp % 2)" |
        .session = "s\(.hash_ids[1] % 50)" | .route = {worker: "w\(.timestamp % 3)"} |
        .response = {status: 200, ttft_ms: (.input_length / 20), cached_tokens: (.input_length / 4 | floor)}' \
        trace.jsonl | tee access.jsonl a.jsonl b.jsonl c.jsonl >run.jsonl
    jq -c '{rid: "r\(input_line_number)", at: (.timestamp / 1000), tokens: .input_length, talk: "t\(.hash_ids[1])",
        server: "gpu\(input_line_number % 4)", first: (.input_length / 20000)}' trace.jsonl >gateway.jsonl
    gzip -k access.jsonl
    cp trace.jsonl big.jsonl
    jq -nc 'range(40) | {id: "r\(.)", timestamp: (. * 100), session: "s\(. % 7)", prompt:
        ("You are a helpful assistant. Answer in one sentence, name your sources, and say so when you " +
         "do not know. Question \(. % 9)?")}' >requests.jsonl
    jq -nc 'range(9) | {id: ., messages: [{role: "user", content: "Question \(.)?"}]}' >chats.jsonl
    printf '{"event":"worker","worker":"%s"}\n' a b >workers.jsonl
}

# manual_blocks: the literal blocks of the pages that begin with a command, one file each.
manual_blocks() {
    for page in "$REPO"/man/*.scd; do
        awk -v base="blocks/$(basename "$page" .scd)" '
            /^```$/ { inside = !inside; fresh = inside; next }
            inside && fresh { fresh = 0; runs = /^(\$ |kvr|mkfifo|jq|cat|echo|for|parallel|cc )/; n += runs }
            inside && runs { gsub(/\\\\/, "\\"); print > (base "-" n) }' "$page"
    done
}

help_blocks() {
    for program in "$BUILD"/bin/kvr-*; do
        "$program" --help | sed '1,/^Examples:$/d' | grep -v '^#' |
            awk -v base="blocks/$(basename "$program")--help" '{ print > (base "-" ++n) }'
    done
}

# needs BLOCK: what the block wants that a test has not; nothing where it can run.
needs() {
    if grep -qE '://|--scrape|kvr-(send|serve|smoke)' "$1"; then
        echo workers
    elif grep -q '^cc ' "$1"; then
        echo "the library installed (tests/package.bats does it)"
    elif grep -q kvr-prefill "$1"; then
        echo "minutes of arithmetic"
    elif grep -qE -- '--(record|replay)' "$1"; then
        echo "a recorded stream"
    elif grep -qE -- ' -t [^ ]' "$1"; then
        echo "a vocabulary"
    elif grep -q '^parallel' "$1" && ! command -v parallel >/dev/null; then
        echo "GNU parallel"
    elif grep -q gnuplot "$1" && ! command -v gnuplot >/dev/null; then
        echo gnuplot
    fi
}

# run_blocks: each block in turn, in a folder of its own; says what it ran, and fails at the first that
# fails, complains or says nothing.
run_blocks() {
    local block count=0
    for block in blocks/*; do
        [ -z "$(needs "$block")" ] || continue
        echo "== $block"
        cat "$block"
        rm -rf here
        mkdir here
        ln -s "$PWD"/*.jsonl "$PWD"/*.gz here/
        if grep -q '^\$ ' "$block"; then # a session: the command, then what it prints
            sed -n 's/^[$>] //p' "$block" >typed # > is a command's next line
            sed '/^[$>] /d' "$block" | tr -d ' \n' >wanted
            (cd here && bash ../typed) | tr -d ' \n' >got
            cmp wanted got
        else
            (cd here && timeout 60 bash -o pipefail -e "../$block") >got 2>errors </dev/null || { cat errors; return 1; }
            if grep -E '^[a-z-]+: ' errors; then return 1; fi
            [ -s got ] || [ -n "$(find here -newer got -type f -size +0)" ]
        fi
        count=$((count + 1))
    done
    echo "$count blocks"
    [ "$count" -ge "$1" ]
}

@test "the examples of the manual pages run as printed" {
    files
    manual_blocks
    run_blocks 14
}

@test "the examples of --help run as printed" {
    files
    help_blocks
    run_blocks 14
}

@test "the tutorial's front end and audit run, with stand-ins for the reader's workers" {
    local a b port block
    files
    manual_blocks
    mock a
    mock b
    cd blocks
    for block in kvr.7-*; do # the smoke test and the front ends: their ports become the stand-ins'
        grep -qE 'kvr-(smoke|serve)' "$block" || continue
        sed -i "s/127.0.0.1:8001/127.0.0.1:$a/; s/127.0.0.1:8002/127.0.0.1:$b/" "$block"
        if grep -q kvr-smoke "$block"; then
            bash "$block" >smoked
            continue
        fi
        rm -f access.jsonl
        sed -i 's/^kvr-serve /exec &--listen 0 /' "$block"
        bash "$block" 2>said 3>&- &
        echo $! >>"$BATS_TEST_TMPDIR/pids"
        wait_for 'grep -q "listening on port" said'
        port=$(sed -n 's/.*listening on port //p' said | head -n 1)
        # the second time, or where a slow machine missed the decision's time, a later one
        for asked in $(seq 20); do
            curl -s -o answer -D heads -d '{"model":"m","messages":[{"role":"user","content":"A question that is long enough to fill a block or two of sixteen tokens, and is asked twice."}]}' \
                "http://127.0.0.1:$port/v1/chat/completions"
            grep -qi '^x-kvr-reason: cache-match' heads && break
        done
        grep -qi '^x-kvr-reason: cache-match' heads
        kill %%
        wait_for '[ "$(wc -l <access.jsonl)" = $asked ]'
    done
    [ -s smoked ] && [ -s access.jsonl ]
    # the audit: what two workers publish, heard and compared
    head -n 50 ../access.jsonl | jq -c '.route.worker = "w\(input_line_number % 2)"' >access.jsonl
    for worker in w0 w1; do
        jq -c "select(.route.worker == \"$worker\")" access.jsonl | kvr-evict -c 1M --events >"$worker.events"
        kvr-events --publish "ipc://$PWD/$worker" --wait 1 --linger 20s "$worker.events" 2>/dev/null 3>&- &
        echo $! >>"$BATS_TEST_TMPDIR/pids"
    done
    block=$(grep -l audit kvr.7-*)
    sed -i "s#w0=tcp://[^ ]*#w0=ipc://$PWD/w0#; s#w1=tcp://[^ ]*#w1=ipc://$PWD/w1#; s/-m events access.jsonl/-m events in/; s/kvr-events /kvr-events --native --idle 6s /" "$block"
    mkfifo in
    timeout 60 bash -c 'sleep 4; cat access.jsonl >in' 3>&- & # the workers are heard before the first request
    timeout 120 bash "$block" 2>said 3>&- || { cat said; return 1; }
    assert_equal "$(jq -c 'select(.event == "audit") | [(.requests > 20), (.workers | length)]' audited.jsonl)" '[true,2]'
}

@test "examples that need workers, recordings or vocabularies are known by name" {
    manual_blocks
    help_blocks
    list=
    for block in blocks/*; do
        need=$(needs "$block")
        [ -z "$need" ] || list+="${list:+; }$(basename "$block") needs $need"
    done
    [ -z "$list" ] || skip "$list"
}

@test "the values of options are in --help and in the manual, as the shell completes them" {
    local program name count=0 missing= option values value
    for program in "$BUILD"/bin/kvr-*; do
        name=$(basename "$program")
        "$program" --help >help
        "$program" --help=scdoc | tr -d '\\' >page
        while IFS=: read -r option values; do
            awk -v o="--$option" 'index($0, o " ") && /^ *(-.,)? *--/ { on = 1; print; next } /^ *(-., )? *--/ || /^$/ { on = 0 } on' help >sentence
            awk -v o="*--$option*" 'index($0, o) { on = 1 } /^$/ { on = 0 } on' page >entry
            for value in $values; do
                grep -qw -- "$value" sentence || missing+="$name --help: --$option $value"$'\n'
                grep -qw -- "$value" entry || missing+="$name.1: --$option $value"$'\n'
                count=$((count + 1))
            done
        done < <("$program" --help=bash | sed -nE "/^    (-.\\|)?--[a-z-]+\\)/{/--(help|policy|engine|admission|model|gpu|link|by-model)\\)/d;s/^    (-.\\|)?--([a-z-]+)\\).*compgen -W '([^']*)'.*/\\2:\\3/p}")
    done
    assert_equal "$missing" ""
    [ "$count" -gt 150 ]
}

@test "every page that a manual page names is there" {
    missing=
    while IFS=: read -r page name; do
        [ -e "$REPO/man/$name.scd" ] || missing+="$(basename "$page") names $name"$'\n'
    done < <(grep -oE '\*kvr[a-z-]*\*\([0-9]\)' "$REPO"/man/*.scd | sed -E 's/\*(kvr[a-z-]*)\*\(([0-9])\)/\1.\2/' | sort -u)
    assert_equal "$missing" ""
}
