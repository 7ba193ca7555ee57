#!/usr/bin/env bats
# kvr-tokenize and kvr-serve on chats as clients of an API send them: tool calls, parts, efforts, images.

load helper
load http

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    export XDG_CACHE_HOME=$BATS_TEST_TMPDIR/cache no_proxy='*' NO_PROXY='*'
    unset KVR_TOKENIZERS
    # as strict as real ones: content has to be a text
    cat >t.jinja <<'END'
{%- for m in messages %}[{{ m.role }}:{% if '<think>' in m.content %}{% endif %}{{ m.content }}
{%- for c in m.tool_calls or [] %} {{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}]
{%- endfor %}{% if reasoning_effort %}({{ reasoning_effort }}){% endif %}{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}
{%- for d in documents or [] %}<{{ d.title }}>{% endfor %}{{ '>' if add_generation_prompt }}
END
    CALL='{"role":"user","content":"Weather in Paris? Answer shortly."},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Paris\"}"}}]},{"role":"tool","tool_call_id":"c","content":"21 C"}'
}

teardown() {
    stop_all
}

prompt() {
    kvr-tokenize --template t.jinja --render --count "$@" | jq -r .prompt
}

@test "requests of an API are read as an engine reads them" {
    assert_equal "$(prompt <<<"{\"messages\":[$CALL]}")" '[user:Weather in Paris? Answer shortly.][assistant: weather{"city": "Paris"}][tool:21 C]>'
    assert_equal "$(prompt <<<'{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}')" $'[user:a\nb]>'
    assert_equal "$(prompt <<<'{"messages":[{"role":"user"}]}')" '[user:]>'
    # a client that sends an answer back as it came; with model it is an API's in any case
    assert_equal "$(prompt <<<'{"messages":[{"role":"assistant","content":"x","tool_calls":null,"refusal":null,"extra":1}]}')" '[assistant:x]>'
    echo '{{ messages[0].extra is defined }}' >x.jinja
    for line in 'true {"messages":[{"role":"user","content":"x","extra":1}]}' 'false {"model":"m","messages":[{"role":"user","content":"x","extra":1}]}'; do
        assert_equal "$(kvr-tokenize --template x.jinja --render --count <<<"${line#* }" | jq -r '.prompt | ascii_downcase')" "${line%% *}"
    done
}

@test "a line with add_generation_prompt is a call of the template; --style vllm is named where that fails" {
    run kvr-tokenize --template t.jinja --count <<<"{\"messages\":[$CALL],\"add_generation_prompt\":true}"
    assert_failure 1
    assert_line --regexp "TypeError: argument of type 'NoneType' is not iterable\$"
    assert_line --regexp '^kvr-tokenize: 1 of the bad lines .*--style vllm'
    assert_equal "$(prompt --style vllm <<<"{\"messages\":[$CALL],\"add_generation_prompt\":true}" | cut -c 1-5)" '[user'
    # where nothing of an API is in it, there is nothing to advise
    run kvr-tokenize --template t.jinja --count <<<'{"messages":[{"role":"user","content":5}],"add_generation_prompt":true}'
    assert_failure 1
    refute_output --partial 'as a server'
}

@test "what an engine would refuse is rendered as it stands, where that goes" {
    echo '{% for m in messages %}{% for c in m.tool_calls %}{{ "args " + c.function.arguments }}{% endfor %}{% endfor %}' >t.jinja
    assert_equal "$(prompt <<<'{"messages":[{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}]}')" 'args {}'
}

@test "reasoning_effort and documents of a request" {
    assert_equal "$(prompt <<<'{"messages":[{"role":"user","content":"x"}],"reasoning_effort":"none"}')" '[user:x](none)<think></think>>'
    assert_equal "$(prompt --style vllm <<<'{"messages":[{"role":"user","content":"x"}],"reasoning_effort":"high"}')" '[user:x](high)>'
    # the request's own members count more than its chat_template_kwargs, but for enable_thinking; null is nothing
    assert_equal "$(prompt --style vllm <<<'{"messages":[{"role":"user","content":"x"}],"reasoning_effort":"none","documents":[{"title":"A"}],"chat_template_kwargs":{"reasoning_effort":"low","documents":[{"title":"B"}],"add_generation_prompt":false,"enable_thinking":true}}')" '[user:x](none)<A>>'
    assert_equal "$(prompt --style vllm <<<'{"messages":[{"role":"user","content":"x"}],"reasoning_effort":null,"chat_template_kwargs":{"reasoning_effort":"low","documents":[{"title":"B"}]}}')" '[user:x](low)<B>>'
    assert_equal "$(prompt --style sglang <<<'{"messages":[{"role":"user","content":"x"}],"reasoning_effort":"none","chat_template_kwargs":{"reasoning_effort":"low"}}')" '[user:x](low)>'
    assert_equal "$(prompt --style sglang <<<'{"messages":[{"role":"user","content":"x"}],"reasoning_effort":"none"}')" '[user:x](none)>'
    assert_equal "$(prompt --style plain <<<'{"messages":[{"role":"user","content":"x"}],"documents":[{"title":"A"}]}')" '[user:x]<A>>'
}

@test "cache_salt, add_special_tokens and truncate_prompt_tokens of a request" {
    ids='{"token_ids":[1,2,3,4]'
    run kvr-tokenize -b 4 <<<"$ids}
$ids,\"salt\":\"s\"}
$ids,\"cache_salt\":\"s\"}
$ids,\"salt\":\"s\",\"cache_salt\":\"t\"}"
    assert_success
    mapfile -t hashes < <(jq '.hash_ids[0]' <<<"$output")
    [ "${hashes[0]}" != "${hashes[1]}" ]
    assert_equal "${hashes[2]}" "${hashes[1]}"
    assert_equal "${hashes[3]}" "${hashes[1]}"
    echo '{"model":{"type":"BPE","vocab":{"a":0,"b":1,"<s>":2},"merges":[]},"added_tokens":[{"id":2,"content":"<s>","special":true}],"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[2],"tokens":["<s>"]}}}}' >tokenizer.json
    echo '{% for m in messages %}{{ m.content }}{% endfor %}' >a.jinja
    run kvr-tokenize -t tokenizer.json --template a.jinja --ids --count <<<'{"prompt":"ab"}
{"prompt":"ab","add_special_tokens":false}
{"messages":[{"role":"user","content":"ab"}]}
{"messages":[{"role":"user","content":"ab"}],"add_special_tokens":true}
{"prompt":"abba","truncate_prompt_tokens":2}
{"prompt":"abba","truncate_prompt_tokens":-1}
{"prompt":"abba","truncate_prompt_tokens":9}'
    assert_success
    assert_equal "$(jq -c .token_ids <<<"$output" | tr '\n' ' ')" '[2,0,1] [0,1] [0,1] [2,0,1] [1,0] [2,0,1,1,0] [2,0,1,1,0] '
}

# places FILE OPTION...: the first block that differs between its two lines.
places() {
    kvr-tokenize -q -b 1 "$@" | jq -sc 'map(.hash_ids) | transpose | [length, (map(.[0] == .[1]) | index(false))]'
}

@test "an image without a placeholder counts from where its message was rendered" {
    image() {
        echo '{"messages":[{"role":"system","content":"You are a careful and patient helper."},{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"'"$1"'"}}]}]}'
    }
    image a >two
    image b >>two
    # [system:You are a careful and patient helper.][user:look]>
    start=$(kvr-tokenize --count <<<'{"prompt":"[system:You are a careful and patient helper.]["}' | jq .input_length)
    run places --template t.jinja two
    assert_success
    assert_equal "$(jq '.[1]' <<<"$output")" $((start - 1))
    # without a template as well
    start=$(kvr-tokenize --count <<<'{"prompt":"system: You are a careful and patient helper.\n"}' | jq .input_length)
    run places two
    assert_equal "$(jq '.[1]' <<<"$output")" "$start"
    # tokens that are not the text's bytes: a space is put before it, and ⁠é is composed
    echo '{"model":{"type":"BPE","vocab":{"<unk>":0,"▁":1,"l":2,"o":3,"k":4,"é":5},"merges":[],"unk_token":"<unk>"},"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]}}' >tokenizer.json
    echo '{% for m in messages %}{{ m.content }}{% endfor %}' >a.jinja
    for url in a b; do
        printf '{"messages":[{"role":"system","content":"oe\u0301k "},{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"%s"}}]}]}\n' "$url"
    done >two
    assert_equal "$(places -t tokenizer.json --template a.jinja two)" '[9,5]'
}

@test "many images without placeholders do not take long" {
    python3 -c 'import json; print(json.dumps({"messages": [{"role": "user", "content": [{"type": "image", "n": i}]} for i in range(30000)]}))' >many
    echo '{"model":{"type":"BPE","vocab":{"<unk>":0,"▁":1,"l":2},"merges":[],"unk_token":"<unk>"},"normalizer":{"type":"Prepend","prepend":"▁"}}' >tokenizer.json
    echo '{% for m in messages %}l{% endfor %}' >a.jinja
    run timeout 60 kvr-tokenize -q -t tokenizer.json --template a.jinja many
    assert_success
    assert_equal "$(jq .input_length <<<"$output")" 30001
}

@test "a template may write many parts in any order" {
    echo '{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}}' >tokenizer.json
    write='{% if p.type == "text" %}{{ p.text }}{% else %}b{% endif %}{% endfor %}{% endfor %}'
    echo "{% for m in messages %}{% for p in m.content %}$write" >ordered.jinja
    echo "{% for m in messages %}{% for p in m.content | reverse %}$write" >reversed.jinja
    echo "{% for m in messages %}{% for p in m.content | sort(attribute='at') %}$write" >sorted.jinja
    python3 - <<'END'
import json, random
parts = [part for i in range(400000)
         for part in ({"type": "image", "uuid": f"u{i}"}, {"type": "text", "text": "a"})]
for at, part in enumerate(parts):
    part["at"] = at
shuffled = random.Random(1).sample(parts, len(parts))
for name, content in ("ordered", parts), ("reversed", parts[::-1]), ("sorted", shuffled):
    print(json.dumps({"messages": [{"role": "user", "content": content}]}), file=open(name, "w"))
END
    for order in ordered reversed sorted; do
        # the same prompt; a quadratic search takes minutes
        timeout -s KILL 60 kvr-tokenize -q -b 16 -t tokenizer.json --template $order.jinja $order >out
        jq -c '[.input_length, .hash_ids]' out >$order.ids
        cmp ordered.ids $order.ids
    done
    assert_equal "$(jq -c '[.[0], (.[1] | length, (unique | length))]' ordered.ids)" '[800000,50000,50000]'
}

@test "images of one token get as many as they take, those of more keep theirs" {
    echo '{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]},"added_tokens":[{"id":2,"content":"<|image_pad|>","special":true}]}' >tokenizer.json
    echo '{% for m in messages %}{% for p in m.content %}{% if p.type == "text" %}{{ p.text }}{% else %}{{ "<|image_pad|>" * p.n }}{% endif %}{% endfor %}{% endfor %}' >t.jinja
    python3 -c 'import json; print(json.dumps({"messages": [{"role": "user", "content": [part for i in range(3000) for part in ({"type": "image", "n": 2 if i % 3 == 0 else 1}, {"type": "text", "text": "a"})]}]}))' >many
    kvr-tokenize -q -b 16 -t tokenizer.json --template t.jinja --image-tokens 5 --ids many >out
    assert_equal "$(jq -c '[.input_length, (.token_ids == ([range(1000)] | map([2,2,0,2,2,2,2,2,0,2,2,2,2,2,0]) | add))]' out)" '[15000,true]'
}

@test "kvr-serve: conversations with tools keep their worker, in process and with a pipeline" {
    mock a
    mock b
    more=$CALL',{"role":"assistant","content":"It is 21 degrees in Paris."},{"role":"user","content":[{"type":"text","text":"And tomorrow?"}]}'
    ask() {
        curl -s -m 60 -o body -w '%{http_code} %header{x-kvr-worker} %header{x-kvr-reason}\n' --data-binary "$1" "http://127.0.0.1:$port/v1/chat/completions"
    }
    for how in process pipeline; do
        if [ $how = process ]; then
            serve port -w "a=http://127.0.0.1:$a,b=http://127.0.0.1:$b" --template t.jinja
        else
            serve port -w "a=http://127.0.0.1:$a,b=http://127.0.0.1:$b" --decision-timeout 60s -- 'kvr-tokenize --template t.jinja | kvr-match -c 100000 | kvr-route'
        fi
        run ask "{\"model\":\"m\",\"messages\":[$CALL]}"
        first=${lines[0]}
        assert_equal "${first%% *}" 200
        refute_output --partial ' fallback'
        worker=$(cut -d' ' -f2 <<<"$first")
        assert_equal "$(ask "{\"model\":\"m\",\"messages\":[$more]}")" "200 $worker cache-match"
        # vLLM's clients may write out what is so anyway
        assert_equal "$(ask "{\"model\":\"m\",\"messages\":[$more],\"add_generation_prompt\":true}")" "200 $worker cache-match"
        kill "$SERVE_PID"
        wait "$SERVE_PID" || true
    done
}

@test "kvr-serve hands on all that decides about tokens" {
    mock a
    cat >see <<'END'
#!/bin/sh
tee lines | kvr-route -w a
END
    chmod +x see
    serve port -w "a=http://127.0.0.1:$a" --decision-timeout 60s -- ./see
    send() {
        curl -s -m 60 -o body --data-binary "$2" "http://127.0.0.1:$port/v1/$1"
    }
    send chat/completions '{"messages":[{"role":"user","content":"x"}],"reasoning_effort":"low","documents":[{"title":"A"}],"add_special_tokens":true,"truncate_prompt_tokens":9,"cache_salt":"s","add_generation_prompt":true}'
    send chat/completions '{"messages":[{"role":"user","content":"x"}],"reasoning_effort":5,"documents":["x"],"tools":[5],"add_special_tokens":"x","truncate_prompt_tokens":-1,"add_generation_prompt":"x","continue_final_message":1}'
    send chat/completions '{"messages":[{"role":"user","content":"x"}],"add_generation_prompt":false,"continue_final_message":true}'
    send chat/completions '{"messages":[{"role":"user","content":"x"}],"add_generation_prompt":false}'
    send completions '{"prompt":"x","add_special_tokens":false}'
    send responses '{"input":[{"role":"user","content":"x"}],"reasoning":{"effort":"high"}}'
    wait_for "[ \$(jq -c 'select(.id and (.event | not) and (.prompt or .messages))' lines | wc -l) = 6 ]"
    run jq -c 'select(.id and (.event | not) and (.prompt or .messages)) | del(.id, .timestamp, .messages, .prompt, .user)' lines
    assert_output '{"salt":"s","add_special_tokens":true,"truncate_prompt_tokens":9,"documents":[{"title":"A"}],"reasoning_effort":"low"}
{}
{"continue_final_message":true}
{"add_generation_prompt":false}
{"add_special_tokens":false}
{"reasoning_effort":"high"}'
}

@test "kvr-serve: /v1/responses as the chat that an engine makes of it" {
    mock a
    printf '#!/bin/sh\ntee -a lines | kvr-route -w a\n' >see
    chmod +x see
    serve port -w "a=http://127.0.0.1:$a" --decision-timeout 60s -- ./see
    send() {
        curl -s -m 60 -o body --data-binary "$2" "http://127.0.0.1:$port/v1/$1"
    }
    send responses '{"instructions":"Be brief.","input":"Hi","reasoning":{"effort":"high"}}'
    send responses '{"input":[{"role":"user","content":[{"type":"input_text","text":"Weather?"}]},
      {"type":"reasoning","summary":[{"type":"summary_text","text":"Ask."}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me see."}]},
      {"type":"function_call","call_id":"c","name":"weather","arguments":"{}"},
      {"type":"function_call","call_id":"d","name":"time","arguments":"{}"},
      {"type":"function_call_output","call_id":"c","output":"21 C"},{"type":"item_reference","id":"x"},{"type":"function_call","name":5,"arguments":"{}"},
      {"type":"function_call","name":"f","arguments":"{\"a\":1}"}],
      "tools":[{"type":"function","name":"weather","parameters":{}},{"type":"web_search"}]}'
    send responses '{"input":[5,"x"],"instructions":5,"tools":5}'
    send responses '{"input":[1,2,3]}'
    # deeper by one than a line may be
    deep=$(printf '[%.0s' $(seq 997))$(printf ']%.0s' $(seq 997))
    send responses '{"input":"deep","tools":[{"type":"function","x":'"$deep"'}]}'
    send completions '{"prompt":["one"]}'
    send completions '{"prompt":[[1,2]]}'
    send completions '{"prompt":["one","two"]}'
    wait_for "[ \$(jq -c 'select(.id and (.event | not))' lines | wc -l) = 8 ]"
    run jq -c 'select(.id and (.event | not)) | del(.id, .timestamp)' lines
    assert_output '{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}],"reasoning_effort":"high"}
{"messages":[{"role":"user","content":[{"type":"input_text","text":"Weather?"}]},{"role":"assistant","reasoning":"Ask.","content":[{"type":"output_text","text":"Let me see."}],"tool_calls":[{"id":"c","type":"function","function":{"name":"weather","arguments":"{}"}},{"id":"d","type":"function","function":{"name":"time","arguments":"{}"}}]},{"role":"tool","content":"21 C","tool_call_id":"c"},{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]}],"tools":[{"type":"function","function":{"name":"weather","parameters":{}}}]}
{}
{"token_ids":[1,2,3]}
{"messages":[{"role":"user","content":"deep"}]}
{"prompt":"one"}
{"token_ids":[1,2]}
{}'
}

@test "vLLM's own ids with a LoRA: its name and its path as the server has them" {
    need_shared events
    for run in sha256_cbor-int sha256-int; do
        # as text: 64 bits are more than jq keeps
        python3 - "$SHARED/events/vllm-0.33.0-$run/expected.ndjson" <<'END'
import json, sys
events = [event for line in open(sys.argv[1]) for event in json.loads(line)["events"]]
stored = next(event for event in events if event["type"] == "BlockStored" and event["lora_name"])
lora = {"name": stored["lora_name"], "path": "/models/lora/sql"}
for name, member in (("line", lora), ("name-only", lora["name"])):
    json.dump({"token_ids": stored["token_ids"], "lora": member}, open(name, "w"))
open("expected", "w").write('"hash_ids":' + json.dumps(stored["block_hashes"], separators=(",", ":")))
END
        [ -s expected ]
        run kvr-tokenize --chain "vllm-${run%-int}" --seed 0 line
        assert_success
        assert_output --partial "$(cat expected)"
        run kvr-tokenize --chain "vllm-${run%-int}" --seed 0 name-only
        assert_success
        refute_output --partial "$(cat expected)"
    done
}

@test "vLLM's own ids with images: a part's uuid is its identifier, in all three forms of extra keys" {
    echo '{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]},"added_tokens":[{"id":2,"content":"<|image_pad|>","special":true}]}' >tokenizer.json
    echo '{% for m in messages %}{% for p in m.content %}{{ "<|image_pad|>" if p.type == "image" else p.text }}{% endfor %}{% endfor %}' >t.jinja
    line='{"messages":[{"role":"user","content":[{"type":"text","text":"abb"},{"type":"image_url","image_url":{"url":"x"},"uuid":"U1"},{"type":"text","text":"ab"}]}]}'
    for form in tagged plain legacy; do
        run kvr-tokenize -q -t tokenizer.json --template t.jinja --image-tokens 3 -b 4 --ids --chain vllm-sha256_cbor --seed 0 --extra-keys $form <<<"$line"
        assert_success
        assert_output --partial '"token_ids":[0,1,1,2,2,2,0,1]'
        assert_output --partial "\"hash_ids\":[$(python3 - $form <<'END'
import hashlib, sys

def head(major, n):
    return bytes([major << 5 | n]) if n < 24 else bytes([major << 5 | 24, n])

def cbor(value):
    if value is None:
        return b"\xf6"
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value)) + value.encode()
    return head(4, len(value)) + b"".join(map(cbor, value))

form = {"tagged": lambda start: ("mm", "U1", start), "plain": lambda start: ("U1", start), "legacy": lambda start: "U1"}[sys.argv[1]]
parent, ids = hashlib.sha256(cbor("0")).digest(), []
for tokens, start in (((0, 1, 1, 2), 3), ((2, 2, 0, 1), -1)):
    parent = hashlib.sha256(cbor((parent, tokens, (form(start),)))).digest()
    ids.append(str(int.from_bytes(parent[-8:], "big")))
print(",".join(ids))
END
)]"
    done
}

@test "what a template raises has its own words, and none of the prompt" {
    request='{"messages":[{"role":"hunter2","content":"My password is 4711"}]}'
    why() {
        echo "$1" >raise.jinja
        kvr-tokenize --style plain --template raise.jinja --count <<<"$request" 2>&1 | head -n 1
    }
    assert_equal "$(why "{{ raise_exception('roles must alternate: ' ~ messages[0].content) }}")" 'kvr-tokenize: stdin:1: template line 1: TemplateError: roles must alternate: ...'
    assert_equal "$(why "{{ raise_exception('no role ' + messages[0]['role'] + ' here') }}")" 'kvr-tokenize: stdin:1: template line 1: TemplateError: no role ... here'
    assert_equal "$(why '{{ messages[0][messages[0].role].x }}')" "kvr-tokenize: stdin:1: template line 1: UndefinedError: 'dict object' has no attribute '...'"
    assert_equal "$(why '{{ messages[0].name.first }}')" "kvr-tokenize: stdin:1: template line 1: UndefinedError: 'dict object' has no attribute 'name'"
    assert_equal "$(why '{{ messages[3].role }}')" 'kvr-tokenize: stdin:1: template line 1: UndefinedError: list object has no element 3'
    assert_equal "$(why '{{ [1]|map(messages[0].role)|list }}')" 'kvr-tokenize: stdin:1: template line 1: TemplateRuntimeError: No filter named ....'
}

@test "a --template without a template in it is an error, not a plain join" {
    line='{"messages":[{"role":"user","content":"x"}]}'
    run kvr-tokenize --template '' <<<"$line"
    assert_failure 2
    assert_output --partial "the template's file name is empty"
    echo '{"bos_token":"<s>"}' >tokenizer_config.json
    run kvr-tokenize --template tokenizer_config.json <<<"$line"
    assert_failure
    assert_output --partial "'tokenizer_config.json': there is no chat_template in it"
    for text in '{}' ' { }' '{"bos_token":"<s>"}'; do
        echo "$text" >other.json
        run kvr-tokenize --template other.json <<<"$line"
        assert_failure
        assert_output --partial "'other.json': there is no member 'chat_template'"
    done
    # an empty list of templates, and an empty template, which is one
    echo '{"chat_template":[]}' >tokenizer_config.json
    run kvr-tokenize --template tokenizer_config.json <<<"$line"
    assert_failure
    assert_output --partial 'no chat_template'
    : >empty.jinja
    run kvr-tokenize --template empty.jinja --count <<<"$line"
    assert_success
    assert_output --partial '"input_length":0'
}

@test "golden texts with what the model adds, by the files beside each other" {
    need_shared golden
    need_shared tokenizers
    for name in qwen3 deepseek_v3 mistral_v0_1; do
        zcat "$SHARED/golden/$name.jsonl.gz" | jq -c 'select(.ids_bos) | {prompt: .text, expected: .ids_bos}' >lines
        run kvr-tokenize -q -t "$SHARED/tokenizers/$name.tokenizer.json.gz" --special --ids --count lines
        assert_success
        assert_equal "$(jq -c '.token_ids == .expected' <<<"$output" | sort | uniq -c | sed 's/^ *//')" '12 true'
    done
}

@test "golden texts without any added token: --no-added" {
    need_shared golden
    need_shared tokenizers
    for name in qwen3 deepseek_v3 mistral_v0_1; do
        zcat "$SHARED/golden/$name.jsonl.gz" | jq -c '{prompt: .text, expected: (.ids_plain // .ids)}' >lines
        run kvr-tokenize -q -t "$SHARED/tokenizers/$name.tokenizer.json.gz" --no-added --bos no --ids --count lines
        assert_success
        assert_equal "$(jq -c '.token_ids == .expected' <<<"$output" | sort | uniq -c | sed 's/^ *[0-9]* //')" true
    done
    run kvr-tokenize --no-added --special <<<'{}'
    assert_failure 2
}

@test "lines that lack what vLLM hashes are counted; a LoRA known by its id alone is one" {
    echo '{% for m in messages %}{{ m.content }}{% endfor %}' >t.jinja
    requests='{"token_ids":[1,2],"lora":{"name":"a","path":"/p"}}
{"token_ids":[1,2],"lora":{"name":"a","id":3}}
{"token_ids":[1,2],"lora":{"id":3}}
{"token_ids":[1,2],"lora":3}
{"token_ids":[1,2]}
{"messages":[{"role":"user","content":[{"type":"text","text":"hi there"},{"type":"image","uuid":"U"}]}]}
{"messages":[{"role":"user","content":[{"type":"text","text":"hi there"},{"type":"image"}]}]}'
    for lacks in tagged:4 plain:1 legacy:2; do
        kvr-tokenize --template t.jinja -b 2 --chain vllm-sha256_cbor --extra-keys "${lacks%:*}" <<<"$requests" >out 2>err
        assert_equal "$(cat err)" "kvr-tokenize: ids of ${lacks#*:} of 7 lines are none that vLLM has: a LoRA lacks its path (legacy: its id), or an image its uuid"
    done
    kvr-tokenize --template t.jinja -b 2 <<<"$requests" >out 2>err
    assert_equal "$(cat err)" ''
    assert_equal "$(jq -s -c '[.[2].hash_ids == .[3].hash_ids, .[2].hash_ids == .[4].hash_ids]' out)" '[true,false]'
}
