#!/usr/bin/env bats
# kvr-evict: what it adds, counts, protects, prints and refuses.

load helper

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
}

# a request of blocks FIRST..LAST of 16 tokens: request FIRST LAST [MEMBERS]
request() {
    jq -nc "{hash_ids:[range($1;$2+1)],input_length:(16*($2-$1+1)),block_size:16} + ${3:-{\}}"
}

@test "cache is added at the end, replaces an old one, all else stays" {
    run kvr-evict -c 10b <<<'{"hash_ids":[1,2], "cache":{"hit":9},"x":1.0,"input_length":1000}'
    assert_success
    assert_output '{"hash_ids":[1,2],"x":1.0,"input_length":1000,"cache":{"hit":0,"gpu":0,"evicted":0}}'
}

@test "a hit is the longest leading run, a partial last block counts its real tokens" {
    run kvr-evict -c 10b <<<'{"hash_ids":[1,2],"input_length":700}
{"hash_ids":[1,2],"input_length":700}
{"hash_ids":[1,3],"input_length":1024}
{"hash_ids":[9,2],"input_length":1024}'
    assert_success
    assert_equal "$(jq -c .cache.hit <<<"$output" | tr '\n' ' ')" "0 700 512 0 "
}

@test "leaf LRU evicts the leaf used longest ago, and the events say it in order" {
    run kvr-evict -c 4b -b 16 --events <<<"$(request 1 3; request 8 9)"
    assert_success
    assert_line --index 1 '{"event":"stored","worker":"w0","hash_ids":[1,2,3],"parent":null,"block_size":16,"medium":"gpu"}'
    assert_line --index 3 '{"event":"removed","worker":"w0","hash_ids":[3],"block_size":16,"medium":"gpu"}'
    assert_line --index 4 '{"event":"stored","worker":"w0","hash_ids":[8,9],"parent":null,"block_size":16,"medium":"gpu"}'
    assert_equal "${#lines[@]}" 5
}

@test "a running request's own path is never evicted; what does not fit is not cached" {
    run kvr-evict -c 3b -b 16 --json <<<"$(request 1 5; request 1 5)"
    assert_success
    assert_equal "$(jq -c '[.hits,.insertions,.evictions,.resident,.refused]' <<<"$output")" "[3,3,0,3,4]"
}

@test "the reference figures: leaf LRU, and plain SIEVE, FIFO, LFU, Belady" {
    need_shared traces/mooncake_conversation.jsonl.gz
    trace=$SHARED/traces/mooncake_conversation.jsonl.gz
    assert_equal "$(kvr-evict -c 10000b --json "$trace" | jq .hit_tokens)" 31238981
    for pair in sieve:250487 fifo:234688 lfu:250487 belady:182790 s3fifo-cold:232975; do
        run kvr-evict -c 10000b --no-pin-path --policy "${pair%:*}" --json "$trace"
        assert_success
        assert_equal "$(jq '.accesses - .hits' <<<"$output")" "${pair#*:}"
    done
}

@test "vLLM and SGLang through the same program" {
    run kvr-evict --engine vllm -c 9b -b 16 --events <<<"$(request 1 4; request 1 6; request 21 26)"
    assert_success
    assert_equal "$(jq -c 'select(.cache)|.cache.hit' <<<"$output" | tr '\n' ' ')" "0 64 0 "
    assert_equal "$(jq -c 'select(.event=="removed")|.hash_ids[]' <<<"$output" | tr "\n" " ")" "6 5 4 "
    run kvr-evict --engine 'sglang(strategy=lfu)' -c 8b -b 16 --json <<<"$(request 1 4; request 1 6)"
    assert_success
    assert_equal "$(jq -c '[.engine,.hit_tokens]' <<<"$output")" '["sglang",64]'
    run kvr-evict --engine vllm --policy sieve </dev/null
    assert_failure 2
}

@test "workers have a cache each, in lines and in the summary" {
    input=$(request 1 2 '{route:{worker:"a"}}'; request 1 2 '{route:{worker:"b"}}'; request 1 2 '{route:{worker:"a"}}'; request 1 2 '{route:{worker:null}}')
    run kvr-evict -c 10b -b 16 <<<"$input"
    assert_success
    assert_equal "$(jq -c '.cache.hit' <<<"$output" | tr '\n' ' ')" "0 0 32 null "
    run kvr-evict -c 10b -b 16 --json <<<"$input"
    assert_equal "$(jq -c '[.requests,.hit_tokens,.workers.a.hit_tokens,.workers.b.hit_tokens]' <<<"$output")" "[3,32,32,0]"
}

@test "models, LoRAs and salts never share a block, and events give the ids back" {
    run kvr-evict -c 10b -b 16 --events <<<"$(request 1 2 '{model:"m"}'; request 1 2 '{model:"m",lora:"l"}'; request 1 2 '{model:"m",lora:"l"}')"
    assert_success
    assert_equal "$(jq -c 'select(.cache)|.cache.hit' <<<"$output" | tr '\n' ' ')" "0 0 32 "
    assert_equal "$(jq -c 'select(.event)|[.hash_ids,.model,.lora]' <<<"$output" | tr '\n' ' ')" '[[1,2],"m",null] [[1,2],"m","l"] '
}

@test "admission: second sighting counts distinct requests over the whole path" {
    input=$(request 1 4 '{id:"a"}'; request 1 4 '{id:"a"}'; request 1 4 '{id:"b"}'; request 1 4 '{id:"c"}')
    run kvr-evict -c 10b -b 16 --admission second <<<"$input"
    assert_success
    assert_equal "$(jq -c .cache.hit <<<"$output" | tr '\n' ' ')" "0 0 0 64 "
}

@test "pins hold against any pressure, and unpin lets go" {
    burst=$(for i in 1 2 3 4 5 6; do request $((i * 100)) $((i * 100 + 5)); done)
    run kvr-evict -c 8b -b 16 --json <<<"$(request 1 3; echo "$burst"; request 1 3)"
    assert_equal "$(jq .hit_tokens <<<"$output")" 0
    run kvr-evict -c 8b -b 16 --json <<<"$(echo '{"event":"pin","hash_ids":[1,2]}'; request 1 3; echo "$burst"; request 1 3)"
    assert_equal "$(jq .hit_tokens <<<"$output")" 32
    run kvr-evict -c 8b -b 16 --json --pin .keep <<<"$(request 1 3 '{keep:true}'; echo "$burst"; request 1 3)"
    assert_equal "$(jq .hit_tokens <<<"$output")" 48
    run kvr-evict -c 8b -b 16 --json --pin .keep <<<"$(request 1 3 '{keep:16}'; echo "$burst"; request 1 3)"
    assert_equal "$(jq .hit_tokens <<<"$output")" 16
    run kvr-evict -c 8b -b 16 --json <<<"$(echo '{"event":"pin","hash_ids":[1,2]}'; request 1 3; echo '{"event":"unpin","hash_ids":[1,2]}'; echo "$burst"; request 1 3)"
    assert_equal "$(jq .hit_tokens <<<"$output")" 0
}

@test "a tenant at its quota evicts its own blocks only" {
    input=$(request 1 4 '{user:"a"}'; for i in 1 2 3 4; do request $((i * 100)) $((i * 100 + 3)) '{user:"b"}'; done; request 1 4 '{user:"a"}')
    run kvr-evict -c 10b -b 16 --json <<<"$input"
    assert_equal "$(jq .hit_tokens <<<"$output")" 0
    run kvr-evict -c 10b -b 16 --quota 'b=50%' --json <<<"$input"
    assert_equal "$(jq .hit_tokens <<<"$output")" 64
    run kvr-evict -c 10b -b 16 --quota '*=50%' --json <<<"$input"
    assert_equal "$(jq .hit_tokens <<<"$output")" 64
}

@test "the pool keeps what several sessions use" {
    input=$(request 1 4 '{session:"a"}'; request 1 4 '{session:"b"}'; for i in 1 2 3 4; do request $((i * 100)) $((i * 100 + 5)) "{session:$i}"; done; request 1 4 '{session:"c"}')
    run kvr-evict -c 10b -b 16 --json <<<"$input"
    assert_equal "$(jq .hit_tokens <<<"$output")" 64
    run kvr-evict -c 10b -b 16 --pool shared=50% --json <<<"$input"
    assert_equal "$(jq .hit_tokens <<<"$output")" 128
}

@test "outputs are cached when asked, behind the last full prompt block" {
    input='{"hash_ids":[1,2],"input_length":24,"output_length":24,"output_hash_ids":[5,6],"block_size":16}
{"hash_ids":[1,5,6],"input_length":48,"block_size":16}'
    run kvr-evict -c 10b -b 16 <<<"$input"
    assert_equal "$(jq -c .cache.hit <<<"$output" | tr '\n' ' ')" "0 16 "
    run kvr-evict -c 10b -b 16 --outputs <<<"$input"
    assert_equal "$(jq -c .cache.hit <<<"$output" | tr '\n' ' ')" "0 48 "
}

@test "tiers: what the GPU evicts is found below, loaded or computed again" {
    input=$(request 1 4; request 11 14; request 1 4)
    run kvr-evict -b 16 --tier gpu=4b --tier cpu=10b <<<"$input"
    assert_success
    assert_equal "$(jq -c '[.cache.hit,.cache.gpu,.cache.cpu]' <<<"${lines[2]}")" "[64,0,64]"
    run kvr-evict -b 16 --tier gpu=4b --tier 'cpu=10b(bandwidth=1kB/s)' <<<"$input"
    assert_equal "$(jq -c '[.cache.hit,.cache.recomputed]' <<<"${lines[2]}")" "[0,64]"
    run kvr-evict -b 16 --tier gpu=4b --tier 'cpu=4b(exclusive)' --tier disk=100b --json <<<"$input"
    assert_equal "$(jq -c '[.tiers.gpu.hit_tokens,.tiers.cpu.hit_tokens,.tiers.cpu.resident]' <<<"$output")" "[0,64,4]"
    run kvr-evict --tier 'cpu=4b(admission=min-length)' --tier gpu=5b </dev/null
    assert_success
    run kvr-evict --tier gpu=5b --tier 'cpu=4b(admission=min-length)' </dev/null
    assert_failure 2
    run kvr-evict --tier gpu=5b --tier tape=4b </dev/null
    assert_failure 2
}

@test "sweep: laws over the grid, belady-bypass on top of each size" {
    run kvr-evict --json --sweep 'policy=lru,fifo,lfu,clock,sieve,s3fifo,slru,arc,gdsf,value,random size=50b:3200b:x4 admission=always,second' "$(trace_slice)"
    assert_success
    assert_equal "$(jq -s 'length' <<<"$output")" 92
    jq -se 'group_by(.capacity_blocks) | all(.[]; (map(select(.policy=="belady-bypass"))[0].hits) as $most | all(.[]; .hits <= $most))' <<<"$output"
    jq -se 'map(select(.policy=="lru" and .admission=="always")) | sort_by(.capacity_blocks) | [.[].hit_tokens] | . == sort' <<<"$output"
    jq -se 'all(.[]; .insertions == .evictions + .capacity_blocks or .evictions == 0)' <<<"$output"
}

@test "curve: every row equals a replay of that size" {
    run kvr-evict --curve --json "$(trace_slice)"
    assert_success
    rows=$output
    for blocks in 64 512 2048; do
        assert_equal "$(jq "select(.capacity_blocks==$blocks).hit_tokens" <<<"$rows")" "$(kvr-evict -c ${blocks}b --json "$(trace_slice)" | jq .hit_tokens)"
    done
    assert_equal "$(jq -s 'map(select(.knee)) | length' <<<"$rows")" 1
    run kvr-evict --curve --sample 0.5 --json "$(trace_slice)"
    assert_success
    jq -se 'any(.[]; .standard_error > 0)' <<<"$output"
}

@test "advise: its gains are what replays give" {
    run kvr-evict --advise --json -c 500b "$(trace_slice)"
    assert_success
    base=$(kvr-evict -c 500b --json "$(trace_slice)" | jq .hit_tokens)
    second=$(kvr-evict -c 500b --admission second --json "$(trace_slice)" | jq .hit_tokens)
    assert_equal "$(jq '.admissions[]|select(.admission=="second").gain_tokens' <<<"$output")" $((second - base))
    jq -c '.pins[]|{event:"pin",hash_ids}' <<<"$output" >pins
    pinned=$(zcat "$(trace_slice)" | cat pins - | kvr-evict -c 500b --json | jq .hit_tokens)
    assert_equal "$(jq .pins_gain.gain_tokens <<<"$output")" $((pinned - base))
}

@test "the same input and seed, the same bytes" {
    for _ in 1 2; do kvr-evict -c 300b --policy random --seed 5 --events "$(trace_slice)" | md5sum; done >sums
    assert_equal "$(sort -u sums | wc -l)" 1
}

@test "every policy and rule of the tables is in help, and is taken" {
    completion=$(kvr-evict --help=bash)
    run kvr-evict --engine help
    assert_success
    for name in lru fifo lfu clock sieve s3fifo s3fifo-cold slru arc gdsf value ttl random belady belady-bypass; do
        assert_line "$name"
        kvr-evict -c 9b --policy "$name" --json </dev/null
        grep -qw -- "$name" <<<"$completion"
    done
    for name in always min-length max-length second tinylfu prefix-aware; do
        assert_line "$name"
        kvr-evict -c 9b --admission "$name" --json </dev/null
    done
}

@test "wrong options are refused with a word about what is right" {
    while IFS='|' read -r options word; do
        # shellcheck disable=SC2086
        run kvr-evict $options </dev/null
        assert_failure 2
        assert_output --partial "$word"
    done <<'ROWS'
--policy lfru|there are lru
--policy lru(x=1)|x
--admission never|there are always
--engine clam|block
--policy belady|whole trace
--pool half|shared=SHARE
--quota a|TENANT=SHARE
--sweep policy=lru|sizes
--sweep size=10:5:x0.5|factor above 1
--sweep colour=red|no axis
--curve --advise|one of
--tier gpu=4|
--curve --live 2|leave out
--engine block(policy=sieve)|--policy
--sweep size=9b --tier gpu=4b|leave out
--curve --no-pin-path|prefix tree
ROWS
}

@test "bad members are bad lines; the rest goes on" {
    run kvr-evict -c 9b <<<'{"hash_ids":"x"}
{"hash_ids":[-1]}
{"input_length":"9"}
{"timestamp":[]}
{"input_length":9}
{"block_size":0,"hash_ids":[1]}'
    assert_failure 1
    assert_output --partial '{"input_length":9,"cache":{"hit":0,"gpu":0,"evicted":0}}'
    assert_output --partial 'hash_ids'
}

@test "the pollution example: the burst costs, each protection saves" {
    run "$REPO/examples/pollution.sh" picture.png
    assert_success
    rate() { awk -v name="$1" -v column="$2" 'index($0, name) == 1 { $0 = "x" substr($0, length(name) + 1); gsub("%", ""); print int($column) }' <<<"$output"; }
    lost=$(($(rate 'none (lru)' 2) - $(rate 'none (lru)' 3)))
    [ "$lost" -gt 20 ]
    for protection in threshold 'second sighting' pin pool value; do
        [ "$(rate "$protection" 3)" -gt $(($(rate 'none (lru)' 3) + 5)) ]
    done
    ! command -v gnuplot >/dev/null || [ "$(head -c 4 picture.png | tail -c 3)" = PNG ]
}

@test "its events stand in for a worker: kvr-match finds exactly what the next request hits" {
    [ -x "$BUILD/bin/kvr-match" ] || skip "kvr-match is not built"
    zcat "$(trace_slice)" | jq -c '.input_length = 512 * (.hash_ids | length)' >full.jsonl
    for engine in block vllm 'sglang(strategy=lfu)'; do
        kvr-evict --engine "$engine" -b 512 -c 800b --events full.jsonl | kvr-match -w 1 -b 512 |
            jq -c 'select(.cache) | [.cache.hit, .match.w0 // 0]' >pairs
        assert_equal "$(wc -l <pairs)" 1000
        assert_equal "$(jq -c 'select(.[0] != .[1])' pairs | wc -l)" 0
        [ "$(jq -s 'map(.[0]) | add' pairs)" -gt 0 ]
    done
}

@test "whichever allocation fails: a message and status 3, or the right answer, in every engine" {
    [[ $BUILD != */san* ]] || skip "ASan has its own malloc"
    # shellcheck disable=SC2086
    ${CC:-cc} -D_GNU_SOURCE -shared -fPIC -o fail.so "$DATA/fail_memory.c"
    LD_PRELOAD=$PWD/fail.so true || skip "this build takes no LD_PRELOAD"
    seq 1 30 | sed 's/.*/{"timestamp":&0,"hash_ids":[1,2&,3&],"input_length":1536,"output_length":600,"output_hash_ids":[9&],"user":"u&"}/' >lines
    for options in "" "--engine vllm --live 2" "--engine sglang(host-ratio=2)" "--engine lmcache" \
        "--engine mooncake(group=request)" "--policy arc --admission second" "--policy s3fifo --quota *=50%" \
        "--tier gpu=4b --tier cpu=9b" "--curve" "--advise" "--sweep size=2b:8b:x2"; do
        # shellcheck disable=SC2086
        kvr-evict -c 9b $options lines >right
        for at in $(seq 1 400); do
            status=0
            # shellcheck disable=SC2086
            LD_PRELOAD=$PWD/fail.so FAIL_IN=kvr-evict FAIL_AT=$at kvr-evict -c 9b $options lines >out 2>err || status=$?
            if [ "$status" -eq 0 ]; then
                cmp right out || fail "options '$options', allocation $at"
                [ -s err ] || break # there were not so many
            else
                [ "$status" -eq 3 ] || fail "options '$options', allocation $at: status $status"
                grep -q memory err || fail "options '$options', allocation $at: $(cat err)"
            fi
        done
    done
}

@test "ten thousand workers; a worker without a name is a bad line" {
    seq 1 10000 | sed 's/.*/{"hash_ids":[1],"route":{"worker":"w&"}}/' >lines
    run kvr-evict --json lines lines
    assert_success
    assert_equal "$(jq -c '[.requests, .hits, (.workers | length)]' <<<"$output")" '[20000,10000,10000]'
    run kvr-evict <<<'{"hash_ids":[1],"route":{"worker":""}}'
    assert_failure 1
    assert_line "kvr-evict: stdin:1: member 'route.worker' is not a name"
    run kvr-evict --worker '' <<<'{}'
    assert_failure 2
}

@test "a second trace behind the first: its clock goes on where the first one stopped" {
    printf '{"timestamp":%d,"hash_ids":[1]}\n' 100000000 1000 1500 3000 >lines
    run kvr-evict --policy 'ttl(ttl=1s)' lines
    assert_equal "$(jq .cache.hit <<<"$output" | tr '\n' ' ')" '0 512 512 0 '
}

@test "--mfu is the share of the peak that the saved prefill would have reached" {
    printf '%s\n' '{"input_length":1024,"hash_ids":[1,2]}' '{"input_length":1024,"hash_ids":[1,2]}' >two
    saved() {
        kvr-evict --json --mfu "$1" two | jq .saved_prefill_ms
    }
    run jq -n --argjson slow "$(saved 0.2)" --argjson fast "$(saved 0.4)" --argjson preset "$(saved 0)" \
        '$preset > 0 and ($slow / $fast - 2 | fabs) < 1e-6'
    assert_output true
    run kvr-evict --mfu 2 two
    assert_failure 2
    assert_output "kvr-evict: mfu 2 is not in (0, 1]"
}
