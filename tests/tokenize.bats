#!/usr/bin/env bats
# kvr-tokenize: what it adds, what it leaves, what it refuses.

load helper
load http

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    export XDG_CACHE_HOME=$BATS_TEST_TMPDIR/cache
    unset KVR_TOKENIZERS
}

teardown() {
    stop_all
}

shared_vocabularies() {
    need_shared tokenizers
    export KVR_TOKENIZERS=$SHARED/tokenizers
}

@test "the members, in their order, after all others, with the embedded vocabulary" {
    run kvr-tokenize --ids -b 2 <<<'{"id":1,"prompt":"Hello, world","x":[1.0]}'
    assert_success
    assert_output '{"id":1,"prompt":"Hello, world","x":[1.0],"token_ids":[9906,11,1917],"input_length":3,"hash_ids":[739360794585778],"block_size":2}'
}

@test "blocks are of 16 tokens, or of the line's block_size" {
    run kvr-tokenize <<<'{"prompt":"a b c d e f g h i j k l m n o p q"}
{"prompt":"a b c d e f g h i j k l m n o p q","block_size":5}'
    assert_success
    assert_equal "$(jq -c '[.input_length, (.hash_ids | length), .block_size]' <<<"$output")" '[17,1,16]
[17,3,5]'
}

@test "what has no content passes byte for byte" {
    printf '%s\n' '{"hash_ids":[1, 2],"input_length":9 }' '{"event":"done","prompt":"x"}' '{}' >lines
    run --separate-stderr kvr-tokenize lines
    assert_success
    assert_output "$(cat lines)"
}

@test "token_ids are taken as they are, and lists of ids as prompts" {
    run kvr-tokenize -b 1 <<<'{"token_ids":[9906,11,1917]}
{"prompt":[9906,11,1917]}
{"prompt":"Hello, world"}'
    assert_success
    assert_equal "$(jq -c .hash_ids <<<"$output" | sort -u | wc -l)" 1
}

@test "special-token text is plain text unless --special says otherwise" {
    run kvr-tokenize --count <<<'{"prompt":"<|endoftext|>"}'
    assert_output '{"prompt":"<|endoftext|>","input_length":7}'
    run kvr-tokenize --count --special <<<'{"prompt":"<|endoftext|>"}'
    assert_output '{"prompt":"<|endoftext|>","input_length":1}'
}

@test "--decode gives the text back" {
    run kvr-tokenize --decode <<<'{"token_ids":[9906,11,1917]}'
    assert_success
    assert_output '{"token_ids":[9906,11,1917],"prompt":"Hello, world"}'
    run kvr-tokenize --decode <<<'{"token_ids":[999999]}'
    assert_failure 1
    assert_output --partial 'the vocabulary has no token 999999'
}

@test "--decode reads ids wherever they are, and leaves lines without alone" {
    run kvr-tokenize --decode <<<'{"prompt":[9906,11,1917]}
{"prompt":[[9906,11]]}
{"prompt":"x","model":"m" }
{"messages":[{"role":"user","content":"x"}]}
{"token_ids":[[9906]]}'
    assert_failure 1
    assert_output --partial '{"prompt":"Hello, world"}
{"prompt":"Hello,"}
{"prompt":"x","model":"m" }
{"messages":[{"role":"user","content":"x"}]}
'
    run kvr-tokenize --decode --truncate 2 <<<'{"token_ids":[9906,11,1917],"x":1}'
    assert_output '{"x":1,"token_ids":[9906,11],"prompt":"Hello,"}'
    run kvr-tokenize --decode <<<'{"token_ids":[9906,100257]}'
    assert_output '{"token_ids":[9906,100257],"prompt":"Hello<|endoftext|>"}'
    run kvr-tokenize --decode --skip-special <<<'{"token_ids":[9906,100257]}'
    assert_output '{"token_ids":[9906,100257],"prompt":"Hello"}'
    for bad in '--decode --count' '--decode --ids' '--decode --render' --skip-special; do
        # shellcheck disable=SC2086
        run kvr-tokenize $bad <<<'{}'
        assert_failure 2
    done
}

@test "--truncate cuts the ids that a line had, too" {
    run kvr-tokenize --truncate 2 --count <<<'{"token_ids":[9906,11,1917]}
{"prompt":[9906,11,1917]}
{"token_ids":[9906,11]}'
    assert_success
    assert_output '{"token_ids":[9906,11],"input_length":2}
{"prompt":[9906,11],"input_length":2}
{"token_ids":[9906,11],"input_length":2}'
}

@test "--truncate keeps the first tokens" {
    run kvr-tokenize --truncate 2 --ids -b 1 <<<'{"prompt":"Hello, world"}'
    assert_success
    assert_equal "$(jq -c '[.token_ids, .input_length]' <<<"$output")" '[[9906,11],2]'
}

@test "bytes and chars" {
    run kvr-tokenize -t bytes --ids --count <<<'{"prompt":"aé"}'
    assert_output '{"prompt":"aé","token_ids":[97,195,169],"input_length":3}'
    run kvr-tokenize -t chars --ids --count <<<'{"prompt":"aé"}'
    assert_output '{"prompt":"aé","token_ids":[97,233],"input_length":2}'
}

@test "model, lora and salt are namespaces of their own" {
    run kvr-tokenize -b 1 <<<'{"prompt":"a"}
{"prompt":"a","model":"m"}
{"prompt":"a","lora":"m"}
{"prompt":"a","salt":"m"}
{"prompt":"a","salt":"m","model":"m"}'
    assert_success
    assert_equal "$(jq '.hash_ids[0]' <<<"$output" | sort -u | wc -l)" 5
}

@test "without a template messages are joined, and the line says so" {
    run kvr-tokenize --render --count <<<'{"messages":[{"role":"user","content":"hi"}]}'
    assert_success
    assert_equal "$(jq -r .prompt <<<"$output")" $'user: hi\nassistant: '
    assert_equal "$(jq .approximate <<<"$output")" true
}

@test "different images never match, the same one does" {
    image() {
        echo '{"messages":[{"role":"user","content":[{"type":"text","text":"what is this? tell me"},{"type":"image_url","image_url":{"url":"'"$1"'"}}]}]}'
    }
    run kvr-tokenize -b 4 <<<"$(image a.png; image b.png; image a.png)"
    assert_success
    mapfile -t first < <(jq '.hash_ids[0]' <<<"$output")
    assert_equal "${first[0]}" "${first[2]}"
    [ "${first[0]}" != "${first[1]}" ]
}

@test "multi-part content reaches templates that know parts, with images in their place" {
    shared_vocabularies
    echo "{% for m in messages %}<|im_start|>{% for p in m.content %}{% if p.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ p.text }}{% endif %}{% endfor %}<|im_end|>{% endfor %}" >t.jinja
    run kvr-tokenize -t qwen3 --template t.jinja --ids --image-tokens 3 -b 1 <<<'{"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"a"}},{"type":"text","text":"y"}]}]}
{"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"b"}},{"type":"text","text":"y"}]}]}'
    assert_success
    assert_equal "$(jq -c .token_ids <<<"${lines[0]}")" '[151644,87,151652,151655,151655,151655,151653,88,151645]'
    # equal up to the image, different from there on
    assert_equal "$(jq -s '[.[0].hash_ids, .[1].hash_ids] | transpose | map(.[0] == .[1]) | index(false)' <<<"$output")" 3
    assert_equal "$(jq -s '[.[0].hash_ids, .[1].hash_ids] | transpose | map(select(.[0] == .[1])) | length' <<<"$output")" 3
}

@test "named templates and special tokens from all the files that a model may bring" {
    mkdir -p m/additional_chat_templates
    echo '{"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}' >m/tokenizer.json
    echo '{"chat_template":[{"name":"default","template":"config {{ bos_token }}"},{"name":"tool_use","template":"config tools"}],"bos_token":"<b>"}' >m/tokenizer_config.json
    requests='{"messages":[]}
{"messages":[],"tools":[]}'
    prompts() {
        kvr-tokenize -t m/tokenizer.json --style plain --render --count "$@" <<<"$requests" | jq -r .prompt
    }
    assert_equal "$(prompts)" $'config <b>\nconfig tools'
    # of before added_tokens_decoder, the map counts
    echo '{"bos_token":{"content":"<map>","lstrip":false}}' >m/special_tokens_map.json
    assert_equal "$(prompts)" $'config <map>\nconfig tools'
    sed -i 's/^{/{"added_tokens_decoder":{},/' m/tokenizer_config.json
    assert_equal "$(prompts)" $'config <b>\nconfig tools'
    # files of their own stand for all that the configuration has
    printf 'file' >m/chat_template.jinja
    assert_equal "$(prompts)" $'file\nfile'
    printf 'named {{ tools }}' | gzip >m/additional_chat_templates/tool_use.jinja.gz
    echo 'x' >m/additional_chat_templates/README.md
    assert_equal "$(prompts)" $'file\nnamed []'
    # and --template for these
    printf 'mine' >t.jinja
    assert_equal "$(prompts --template t.jinja)" $'mine\nmine'
    printf '{%% if %%}' >m/additional_chat_templates/broken.jinja
    run kvr-tokenize -t m/tokenizer.json <<<'{}'
    assert_failure 3
    assert_output --partial "'m/additional_chat_templates/broken.jinja': "
    assert_output --partial 'expected an expression'
    # the file that is wrong is the one that is blamed
    rm m/additional_chat_templates/broken.jinja
    sed 's/"added_tokens_decoder":{},//' m/tokenizer_config.json >c && mv c m/tokenizer_config.json
    echo '[]' >m/special_tokens_map.json
    run kvr-tokenize -t m/tokenizer.json <<<'{}'
    assert_failure 3
    assert_output "kvr-tokenize: 'm/special_tokens_map.json': special_tokens_map.json is no JSON object"
    echo '{}' >m/special_tokens_map.json
    printf '{%% nonsense %%}' >m/chat_template.jinja
    run kvr-tokenize -t m/tokenizer.json <<<'{}'
    assert_failure 3
    assert_output --partial "'m/chat_template.jinja': "
    rm m/chat_template.jinja
    mv m/additional_chat_templates away
    echo '{"chat_template":"{% nonsense %}"}' >m/tokenizer_config.json
    run kvr-tokenize -t m/tokenizer.json <<<'{}'
    assert_failure 3
    assert_output --partial "'m/tokenizer_config.json': "
    echo '{"chat_template":"file",}' >m/tokenizer_config.json
    run kvr-tokenize -t m/tokenizer.json <<<'{}'
    assert_failure 3
    assert_output "kvr-tokenize: 'm/tokenizer_config.json': expected a member name at byte 24 of the JSON text"
    echo '{"chat_template":"file"}' >m/tokenizer_config.json
    mv away m/additional_chat_templates
    # a FIFO is waited for by none of these
    rm m/special_tokens_map.json
    mkfifo m/special_tokens_map.json m/additional_chat_templates/z.jinja
    run timeout 20 kvr-tokenize -t m/tokenizer.json <<<'{}'
    assert_failure 3
    assert_output --partial "'m/additional_chat_templates/z.jinja' is no regular file"
    rm -r m/additional_chat_templates
    assert_equal "$(timeout 20 kvr-tokenize -t m/tokenizer.json --style plain --render --count <<<'{"messages":[]}' | jq -r .prompt)" file
}

@test "--bos config: add_bos_token puts one token before a prompt, whatever the prompt starts with" {
    mkdir plain template
    added='"added_tokens":[{"id":1,"content":"<s>","special":true}]'
    model='"model":{"type":"BPE","vocab":{"a":0,"<s>":1},"merges":[]}'
    single='"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]}}}'
    echo "{$added,$model}" >plain/tokenizer.json
    echo "{$added,$model,$single}" >template/tokenizer.json
    for folder in plain template; do
        echo '{"bos_token":"<s>","add_bos_token":true}' >$folder/tokenizer_config.json
        ids() {
            kvr-tokenize -t $folder --ids --count "$@" | jq -c .token_ids
        }
        assert_equal "$(ids --bos config <<<'{"prompt":"a"}')" '[1,0]'
        assert_equal "$(ids --bos config --special <<<'{"prompt":"<s>a"}')" '[1,1,0]'
        assert_equal "$(ids --special --bos no <<<'{"prompt":"<s>a"}')" '[1,0]'
        assert_equal "$(ids --bos config <<<'{"prompt":""}')" '[1]'
    done
    # only the post-processor counts else, as in transformers 5
    assert_equal "$(kvr-tokenize -t plain --ids --count <<<'{"prompt":"a"}' | jq -c .token_ids)" '[0]'
    assert_equal "$(kvr-tokenize -t template --ids --count <<<'{"prompt":"a"}' | jq -c .token_ids)" '[1,0]'
}

@test "messages as servers have them before the template" {
    echo '{"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}' >tokenizer.json
    echo '{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% if add_generation_prompt %}>{% endif %}' >t.jinja
    prompt() {
        kvr-tokenize -t tokenizer.json --template t.jinja --style "$1" --render --count | jq -r .prompt
    }
    parts='{"messages":[{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}'
    assert_equal "$(prompt llamacpp <<<"$parts")" $'[system:a\nb]>'
    assert_equal "$(prompt vllm <<<"$parts")" $'[developer:a\nb]>'
    assert_equal "$(prompt sglang <<<"$parts")" '[developer:a b]>'
    last='{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}'
    assert_equal "$(prompt plain <<<"$last")" '[user:x][assistant:y]>'
    assert_equal "$(prompt llamacpp <<<"$last")" '[user:x]>y'
    assert_equal "$(prompt sglang <<<"$last")" '[user:x][user:y]>'
    run kvr-tokenize -t tokenizer.json --template t.jinja --style llamacpp <<<'{"messages":[{"role":"assistant","content":"x"},{"role":"assistant","content":"y"}]}'
    assert_failure 1
    assert_output --partial 'two messages of the assistant at the end'
    # llama.cpp puts what templates refuse of the system before the next text
    echo '{% if messages[0].role == "system" %}{{ raise_exception("no system") }}{% endif %}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}' >t.jinja
    system='{"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}]}'
    assert_equal "$(prompt llamacpp <<<"$system")" $'[user:s\nu]'
    assert_equal "$(prompt llamacpp <<<'{"messages":[{"role":"system","content":"s"}]}')" ''
    run kvr-tokenize -t tokenizer.json --template t.jinja --style plain <<<"$system"
    assert_failure 1
    # what llama.cpp gives templates, and what it has without one
    echo '{{ enable_thinking }}{{ tools is defined }}{{ add_generation_prompt is defined }}{{ date_string == strftime_now("%d %b %Y") }}{{ datetime == strftime_now("%b %d %Y") }}' >t.jinja
    assert_equal "$(prompt llamacpp <<<'{"messages":[],"tools":[],"add_generation_prompt":false}')" TrueFalseFalseTrueTrue
    assert_equal "$(prompt llamacpp <<<'{"messages":[],"tools":[{}],"chat_template_kwargs":{"enable_thinking":0,"date_string":1,"datetime":2}}')" 0TrueTrueFalseFalse
    assert_equal "$(prompt plain <<<'{"messages":[],"tools":[],"add_generation_prompt":false}')" TrueTrueFalseFalse
    run kvr-tokenize -t tokenizer.json --style llamacpp --render --count <<<'{"messages":[{"role":"developer","content":null},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}'
    assert_success
    assert_equal "$(jq -r '.prompt, .approximate' <<<"$output")" $'<|im_start|>system\n<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n\nnull'
}

@test "golden chats: texts, ids and errors" {
    shared_vocabularies
    need_shared golden
    for name in qwen3 deepseek_v3; do
        zcat "$SHARED/golden/chat_$name.jsonl.gz" | sed 's/"kwargs":/"chat_template_kwargs":/' >chats
        run kvr-tokenize -q -t $name --render --ids --keep-bad chats
        assert_failure 1
        assert_equal "$(jq -c 'if .error then (has("input_length") | not) else .prompt == .text and .token_ids == .ids end' <<<"$output" | sort | uniq -c | sed 's/^ *//')" '92 true'
    done
}

@test "threads keep the order and the bytes" {
    shared_vocabularies
    need_shared corpus
    zcat "$SHARED/corpus/mixed_a.ndjson.gz" | head -n 700 | sed 's/"text":/"prompt":/' >corpus
    sed -i '100s/.*/{bad/; 333s/.*/{"token_ids":"x"}/' corpus
    kvr-tokenize -t o200k_base corpus >one 2>one.err || true
    kvr-tokenize -t o200k_base -j 3 corpus >three 2>three.err || true
    cmp one three
    cmp one.err three.err
    assert_equal "$(wc -l <one)" 698
    # and nothing waits for more input than there is
    mkfifo pipe
    timeout 20 kvr-tokenize -j 2 --count <pipe >live &
    exec 7>pipe
    echo '{"prompt":"x"}' >&7
    for _ in $(seq 100); do [ -s live ] && break; sleep 0.05; done
    [ -s live ]
    exec 7>&-
    wait $!
    assert_equal "$(cat live)" '{"prompt":"x","input_length":1}'
}

@test "a vocabulary for each model" {
    shared_vocabularies
    echo '{"model":"big","tokenizer":"o200k_base"}' >map
    requests='{"model":"big","prompt":"Hello, world"}
{"model":"org/qwen3","prompt":"Hello, world"}
{"model":"../qwen3","prompt":"Hello, world"}
{"prompt":"Hello, world"}'
    run kvr-tokenize --ids --count --by-model map <<<"$requests"
    assert_success
    assert_equal "$(jq -c '.token_ids[0]' <<<"$output" | tr '\n' ' ')" '13225 9906 9906 9906 '
    run kvr-tokenize --ids --count -t r50k_base --by-model auto <<<"$requests"
    assert_success
    assert_equal "$(jq -c '.token_ids[0]' <<<"$output" | tr '\n' ' ')" '15496 9707 9707 15496 '
}

@test "the vocabularies of a map are loaded at the start, each once, and its mistakes are told there" {
    local name='{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}'
    mkdir one two
    echo "$name" | tee one/tokenizer.json >two/tokenizer.json
    echo '{{ messages[0].content }}' >one/chat_template.jinja
    for i in $(seq 300); do
        echo '{"model":"m'"$i"'","tokenizer":"one"}'
    done >map
    echo '{"model":"lora","tokenizer":"two/tokenizer.json"}' >>map
    run --separate-stderr kvr-tokenize -v -j 2 --ids --count --by-model map <<<'{"model":"m1","prompt":"ab"}
{"model":"m300","messages":[{"role":"user","content":"ab"}]}
{"model":"lora","messages":[{"role":"user","content":"ab"}]}'
    assert_success
    assert_equal "$(jq -c '[.token_ids[0], .approximate]' <<<"$output" | tr '\n' ' ')" '[2,null] [2,null] [2,true] '
    assert_equal "$(grep -c "vocabulary 'one/tokenizer.json': 3 ids, .*; chat template 'one/chat_template.jinja'" <<<"$stderr")" 1
    assert_equal "$(grep -c "vocabulary 'two/tokenizer.json': 3 ids, .*; no chat template" <<<"$stderr")" 1
    while IFS='|' read -r line message; do
        printf '%s\n' '{"model":"m","tokenizer":"one"}' '' "$line" >map
        run kvr-tokenize --by-model map <<<'{"prompt":"a"}'
        assert_failure 3
        assert_output "kvr-tokenize: map:3: $message"
    done <<'END'
{"model":"x","tokenizer":"nope"}|no vocabulary 'nope'; --list shows those that there are
{"model":"m","tokenizer":"one"}|its model is that of line 1, too
{"model":"x","tokenizer":"one","template":"no.jinja"}|'no.jinja': No such file or directory
{"model":"x","tokenizer":"one","template":1}|a line needs the texts model and tokenizer, and may have the text template
{"model":"x"}|a line needs the texts model and tokenizer, and may have the text template
END
}

@test "files of one text are one vocabulary, but where name or configuration tell more" {
    mkdir -p rank other named
    zcat "$REPO/data/cl100k_base.tiktoken.gz" | tee named/x.tiktoken rank/tokenizer.tiktoken >other/tokenizer.tiktoken
    for tokenizer in cl100k_base rank other named/x.tiktoken; do
        echo '{"model":"'"$tokenizer"'","tokenizer":"'"$tokenizer"'"}'
    done >map
    shared() {
        kvr-tokenize -v --count --by-model map <<<'{"prompt":"x"}' 2>&1 >/dev/null | grep -c "the same as 'rank/tokenizer.tiktoken'" || true
    }
    assert_equal "$(shared)" 1
    echo '{"added_tokens_decoder":{"100257":{"content":"<|end|>","special":true}}}' >other/tokenizer_config.json
    assert_equal "$(shared)" 0
    cp other/tokenizer_config.json rank/
    assert_equal "$(shared)" 1
    run kvr-tokenize --special --ids --count --by-model map <<<'{"model":"other","prompt":"<|end|>"}
{"model":"cl100k_base","prompt":"<|end|>"}'
    assert_line --partial '"token_ids":[100257]'
    refute_line --partial '"model":"cl100k_base","prompt":"<|end|>","token_ids":[100257]'
}

@test "what replaced a vocabulary that is in use is another one" {
    mkdir v
    export KVR_TOKENIZERS=$PWD/v
    echo '{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}}' >v/one.tokenizer.json
    echo '{"model":{"type":"BPE","vocab":{"b":0,"a":1},"merges":[]}}' >other
    # shellcheck disable=SC2094 # it waits for the answer to the first line
    {
        echo '{"model":"one","prompt":"a"}'
        for _ in $(seq 100); do [ -s out ] && break || sleep 0.1; done
        cat other >v/one.tokenizer.json
        cp other v/two.tokenizer.json
        printf '%s\n' '{"model":"two","prompt":"a"}' '{"model":"one","prompt":"a"}'
    } | kvr-tokenize -q --by-model auto --ids --count >out
    assert_equal "$(jq -c .token_ids out | tr '\n' ' ')" '[0] [1] [0] ' # what is loaded stays
}

@test "rank files of one text that are named .json are what their names say" {
    shared_vocabularies
    mkdir v
    zcat "$KVR_TOKENIZERS/o200k_base.tiktoken.gz" | tee v/x-harmony.json >v/plain.json
    for order in 'plain x-harmony' 'x-harmony plain'; do
        for model in $order; do echo '{"model":"'"$model"'","prompt":"<|start|>"}'; done >lines
        KVR_TOKENIZERS=v kvr-tokenize -q --by-model auto --special --count lines >out
        assert_equal "$(jq -sc 'sort_by(.model) | map(.input_length)' out)" '[5,1]'
    done
}

@test "a model's name is looked up in the vocabulary directories and nowhere else" {
    local name='{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}'
    mkdir -p in/deep outside in/.hidden
    export KVR_TOKENIZERS=$PWD/in
    echo "$name" | tee outside/tokenizer.json in/.hidden/tokenizer.json tokenizer.json >in/deep/tokenizer.json
    ids() {
        kvr-tokenize -q --ids --count --by-model auto <<<'{"model":"'"$1"'","prompt":"ab"}' | jq -c .token_ids
    }
    assert_equal "$(ids deep)" '[2]'
    assert_equal "$(ids org/deep)" '[2]'
    for model in ../outside "$PWD/outside" outside deep/../../outside .hidden in/deep/ ./deep/ bytes chars \
        'deep\u0000' tokenizer.json ./tokenizer.json; do
        assert_equal "$model $(ids "$model")" "$model [370]"
    done
}

@test "models without a vocabulary are told, unless -t says what they have" {
    run --separate-stderr kvr-tokenize --count --by-model auto <<<'{"model":"gone","prompt":"x"}
{"prompt":"x"}
{"model":"gone","token_ids":[1]}'
    assert_success
    assert_output '{"model":"gone","prompt":"x","input_length":1,"approximate":true}
{"prompt":"x","input_length":1}
{"model":"gone","token_ids":[1],"input_length":1}'
    assert_equal "$stderr" 'kvr-tokenize: 1 of 3 lines name a model that has no vocabulary here, and have the tokens of cl100k_base (-v names the models; -t says what they have)'
    run --separate-stderr kvr-tokenize -v --count --by-model auto -t bytes <<<'{"model":"gone","prompt":"x"}'
    assert_output '{"model":"gone","prompt":"x","input_length":1}'
    assert_line --index 0 --partial gone
    [[ $stderr == *"kvr-tokenize: vocabulary 'bytes': 256 ids, read without a cache; no chat template"* ]]
    [[ $stderr == *"kvr-tokenize: model 'gone' has no vocabulary of its own"* ]]
}

@test "-v says whether the cache served; a damaged vocabulary of a model is 3" {
    run kvr-tokenize -v --count <<<'{"prompt":"x"}'
    assert_line --regexp "vocabulary '.*cl100k_base.tiktoken.gz': 100277 ids, compiled and kept in the cache; no chat template"
    run kvr-tokenize -v --count <<<'{"prompt":"x"}'
    assert_line --partial "100277 ids, read from the cache;"
    run kvr-tokenize -v --no-cache --count <<<'{"prompt":"x"}'
    assert_line --partial "100277 ids, read without a cache;"
    echo >file
    XDG_CACHE_HOME=$PWD/file run kvr-tokenize -v --count <<<'{"prompt":"x"}'
    assert_success
    assert_line --partial "100277 ids, compiled; the cache cannot be written;"
    mkdir in
    echo '{"model":' >in/m.tokenizer.json
    KVR_TOKENIZERS=in run --separate-stderr kvr-tokenize --count --by-model auto <<<'{"model":"m","prompt":"x"}
{"prompt":"x"}'
    assert_failure 3
    assert_output '{"prompt":"x","input_length":1}'
    assert_line --index 0 --partial prompt
    [[ $stderr == "kvr-tokenize: stdin:1: vocabulary 'in/m.tokenizer.json': "* ]]
}

@test "engine chains" {
    run kvr-tokenize --chain vllm-sha256_cbor --seed 0 -b 16 <<<'{"token_ids":[38275,143194,106813,136167,104282,145854,79438,65484,111176,29916,18400,15361,13438,132973,70327,147795]}'
    assert_success
    assert_output --partial '"hash_ids":[572044788310939457]'
    run kvr-tokenize --chain vllm-xxhash_cbor <<<'{"prompt":"x"}'
    assert_failure 2
    assert_output --partial PYTHONHASHSEED
}

@test "--list has the names that -t and auto find, and no others" {
    local name='{"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}'
    mkdir -p in/org/model in/org/empty in/folder
    echo "$name" | tee in/one.tokenizer.json in/two.json in/bare in/org/model/tokenizer.json >in/folder/tokenizer.json
    echo '{"chat_template":"x"}' | tee in/one.tokenizer_config.json in/tokenizer_config.json >in/folder/tokenizer_config.json
    echo 'This is a notice' | tee in/NOTICE >in/README.md
    export KVR_TOKENIZERS=$PWD/in
    run kvr-tokenize --list
    assert_success
    assert_equal "$(jq -r 'select((.path // "/in/") | contains("/in/")) | .name' <<<"$output" | tr '\n' ' ')" 'bare folder one org/model two bytes chars '
    refute_line --partial NOTICE
    for name in $(jq -r .name <<<"$output"); do
        kvr-tokenize --count -t "$name" <<<'{"prompt":"a"}' >/dev/null
    done
    for name in NOTICE one.tokenizer_config tokenizer_config tokenizer_config.json org/empty org; do
        run kvr-tokenize -t "$name" <<<'{}'
        assert_failure 3
        run kvr-tokenize -q --count --by-model auto <<<'{"model":"'$name'","prompt":"a"}'
        assert_output --partial '"approximate":true'
    done
}

@test "a lone binary says that there is no vocabulary at all; a relative cache folder is not used" {
    cp "$BUILD/bin/kvr-tokenize" alone
    if [ -e "$(sed -n 's/.*there is none.* or in //p' <(HOME= XDG_CACHE_HOME= ./alone <<<'{}' 2>&1))/cl100k_base.tiktoken.gz" ]; then
        skip "kvr is installed here"
    fi
    run env HOME="$PWD" ./alone <<<'{}'
    assert_failure 3
    assert_output --regexp "^kvr-tokenize: no vocabulary 'cl100k_base': there is none in KVR_TOKENIZERS, in ~/.cache/kvr or in /"
    HOME=$PWD XDG_CACHE_HOME=relative run kvr-tokenize --count <<<'{"prompt":"x"}'
    assert_success
    [ ! -e relative ]
    [ -d .cache/kvr ]
}

@test "--list, and what is not there" {
    run kvr-tokenize --list
    assert_success
    assert_equal "$(jq -r .name <<<"$output" | grep -c '^cl100k_base$')" 1
    run kvr-tokenize -t nothing_of_the_kind <<<'{}'
    assert_failure 3
    assert_output "kvr-tokenize: no vocabulary 'nothing_of_the_kind'; --list shows those that there are"
}

@test "a path that is no vocabulary says why, and so does a configuration" {
    mkdir folder
    mkfifo fifo
    while IFS='|' read -r path message; do
        run kvr-tokenize -t "$path" <<<'{"prompt":"x"}'
        assert_failure 3
        assert_output "kvr-tokenize: $message"
    done <<'END'
./missing.json|'./missing.json': No such file or directory
missing/qwen3|'missing/qwen3': No such file or directory
folder|'folder' is a folder without tokenizer.json or tekken.json
./folder|'./folder' is a folder without tokenizer.json or tekken.json
fifo|'fifo' is no regular file
/dev/null|'/dev/null' is no regular file
END
    echo '{"chat_template":"x"}' >qwen.tokenizer_config.json
    run kvr-tokenize -t qwen.tokenizer_config.json <<<'{"prompt":"x"}'
    assert_failure 3
    assert_output "kvr-tokenize: 'qwen.tokenizer_config.json' is a configuration; the vocabulary is in the tokenizer.json beside it"
    run kvr-tokenize --template folder <<<'{"prompt":"x"}'
    assert_failure 3
    assert_output "kvr-tokenize: 'folder': Is a directory"
    # a name that a line gives is looked up and says nothing about files
    run kvr-tokenize --by-model auto --count <<<'{"model":"folder","prompt":"x"}'
    assert_success
}

@test "prompts that are neither text nor token ids are bad lines" {
    for prompt in 5 true '{"a":1}' '["a",1]' '[1,"b"]' '[1.5]' '[-1]' '[["a"]]'; do
        run --separate-stderr kvr-tokenize <<<'{"prompt":'"$prompt"'}'
        assert_failure 1
        assert_output ""
        assert_equal "${stderr_lines[0]}" "kvr-tokenize: stdin:1: prompt is neither a text nor a list of token ids"
    done
    run --separate-stderr kvr-tokenize <<<'{"prompt":[4294967296]}'
    assert_failure 1
    run kvr-tokenize -q <<<'{"id":1,"prompt":null}'
    assert_success
    assert_output '{"id":1,"prompt":null}'
}

@test "a list of one prompt is that prompt; a line is one prompt" {
    run kvr-tokenize --count --ids <<<'{"prompt":["Hello, world"]}
{"prompt":[[9906,11,1917]]}'
    assert_success
    assert_equal "$(jq -c .token_ids <<<"$output")" $'[9906,11,1917]\n[9906,11,1917]'
    for prompt in '["a","b"]' '[[1],[2]]'; do
        run --separate-stderr kvr-tokenize <<<'{"prompt":'"$prompt"'}'
        assert_failure 1
        assert_equal "${stderr_lines[0]}" "kvr-tokenize: stdin:1: prompt is a list of 2 prompts: a line is one prompt"
    done
}

@test "members of the wrong type are bad lines, each named" {
    while IFS='|' read -r member message; do
        run --separate-stderr kvr-tokenize <<<'{"messages":[{"role":"user","content":"x"}],'"$member"'}'
        assert_failure 1
        assert_output ""
        assert_equal "${stderr_lines[0]}" "kvr-tokenize: stdin:1: member $message"
    done <<'END'
"block_size":"x"|'block_size' is not a whole number from 1 on
"block_size":-1|'block_size' is not a whole number from 1 on
"block_size":0|'block_size' is not a whole number from 1 on
"block_size":1.5|'block_size' is not a whole number from 1 on
"model":["m"]|'model' is not a name
"salt":{}|'salt' is not a text
"lora":[5]|'lora' is not a name or an object with one
"lora":{"nam":5}|'lora' has neither name nor id
"lora":{"name":[]}|'lora.name' is not a name
"lora":{"name":"a","path":1}|'lora.path' is not a text
"lora":{"name":"a","id":"b"}|'lora.id' is not a whole number
"add_generation_prompt":"false"|'add_generation_prompt' is not true or false
"continue_final_message":"no"|'continue_final_message' is not true or false
"tools":{"a":1}|'tools' is not a list of objects
"tools":["a"]|'tools' is not a list of objects
"documents":"x"|'documents' is not a list of objects
"reasoning_effort":1|'reasoning_effort' is not a text
"cache_salt":[]|'cache_salt' is not a text
"add_special_tokens":"no"|'add_special_tokens' is not true or false
"truncate_prompt_tokens":"2"|'truncate_prompt_tokens' is not a whole number from -1 on
"truncate_prompt_tokens":-2|'truncate_prompt_tokens' is not a whole number from -1 on
"messages":["x"]|'messages' is not a list of objects
"messages":"x"|'messages' is not a list of objects
"chat_template_kwargs":[]|'chat_template_kwargs' is not an object
END
    # null says as little as nothing
    run -0 --separate-stderr kvr-tokenize --count <<<'{"prompt":"x","block_size":null,"model":null,"salt":null,"lora":null,"tools":null}'
    run -0 --separate-stderr kvr-tokenize -q --count <<<'{"messages":[],"add_generation_prompt":null,"chat_template_kwargs":null}'
}

@test "threads keep bad lines in their place, and --strict ends at the first of them" {
    printf '%s\n' '{"id":1,"prompt":"a"}' bad '{"id":2,"prompt":"b"}' '{"id":3,"prompt":1}' '{"id":4}' >lines
    printf '%s\n' '{"id":1,"prompt":"a"}' '{"id":3,"prompt":1}' bad '{"id":4,"prompt":"b"}' >other
    for options in --keep-bad --strict '--strict --keep-bad' ''; do
        for file in lines other 'lines missing other'; do
            # shellcheck disable=SC2086
            run --separate-stderr kvr-tokenize --count $options $file
            one="$status $output $stderr"
            # shellcheck disable=SC2086
            run --separate-stderr kvr-tokenize --count -j 2 $options $file
            assert_equal "$status $output $stderr" "$one"
        done
    done
    run --separate-stderr kvr-tokenize --count -j 2 --strict other
    assert_failure 1
    assert_output '{"id":1,"prompt":"a","input_length":1}'
    assert_equal "$stderr" 'kvr-tokenize: other:2: prompt is neither a text nor a list of token ids
kvr-tokenize: 1 of 2 lines were bad'
    # nor does it wait for a line more
    mkfifo pipe
    timeout 20 kvr-tokenize -q -j 2 --strict --count <pipe >live &
    exec 7>pipe
    echo '{"prompt":1}' >&7
    result=0
    wait $! || result=$?
    exec 7>&-
    assert_equal "$result" 1
}

@test "chats without a template are told on standard error too, once" {
    for threads in 1 2; do
        run --separate-stderr kvr-tokenize -j $threads --count <<<'{"messages":[{"role":"user","content":"Hi"}]}
{"prompt":"Hi"}
{"messages":[{"role":"user","content":"Ho"}]}'
        assert_success
        assert_equal "$(jq -c .approximate <<<"$output" | tr '\n' ' ')" 'true null true '
        assert_equal "$stderr" 'kvr-tokenize: messages of 2 of 3 lines were joined plainly: there is no chat template beside the vocabulary (--template)'
    done
    echo '{{ messages[0].content }}' >t.jinja
    run --separate-stderr kvr-tokenize --template t.jinja --count <<<'{"messages":[{"role":"user","content":"Hi"}]}'
    assert_equal "$stderr" ""
}

@test "with threads bad lines are where they would be without" {
    jq -nrc 'range(1500) | if . % 97 == 50 then "{\"id\":\(.),\"prompt\":5}"
        elif . % 131 == 77 then "{\"id\":\(.),\"prompt\":\"x\""
        else {id: ., prompt: ("word \(.) " * 20)} | tojson end' >lines
    for options in '' --strict --keep-bad '--strict --keep-bad'; do
        for threads in 1 3; do
            status=0
            # shellcheck disable=SC2086
            kvr-tokenize $options -j $threads lines >out.$threads 2>err.$threads || status=$?
            assert_equal "$status" 1
        done
        cmp out.1 out.3
        cmp err.1 err.3
    done
    assert_equal "$(wc -l <out.3)" 51
}

@test "options that would say nothing are refused" {
    for bad in '--seed 0' '--extra-keys plain' '--chain sglang --extra-keys tagged' '--chain sglang --seed 0' '--image-tokens 0' '--image-tokens 1000001'; do
        # shellcheck disable=SC2086
        run kvr-tokenize $bad <<<'{"prompt":"x"}'
        assert_failure 2
    done
}

@test "broken vocabularies are clear errors" {
    shared_vocabularies
    zcat "$SHARED/tokenizers/cl100k_base.tiktoken.gz" | head -n 5000 >short.tiktoken
    run kvr-tokenize -t short.tiktoken <<<'{"prompt":"x"}'
    assert_failure 4
    assert_output --partial 'a rank file of 5000 ranks belongs to no known encoding'
    head -c 100000 "$SHARED/tokenizers/qwen3.tokenizer.json.gz" >cut.json.gz
    run kvr-tokenize -t cut.json.gz <<<'{"prompt":"x"}'
    assert_failure 3
    assert_output --partial 'damaged gzip'
    echo '{"model":{"type":"Unigram","vocab":[]}}' >unigram.json
    run kvr-tokenize -t unigram.json <<<'{"prompt":"x"}'
    assert_failure 4
    assert_output --partial "the model type 'Unigram'"
    echo '{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]}}' >merge.json
    run kvr-tokenize -t merge.json <<<'{"prompt":"x"}'
    assert_failure 3
    assert_output --partial 'merge 1 is of tokens that the vocabulary lacks'
    echo '{"normalizer":{"type":"Lowercase"},"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}' >lower.json
    run kvr-tokenize -t lower.json <<<'{"prompt":"x"}'
    assert_failure 4
    assert_output --partial "the normalizer type 'Lowercase'"
    echo '{"model":{"type":"BPE","vocab":{"a":4294967295},"merges":[]}}' >id.json
    run kvr-tokenize -t id.json <<<'{"prompt":"x"}'
    assert_failure 3
    assert_output --partial 'token id 4294967295 is above'
}

@test "messages name what is wrong with a vocabulary, and how deep and long a line may be" {
    printf '\177ELF\002\001 binary' >noise
    printf 'YQ== 0\nYg== x\n' >ranks
    echo '{"model":{"type":"WordPiece","vocab":{}}}' >wp.json
    echo '{"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"added_tokens":5}' >added.json
    while IFS='|' read -r file message; do
        run kvr-tokenize -t "$file" <<<'{}'
        assert_output "kvr-tokenize: vocabulary '$file': $message"
    done <<'END'
noise|this is no vocabulary: neither JSON nor lines of a token in base64 and its rank
wp.json|the model type 'WordPiece' is not supported
added.json|added_tokens is no list
END
    run kvr-tokenize -t ranks <<<'{}'
    assert_output --partial "'ranks': line 2 has no number as its rank"
    nested() {
        python3 -c 'import sys; n = int(sys.argv[1]); print("{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{\"a\":" + "[" * n + "]" * n + "}]}")' "$1"
    }
    run --separate-stderr kvr-tokenize --count < <(nested 998)
    assert_equal "${stderr_lines[0]}" "kvr-tokenize: stdin:1: the JSON is nested more than 1000 deep at byte 1056"
    for threads in 1 2; do
        run -0 --separate-stderr kvr-tokenize -j "$threads" --count < <(nested 997)
        echo '{{ tools | tojson(indent=1) }}{{ tools }}' >deep.jinja
        run -0 --separate-stderr kvr-tokenize -j "$threads" --count --template deep.jinja < <(nested 997)
    done
    run --separate-stderr kvr-tokenize --count --max-line 10 <<<'{"prompt":"Hello, world"}'
    assert_equal "${stderr_lines[0]}" "kvr-tokenize: stdin:1: the line is longer than 10 bytes (--max-line)"
}

@test "what is no vocabulary is said to be what it is" {
    echo 'version https://git-lfs.github.com/spec/v1' >tokenizer.json
    run kvr-tokenize -t tokenizer.json <<<'{"prompt":"x"}'
    assert_failure 4
    assert_output --partial 'this is a pointer of Git LFS'
    printf '\n\016\n\005<unk>\025\000\000\000\000\030\002%80s' >tokenizer.model
    run kvr-tokenize -t tokenizer.model <<<'{"prompt":"x"}'
    assert_failure 4
    assert_output --partial 'this is a SentencePiece model'
}

@test "a rank file has the special tokens of the configuration beside it" {
    mkdir kimi
    # all bytes, then pairs of them, as many as Kimi's file has
    python3 -c '
from base64 import b64encode as e
for rank in range(163584):
    token = bytes([rank]) if rank < 256 else (rank - 256).to_bytes(2 if rank < 65792 else 3, "big")
    print(e(token).decode(), rank)' >kimi/tiktoken.model
    run kvr-tokenize -t kimi --ids --count --special <<<'{"prompt":"<|im_end|><|reserved_token_163589|><think>"}'
    assert_success
    assert_equal "$(jq -c '.token_ids[:2], (.token_ids | length)' <<<"$output")" $'[163586,163589]\n6'
    echo '{"added_tokens_decoder":{"163586":{"content":"<|end|>"},"163606":{"content":"<think>"}}}' >kimi/tokenizer_config.json
    run kvr-tokenize -t kimi --ids --count --special <<<'{"prompt":"<|end|><|reserved_token_163589|><think>"}'
    assert_success
    assert_equal "$(jq -c .token_ids <<<"$output")" '[163586,163589,163606]'
    echo '{"added_tokens_decoder":{"x":{}}}' >kimi/tokenizer_config.json
    run kvr-tokenize -t kimi --count <<<'{"prompt":"x"}'
    assert_failure 3
    assert_output --partial 'an entry of added_tokens_decoder lacks id or content'
}

@test "an id of a rank file may have two texts, and a number of ranks tells the encoding" {
    ranks() {
        python3 -c '
import sys
from base64 import b64encode as e
for rank in range(int(sys.argv[1])):
    token = bytes([rank]) if rank < 256 else (rank - 256).to_bytes(2 if rank < 65792 else 3, "big")
    print(e(token).decode(), rank)' "$1"
    }
    ranks 199998 >o200k_harmony.tiktoken
    run kvr-tokenize -t o200k_harmony.tiktoken --no-cache --ids --count --special <<<'{"prompt":"<|endofprompt|><|reserved_200018|><|call|>"}'
    assert_output --partial '"token_ids":[200018,200018,200012]'
    run kvr-tokenize -t o200k_harmony.tiktoken --no-cache --decode <<<'{"token_ids":[200018]}'
    assert_output --partial '"prompt":"<|endofprompt|>"'
    ranks 248044 >model.tiktoken
    run kvr-tokenize -t model.tiktoken --no-cache --ids --count --special <<<'{"prompt":"<|im_end|><think><|audio_pad|>"}'
    assert_output --partial '"token_ids":[248046,248068,248076]'
}

@test "the compiled cache is used, and a damaged one is not" {
    kvr-tokenize --count <<<'{"prompt":"Hello"}'
    file=$(echo cache/kvr/compiled-*.kvv)
    [ -s "$file" ]
    before=$(stat -c %i "$file")
    run kvr-tokenize --count <<<'{"prompt":"Hello"}'
    assert_output '{"prompt":"Hello","input_length":1}'
    assert_equal "$(stat -c %i "$file")" "$before"
    printf 'x' | dd of="$file" bs=1 seek=100000 conv=notrunc status=none
    run kvr-tokenize --count <<<'{"prompt":"Hello"}'
    assert_output '{"prompt":"Hello","input_length":1}'
    [ "$(stat -c %i "$file")" != "$before" ]
}

@test "the cache is of a file, not of its path, size and time of change; nothing waits at its place" {
    for ids in '"a":0,"b":1' '"b":0,"a":1'; do
        echo '{"model":{"type":"BPE","vocab":{'"$ids"'},"merges":[]}}' >x.tokenizer.json
        touch -d 2020-01-01 x.tokenizer.json
        run kvr-tokenize -t ./x.tokenizer.json --ids --count <<<'{"prompt":"a"}'
        assert_output --partial "[$(jq .a <<<"{$ids}")]"
    done
    file=$(echo cache/kvr/compiled-*.kvv)
    rm "$file"
    mkfifo "$file"
    run timeout 60 kvr-tokenize -t ./x.tokenizer.json --ids --count <<<'{"prompt":"a"}'
    assert_output --partial '[1]'
}

# The real engine needs PyPI: KVR_REAL_WORKER=1 asks for it.
@test "the real llama.cpp worker's /tokenize and /apply-template agree" {
    [ "${KVR_REAL_WORKER:-}" ] || skip "KVR_REAL_WORKER=1 asks for it"
    need_shared worker/ci_worker.sh
    need_shared golden
    need_shared corpus
    folder=${KVR_REAL_WORKER_DIR:-$REPO/build/real-worker}
    tokenizers=$SHARED/tokenizers
    PORT=18481 "$SHARED/worker/ci_worker.sh" "$folder" >/dev/null 2>&1 3>&-
    cat "$folder/worker-18481.pid" >>pids
    zcat "$SHARED/corpus/mixed_a.ndjson.gz" | awk 'NR % 10 == 0' | head -n 400 >corpus

    # its Mistral merges in order of ids, which is not the order of the model's own file
    python3 "$REPO/tests/worker_tokens.py" merges-by-id "$tokenizers/mistral_v0_1.tokenizer.json.gz" >byid.tokenizer.json
    run "$REPO/tests/worker_tokens.py" 18481 byid.tokenizer.json texts "$SHARED/golden/mistral_v0_1.jsonl.gz" corpus
    echo "$output"
    assert_success

    [ -s "$folder/qwen3.gguf" ] || "$folder/venv/bin/python" "$SHARED/worker/mkmodel.py" "$folder/qwen3.gguf" \
        "$tokenizers/qwen3.tokenizer.json.gz" "$tokenizers/qwen3.tokenizer_config.json.gz"
    "$folder/venv/bin/python" "$SHARED/worker/worker.py" "$folder/qwen3.gguf" 18482 1 4096 >worker.log 2>&1 3>&- &
    echo $! >>pids
    wait_for "curl -sf --noproxy '*' http://127.0.0.1:18482/health"
    run "$REPO/tests/worker_tokens.py" 18482 "$tokenizers/qwen3.tokenizer.json.gz" texts "$SHARED/golden/qwen3.jsonl.gz" corpus
    echo "$output"
    assert_success
    run "$REPO/tests/worker_tokens.py" 18482 "$tokenizers/qwen3.tokenizer.json.gz" chats "$SHARED/golden/chat_qwen3.jsonl.gz"
    echo "$output"
    assert_success
}
