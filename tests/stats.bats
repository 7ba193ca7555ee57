#!/usr/bin/env bats
# kvr-stats as a program: formats, renderings, alerts, parts, comparisons, scraping.

setup() {
    load helper
    cd "$BATS_TEST_TMPDIR" || return
    TEN=$DATA/stats/ten.ndjson
    PLAIN='{"prefill":{"overhead_ms":10,"token_ms":0.1,"pair_ms":0}}'
}

teardown() {
    if [ -n "${SERVER:-}" ]; then
        kill "$SERVER" 2>/dev/null || true
    fi
}

# numbers FILTER OPTIONS...: a jq filter on the JSON report
numbers() {
    local filter=$1
    shift
    kvr-stats --json "$@" | jq -c "$filter"
}

@test "the table answers the operator's questions" {
    run kvr-stats --slo-ttft 100ms "$TEN"
    assert_success
    assert_output --partial "5 requests in 5.0 s"
    assert_output --partial "token hit rate             33.3 %"
    assert_output --partial "ceiling                    38.5 %"
    assert_output --partial "regret                     16.7 %"
    assert_output --partial "within the TTFT bound      40.0 %  goodput 0.40/s"
    assert_output --partial "rejected                   20.0 %"
    assert_output --partial "router and cache" || assert_output --partial "router shattering locality"
}

@test "json has the metrics that were worked out by hand" {
    echo "$PLAIN" > cost.json
    run numbers '.metrics | [.requests, .prompt_tokens, .token_hit_rate, .time_saved_rate, .ceiling_token_hit_rate, .regret_tokens, .regret_ms, .load_skew]' --cost cost.json "$TEN"
    assert_output '[5,1300,0.333333,0.25,0.384615,200,20,1.5]'
    run numbers '.reasons, (.workers | map(.worker)), .diagnosis.verdict' "$TEN"
    assert_line --index 0 '{"cache-match":3,"load-fallback":1,"rejected":1}'
    assert_line --index 1 '["w0","w1"]'
    assert_line --index 2 '"router-and-cache"'
}

@test "brief says the same of what it says" {
    keep='[.metrics | .requests, .token_hit_rate, .time_saved_rate, .ttft_p50_ms, .ttft_p99_ms, .load_skew, .failed_rate, .request_rate]'
    assert_equal "$(numbers "$keep" --brief "$TEN")" "$(numbers "$keep" "$TEN")"
    run numbers '[.metrics.ceiling_token_hit_rate, .metrics.regret_rate, (.left_out | length)]' --brief "$TEN"
    assert_output '[null,null,1]'
    run kvr-stats --brief --alerts default "$TEN"
    assert_failure 2
}

@test "groups by any expression, natively and through jq" {
    run numbers '.by, (.groups | map([.group, .metrics.requests]))' --by .session "$TEN"
    assert_line --index 0 '".session"'
    assert_line --index 1 '[["s1",3],["s2",1],["s3",1]]'
    run numbers '.groups | map([.group, .metrics.requests])' --by 'if .input_length > 250 then "long" else "short" end' "$TEN"
    assert_output '[["long",3],["short",2]]'
    run numbers '.groups | map(.group)' --by .session --max-groups 1 "$TEN"
    assert_output '["s1","(other)"]'
}

@test "prefixes and reuse distance" {
    run numbers '(.prefixes[0] | [.tokens, .requests, .workers, .sample_id]), .block_accesses, .distinct_blocks' --prefixes 3 "$TEN"
    assert_line --index 0 '[200,3,2,"a"]'
    assert_line --index 1 13
    assert_line --index 2 8
}

@test "--from aiperf" {
    run numbers '.metrics | [.requests, .prompt_tokens, .token_hit_rate, .failed_rate]' --from aiperf "$DATA/formats/aiperf.jsonl"
    assert_output '[3,2300,0.459193,0.333333]' # 1024 of 1030 + 1200
    run numbers '.latency.ttft_ms | [.new.count, .new.max, .continued.max], .latency.tpot_ms.new.max' --from aiperf "$DATA/formats/aiperf.jsonl"
    assert_line --index 0 '[1,400,50]' # 50,000 us


}

@test "--from aiperf on a real run" {
    need_shared samples/aiperf-0.13.0/profile_export.jsonl
    run numbers '[.metrics.requests, .metrics.prompt_tokens, (.latency.ttft_ms.all.mean * 100 | round), (.metrics.token_hit_rate * 5749 | round)]' \
        --from aiperf "$SHARED/samples/aiperf-0.13.0/profile_export.jsonl"
    assert_output '[5,5749,31275,2608]' # its own summary says 312.75 ms
}

@test "--from vllm-bench" {
    run numbers '.metrics | [.requests, .prompt_tokens, .output_tokens, .failed_rate]' --from vllm-bench "$DATA/formats/vllm_bench.json"
    assert_output '[3,600,8,0.333333]'
    run numbers '[.latency.ttft_ms.all.count, .latency.ttft_ms.all.mean, .latency.e2e_ms.all.max, .last_ms - .first_ms]' --from vllm-bench "$DATA/formats/vllm_bench.json"
    assert_output '[2,60,120,1000]'
}

@test "--from sglang reads both of its logs" {
    run numbers '.metrics | [.requests, .prompt_tokens, .token_hit_rate, .failed_rate]' --from sglang "$DATA/formats/sglang.log"
    assert_output '[3,900,0.426667,0.333333]'
    run numbers '[.first_ms, .last_ms, .latency.ttft_ms.all.max, .latency.e2e_ms.all.max]' --from sglang "$DATA/formats/sglang.log"
    assert_output '[1769853600000,1769853603000,100,1500]' # the end less 1.5 s
}

@test "--from litellm" {
    run numbers '.metrics | [.requests, .prompt_tokens, .token_hit_rate, .failed_rate]' --from litellm "$DATA/formats/litellm.jsonl"
    assert_output '[3,1400,0.548571,0.333333]' # 512 + 256 of 1400
    run numbers '[.first_ms, .last_ms, .latency.ttft_ms.all.count, .latency.ttft_ms.all.max, (.workers | length)]' --from litellm "$DATA/formats/litellm.jsonl"
    assert_output '[1769853600000,1769853603000,1,250,2]' # q2 was not streamed
}

@test "--from nginx" {
    run numbers '[.metrics.requests, .metrics.failed_rate, .first_ms, .latency.ttft_ms.new.max, .latency.ttft_ms.continued.max]' --from nginx "$DATA/formats/nginx.json"
    assert_output '[3,0.333333,1769853600000,500,400]' # 0.1 s before the retry, then 0.3 s
    run numbers '.workers | map([.worker, .metrics.requests])' --from nginx "$DATA/formats/nginx.json"
    assert_output '[["10.0.0.1:8000",1],["10.0.0.2:8000",2]]'
}

@test "traces: totals, block uses and distinct blocks as their notes say" {
    need_shared traces/mooncake_conversation.jsonl.gz
    run numbers '[.metrics.requests, .metrics.prompt_tokens, .block_accesses, .distinct_blocks]' --from mooncake --prefixes 1 "$SHARED/traces/mooncake_conversation.jsonl.gz"
    assert_output '[12031,144793823,288500,182790]'
    run numbers '.metrics.requests' --from azure "$SHARED/traces/azure2023_conv.csv.gz"
    assert_output 19366
    run numbers '.metrics.requests' --from ragpulse "$SHARED/traces/ragpulse/0_trace.jsonl.gz"
    assert_output 7106
}

@test "anything else by --map" {
    printf '{"t":1,"in":100,"hit":50}\n{"t":2,"in":100,"hit":0}\n' > foreign
    run numbers '[.metrics.requests, .metrics.token_hit_rate]' --map '{timestamp: (.t * 1000), input_length: .in, response: {status: 200, cached_tokens: .hit}}' foreign
    assert_output '[2,0.25]'
}

@test "csv is rectangular and quoted" {
    run kvr-stats --csv --by '"a,\"b\""' "$TEN"
    assert_success
    assert_line --index 0 'scope,name,metric,unit,value'
    assert_line 'run,,requests,,5'
    assert_line 'group,"a,""b""",requests,,5'
    assert_line 'reason,rejected,requests,,1'
    kvr-stats --csv "$TEN" | awk -F, 'NF != 5 { exit 1 }'
}

@test "prom is what promtool accepts" {
    command -v promtool >/dev/null || skip "needs promtool (Debian package prometheus)"
    kvr-stats --prom --by .session --alerts default "$TEN" > out.prom
    run promtool check metrics < out.prom
    assert_success
    assert_output ''
}

@test "prom has base units, labels and one head a family" {
    kvr-stats --prom --slo-ttft 100 "$TEN" > out.prom
    grep -qx 'kvr_requests_total 5' out.prom
    grep -qx 'kvr_requests_total{worker="w0"} 2' out.prom
    grep -qE '^kvr_ttft_seconds\{kind="new",quantile="0.5"\} 0\.040[0-9]*$' out.prom
    grep -qx 'kvr_route_reasons_total{reason="rejected"} 1' out.prom
    run bash -c "grep '^# TYPE' out.prom | sort | uniq -d"
    assert_output ''
}

@test "textfile is replaced whole, with usual rights" {
    echo old > metrics.prom
    kvr-stats --textfile metrics.prom --json "$TEN" > /dev/null
    grep -q '^kvr_requests_total 5' metrics.prom
    [ "$(stat -c %a metrics.prom)" = 644 ]
    [ "$(ls metrics.prom*)" = metrics.prom ]
    run kvr-stats --textfile no/such/folder/x.prom "$TEN"
    assert_failure 3
}

@test "html is one page with pictures and nothing from elsewhere" {
    kvr-stats --html page.html --window 2s --json "$TEN" > /dev/null
    [ "$(grep -c '<svg' page.html)" -ge 5 ]
    [ "$(grep -c '</svg>' page.html)" = "$(grep -c '<svg' page.html)" ]
    grep -q 'time to first token, ms' page.html
    grep -q 'prefers-color-scheme:dark' page.html
    run grep -E 'https?://|src=|<script' page.html
    assert_failure
}

@test "plot draws png and svg" {
    command -v gnuplot >/dev/null || skip "needs gnuplot"
    kvr-stats --plot plot.png --json "$TEN" > /dev/null
    [ "$(head -c 8 plot.png | od -An -tx1 | tr -d ' ')" = 89504e470d0a1a0a ]
    kvr-stats --plot plot.svg --json "$TEN" > /dev/null
    grep -q 'share of requests' plot.svg
    run kvr-stats --plot plot.gif "$TEN"
    assert_failure 2
    # Whatever is not known leaves its picture empty.
    : > nothing
    printf '{"timestamp":1,"input_length":5}\n' > bare
    printf '{"input_length":5,"response":{"ttft_ms":1}}\n' > untimed
    printf '{"timestamp":%d,"input_length":5,"response":{"ttft_ms":1}}\n' 0 10000 20000 > unmatched
    for file in nothing bare untimed unmatched; do
        run kvr-stats --plot plot.svg --json "$file"
        assert_success
        grep -q 'nothing known' plot.svg
    done
}

# a worker that is full from minute 2 to minute 6
full_worker() {
    jq -nc 'range(0; 60) | {event: "load", timestamp: (. * 10000), worker: "w0", kv_usage: (if . > 12 and . < 36 then 0.99 else 0.5 end)}'
}

@test "alerts fire, clear, and set the exit status" {
    full_worker > stream
    run kvr-stats --alerts default stream
    assert_success
    assert_equal "${#lines[@]}" 2
    run bash -c "kvr-stats --alerts default stream | jq -c '[.event, .name, .state, .worker, .metric, .value]'"
    assert_line --index 0 '["alert","kv-nearly-full","firing","w0","kv_usage_max",0.99]'
    assert_line --index 1 '["alert","kv-nearly-full","cleared","w0","kv_usage_max",0.5]'
    run kvr-stats --exit-alert --json stream
    assert_failure 4
    run kvr-stats --exit-alert --json "$TEN"
    assert_success
}

@test "own rules, and rules that are wrong" {
    full_worker > stream
    echo '{"name":"half","severity":"info","when":[{"metric":"kv_usage_max","above":0.4}]}' > rules
    run bash -c "kvr-stats --alerts rules stream | jq -r '.name + \" \" + .state'"
    assert_line --index 0 'half firing'
    echo '{"name":"half","when":[{"metric":"nonsense","above":0.4}]}' > rules
    run kvr-stats --alerts rules stream
    assert_failure 3
    assert_output --partial "rules:1: there is no metric 'nonsense'"
    run kvr-stats --alerts missing stream
    assert_failure 3
}

@test "what names a worker is the same to kvr-stats as to kvr-match" {
    long=$(printf 'x%.0s' {1..255})
    while read -r name; do
        for line in '{"input_length":9,"hash_ids":[1],"route":{"worker":'"$name"'}}' \
            '{"event":"stored","worker":'"$name"',"hash_ids":[1]}'; do
            run --separate-stderr kvr-match <<<"$line"
            match_status=$status match_error=${stderr//kvr-match/kvr}
            run --separate-stderr kvr-stats <<<"$line"
            assert_equal "$line: $status ${stderr//kvr-stats/kvr}" "$line: $match_status $match_error"
        done
    done <<END
"w0"
"\u0077\u0030"
"$long"
"x$long"
"\u0078$long"
""
"a\u0000b"
5
true
{}
END
    run --separate-stderr kvr-stats <<<'{"input_length":9,"response":{"worker":"a\u0000b"}}'
    assert_failure 1
    assert_equal "${stderr_lines[0]}" "kvr-stats: stdin:1: member 'response.worker' is not a name of at most 255 bytes without NUL"
}

@test "partials of a split merge into the whole" {
    zcat "$(trace_slice)" | jq -c '. + {id: input_line_number, session: (.hash_ids[1] | tostring), route: {worker: "w\(.hash_ids[1] % 4)", reason: "x"}, response: {status: 200, ttft_ms: (.input_length / 20), cached_tokens: (.input_length % 512)}}' > whole
    split -n l/3 whole part.
    for part in part.*; do kvr-stats --partial "$part"; done > partials
    [ "$(wc -l < partials)" -eq 3 ]
    filter='[.requests, (.metrics | del(.ceiling_request_hit_rate, .ceiling_time_saved_rate)), .match_histogram, (.workers | map([.worker, .latency.ttft_ms.all])), .latency.ttft_ms.all]'
    kvr-stats --json whole | jq "$filter | del(.[1].ttft_new_p50_ms, .[1].ttft_continued_p50_ms, .[1].continuation_ratio)" > a
    kvr-stats --merge --json partials | jq "$filter | del(.[1].ttft_new_p50_ms, .[1].ttft_continued_p50_ms, .[1].continuation_ratio)" > b
    # best and regret stand on the ceiling here, which the merge leaves out by name
    diff <(jq 'del(.[1].best_token_hit_rate, .[1].regret_tokens, .[1].regret_rate, .[1].regret_ms)' a) \
        <(jq 'del(.[1].best_token_hit_rate, .[1].regret_tokens, .[1].regret_rate, .[1].regret_ms)' b)
    run bash -c "kvr-stats --merge --json partials | jq -r '.left_out | keys[]'"
    assert_output --partial 'kind of conversation'
    assert_output --partial 'windows'
}

@test "partials under GNU parallel" {
    command -v parallel >/dev/null || skip "needs GNU parallel"
    kvr-stats --json "$TEN" | jq .metrics.token_hit_rate > a
    parallel --will-cite -j2 --pipepart --block 900 -a "$TEN" kvr-stats --partial | kvr-stats --merge --json | jq .metrics.token_hit_rate > b
    diff a b
}

@test "a partial made with other options is a bad line" {
    kvr-stats --partial "$TEN" > partial
    run kvr-stats --merge --accuracy 0.02 partial
    assert_failure 1
    assert_output --partial 'give --merge the same options'
    run kvr-stats --merge "$TEN"
    assert_failure 1
    assert_output --partial 'not a partial'
}

@test "compare: a file twice is two runs, and one without lines is a run" {
    : > empty
    run bash -c "kvr-stats --compare --json --metrics requests '$TEN' '$TEN' empty | jq -c '[.runs[].metrics.requests]'"
    assert_output '[5,5,0]'
    run bash -c "kvr-stats --compare --json --metrics requests - '$TEN' empty < empty | jq -c '[.runs[] | [.run, .metrics.requests]]'"
    assert_output --partial '[["stdin",0],['
    run kvr-stats --compare -m empty "$TEN" "$TEN"
    assert_failure 2
}

@test "compare: a run with itself is noise, a worse one is worse" {
    jq -nc 'range(0; 2000) | {id: ., timestamp: (. * 100), session: (. % 97), input_length: 1000, route: {worker: "w\(. % 4)", reason: "x"}, response: {status: 200, ttft_ms: (50 + . % 50), cached_tokens: (. * 7 % 800)}}' > good.ndjson
    cp good.ndjson same.ndjson
    jq -c '.response.cached_tokens = (.response.cached_tokens / 2 | floor) | .response.ttft_ms += 40' good.ndjson > bad.ndjson
    run bash -c "kvr-stats --compare --json good.ndjson same.ndjson bad.ndjson | jq -c '.runs[1:][] | .against_first | [.token_hit_rate.verdict, .ttft_p50_ms.verdict, .requests.verdict]'"
    assert_line --index 0 '["noise","noise","noise"]'
    assert_line --index 1 '["worse","worse","noise"]'
    run kvr-stats --compare --metrics token_hit_rate,time_saved_rate,load_skew good.ndjson bad.ndjson
    assert_success
    assert_line --index 0 --regexp '^ +good +bad +difference +95 % interval$'
    assert_equal "${#lines[@]}" 5
    run kvr-stats --compare --metrics nonsense good.ndjson bad.ndjson
    assert_failure 2
    run kvr-stats --compare good.ndjson
    assert_failure 2
}

serve() {
    mkdir -p www
    cp "$DATA/metrics/vllm_1.txt" www/metrics
    python3 - "$PWD/www" > port <<'PY' &
import functools, http.server, sys
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *a): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=sys.argv[1]))
print(server.server_address[1], flush=True)
server.serve_forever()
PY
    SERVER=$!
    for _ in $(seq 100); do
        [ -s port ] && break
        sleep 0.05
    done
    PORT=$(cat port)
}

@test "scrape polls workers, counts increases, and notices a dead one" {
    serve
    (sleep 0.5; cp www/metrics www/x; cp "$DATA/metrics/vllm_2.txt" www/y; mv www/y www/metrics) &
    run --separate-stderr kvr-stats --scrape "a=127.0.0.1:$PORT,dead=127.0.0.1:1" --every 300ms --polls 4 --json
    assert_success
    echo "$output" | jq -c 'select(.event == "load" and .running)' > loads
    [ "$(wc -l < loads)" -eq 4 ]
    run jq -s -c 'map(select(.prompt_tokens > 0)) | map([.worker, .prompt_tokens, .cached_tokens, .kv_usage])' loads
    assert_output '[["a",2000,1000,0.97]]'
    run bash -c "kvr-stats --scrape 'a=127.0.0.1:$PORT,dead=127.0.0.1:1' --polls 1 | jq -c '[.event, .worker, .state, .capacity]'"
    assert_line --index 0 '["worker","a","active",16000]'
    assert_line --index 2 '["worker","dead","down",null]'
}

@test "scrape refuses what is no URL" {
    run kvr-stats --scrape 'a=' --polls 1
    assert_failure 2
    run kvr-stats --scrape 'http:///metrics' --polls 1
    assert_failure 2
}

@test "every renders while lines come" {
    (cat "$TEN"; sleep 1; cat "$TEN") | kvr-stats --every 200ms --json > out
    [ "$(wc -l < out)" -ge 3 ]
    run bash -c "tail -n 1 out | jq .requests"
    assert_output 10
}

@test "bad lines are named and left out, bad options refused, a full disk told" {
    printf '{"input_length":5}\n{"input_length":-1}\nnot json\n' > bad
    run --separate-stderr kvr-stats --json bad
    assert_failure 1
    assert_equal "$(jq .requests <<<"$output")" 1
    [[ $stderr == *"bad:2: input_length is not a number of tokens"* ]]
    run kvr-stats --json --csv "$TEN"
    assert_failure 2
    run kvr-stats --accuracy 2 "$TEN"
    assert_failure 2
    run kvr-stats --by '.a b' "$TEN"
    assert_failure 2
    run bash -c "kvr-stats --json '$TEN' > /dev/full"
    assert_failure 3
}

@test "no prompt text and no control bytes reach the report" {
    printf '{"prompt":"secret words","input_length":5,"route":{"worker":"w\\u001b[31m","reason":"x"}}\n' > lines
    run kvr-stats --prefixes 3 lines
    refute_output --partial secret
    [[ $output != *$'\033'* ]]
    # CSI and a turn of direction, as UTF-8
    printf '{"input_length":5,"route":{"worker":"w\\u009b31m\\u202ex"}}\n' > lines
    for form in --table --csv --prom --json; do
        run kvr-stats "$form" lines
        refute_output --partial $'\302\233'
        refute_output --partial $'\342\200\256'
    done
}

@test "names that differ in a control byte or at their ends stay apart" {
    printf '{"input_length":5,"route":{"worker":"%s"}}\n' 'e f' 'e\nf' 'e\tf' > lines
    run bash -c "kvr-stats --prom lines | grep -o '^kvr_requests_total{[^}]*}' | sort -u | wc -l"
    assert_output 3
    run bash -c "split -l 1 lines part. && kvr-stats --partial part.* | kvr-stats --merge --json | jq '.workers | length'"
    assert_output 3
    pod=vllm-llama-70b-deployment-7d9f8c6b5
    printf '{"input_length":5,"route":{"worker":"%s"}}\n' $pod-abcde $pod-fghij > lines
    run kvr-stats lines
    assert_line --partial "$pod-abcde"
    assert_line --partial "$pod-fghij"
    long=$(printf 'é%.0s' $(seq 90))
    printf '{"input_length":5,"timestamp":%s,"route":{"worker":"%s"}}\n' 0 "$long-1" 100000 "$long-2" > lines
    run kvr-stats --html page.html lines
    assert_line --partial "…"
    iconv -f utf-8 -t utf-8 page.html > page # no name is cut inside a character
}

@test "one timestamp of the far future makes nothing late; a real pause is one" {
    jq -nc 'range(100) | {input_length: 5, timestamp: (. * 1000)}' >good
    sed '50s/"timestamp":49000/"timestamp":9990000000000/' good >wrong
    run numbers '[.windows.late_lines, .windows.untimed_lines, .last_ms, .requests]' wrong
    assert_output '[0,1,99000,100]'
    run numbers '[.last_ms, .requests]' --brief wrong
    assert_output '[99000,100]'
    # a pause of a week, and a log of one line a week
    jq -nc 'range(100) | {input_length: 5, timestamp: (. * 1000 + 604800000)}' >later
    run numbers '[.windows.late_lines, .windows.untimed_lines, .last_ms]' good later
    assert_output '[0,1,604899000]'
    jq -nc 'range(20) | {input_length: 5, timestamp: (. * 604800000)}' >weekly
    run numbers '[.windows.late_lines, .windows.untimed_lines, .last_ms]' weekly
    assert_output '[0,1,11491200000]'
}

@test "what no line told is null, not 0" {
    printf '{"input_length":5,"timestamp":1,"route":{"worker":"w0"}}\n' > lines
    run numbers .metrics.outstanding_max lines
    assert_output null
    run numbers .metrics.outstanding_max "$TEN"
    assert_output 4
    printf '{"input_length":5,"timestamp":%d}\n' 900000 0 > late
    run numbers .windows.late_lines late
    assert_output 1
    run bash -c "cat late late | kvr-stats --partial | kvr-stats --merge --json | jq .windows.late_lines"
    assert_output null
}

@test "a load line with one bad number counts nothing" {
    printf '{"event":"load","worker":"w0","prompt_tokens":100,"cached_tokens":%s}\n' 50 -1 > lines
    run --separate-stderr kvr-stats --json lines
    assert_failure 1
    run jq -c .metrics.engine_token_hit_rate <<< "$output"
    assert_output 0.5
}

@test "the manual and --metrics help define every metric" {
    [ -e "$BUILD/man/kvr-stats.1" ] || skip "needs the manual to be built"
    kvr-stats --metrics help > help
    for metric in $(kvr-stats --csv "$TEN" | awk -F, '$1 == "run" { print $3 }'); do
        grep -q "^$metric " help || fail "$metric is not in --metrics help"
        # mandoc prints hyphens and breaks no name of ours
        grep -q "$metric" "$BUILD/man/kvr-stats.1" || grep -q "${metric//_/\\\\_}" "$BUILD/man/kvr-stats.1" ||
            fail "$metric is not in the manual"
    done
}
