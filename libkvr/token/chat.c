/*
 * A request's messages to text: the variables of the template, or the plain join without one.
 */
#include "token/chat_internal.h"

#include <string.h>

bool kvr_chat_style_find(const char *name, enum kvr_chat_style *style)
{
    static const struct {
        const char *name;
        enum kvr_chat_style style;
    } styles[] = {{"plain", KVR_CHAT_PLAIN}, {"transformers5", KVR_CHAT_TRANSFORMERS_5},
        {"vllm", KVR_CHAT_VLLM}, {"sglang", KVR_CHAT_SGLANG}, {"llamacpp", KVR_CHAT_LLAMACPP}};
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) {
        if (strcmp(styles[i].name, name) == 0) {
            *style = styles[i].style;
            return true;
        }
    }
    return false;
}

static const struct kvr_chat_named *find_template(const struct kvr_chat *chat, const char *name)
{
    for (size_t i = 0; i < chat->template_count; i++)
        if (strcmp(chat->templates[i].name, name) == 0)
            return &chat->templates[i];
    return NULL;
}

static const struct kvr_chat_named *choose_template(
    struct run *run, const struct kvr_chat *chat, const char *name, bool tools)
{
    const struct kvr_chat_named *named = NULL;
    if (!chat->template_count)
        return NULL;
    if (name) {
        named = find_template(chat, name);
        if (!named)
            kvr_run_raise(run, "ValueError", "the model has no chat template named '%s'", name);
        return named;
    }
    if (tools)
        named = find_template(chat, "tool_use");
    if (!named)
        named = find_template(chat, "default");
    if (!named && chat->template_count == 1)
        named = chat->templates;
    if (!named)
        kvr_run_raise(run, "ValueError", "the model has several chat templates and no default");
    return named;
}

static struct value read_part(struct run *run, struct kvr_chat_json json)
{
    return json.data ? kvr_json_read(run, json.data, json.length, false) : kvr_none();
}

static void set_date(struct run *run, struct dict *context, const char *name, const char *format)
{
    struct value item = kvr_text_value(kvr_text_literal(run, format));
    struct call call = {.items = &item, .count = 1};
    kvr_dict_set_name(run, context, name, kvr_function_find("strftime_now", 12)->call(run, &call));
}

/* llama.cpp leaves out what is empty or false, and has variables that others have not. */
static void add_as_llamacpp(struct run *run, const struct kvr_chat_work *work, struct dict *context)
{
    if (kvr_jinja_truth(run, work->tools))
        kvr_dict_set_name(run, context, "tools", work->tools);
    if (work->add_generation_prompt)
        kvr_dict_set_name(run, context, "add_generation_prompt", kvr_bool(true));
    kvr_dict_set_name(run, context, "enable_thinking", kvr_bool(true));
    set_date(run, context, "datetime", "%b %d %Y");
    set_date(run, context, "date_string", "%d %b %Y");
}

static void set_effort(struct run *run, struct dict *context, struct value effort)
{
    if (effort.type == VALUE_TEXT)
        kvr_dict_set_name(run, context, "reasoning_effort", effort);
}

/* In vLLM the request's own members count more than its chat_template_kwargs
 * (ChatCompletionRequest.build_chat_params), and an effort switches thinking on or off. */
static void set_members_over_kwargs(
    struct run *run, struct dict *context, const struct kvr_chat_work *work)
{
    kvr_dict_set_name(run, context, "add_generation_prompt", kvr_bool(work->add_generation_prompt));
    if (work->documents.type != VALUE_NONE)
        kvr_dict_set_name(run, context, "documents", work->documents);
    if (work->effort.type == VALUE_TEXT && !kvr_dict_find_name(context, "enable_thinking"))
        kvr_dict_set_name(run, context, "enable_thinking",
            kvr_bool(!kvr_template_text_is(work->effort.text, "none")));
    set_effort(run, context, work->effort);
}

static struct dict *make_context(struct run *run, const struct kvr_chat_work *work)
{
    const struct kvr_chat *chat = work->chat;
    enum kvr_chat_style style = work->request->style;
    struct dict *context = kvr_dict_new(run, chat->token_count + 8);
    for (size_t i = 0; i < chat->token_count; i++)
        kvr_dict_set_name(run, context, chat->tokens[i].name,
            kvr_text_value(kvr_text_literal(run, chat->tokens[i].text)));
    if (style == KVR_CHAT_LLAMACPP) {
        add_as_llamacpp(run, work, context);
    } else {
        kvr_dict_set_name(run, context, "tools", work->tools);
        kvr_dict_set_name(run, context, "documents", work->documents);
        kvr_dict_set_name(
            run, context, "add_generation_prompt", kvr_bool(work->add_generation_prompt));
        if (style != KVR_CHAT_VLLM)
            set_effort(run, context, work->effort);
    }
    for (size_t i = 0; work->kwargs.type == VALUE_DICT && i < work->kwargs.dict->count; i++)
        kvr_dict_set(
            run, context, work->kwargs.dict->entries[i].key, work->kwargs.dict->entries[i].value);
    if (style == KVR_CHAT_VLLM)
        set_members_over_kwargs(run, context, work);
    kvr_dict_set_name(run, context, "messages", kvr_list_value(work->messages));
    return context;
}

/* ---- the plain join ---- */

static void print_literal(struct run *run, const char *text)
{
    kvr_run_print(run, kvr_text_literal(run, text));
}

static void print_content(struct run *run, const struct value *content)
{
    if (!content || content->type == VALUE_NONE)
        return;
    if (content->type != VALUE_LIST) {
        kvr_run_print(run, kvr_jinja_string(run, *content));
        return;
    }
    for (size_t i = 0; i < content->list->count; i++) {
        struct value part = content->list->items[i];
        const struct value *text = NULL;
        const struct value *type = NULL;
        if (part.type == VALUE_TEXT)
            text = &part;
        if (part.type == VALUE_DICT) {
            text = kvr_dict_find_name(part.dict, "text");
            type = kvr_dict_find_name(part.dict, "type");
            if (part.dict->mark)
                run->marks[part.dict->mark - 1] = run->out->length - run->out_start;
        }
        if (text && text->type == VALUE_TEXT) {
            kvr_run_print(run, text->text);
        } else {
            print_literal(run, "<");
            if (type)
                kvr_run_print(run, kvr_jinja_string(run, *type));
            print_literal(run, ">");
        }
    }
}

static void join_plainly(struct run *run, const struct kvr_chat_work *work)
{
    run->out_start = run->out->length;
    if (kvr_jinja_truth(run, work->tools)) {
        print_literal(run, "tools: ");
        kvr_run_print(
            run, kvr_jinja_json(run, work->tools, kvr_missing(), false, false, kvr_missing()));
        print_literal(run, "\n");
    }
    for (size_t i = 0; i < work->messages->count; i++) {
        const struct dict *message = work->messages->items[i].dict;
        const struct value *role;
        const struct value *calls;
        if (work->messages->items[i].type != VALUE_DICT)
            kvr_run_raise(run, "TypeError", "message %zu is no object", i);
        if (message->mark)
            run->marks[message->mark - 1] = run->out->length - run->out_start;
        role = kvr_dict_find_name(message, "role");
        calls = kvr_dict_find_name(message, "tool_calls");
        if (role)
            kvr_run_print(run, kvr_jinja_string(run, *role));
        print_literal(run, ": ");
        print_content(run, kvr_dict_find_name(message, "content"));
        if (calls && calls->type == VALUE_LIST)
            kvr_run_print(
                run, kvr_jinja_json(run, *calls, kvr_missing(), false, false, kvr_missing()));
        print_literal(run, "\n");
    }
    if (work->add_generation_prompt)
        print_literal(run, "assistant: ");
}

/* What llama.cpp has for models without a template. */
static void join_as_chatml(struct run *run, const struct kvr_chat_work *work)
{
    run->out_start = run->out->length;
    for (size_t i = 0; i < work->messages->count; i++) {
        const struct dict *message = work->messages->items[i].dict;
        const struct value *role = kvr_dict_find_name(message, "role");
        if (!role || role->type != VALUE_TEXT)
            kvr_run_raise(run, "TypeError", "message %zu has no role", i);
        print_literal(run, "<|im_start|>");
        kvr_run_print(run, role->text);
        print_literal(run, "\n");
        print_content(run, kvr_dict_find_name(message, "content"));
        print_literal(run, "<|im_end|>\n");
    }
    if (work->add_generation_prompt)
        print_literal(run, "<|im_start|>assistant\n");
}

/* ---- the whole ---- */

static void render(struct run *run, void *state)
{
    struct kvr_chat_work *work = state;
    const struct kvr_chat_request *request = work->request;
    struct value messages = read_part(run, request->messages);
    if (messages.type != VALUE_LIST)
        kvr_run_raise(run, "TypeError", "'messages' is no list");
    work->messages = messages.list;
    work->tools = read_part(run, request->tools);
    work->documents = read_part(run, request->documents);
    work->kwargs = read_part(run, request->kwargs);
    work->effort = read_part(run, request->reasoning_effort);
    if (work->kwargs.type != VALUE_NONE && work->kwargs.type != VALUE_DICT)
        kvr_run_raise(run, "TypeError", "'chat_template_kwargs' is no object");
    work->named =
        choose_template(run, work->chat, request->template_name, work->tools.type != VALUE_NONE);
    work->add_generation_prompt = request->add_generation_prompt;
    kvr_chat_prepare(run, work);
    if (request->continue_final_message && request->style != KVR_CHAT_SGLANG &&
        request->style != KVR_CHAT_LLAMACPP)
        kvr_chat_open_end(run, work);
    if (work->named)
        kvr_run_template(run, work->named->compiled, make_context(run, work));
    else if (request->style == KVR_CHAT_LLAMACPP)
        join_as_chatml(run, work);
    else
        join_plainly(run, work);
    if (work->continued)
        kvr_chat_cut_end(run, work);
    if (work->appended)
        kvr_run_print(run, work->appended);
    for (size_t i = 0; i < work->media_count; i++) {
        size_t message = run->marks[work->media_marks[i].message - 1];
        size_t part = run->marks[work->media_marks[i].part - 1];
        work->media[i].text_offset = part > message ? part : message;
    }
}

enum kvr_status kvr_chat_render(const struct kvr_chat *chat, struct kvr_template_run *made,
    const struct kvr_chat_request *request, struct kvr_buffer *out, struct kvr_chat_result *result,
    struct kvr_template_fault *fault, struct kvr_error *error)
{
    struct kvr_chat_work work = {.chat = chat, .request = request};
    size_t out_length = out->length;
    bool done;
    memset(result, 0, sizeof *result);
    kvr_run_reset(&made->run);
    made->run.out = out;
    done = kvr_run_protect(&made->run, render, &work);
    /* SGLang's second try: the template may want tools without their wrapping. llama.cpp's: it may
     * refuse a message of the system. */
    bool flat_tools = request->style == KVR_CHAT_SGLANG && work.tools.type == VALUE_LIST;
    bool no_system = request->style == KVR_CHAT_LLAMACPP;
    if (!done && (flat_tools || no_system) && made->run.status == KVR_BAD_INPUT) {
        out->length = out_length;
        work = (struct kvr_chat_work){
            .chat = chat, .request = request, .flat_tools = flat_tools, .no_system = no_system};
        kvr_run_reset(&made->run);
        done = kvr_run_protect(&made->run, render, &work);
    }
    if (!done) {
        made->run.piece_count = 0;
        return kvr_run_failed(&made->run, out_length, fault, error);
    }
    result->approximate = !work.named && request->style != KVR_CHAT_LLAMACPP;
    result->media = work.media;
    result->media_count = work.media_count;
    return KVR_OK;
}
