#!/bin/sh
# Prefill and decode in pools against coupled workers, as near to Mooncake's experiment (FAST'25,
# section 5.2: 20 nodes of 8 A800, TTFT of 30 s, TBT of 0.1 s, about 75 % more requests than vLLM) as
# the published trace allows: its numbers of requests and lengths, Llama 3.1 70B on 20 x 8 A100, RDMA
# of 4 x 200 Gbit/s, KV streamed while the prompt is computed.
#
# Coupled workers are shown three ways: whole prompts in one step, as vLLM did then; chunks of 2048;
# chunks of 512. TBT is read two ways: a request's mean time between tokens, and its longest.
# LONGER=32768 keeps only the requests with so many prompt tokens, RATES=rate=1:16:1 then.
#   examples/pools.sh [TRACE]
set -eu
# shellcheck source=examples/common
. "$(dirname "$0")/common"
find_trace "$@"
options="--model llama-3.1-70b --gpu 8xa100 --link 92GB/s --slo-ttft 30s"
rates=${RATES:-rate=0.25:4:0.25}
kept=$(mktemp)
trap 'rm -f "$kept"' EXIT
gzip -dcf "$trace" | jq -c --argjson least "${LONGER:-0}" 'select(.input_length >= $least)' >"$kept"

# sweep TITLE OPTION...: the last columns of the sweep.
sweep() {
    title=$1
    shift
    # shellcheck disable=SC2086
    kvr-sim -w 20 $options "$@" --sweep "$rates" "$kept" | awk -v title="$title" 'NR > 1 {
        highest = $(NF - 1) == "below" ? "below " $NF : $(NF - 2)
        printf "%-34s %-14s %12s %12s\n", title, $1, highest, $(NF - 1) == "below" ? "" : $NF }'
}
for goal in "--slo-tbt 100ms" "--slo-gap 100ms"; do
    echo "$goal"
    printf '%-34s %-14s %12s %12s\n' '' policy 'highest rate' 'goodput/s'
    # shellcheck disable=SC2086
    {
        sweep '20 coupled, whole prompts' $goal --batch-tokens 200000 --compare round-robin,least-loaded,cost
        sweep '20 coupled, chunks of 2048' $goal --batch-tokens 2048 --compare least-loaded,cost
        sweep '20 coupled, chunks of 512' $goal --batch-tokens 512 --compare least-loaded,cost
        for decoders in 2 4 6 10; do
            sweep "$((20 - decoders)) prefill, $decoders decode" $goal --decoders $decoders --stream-kv --compare least-loaded,mooncake
        done
    }
done
