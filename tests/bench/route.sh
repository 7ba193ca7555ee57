#!/bin/sh
# Routing, one pinned core: in process (match + route + learn) for every policy on 8 and 256 workers,
# then kvr-route alone as a program.
set -eu
cd "$(dirname "$0")/../.."
trace=${SHARED:-../shared}/traces/mooncake_conversation.jsonl.gz
[ -e "$trace" ] || trace=tests/data/mooncake_conversation_1k.jsonl.gz
plain=$(mktemp)
trap 'rm -f "$plain"' EXIT
zcat "$trace" >"$plain"

taskset -c 0 build/bench/bench_route "$plain"

for _ in 1 2 3 4 5; do zcat "$trace" "$trace" "$trace" "$trace"; done >"$plain"

# The program alone: lines without match, every decision the least loaded.
for _ in 1 2 3; do
    start=$(date +%s%N)
    taskset -c 0 build/bin/kvr-route -w 8 --policy cost "$plain" >/dev/null
    end=$(date +%s%N)
    lines=$(wc -l <"$plain") bytes=$(wc -c <"$plain")
    echo "{\"bench\":\"kvr-route\",\"lines_per_s\":$((lines * 1000000000 / (end - start))),\"mb_per_s\":$((bytes * 1000 / (end - start)))}"
done
