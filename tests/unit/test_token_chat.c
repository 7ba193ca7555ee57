/* Chats: the golden renderings of real templates, what the styles change, open ends, media, and the
 * files of a model. */
#include "unit.h"

#include "line/json.h"
#include "token/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

struct outcome {
    struct kvr_buffer text;
    struct kvr_chat_result result;
    struct kvr_template_fault fault;
    struct kvr_error error;
    enum kvr_status status;
};

static struct kvr_chat_json json(const char *text)
{
    return (struct kvr_chat_json){text, text ? strlen(text) : 0};
}

static struct kvr_chat *read_chat(const char *config, const char *source)
{
    struct kvr_chat *chat;
    struct kvr_error error;
    enum kvr_status status = kvr_chat_read(
        &chat, config, config ? strlen(config) : 0, source, source ? strlen(source) : 0, &error);
    if (status)
        print_error("%s\n", error.text);
    assert_int_equal(status, KVR_OK);
    return chat;
}

static void render(const struct kvr_chat *chat, struct kvr_template_run *run,
    const struct kvr_chat_request *request, struct outcome *out)
{
    memset(out, 0, sizeof *out);
    out->status =
        kvr_chat_render(chat, run, request, &out->text, &out->result, &out->fault, &out->error);
    assert_non_null(kvr_buffer_text(&out->text));
}

static void expect(const struct kvr_chat *chat, const struct kvr_chat_request *request,
    const char *text, const char *error)
{
    struct kvr_template_run *run = kvr_template_run_new(NULL, 0);
    struct outcome out;
    render(chat, run, request, &out);
    if (text) {
        if (out.status)
            print_error("%s\n", out.error.text);
        assert_int_equal(out.status, KVR_OK);
        assert_string_equal(out.text.data, text);
    } else {
        assert_int_equal(out.status, KVR_BAD_INPUT);
        if (!strstr(out.error.text, error))
            print_error("wanted: %s\ngot: %s\n", error, out.error.text);
        assert_non_null(strstr(out.error.text, error));
    }
    kvr_buffer_release(&out.text);
    kvr_template_run_free(run);
}

/* ---- golden renderings ---- */

static struct kvr_chat_json slice(struct kvr_value value)
{
    return (struct kvr_chat_json){value.type > KVR_NULL ? value.text : NULL, value.length};
}

static bool agrees(const struct outcome *out, struct kvr_value text, struct kvr_value error)
{
    struct kvr_buffer wanted = {0};
    const char *message = out->status ? strchr(out->error.text, ':') : NULL;
    bool agree;
    kvr_value_string(text.type ? text : error, &wanted);
    kvr_buffer_text(&wanted);
    if (text.type)
        agree = !out->status && strcmp(out->text.data, wanted.data) == 0;
    else
        agree = message && strcmp(message + 2, wanted.data) == 0;
    if (!agree)
        print_error(
            "wanted: %s\ngot: %s\n", wanted.data, out->status ? out->error.text : out->text.data);
    kvr_buffer_release(&wanted);
    return agree;
}

static void golden(const char *name)
{
    const char *shared = getenv("SHARED");
    char path[600];
    char vocabulary[600];
    struct kvr_chat_files files;
    struct kvr_chat *chat;
    struct kvr_error error;
    struct kvr_structure *structure = kvr_structure_create();
    struct kvr_template_run *run;
    static char line[1 << 20];
    size_t lines = 0;
    size_t wrong = 0;
    gzFile file;
    shared = shared ? shared : "../shared";
    snprintf(path, sizeof path, "%s/golden/chat_%s.jsonl.gz", shared, name);
    snprintf(vocabulary, sizeof vocabulary, "%s/tokenizers/%s.tokenizer.json.gz", shared, name);
    if (access(path, R_OK) != 0)
        skip();
    kvr_chat_find_files(vocabulary, &files);
    assert_true(files.config[0]);
    assert_false(files.source[0]);
    assert_int_equal(kvr_chat_load(&chat, files.config, NULL, &error), KVR_OK);
    run = kvr_template_run_new(NULL, 0);
    file = gzopen(path, "rb");
    assert_non_null(file);
    for (; gzgets(file, line, sizeof line); lines++) {
        struct kvr_value row;
        struct kvr_value five;
        struct outcome out;
        struct kvr_chat_request request = {0};
        assert_int_equal(kvr_json_check(structure, line, strlen(line), &row, NULL, &error), KVR_OK);
        request.messages = slice(kvr_value_get(row, "messages"));
        request.tools = slice(kvr_value_get(row, "tools"));
        request.kwargs = slice(kvr_value_get(row, "kwargs"));
        request.add_generation_prompt = kvr_value_true(kvr_value_get(row, "add_generation_prompt"));
        render(chat, run, &request, &out);
        wrong += !agrees(&out, kvr_value_get(row, "text"), kvr_value_get(row, "error"));
        kvr_buffer_release(&out.text);
        five = kvr_value_get(row, "tf5");
        if (five.type) {
            request.style = KVR_CHAT_TRANSFORMERS_5;
            render(chat, run, &request, &out);
            wrong += !agrees(&out, kvr_value_get(five, "text"), kvr_value_get(five, "error"));
            kvr_buffer_release(&out.text);
        }
    }
    gzclose(file);
    kvr_structure_destroy(structure);
    kvr_template_run_free(run);
    kvr_chat_free(chat);
    assert_true(lines > 50);
    assert_int_equal(wrong, 0);
}

static void golden_qwen3(void **state)
{
    (void)state;
    golden("qwen3");
}

static void golden_deepseek(void **state)
{
    (void)state;
    golden("deepseek_v3");
}

/* ---- the rest ---- */

static const char chatml[] =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

static void reads_configurations(void **state)
{
    struct kvr_chat *chat = read_chat(
        "{\"bos_token\": {\"content\": \"<s>\", \"lstrip\": false}, \"eos_token\": \"</s>\","
        "\"pad_token\": null, \"image_token\": \"<img>\", \"extra_special_tokens\": {\"x\": "
        "\"<x>\"},"
        "\"chat_template\": [{\"name\": \"default\", \"template\": \"D{{ bos_token }}\"},"
        "{\"name\": \"tool_use\", \"template\": \"T{{ x }}{{ pad_token is defined }}\"}]}",
        NULL);
    struct kvr_chat_request request = {.messages = json("[]")};
    struct kvr_error error;
    (void)state;
    assert_true(kvr_chat_has_template(chat));
    assert_string_equal(kvr_chat_token(chat, "eos_token"), "</s>");
    assert_null(kvr_chat_token(chat, "pad_token"));
    expect(chat, &request, "D<s>", NULL);
    request.tools = json("[]");
    expect(chat, &request, "T<x>False", NULL);
    request.kwargs = json("{\"x\": \"over\", \"pad_token\": 1}");
    expect(chat, &request, "ToverTrue", NULL);
    request.template_name = "default";
    expect(chat, &request, "D<s>", NULL);
    request.template_name = "nope";
    expect(chat, &request, NULL, "no chat template named 'nope'");
    kvr_chat_free(chat);
    chat = read_chat("{\"chat_template\": \"A\"}", "{\"chat_template\": \"B\"}");
    request = (struct kvr_chat_request){.messages = json("[]")};
    expect(chat, &request, "B", NULL);
    kvr_chat_free(chat);
    assert_int_equal(kvr_chat_read(&chat, "[]", 2, NULL, 0, &error), KVR_BAD_INPUT);
    assert_int_equal(kvr_chat_read(&chat, "{", 1, NULL, 0, &error), KVR_BAD_INPUT);
    assert_int_equal(
        kvr_chat_read(&chat, "{\"chat_template\": 5}", 20, NULL, 0, &error), KVR_BAD_INPUT);
    assert_int_equal(kvr_chat_read(&chat, NULL, 0, "{% if %}", 8, &error), KVR_BAD_INPUT);
    assert_null(chat);
}

static void joins_plainly_without_a_template(void **state)
{
    struct kvr_chat *chat = read_chat("{}", NULL);
    struct kvr_template_run *run = kvr_template_run_new(NULL, 0);
    struct kvr_chat_request request = {.add_generation_prompt = true,
        .messages =
            json("[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"Hi\"},"
                 "{\"type\": \"image\", \"image\": \"a\"}]}, {\"role\": \"x\"}]")};
    struct outcome out;
    (void)state;
    assert_false(kvr_chat_has_template(chat));
    expect(chat, &request, "user: Hi<image>\nx: \nassistant: ", NULL);
    render(chat, run, &request, &out);
    assert_true(out.result.approximate);
    assert_int_equal(out.result.media_count, 1);
    assert_int_equal(out.result.media[0].text_offset, strlen("user: Hi"));
    kvr_buffer_release(&out.text);
    kvr_template_run_free(run);
    request.messages = json("[5]");
    expect(chat, &request, NULL, "message 0 is no object");
    request.messages = json("{}");
    expect(chat, &request, NULL, "'messages' is no list");
    request.messages = json("[");
    expect(chat, &request, NULL, "JSON");
    kvr_chat_free(chat);
}

static void leaves_the_end_open(void **state)
{
    struct kvr_chat *chat = read_chat(NULL, chatml);
    struct kvr_chat *plain =
        read_chat(NULL, "{% for m in messages %}[{{ m.content }}]{% endfor %}");
    struct kvr_chat_request request = {.continue_final_message = true,
        .messages = json("[{\"role\": \"user\", \"content\": \"a\"},"
                         "{\"role\": \"assistant\", \"content\": \"It is \"}]")};
    (void)state;
    expect(chat, &request, "<|user|>a<|end|>\n<|assistant|>It is", NULL);
    expect(plain, &request, "[a][It is ", NULL);
    request.messages =
        json("[{\"content\": [{\"type\": \"text\", \"text\": \"x \"}, {\"type\": \"i\"}]}]");
    expect(plain, &request, "[[{'type': 'text', 'text': 'x ", NULL);
    request.messages = json("[{\"role\": \"assistant\"}]");
    expect(chat, &request, NULL, "no content to continue");
    request.messages = json("[]");
    expect(chat, &request, NULL, "the conversation is empty");
    request.add_generation_prompt = true;
    expect(chat, &request, NULL, "not compatible");
    kvr_chat_free(chat);
    kvr_chat_free(plain);
}

static void follows_its_style(void **state)
{
    static const char calls[] =
        "[{\"role\": \"assistant\", \"content\": null, \"reasoning\": \"r\", \"tool_calls\": "
        "[{\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"b\\\": 1, \\\"a\\\": [1.0]}\"}}]},"
        "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"x\"},"
        "{\"type\": \"image_url\", \"image_url\": {}}, {\"type\": \"text\", \"text\": \"y\"}]}]";
    struct kvr_chat *chat =
        read_chat(NULL, "{% for m in messages %}{{ m.content is defined }} {{ m.content }} {{ "
                        "m.reasoning_content }} "
                        "{{ m.tool_calls[0].function.arguments if m.tool_calls }};{% endfor %}"
                        "{{ add_generation_prompt }}");
    struct kvr_chat_request request = {.messages = json(calls)};
    enum kvr_chat_style style;
    (void)state;
    expect(chat, &request,
        "True None  {\"b\": 1, \"a\": [1.0]};True [{'type': 'text', 'text': 'x'}, {'type': "
        "'image_url', 'image_url': {}}, {'type': 'text', 'text': 'y'}]  ;False",
        NULL);
    assert_true(kvr_chat_style_find("transformers5", &request.style));
    expect(chat, &request,
        "False  r {\"b\": 1, \"a\": [1.0]};True [{'type': 'text', 'text': 'x'}, {'type': "
        "'image_url', 'image_url': {}}, {'type': 'text', 'text': 'y'}]  ;False",
        NULL);
    assert_true(kvr_chat_style_find("vllm", &request.style));
    expect(chat, &request, "True  r {'b': 1, 'a': [1.0]};True x\ny  ;False", NULL);
    assert_true(kvr_chat_style_find("sglang", &request.style));
    expect(chat, &request, "True   {'b': 1, 'a': [1.0]};True x y  ;True", NULL);
    assert_false(kvr_chat_style_find("x", &style));
    kvr_chat_free(chat);
}

static void finds_who_takes_parts(void **state)
{
    static const struct {
        const char *source; /* around "{{ c is string }}" */
        const char *vllm;
        const char *sglang;
    } cases[] = {
        {"{% for x in messages %}{{ x.content is string }}{% endfor %}", "True", "True"},
        {"{% for x in messages[1:] + [] %}{% endfor %}{% for x in messages[0:]|list %}{% for p in "
         "x['content']|list %}<{{ p.type }}>{% endfor %}{% endfor %}",
            "<text><image>", "<><><>"},
        {"{% set all = messages %}{% for y in all %}{% for p in y.content %}<{{ p.type }}>"
         "{% endfor %}{% endfor %}",
            "<text><image>", "<><><>"},
        {"{% for message in messages %}{% set c = message.content %}{% for p in c %}{{ p.type }}"
         "{% endfor %}{% endfor %}",
            "", ""},
        {"{% macro show(content) %}{% for p in content %}<{{ p.type }}>{% endfor %}{% endmacro %}"
         "{% for m in messages %}{{ show(m.content) }}{% endfor %}",
            "<text><image>", "<><><>"},
        {"{% macro show(a, it) %}{% for p in it %}<{{ p.type }}>{% endfor %}{% endmacro %}"
         "{% for m in messages %}{{ show(1, it=m['content'][0:]) }}{% endfor %}",
            "<text><image>", "<><><>"},
        {"{% macro show(content) %}{% for p in content %}<{{ p.type }}>{% endfor %}{% endmacro %}"
         "{% for m in messages %}{% set c = m.content %}{{ show(c) }}{% endfor %}",
            "<><><>", "<><><>"},
        {"{% for m in messages %}{% for p in m.content %}<{{ p.type }}>{% endfor %}{% endfor %}",
            "<text><image>", "<text><image>"},
        {"{# vision #}{% for x in messages %}{{ x.content is string }}{% endfor %}", "True",
            "False"},
    };
    struct kvr_chat_request request = {
        .messages = json("[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": "
                         "\"abc\"}, {\"type\": \"image_url\", \"image_url\": {}}]}]")};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvr_chat *chat = read_chat(NULL, cases[i].source);
        request.style = KVR_CHAT_VLLM;
        expect(chat, &request, cases[i].vllm, NULL);
        request.style = KVR_CHAT_SGLANG;
        expect(chat, &request, cases[i].sglang, NULL);
        kvr_chat_free(chat);
    }
}

/* As vllm/renderers/chat_utils of vLLM has them. */
static void writes_messages_as_vllm_does(void **state)
{
    static const struct {
        const char *message, *text, *parts; /* as a template of texts or of parts gets it */
    } cases[] = {
        {"{'role':'user','content':[{'type':'text','text':''},{'type':'text','text':'a'},'b']}",
            "{'role': 'user', 'content': 'a\\nb'}",
            "{'role': 'user', 'content': [{'type': 'text', 'text': ''}, {'type': 'text', 'text': "
            "'a'}, {'type': 'text', 'text': 'b'}]}"},
        {"{'role':'user','content':[{'type':'input_text','text':'a'},{'type':'refusal','refusal':"
         "'b'},{'type':'thinking','thinking':'c','k':1},{'type':'text','text':null}]}",
            "{'role': 'user', 'content': 'a\\nb\\nc'}",
            "{'role': 'user', 'content': [{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': "
            "'b'}, {'type': 'text', 'text': 'c', 'k': 1}]}"},
        {"{'role':'user','name':5,'task':'t','content':[{'type':'audio_url','audio_url':{},'k':1}]"
         "}",
            "{'role': 'user', 'content': '', 'task': 't'}",
            "{'role': 'user', 'content': [{'type': 'audio', 'k': 1}], 'task': 't'}"},
        {"{'role':'tool','tool_call_id':'i','content':[{'type':'text','text':'a'},{'type':'text',"
         "'text':'b'}]}",
            "{'role': 'tool', 'content': 'a\\nb', 'tool_call_id': 'i'}",
            "{'role': 'tool', 'content': 'a\\nb', 'tool_call_id': 'i'}"},
        {"{'role':'tool','content':[{'type':'tool_reference','name':'f'}]}",
            "{'role': 'tool', 'content': 'f'}",
            "{'role': 'tool', 'content': [{'type': 'tool_reference', 'name': 'f'}]}"},
        {"{'role':'tool'}", "{'role': 'tool', 'content': ''}", "{'role': 'tool', 'content': ''}"},
        {"{'role':'assistant','content':'x','tool_calls':[]}",
            "{'role': 'assistant', 'content': 'x'}",
            "{'role': 'assistant', 'content': [{'type': 'text', 'text': 'x'}]}"},
        {"{'role':'assistant','tool_calls':[{'function':{'arguments':'{'}},{'function':{"
         "'arguments':' '}},{'function':{'arguments':3}},{'function':{'arguments':'[1]'}},"
         "{'function':{'arguments':[]}},{'function':{}}]}",
            "{'role': 'assistant', 'content': '', 'tool_calls': [{'function': {'arguments': {}}}, "
            "{'function': {'arguments': {}}}, {'function': {'arguments': {}}}, {'function': "
            "{'arguments': [1]}}, {'function': {'arguments': []}}, {'function': {'arguments': "
            "{}}}]}",
            "{'role': 'assistant', 'content': [], 'tool_calls': [{'function': {'arguments': {}}}, "
            "{'function': {'arguments': {}}}, {'function': {'arguments': {}}}, {'function': "
            "{'arguments': [1]}}, {'function': {'arguments': []}}, {'function': {'arguments': "
            "{}}}]}"},
    };
    struct kvr_chat *text = read_chat(NULL, "{{ messages[0] }}");
    struct kvr_chat *parts = read_chat(
        NULL, "{% for m in messages %}{% for p in m.content %}{% endfor %}{{ m }}{% endfor %}");

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char messages[1024];
        struct kvr_chat_request request = {.style = KVR_CHAT_VLLM};
        snprintf(messages, sizeof messages, "[%s]", cases[i].message);
        for (char *quote = messages; (quote = strchr(quote, '\''));)
            *quote = '"';
        request.messages = json(messages);
        expect(text, &request, cases[i].text, NULL);
        expect(parts, &request, cases[i].parts, NULL);
    }
    kvr_chat_free(text);
    kvr_chat_free(parts);
}

/* As parser/jinja_template_utils.py of SGLang has them. */
static void writes_texts_as_sglang_does(void **state)
{
    struct kvr_chat *text = read_chat(NULL, "{% for x in messages %}{{ x.content }}{% endfor %}");
    struct kvr_chat *parts = read_chat(NULL,
        "{% for m in messages %}{% for p in m.content %}{% endfor %}{{ m.content }}{% endfor %}");
    struct kvr_chat_request request = {.style = KVR_CHAT_SGLANG,
        .messages = json("[{\"role\": \"user\", \"content\": [{\"type\": \"input_text\", \"text\": "
                         "\"a\"}, {\"type\": \"refusal\", \"refusal\": \"no\"}, {\"type\": "
                         "\"text\", \"text\": \"\", \"more\": 1}, {\"type\": \"text\", \"text\": "
                         "\"b\"}]}]")};

    (void)state;
    expect(text, &request, "a  b", NULL);
    expect(parts, &request,
        "[{'type': 'text', 'text': 'a'}, {'type': 'refusal', 'refusal': 'no'}, {'type': 'text', "
        "'text': ''}, {'type': 'text', 'text': 'b'}]",
        NULL);
    kvr_chat_free(text);
    kvr_chat_free(parts);
}

static void gives_tools_as_servers_do(void **state)
{
    struct kvr_chat *chat = read_chat(NULL, "{{ tools|tojson }}");
    struct kvr_chat *flat = read_chat(NULL, "{% for t in tools %}{{ t.name + ';' }}{% endfor %}{{ "
                                            "messages|map(attribute='role')|join }}");
    struct kvr_chat_request request = {
        .messages = json("[{\"role\": \"assistant\", \"content\": \"It is \"}]"),
        .tools = json("[{\"function\": {\"parameters\": {\"b\": 1}, \"name\": \"f\", \"x\": 2},"
                      " \"type\": \"function\"}]")};
    (void)state;
    expect(chat, &request,
        "[{\"function\": {\"parameters\": {\"b\": 1}, \"name\": \"f\", \"x\": 2}, \"type\": "
        "\"function\"}]",
        NULL);
    request.style = KVR_CHAT_VLLM;
    expect(chat, &request,
        "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": null, "
        "\"parameters\": {\"b\": 1}, \"x\": 2}}]",
        NULL);
    request.style = KVR_CHAT_SGLANG;
    expect(chat, &request,
        "[{\"type\": \"function\", \"function\": {\"description\": null, \"name\": \"f\", "
        "\"parameters\": {\"b\": 1}, \"strict\": false}}]",
        NULL);
    /* The second try, and a last message of the assistant. */
    expect(flat, &request, "f;user", NULL);
    request.continue_final_message = true;
    expect(flat, &request, "f;It is ", NULL);
    kvr_chat_free(chat);
    kvr_chat_free(flat);
}

static void tells_where_media_stand(void **state)
{
    static const char messages[] =
        "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"ab\"},"
        "{\"type\": \"image\", \"url\": \"u1\"}, {\"type\":\"image\",\"url\":\"u2\"}]},"
        "{\"role\": \"user\", \"content\": [{\"type\": \"image\",  \"url\": \"u1\"}]}]";
    static const char *const sources[] = {"S{% for m in messages %}({% for p in m.content %}{% if "
                                          "p.type == 'text' %}{{ p.text }}{% else "
                                          "%}<i>{% endif %}{% endfor %}){% endfor %}",
        "{% macro c(x) %}{% for p in x %}{% if p.type == 'text' %}{{ p.text }}{% else "
        "%}<i>{% endif %}{% endfor %}{% endmacro %}S{% for m in messages %}({{ c(m.content) }})"
        "{% endfor %}"};
    /* Within a macro: where its text will stand, at the earliest. */
    static const size_t offsets[][3] = {{4, 7, 12}, {2, 2, 12}};
    struct kvr_chat_request request = {.messages = json(messages)};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct kvr_template_run *run = kvr_template_run_new(NULL, 0);
        struct kvr_chat *chat = read_chat(NULL, sources[i]);
        struct outcome out;
        render(chat, run, &request, &out);
        assert_int_equal(out.status, KVR_OK);
        assert_string_equal(out.text.data, "S(ab<i><i>)(<i>)");
        assert_int_equal(out.result.media_count, 3);
        for (size_t j = 0; j < 3; j++)
            assert_int_equal(out.result.media[j].text_offset, offsets[i][j]);
        assert_int_equal(out.result.media[1].message, 0);
        assert_int_equal(out.result.media[1].part, 2);
        assert_true(out.result.media[0].hash == out.result.media[2].hash);
        assert_true(out.result.media[0].hash != out.result.media[1].hash);
        kvr_buffer_release(&out.text);
        kvr_chat_free(chat);
        kvr_template_run_free(run);
    }
}

static void write_file(const char *directory, const char *name, const char *text)
{
    char path[600];
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void finds_its_files(void **state)
{
    char directory[] = "/tmp/kvr-chat-XXXXXX";
    char path[600];
    struct kvr_chat_files files;
    struct kvr_chat *chat;
    struct kvr_error error;
    struct kvr_chat_request request = {.messages = json("[]")};
    static const char *const names[] = {
        "tokenizer_config.json", "chat_template.jinja", "m.chat_template.json"};
    (void)state;
    assert_non_null(mkdtemp(directory));
    write_file(directory, names[0], "{\"bos_token\": \"<s>\", \"chat_template\": \"old\"}");
    write_file(directory, names[1], "new {{ bos_token }}");
    write_file(directory, names[2], "{\"chat_template\": \"own\"}");
    snprintf(path, sizeof path, "%s/tokenizer.json", directory);
    kvr_chat_find_files(path, &files);
    assert_non_null(strstr(files.config, "/tokenizer_config.json"));
    assert_non_null(strstr(files.source, "/chat_template.jinja"));
    assert_int_equal(kvr_chat_load(&chat, files.config, files.source, &error), KVR_OK);
    expect(chat, &request, "new <s>", NULL);
    kvr_chat_free(chat);
    snprintf(path, sizeof path, "%s/m.tiktoken.gz", directory);
    kvr_chat_find_files(path, &files);
    assert_string_equal(files.config, "");
    assert_non_null(strstr(files.source, "/m.chat_template.json"));
    snprintf(path, sizeof path, "%s/other.tokenizer.json", directory);
    kvr_chat_find_files(path, &files);
    assert_string_equal(files.config, "");
    assert_string_equal(files.source, "");
    assert_int_equal(kvr_chat_load(&chat, path, NULL, &error), KVR_IO);
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        unlink(path);
    }
    rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_qwen3),
        cmocka_unit_test(golden_deepseek),
        cmocka_unit_test(reads_configurations),
        cmocka_unit_test(joins_plainly_without_a_template),
        cmocka_unit_test(leaves_the_end_open),
        cmocka_unit_test(follows_its_style),
        cmocka_unit_test(finds_who_takes_parts),
        cmocka_unit_test(writes_messages_as_vllm_does),
        cmocka_unit_test(writes_texts_as_sglang_does),
        cmocka_unit_test(gives_tools_as_servers_do),
        cmocka_unit_test(tells_where_media_stand),
        cmocka_unit_test(finds_its_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
