#!/usr/bin/env bats
# kvr-events: every captured stream whole and damaged, from files and over real sockets; publishing;
# records; what it refuses.

load helper


setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    E=$SHARED/events
    stream=$E/vllm-0.33.0-sha256-int/sub_frames.bin
    pub=ipc://$PWD/pub replay=ipc://$PWD/replay
    quiet=2500ms # a reader's end: longer than a publisher takes to start on a busy machine
}

# teardown: nothing that a failed test started goes on
teardown() {
    local job
    for job in $(jobs -p); do kill "$job" 2>/dev/null || true; done
}

# from_file SPEC: the lines of a file, without statistics
from_file() {
    kvr-events -q --replay "$@"
}

# edit OUT OPERATION...: a damaged copy of the stream
edit() {
    python3 "$REPO/tests/frames.py" "$stream" "$@"
}

# over_sockets SPEC [OPTION...]: a file published and read back over real sockets, into live
over_sockets() {
    local spec=$1
    shift
    timeout 60 kvr-events -q --replay "$spec" --publish "$pub,replay=$replay" --wait 1 --linger 1s &
    timeout 60 kvr-events -q --idle "$quiet" "$@" "w0=$pub,replay=$replay" >live
    wait $!
}

@test "every captured stream as its engine sent it, with every field" {
    need_shared events
    local folder
    for folder in "$E"/*/; do
        kvr-events --raw -q --replay "$folder/sub_frames.bin" >raw
        python3 - raw "$folder/expected.ndjson" <<'END'
import json, sys

def clean(value):
    if isinstance(value, dict):
        return {k: clean(v) for k, v in value.items() if v is not None}
    return [clean(v) for v in value] if isinstance(value, list) else value

ours, theirs = [[json.loads(line) for line in open(name)] for name in sys.argv[1:]]
assert len(ours) == len(theirs) > 0, (len(ours), len(theirs))
for a, b in zip(ours, theirs):
    assert (a["topic"], a["seq"]) == (b["topic"], b["seq"])
    assert clean(a["events"]) == clean(b["events"]), b["seq"]
    assert "ts" not in b or a["ts"] == b["ts"]
END
    done
}

@test "the same requests give the same ids, whatever the version and the hash" {
    need_shared events
    from_file "w0=$stream" >want
    assert_equal "$(grep -c '"event":"stored"' want)" 14
    local version
    for version in 0.20.2 0.24.0 0.29.0 0.33.0-sha256_cbor-int 0.33.0-sha256_cbor-bytes-dp1; do
        from_file "w0=$E/vllm-$version/sub_frames.bin" | sed 's,"w0/1","w0",' >got
        run diff want got
        assert_success
    done
    # Before lora_name a LoRA is its number, before extra_keys salt and images are not told.
    from_file "w0=$E/vllm-0.11.0/sub_frames.bin" >old
    assert_equal "$(jq -r 'select(.lora) | .lora' old | sort -u)" 7
    from_file "w0=$E/sglang-0.5.12/sub_frames.bin" >sglang
    run diff old sglang
    assert_success
}

@test "ids are those of kvr-tokenize for the same tokens, LoRA, salt and model" {
    need_shared events
    from_file "w0=$stream,model=m" --ids | jq -c 'select(.event == "stored" and .parent == null)' >lines
    jq -c '{token_ids, model, lora, salt} | with_entries(select(.value != null))' lines |
        kvr-tokenize -b 16 | jq -c '.hash_ids' >again
    # One of the prompts has an image, whose blocks only the engine's identifier tells apart.
    jq -c '.hash_ids' lines >ids
    assert_equal "$(wc -l <ids)" "$(wc -l <again)"
    assert_equal "$(diff ids again | grep -c '^<')" 1
}

@test "with --native, ids are the engine's own" {
    need_shared events
    python3 - "$E/vllm-0.33.0-sha256-int/expected.ndjson" >want <<'END'
import json, sys
for line in open(sys.argv[1]):
    for event in json.loads(line)["events"]:
        if event["type"] == "BlockStored":
            print(*event["block_hashes"], sep="\n")
END
    kvr-events -q --replay "$stream" --native | grep '"stored"' |
        sed 's/.*"hash_ids":\[//; s/\].*//' | tr ',' '\n' >got # jq would round
    run diff want got
    assert_success
    # Bytes are their last eight, which is what the same engine sends as numbers.
    from_file "w0=$E/vllm-0.33.0-sha256_cbor-int/sub_frames.bin" --native >numbers
    from_file "w0=$E/vllm-0.33.0-sha256_cbor-bytes-dp1/sub_frames.bin" --native |
        sed 's,"w0/1","w0",' >bytes
    run diff numbers bytes
    assert_success
}

@test "lost, late, doubled and swapped messages: with a replay the lines are those of the whole" {
    need_shared events
    from_file "w0=$stream" >want
    local operation
    for operation in drop:0-0 drop:3-6 drop:1-11 keep:9-12 double:all swap:4,6 swap:0,1; do
        edit cut "$operation"
        from_file "w0=cut,replay=$stream" >got
        run diff want got
        assert_success
    done
    edit cut drop:8-8 drop:5-5 drop:2-2 double:4
    from_file "w0=cut,replay=$stream" >got
    run diff want got
    assert_success
}

@test "without a replay: doubles and short disorder change nothing, a gap clears the worker" {
    need_shared events
    from_file "w0=$stream" >want
    local operation
    for operation in double:all swap:4,6 swap:9,10; do
        edit cut "$operation"
        run diff want <(from_file w0=cut)
        assert_success
    done
    edit cut drop:3-6
    kvr-events --replay w0=cut >got 2>err
    assert_equal "$(jq -r 'select(.event == "cleared") | .reason' got)" $'join\ngap\nnull'
    assert grep -q '1 gaps, 4 messages lost for good' err
    # Nothing is known after the gap that was not told after it: no removal of what came before.
    jq -s '[foreach .[] as $l ({}; if $l.event == "cleared" then {} else
        reduce $l.hash_ids[] as $id (.; .[$id | tostring] += (if $l.event == "stored" then 1 else -1 end)) end)
        | to_entries[] | select(.value < 0)] | length' got >negative
    assert_equal "$(cat negative)" 0
}

@test "a late join without replay: children of what came before are counted, not guessed" {
    need_shared events
    edit late keep:2-12
    kvr-events --replay w0=late >got 2>err
    assert grep -q '1 late joins' err
    assert grep -q '3 blocks with an unknown parent' err
    # Every id that is told is one of the whole stream's.
    jq -c 'select(.event == "stored") | .hash_ids[]' got | sort -u >some
    from_file "w0=$stream" | jq -c 'select(.event == "stored") | .hash_ids[]' | sort -u >all
    assert_equal "$(comm -23 some all | wc -l)" 0
    assert [ "$(wc -l <some)" -gt 20 ]
}

@test "a publisher that starts again is cleared, and its stream told from the start" {
    need_shared events
    edit first keep:0-7
    python3 "$REPO/tests/frames.py" "$E/vllm-0.33.0-sha256_cbor-int/sub_frames.bin" second keep:0-4
    python3 - first second >both <<'END'
import struct, sys
parts = [open(name, "rb").read() for name in sys.argv[1:]]
count = sum(struct.unpack(">I", part[:4])[0] for part in parts)
sys.stdout.buffer.write(struct.pack(">I", count) + b"".join(part[4:] for part in parts))
END
    # The second has other hashes for the same numbers.
    kvr-events --native --replay w0=both >got 2>err
    assert grep -q '1 restarts of the publisher' err
    assert_equal "$(jq -r 'select(.event == "cleared") | .reason' got)" $'join\nrestart'
    kvr-events -q --native --replay w0=second | sed 1d >want
    run diff want <(sed '1,/restart/d' got)
    assert_success
}

@test "damaged messages are said and counted, the others processed; exit status 1" {
    need_shared events
    edit junk junk:3
    run --separate-stderr kvr-events --replay "w0=junk,replay=$stream"
    assert_failure 1
    # shellcheck disable=SC2154 # stderr is set by run
    assert_equal "$(grep -v ': .*cut off' <<<"$stderr" | grep -c 'bad messages')" 1
    run diff <(from_file "w0=$stream") <(echo "$output")
    assert_success
    head -c 3000 "$stream" >short
    run --separate-stderr kvr-events --replay w0=short
    assert_failure 1
    [[ $stderr == *"short: cut off in a message"* ]]
    run kvr-events -q --replay /dev/null
    assert_success
    run kvr-events --replay nowhere
    assert_failure 3
}

@test "over real sockets: whole, cut, doubled and swapped, the lines are the file's" {
    need_shared events
    from_file "w0=$stream" >want
    over_sockets "$stream"
    run diff want live
    assert_success
    local operation
    for operation in drop:3-6 keep:9-12 double:all swap:4,6; do
        edit cut "$operation"
        over_sockets "cut,replay=$stream"
        run diff want live
        assert_success
    done
}

@test "over TCP, every captured version, in one go" {
    need_shared events
    local port=$((20000 + RANDOM % 12000)) version operands=() publish=() replays=() i=0
    for version in vllm-0.11.0 vllm-0.24.0 vllm-0.33.0-sha256_cbor-bytes-dp1 sglang-0.5.12 sglang-0.5.23-radix; do
        replays+=(--replay "$E/$version/sub_frames.bin")
        publish+=(--publish "tcp://127.0.0.1:$((port + 2 * i)),replay=tcp://127.0.0.1:$((port + 2 * i + 1))")
        operands+=("w$i=tcp://127.0.0.1:$((port + 2 * i)),replay=tcp://127.0.0.1:$((port + 2 * i + 1))")
        from_file "w$i=$E/$version/sub_frames.bin" >"want$i"
        i=$((i + 1))
    done
    timeout 60 kvr-events -q "${replays[@]}" "${publish[@]}" --wait 1 --linger 1s &
    timeout 60 kvr-events -q --idle "$quiet" "${operands[@]}" >live
    wait $!
    while [ $((i -= 1)) -ge 0 ]; do
        run diff "want$i" <(grep -E "\"worker\":\"w$i(/1)?\"" live)
        assert_success
    done
}

@test "a publisher that dies and comes back on the same endpoint" {
    need_shared events
    edit first keep:0-7
    timeout 60 kvr-events -q --idle 10s "w0=$pub,replay=$replay" >live &
    local reader=$!
    timeout 60 kvr-events -q --replay first --publish "$pub,replay=$replay" --wait 1 --linger 300ms
    timeout 60 kvr-events -q --replay "$E/vllm-0.33.0-sha256_cbor-int/sub_frames.bin" \
        --publish "$pub,replay=$replay" --wait 1 --linger 2s
    wait $reader
    assert_equal "$(jq -r 'select(.event == "cleared") | .reason' live)" $'join\nrestart\nnull'
    run diff <(from_file "w0=$stream" | sed 1d) <(sed '1,/restart/d' live)
    assert_success
}

@test "a record read again gives the lines that were printed live, replays and all" {
    need_shared events
    edit cut drop:3-6
    over_sockets "cut,replay=$stream" --record frames
    run diff live <(from_file frames)
    assert_success
    gzip -k frames
    run diff live <(from_file frames.gz)
    assert_success
    run diff <(sed 's/"w0"/"x"/' live) <(from_file x=frames)
    assert_success
    # Cut anywhere, it is said.
    head -c $(($(wc -c <frames) - 7)) frames >short
    run -1 --separate-stderr kvr-events --replay short
    [[ $stderr == *"cut off"* ]]
}

# back_and_forth FILE OPTION... : event lines published, and read again, into live
back_and_forth() {
    local file=$1
    shift
    timeout 60 kvr-events -q "$file" --publish "$pub,replay=$replay" --wait 1 --linger 300ms --batch 1 &
    timeout 60 kvr-events -q --idle "$quiet" "$@" "w0=$pub,replay=$replay" >live
    wait $!
}

@test "published lines come back: ids with --native, and with their tokens without" {
    need_shared events
    from_file "w0=$stream" --ids | sed 1d >lines
    back_and_forth lines --native --ids
    run diff lines <(sed 1d live)
    assert_success
    # All but the image's blocks, for which lines have no place.
    back_and_forth lines --ids
    assert_equal "$(diff lines <(sed 1d live) | grep -c '^<')" 4
    # Ranks come back, the other layout says the same.
    sed 's/"w0"/"w0\/3"/' lines >ranked
    timeout 60 kvr-events -q ranked --layout array --publish "w0=$pub" --wait 1 --batch 1 &
    timeout 60 kvr-events -q --idle "$quiet" --native --ids "w0=$pub" >live
    wait $!
    run diff ranked <(sed 1d live)
    assert_success
}

@test "lines of very many blocks are published in messages that readers take" {
    seq 10000 | jq -nc '{event: "stored", worker: "w0", hash_ids: [inputs], block_size: 512}' >line
    seq 100000 200000 | jq -nc '{event: "removed", worker: "w0", hash_ids: [inputs]}' >>line
    timeout 60 kvr-events -q line --publish "$pub" --wait 1 --linger 300ms &
    timeout 60 kvr-events --native --idle "$quiet" --record frames --max-message 2MiB "w0=$pub" >live 2>err
    wait $!
    assert_equal "$(jq -c 'select(.event == "stored") | .hash_ids[]' live | md5sum)" "$(seq 10000 | md5sum)"
    assert grep -q '100001 removed blocks not known before' err
    # Each part goes on from the one before.
    assert_equal "$(jq -s '[.[] | select(.hash_ids)] | [range(1; length) as $i |
        .[$i].parent != .[$i - 1].hash_ids[-1]] | any' live)" false
    assert [ "$(kvr-events --raw -q --replay frames | wc -l)" -ge 10 ]
}

# state: what is left of every id after all lines
state() {
    jq -s -c 'reduce .[] as $l ({}; if $l.event == "cleared" then {} else reduce $l.hash_ids[] as $id (.;
        .[$id | tostring] += (if $l.event == "stored" then 1 else -1 end)) end) |
        to_entries | map(select(.value != 0)) | sort_by(.key)' "$@"
}

@test "two streams of one worker: what one loses says nothing of the other" {
    need_shared events
    edit whole keep:0-7
    edit cut keep:0-7 drop:3-3
    # Alone, the second is cleared at its gap.
    assert_equal "$(from_file cut | jq -r 'select(.event == "cleared") | .reason' | paste -sd,)" join,gap
    from_file whole | state >a
    from_file cut | state >b
    timeout 60 kvr-events -q --replay whole --publish "$pub" --wait 1 --linger 2s &
    timeout 60 kvr-events -q --replay cut --publish "$replay" --wait 1 --linger 2s &
    timeout 60 kvr-events -q --idle "$quiet" --record frames "w0=$pub" "w0=$replay" >live
    wait
    assert_equal "$(jq -r 'select(.event == "cleared") | .reason' live)" join
    jq -s -c 'add | group_by(.key) | map({key: .[0].key, value: (map(.value) | add)})' a b >both
    run diff both <(state live)
    assert_success
    run diff <(sort live) <(from_file frames | sort)
    assert_success
    run -2 kvr-events --replay x=frames
    assert_output --partial "several sources were recorded, and cannot all be 'x'"
}

# engine_cache RUN TRACE: kvr-evict replays a real engine's run as in engines.bats, its events are
# published and read back; what is left of them is compared with the engine's own cache at the end.
engine_cache() {
    local run=$SHARED/engines/$1.json
    jq -c --argjson n "$(jq '.results | length' "$run")" '.[:$n][] | {id, hash_ids,
        output_hash_ids: .next_ids, input_length: (16 * (.hash_ids | length) + .tail_tokens),
        output_length: .output_tokens}' "$SHARED/engines/$2.json" >trace
    kvr-evict -b 16 -c "$(jq .usable_blocks "$run")b" --live "$(jq .overlap "$run")" --engine vllm \
        --events trace | jq -c 'select(.event)' >lines
    timeout 60 kvr-events -q lines --publish "$pub,replay=$replay" --wait 1 --linger 300ms &
    timeout 60 kvr-events -q --idle "$quiet" --native "w0=$pub,replay=$replay" >live
    wait $!
    # What is left of every id after all of its stored and removed lines.
    jq -s -c 'reduce (.[] | select(.hash_ids)) as $l ({}; reduce $l.hash_ids[] as $id (.;
        .[$id | tostring] += (if $l.event == "stored" then 1 else -1 end))) |
        to_entries | map(select(.value != 0)) | sort_by(.key)' live >held
    jq -c '[.final_free_queue[] | select(. != null) | tostring] | group_by(.) |
        map({key: .[0], value: length})' "$run" >engine
    run diff engine held
    assert_success
    assert [ "$(jq length held)" -gt 50 ]
    # And the index: kvr-match finds each of them, and not those that left.
    jq -c '.[].key | tonumber | {hash_ids: [.], block_size: 16}' held >there
    jq -c 'select(.event == "removed") | .hash_ids[]' live | sort -un |
        grep -vxF -f <(jq -r '.[].key' held) | jq -c '{hash_ids: [.], block_size: 16}' >gone
    cat live there | kvr-match | jq -c 'select(.event | not) | .match' | sort | uniq -c >found
    assert_equal "$(awk '{ print $1, $2 }' found)" "$(jq length held) {\"w0\":16}"
    assert [ -s gone ]
    assert_equal "$(cat live gone | kvr-match | jq -c 'select(.event | not) | .match' | sort -u)" '{}'
}

@test "the cache read from a stream is the engine's own at the end" {
    need_shared engines/trace.json
    engine_cache vllm_n129_ov0 trace
    engine_cache vllm_n257_ov0 trace
}

@test "the same where the engine holds equal blocks several times" {
    need_shared engines/trace.json
    engine_cache dup_vllm_n129_ov3 trace_dup
}

@test "event lines into the index: kvr-match finds what the engine's own cache hit" {
    need_shared events
    # r1 began with the prompt of r0 and hit 112 tokens in the engine; 7 blocks are in events 0 and 1.
    edit before keep:0-1
    from_file "w0=before" --ids >events
    jq -s '[.[] | select(.event == "stored") | .token_ids[]]' events >tokens
    jq -c '{token_ids: (. + [1, 2, 3, 4, 5])}' tokens | kvr-tokenize -b 16 |
        cat events - | kvr-match | jq -c 'select(.event | not) | .match' >match
    assert_equal "$(cat match)" '{"w0":112}'
    assert_equal "$(jq '.requests[1].hit_tokens' "$E/vllm-0.33.0-sha256-int/meta.json")" 112
}

@test "a hostile publisher cannot make it hold more than its bound" {
    # 200,000 blocks for a worker that may have a megabyte.
    seq 1 200000 | sed 's/.*/{"event":"stored","worker":"w0","hash_ids":[&]}/' >many
    timeout 60 kvr-events -q many --publish "$pub" --wait 1 &
    timeout 60 kvr-events --idle "$quiet" --native --max-memory 1MiB "w0=$pub" >live 2>err
    wait $!
    assert grep -q 'blocks left out for memory' err
    assert [ "$(jq -s 'map(select(.hash_ids) | .hash_ids | length) | add' live)" -le 32768 ]
}

@test "publishers that connect to it and say who they are: each pod is a worker" {
    need_shared events
    local port=$((20000 + RANDOM % 12000)) pod wanted reader
    wanted=$((3 * $(from_file "$stream" | wc -l)))
    kvr-events -q --record frames "tcp://*:$port" >live &
    reader=$!
    PYTHONPATH=$REPO/tests timeout 60 python3 "$REPO/tests/pod_publisher.py" "$port" "$stream" \
        kv@10.0.0.1:8000@m kv@pod-b@m other
    for _ in $(seq 100); do [ "$(wc -l <live)" -ge "$wanted" ] && break || sleep 0.1; done
    kill -INT $reader
    wait $reader || true
    for pod in 10.0.0.1:8000 pod-b w0; do
        run diff <(from_file "w0=$stream" | sed "s/\"w0\"/\"$pod\"/") <(grep "\"$pod\"" live)
        assert_success
    done
    assert_equal "$(wc -l <live)" "$wanted"
    # The record tells them apart as well; whoever names the source has one worker.
    run diff live <(from_file frames)
    assert_success
    assert_equal "$(from_file x=frames | jq -r .worker | sort -u)" x
    run -2 kvr-events "tcp://*:$port,replay=tcp://127.0.0.1:1"
    run -2 kvr-events "tcp://*:x"
}

# attacked KIND CONNECTIONS: the most memory, in KiB, that it took until one of its workers had
# attacked so many connections; the lines of another worker, which publishes meanwhile, go into live
attacked() {
    local port reader attacker lines
    lines=$(wc -l <want)
    rm -f hostile live
    python3 "$REPO/tests/hostile_publisher.py" "$@" >hostile &
    attacker=$!
    for _ in $(seq 100); do [ -s hostile ] && break || sleep 0.1; done
    read -r port <hostile
    timeout 90 kvr-events -q --replay "$stream" --publish "$pub,replay=$replay" --wait 1 --linger 1s &
    kvr-events -q --max-message 1MiB --max-memory 16MiB "bad=tcp://127.0.0.1:$port" \
        "w0=$pub,replay=$replay" >live &
    reader=$!
    wait $attacker
    for _ in $(seq 100); do [ "$(grep -c '"w0"' live)" -ge "$lines" ] && break || sleep 0.1; done
    awk '/VmHWM/ { print $2 }' "/proc/$reader/status" >memory
    kill -INT $reader
    wait
}

@test "a publisher that never ends its message, or has a thousand ranks, takes no memory for it" {
    need_shared events
    local kind
    from_file "w0=$stream" >want
    for kind in endless empty huge ranks; do
        # Twice closed, and tried again after a pause; the one with ranks only wastes our time.
        attacked $kind "$([ $kind = ranks ] && echo 1 || echo 2)"
        assert_equal "$(tail -n 1 hostile)" done
        assert [ "$(cat memory)" -lt 400000 ]
        run diff want <(grep '"w0"' live)
        assert_success
    done
}

@test "SIGUSR1 shows the figures, SIGINT ends it after whole lines" {
    need_shared events
    timeout 60 kvr-events -q --replay "$stream" --publish "$pub" --wait 1 --linger 3s &
    kvr-events "w0=$pub" >live 2>err &
    local reader=$! i
    for i in $(seq 300); do [ "$(wc -l <live)" -ge 20 ] && break || sleep 0.1; done
    kill -USR1 $reader
    for i in $(seq 300); do grep -q '13 messages' err && break || sleep 0.1; done
    assert grep -q '13 messages' err
    kill -INT $reader
    local status=0
    wait $reader || status=$?
    assert_equal $status 130
    run diff <(from_file "w0=$stream") live
    assert_success
}

@test "what it refuses: status 2 and a reason" {
    local arguments
    for arguments in "" "w0=" "w0=http://x" "--replay x tcp://127.0.0.1:1" "--layout tree --publish $pub" \
        "--publish nowhere" "--replay x --record y" "--batch 0 --publish $pub" "w0=tcp://x:y:z"; do
        # shellcheck disable=SC2086
        run timeout 10 kvr-events $arguments </dev/null
        assert_failure 2
        assert [ -n "$output" ]
    done
}
