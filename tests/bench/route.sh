#!/bin/sh
# Routing, one pinned core: in process (match + route + learn) for every policy on 8 and 256 workers,
# then kvr-route alone as a program, then the closed loop of three programs through a FIFO. Programs
# run five times; the best and the worst are printed.
set -eu
cd "$(dirname "$0")/../.."
. tests/bench/lib.sh
trace=${SHARED:-../shared}/traces/mooncake_conversation.jsonl.gz
[ -e "$trace" ] || trace=tests/data/mooncake_conversation_1k.jsonl.gz
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkfifo "$folder/loop"
zcat "$trace" >"$folder/once"
for _ in 1 2 3 4 5; do zcat "$trace" "$trace" "$trace" "$trace"; done >"$folder/twenty"

# best NAME FILE COMMAND...: lines of FILE a second
best() {
    name=$1 lines=$(wc -l <"$2") most=0 least=0
    shift 2
    for _ in 1 2 3 4 5; do
        start=$(date +%s%N)
        "$@" >/dev/null
        rate=$((lines * 1000000000 / ($(date +%s%N) - start)))
        [ "$rate" -gt "$most" ] && most=$rate
        { [ "$least" -eq 0 ] || [ "$rate" -lt "$least" ]; } && least=$rate
    done
    echo "{\"bench\":\"$name\",\"lines_per_s\":$most,\"worst\":$least}"
}

closed_loop() {
    taskset -c 0 build/bin/kvr-match -w 8 -c 3000000 --loop "$folder/loop" "$folder/once" |
        taskset -c 0 build/bin/kvr-route --policy "$1" | taskset -c 0 tee "$folder/loop"
}

taskset -c 0 build/bench/bench_route "$folder/once" | tee "$folder/runs"
jq -c 'select(.policy == "cost") | {metric: "match, route, learn in process, \(.workers) workers", kvr: .requests_per_s, unit: "requests/s",
    asked: (if .workers == 8 then "500 k/s" else "100 k/s" end)}' "$folder/runs" | record route
best kvr-route "$folder/twenty" taskset -c 0 build/bin/kvr-route -w 8 "$folder/twenty"
best loop-round-robin "$folder/once" closed_loop round-robin
best loop-cost "$folder/once" closed_loop cost
