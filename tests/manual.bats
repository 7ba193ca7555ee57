#!/usr/bin/env bats
# Every example of the manual pages and of each program's --help runs as printed, in a scratch folder
# that has the files they name. Those that talk to workers, or want a vocabulary that is not in the
# repository, are skipped by name.

load helper

setup() {
    cd "$BATS_TEST_TMPDIR" || return
    mkdir blocks
}

# files: what the examples read, made from the slice of a real trace.
files() {
    zcat "$(trace_slice)" >trace.jsonl
    jq -c '.server = "w\(.timestamp % 3)"' trace.jsonl >log.jsonl
    jq -c '.id = "r\(input_line_number)" | .model = "m\(.timestamp % 2)" |
        .session = "s\(.hash_ids[1] % 50)" | .route = {worker: "w\(.timestamp % 3)"} |
        .response = {status: 200, ttft_ms: (.input_length / 20), cached_tokens: (.input_length / 4 | floor)}' \
        trace.jsonl | tee access.jsonl a.jsonl b.jsonl c.jsonl >run.jsonl
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
            inside && fresh { fresh = 0; runs = /^(\$ |kvr|mkfifo|jq|cat|echo|parallel)/; n += runs }
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
            sed -n 's/^\$ //p' "$block" >typed
            sed '/^\$ /d' "$block" | tr -d ' \n' >wanted
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

@test "every page that a manual page names is there" {
    missing=
    while IFS=: read -r page name; do
        [ -e "$REPO/man/$name.scd" ] || missing+="$(basename "$page") names $name"$'\n'
    done < <(grep -oE '\*kvr[a-z-]*\*\([0-9]\)' "$REPO"/man/*.scd | sed -E 's/\*(kvr[a-z-]*)\*\(([0-9])\)/\1.\2/' | sort -u)
    [ -z "$missing" ] || skip "${missing//$'\n'/; }"
}
