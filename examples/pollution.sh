#!/usr/bin/env bash
# Cache pollution: what a burst of long prompts that nobody asks for again does to hot prefixes, and
# what each protection of kvr-evict saves.
#
# The traffic is made up: 20 assistants, each with a system prompt of 12,288 tokens, some popular,
# some not (Zipf); 8 chat requests a second for five minutes, in conversations of six turns, each
# 2,048 tokens longer than the last and 15 s later. From 100 s to 180 s a bulk job adds 8 prompts a
# second of 40,960 tokens, each different. The cache of 2 M tokens holds the chats comfortably.
# The hit rate is that of the chat requests alone.
#
# What it shows: without protection the burst takes system prompts and histories alike. A threshold
# keeps the bulk job out, if bulk jobs can be told by their length. A second sighting keeps anything
# out that is asked for once, and so costs every turn its first reuse. Pins and the pool keep the
# system prompts, not the histories. value keeps what was reused, by how often.
#
#   examples/pollution.sh [PICTURE.png]      needs kvr-evict (or build/bin), jq, awk; gnuplot for
#                                            the picture
set -euo pipefail
# shellcheck source=examples/common
. "$(dirname "$0")/common"
picture=${1:-$([ ! -d "$here/build" ] || echo "$here/build/")pollution.png}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One line a request. Ids are chained: the assistant's blocks, then those of the conversation.
awk 'function chance() { seed = (seed * 16807) % 2147483647; return seed / 2147483647 }
function blocks(first, count,   i, ids) {
    for (i = 0; i < count; i++) ids = ids (i ? "," : "") first + i
    return ids
}
function line(type, session, count, ids) {
    printf "{\"id\":%d,\"timestamp\":%d,\"type\":\"%s\",\"session\":\"%s\",\"input_length\":%d,\"hash_ids\":[%s]}\n",
        ++id, time, type, session, 512 * count, ids
}
function open_session(   pick, a) {
    pick = chance() * sum
    for (a = 1; upto[a] < pick; a++);
    path[++sessions] = blocks(a * 1000, 24); length_of[sessions] = 24
    turns[sessions] = time < 15000 ? int(chance() * 6) : 0 # the first ones began before us
    return sessions
}
BEGIN {
    seed = 20261129; fresh = 1000000; head = 1
    for (a = 1; a <= 20; a++) { sum += 1 / a; upto[a] = sum }
    for (time = 0; time < 300000; time += 125) {
        # the turn that has waited longest, else a new conversation
        s = head <= tail && due[head] <= time ? waiting[head++] : open_session()
        path[s] = path[s] "," blocks(fresh, 4); fresh += 4; length_of[s] += 4
        line("chat", "c" s, length_of[s], path[s])
        if (++turns[s] < 6) { waiting[++tail] = s; due[tail] = time + 15000 } else delete path[s]
        if (time >= 100000 && time < 180000) { line("bulk", "b" time, 80, blocks(fresh, 80)); fresh += 80 }
    }
}' >"$work/trace.jsonl"

capacity=2M
# name | options
cat >"$work/protections" <<'ROWS'
none (lru)|
threshold|--admission max-length(tokens=32768)
second sighting|--admission second
pin|--pin (.type=="chat")*12288
pool|--pool shared=50%
value|--policy value
ROWS

printf '%-18s %9s %9s %9s %14s\n' protection before during after 'evicted blocks'
number=0
while IFS='|' read -r name options; do
    number=$((number + 1))
    # shellcheck disable=SC2086
    if [ "${options#--pin }" != "$options" ]; then
        kvr-evict -c "$capacity" --pin 'if .type == "chat" then 12288 else 0 end' "$work/trace.jsonl"
    else
        kvr-evict -c "$capacity" $options "$work/trace.jsonl"
    fi | jq -r '[.timestamp, .type, .input_length, .cache.hit, .cache.evicted] | @tsv' |
        awk -F '\t' -v name="$name" -v rows="$work/$number.dat" '
            { evicted += $5 / 512 }
            $2 == "chat" {
                part = $1 < 60000 ? "warm-up" : $1 < 100000 ? "before" : $1 < 180000 ? "during" : "after"
                hit[part] += $4; all[part] += $3
                window = int($1 / 5000); hits[window] += $4; tokens[window] += $3
            }
            END {
                printf "%-18s %8.1f%% %8.1f%% %8.1f%% %14d\n", name, 100 * hit["before"] / all["before"],
                    100 * hit["during"] / all["during"], 100 * hit["after"] / all["after"], evicted
                for (window = 0; window < 60; window++)
                    printf "%g\t%g\n", window * 5 + 2.5, 100 * hits[window] / tokens[window] >rows
            }'
done <"$work/protections"

command -v gnuplot >/dev/null || { echo "no gnuplot: no picture" >&2; exit 0; }
gnuplot <<PLOT
set terminal pngcairo size 1100,600 font ",12" noenhanced
set output "$picture"
set title "A burst of unique long prompts against hot prefixes: chat requests, cache of 2 M tokens"
set xlabel "seconds"
set ylabel "prompt tokens found in the cache, %"
set xrange [0:300]
set yrange [0:100]
set grid ytics
set key outside right center
set object 1 rectangle from 100,graph 0 to 180,graph 1 behind fillcolor rgb "#f2d9d5" fillstyle solid noborder
set label 1 "burst" at 140,96 center textcolor rgb "#a04030"
plot "$work/1.dat" with lines linewidth 4 linecolor rgb "#c0392b" title "none (lru)", \
     "$work/2.dat" with linespoints pointinterval 4 linewidth 2 linecolor rgb "#2980b9" title "threshold", \
     "$work/3.dat" with linespoints pointinterval 5 linewidth 2 linecolor rgb "#27ae60" title "second sighting", \
     "$work/4.dat" with linespoints pointinterval 6 linewidth 2 linecolor rgb "#8e44ad" title "pin", \
     "$work/5.dat" with linespoints pointinterval 7 linewidth 2 linecolor rgb "#d68910" title "pool", \
     "$work/6.dat" with linespoints pointinterval 8 linewidth 2 linecolor rgb "#34495e" title "value"
PLOT
echo "picture: $picture"
