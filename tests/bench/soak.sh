#!/usr/bin/env bash
# A soak: generated requests through kvr-match, whose memory must stop growing.
#   soak.sh [REQUESTS]   10 million unless said otherwise
# Mirrors small enough to evict all the time, blocks that expire, workers that come and go. RSS is
# read all along, and must not grow by more than 2 % (and 256 KiB) after the first fifth.
set -euo pipefail
cd "$(dirname "$0")/../.."
BUILD=${BUILD:-build}
requests=${1:-10000000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Conversations of 16 workers: each request goes on with one of 5000 chains, or begins one.
generate() {
    awk -v requests="$requests" 'BEGIN {
        seed = 42
        for (i = 0; i < requests; i++) {
            seed = (seed * 1103515245 + 12345) % 2147483648
            chain = int(seed / 65536) % 5000
            if (!(chain in length_of) || length_of[chain] > 12) { length_of[chain] = 1; base[chain] = (++fresh) * 16 }
            ids = "1"
            for (k = 0; k < length_of[chain]; k++) ids = ids "," base[chain] + k
            length_of[chain]++
            if (i % 20000 == 7)
                printf "{\"event\":\"worker\",\"worker\":\"pod%d\",\"state\":\"down\"}\n", int(i / 20000) - 1
            printf "{\"id\":%d,\"timestamp\":%d,\"hash_ids\":[%s],\"route\":{\"worker\":\"%s\"}}\n", i, i, ids, \
                (i % 100 == 0 ? "pod" int(i / 20000) : "w" chain % 16)
        }
    }'
}

mkfifo "$work/in"
"$BUILD/bin/kvr-match" -c $((requests / 500))b --ttl 10m -o /dev/null "$work/in" &
pid=$!
generate >"$work/in" &
samples=0
while kill -0 "$pid" 2>/dev/null; do
    sleep "${SAMPLE_SECONDS:-0.5}"
    kib=$(awk '/^VmRSS/ { print $2 }' "/proc/$pid/status" 2>/dev/null) || break
    [ -n "$kib" ] || break
    samples=$((samples + 1))
    echo "$kib" >>"$work/rss"
done
wait "$pid"
# The first fifth is warm-up.
warm=$(head -n $(((samples + 4) / 5)) "$work/rss" | sort -n | tail -n 1)
late=$(tail -n +$(((samples + 4) / 5)) "$work/rss" | sort -n | tail -n 1)
echo "{\"requests\":$requests,\"samples\":$samples,\"rss_after_warm_up_kib\":$warm,\"rss_peak_kib\":$late}"
[ "$late" -le $((warm + warm / 50 + 256)) ] || { echo "memory grew after warm-up" >&2; exit 1; }
