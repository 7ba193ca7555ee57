#!/usr/bin/env bash
# Eviction policies against libCacheSim 0.3.5 (PyPI): the same accesses, one pinned core, the two
# programs in turn, best of ROUNDS rounds. Prints a table with the ratio and what is asked.
#   ROUNDS=5 REPEATS=5 tests/bench/evict.sh [CELL...]     a cell is NAME@CAPACITY
set -eu
cd "$(dirname "$0")/../.."
. tests/bench/lib.sh
shared=${SHARED:-../shared} build=${BUILD:-build} rounds=${ROUNDS:-3} repeats=${REPEATS:-5}
core=${CORE:-$(($(nproc) - 1))}
trace=$shared/traces/mooncake_conversation.jsonl.gz
venv=$build/venv file=$build/bench/conversation.oracleGeneral
[ -e "$trace" ] || { echo "evict.sh: $trace is missing: nothing measured" >&2; exit 3; }
if ! "$venv/bin/python" -c 'import libcachesim' 2>/dev/null; then
    python3 -m venv "$venv" && "$venv/bin/pip" -q install libcachesim==0.3.5
fi
[ -e "$file" ] || python3 tests/bench/evict_peer.py convert "$trace" "$file"

pairs="lru:LRU fifo:FIFO lfu:LFU clock:Clock sieve:Sieve s3fifo:S3FIFO s3fifo-cold:S3FIFO slru:SLRU
arc:ARC gdsf:GDSF value:GDSF random:Random belady:Belady"
ours="" theirs=""
for capacity in 1000 10000 50000; do
    for pair in $pairs; do
        ours="$ours ${pair%:*}@$capacity" theirs="$theirs ${pair#*:}@$capacity"
    done
    ours="$ours tree:lru@$capacity tree:ttl@$capacity"
done
theirs=$(printf "%s" "$theirs" | tr " " "\n" | sort -u)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for _ in $(seq "$rounds"); do
    # shellcheck disable=SC2086
    taskset -c "$core" "$build/bench/bench_evict" "$file" "$repeats" $ours curve@10000 >>"$log"
    # shellcheck disable=SC2086
    taskset -c "$core" "$venv/bin/python" tests/bench/evict_peer.py run "$file" "$repeats" $theirs >>"$log"
done
jq -rs --arg pairs "$pairs" '
    ($pairs | split("\\s+"; null) | map(split(":") | {(.[0]): .[1]}) | add) as $peer
    | (group_by([.tool, .policy, .capacity]) | map(max_by(.maccess_s))) as $best
    | ($best | map(select(.tool == "libcachesim")) | map({"\(.policy)@\(.capacity)": .}) | add) as $lcs
    | ["policy", "blocks", "misses", "M/s", "libCacheSim", "its misses", "its M/s", "ratio", "asked"],
      ($best[] | select(.tool == "kvr")
        | . as $row
        | ($lcs["\($peer[.policy] // "")@\(.capacity)"]) as $its
        | (if .policy == "lru" or .policy == "sieve" then 1.5 elif $its then 1 else null end) as $asked
        | (if .policy == "curve" then 3 elif .policy == "tree:lru" then 15 else null end) as $rate
        | (if $its then .maccess_s / $its.maccess_s else null end) as $ratio
        | [.policy, .capacity, .misses, .maccess_s,
           ($its.policy // "-"), ($its.misses // "-"), ($its.maccess_s // "-"),
           (if $ratio then ($ratio * 100 | round / 100) else "-" end),
           (if $asked then (if $ratio >= $asked then "yes" else "NO" end) + " (\($asked)x)"
            elif $rate then (if .maccess_s >= $rate then "yes" else "NO" end) + " (\($rate) M/s)"
            else "-" end)])
    | @tsv' "$log" | column -t -s "$(printf '\t')"

# The program, NDJSON parsing included: the best of so many runs, wall time.
best() {
    local best=999 from to
    for _ in $(seq 10); do
        from=$(date +%s%N)
        taskset -c "$core" "$build/bin/kvr-evict" -q "$@" >/dev/null
        to=$(date +%s%N)
        best=$(awk -v best="$best" -v took="$((to - from))" 'BEGIN { took /= 1e9; print took < best ? took : best }')
    done
    echo "$best"
}
jq -cs --arg pairs "$pairs" '
    ($pairs | split("\\s+"; null) | map(split(":") | {(.[0]): .[1]}) | add) as $peer
    | (group_by([.tool, .policy, .capacity]) | map(max_by(.maccess_s))) as $best
    | ($best | map(select(.tool == "libcachesim")) | map({"\(.policy)@\(.capacity)": .}) | add) as $lcs
    | $best[] | select(.tool == "kvr" and (.capacity == 10000 or .capacity == 0 or .policy == "curve"))
    | ($lcs["\($peer[.policy] // "")@\(.capacity)"]) as $its
    | {metric: "\(.policy), \(.capacity) blocks", kvr: (.maccess_s * 1e6), unit: "accesses/s",
       asked: (if .policy == "curve" then "3 M/s" elif .policy == "tree:lru" then "15 M/s" elif .policy == "lru" or .policy == "sieve" then "1.5 x" elif $its then "1 x" else null end)}
      + if $its then {peer: "libCacheSim", peer_version: "0.3.5", theirs: ($its.maccess_s * 1e6)} else {} end' "$log" | record evict
agentic=$shared/traces/agentic_coding_bs64.jsonl.gz
zcat "$trace" >"$build/bench/conversation.jsonl"
zcat "$agentic" >"$build/bench/agentic.jsonl"
printf '\n%-46s %8s %8s\n' "kvr-evict --json (leaf LRU)" seconds asked
printf '%-46s %8.3f %8s\n' "conversation, 288,500 accesses" "$(best -c 10000b --json "$build/bench/conversation.jsonl")" 0.05
printf '%-46s %8.3f %8s\n' "conversation, gzip" "$(best -c 10000b --json "$trace")" -
printf '%-46s %8.3f %8s\n' "conversation, a line out for each line in" "$(best -c 10000b "$build/bench/conversation.jsonl")" -
printf '%-46s %8.3f %8s\n' "agentic, 6.7 M accesses" "$(best -c 100000b -b 64 --json "$build/bench/agentic.jsonl")" 1
printf '%-46s %8.3f %8s\n' "agentic, gzip" "$(best -c 100000b -b 64 --json "$agentic")" -
