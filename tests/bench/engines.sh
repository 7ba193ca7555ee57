#!/usr/bin/env bash
# The engines on two public traces and a made-up one, one pinned core, best of three runs each.
# Prints a table: block accesses a second, bookkeeping bytes a resident block, hit rate of blocks.
# There is no peer on a package index that manages blocks as these engines do: no ratio.
#   tests/bench/engines.sh
set -eu
cd "$(dirname "$0")/../.."
shared=${SHARED:-../shared} build=${BUILD:-build} core=${CORE:-$(($(nproc) - 1))}
[ -e "$shared/traces/mooncake_conversation.jsonl.gz" ] ||
    { echo "engines.sh: the traces are missing: only the made-up one is measured" >&2; }

run() {
    local name=$1
    shift
    taskset -c "$core" "$build/bench/bench_engines" "$@" | jq -c --arg trace "$name" '. + {trace: $trace}'
}

{
    for cell in mooncake_conversation:512:10000 agentic_coding_bs64:64:100000; do
        IFS=: read -r name block capacity <<<"$cell"
        [ ! -e "$shared/traces/$name.jsonl.gz" ] || run "$name" "$shared/traces/$name.jsonl.gz" "$block" "$capacity"
    done
    run made-up
} | jq -rs '["trace", "engine", "parameters", "live", "blocks", "M accesses/s", "bytes/block", "hit rate"],
    (.[] | [.trace, .engine, .parameters, .live, .capacity_blocks,
        (.accesses_per_second / 1e5 | round / 10), .bytes_per_resident_block,
        (.hit_blocks / .accesses * 1000 | round / 1000)]) | @tsv' | column -t -s "$(printf '\t')"
