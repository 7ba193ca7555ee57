/*
 * From a request's messages to the text of its prompt, as a model's chat template has it.
 *
 * A chat is what a model brings along: its template (one, or several by name) and its special
 * tokens, read from tokenizer_config.json, chat_template.jinja or chat_template.json. Rendering
 * builds the template's variables as transformers' apply_chat_template() does (messages, tools,
 * documents, add_generation_prompt, the special tokens, then chat_template_kwargs over all of
 * them). What servers do to messages before that differs, and is a style here.
 *
 * Without a template the messages are joined plainly, "ROLE: CONTENT\n" each, "tools: JSON\n"
 * before them where there are tools, and "assistant: " after them where a generation prompt is
 * asked for; parts other than text are written as "<TYPE>". Such a prompt is not what a worker will
 * see: prefixes match approximately, and the result says so.
 *
 * A chat is not changed by rendering: threads share it, each with a kvr_template_run of its own.
 */
#ifndef KVR_TOKEN_CHAT_H
#define KVR_TOKEN_CHAT_H

#include "token/template.h"

struct kvr_chat;

/* What is done to messages before the template sees them. */
enum kvr_chat_style {
    /* Nothing: jinja2, transformers 4, llama.cpp. */
    KVR_CHAT_PLAIN,
    /* transformers 5: members that are null are left out, `reasoning_content`, `thinking` and
     * `reasoning` stand for each other, no messages are an error. */
    KVR_CHAT_TRANSFORMERS_5,
    /* vLLM: content becomes a string (text parts joined by newlines, null is "") or, where the
     * template walks over content itself, a list of parts; tool calls' arguments become objects;
     * tools get the members of its protocol in its order. */
    KVR_CHAT_VLLM,
    /* SGLang: the same with spaces between text parts; members that are null are left out; a last
     * message of the assistant becomes one of the user, or, to be continued, follows the rendered
     * text; there always is a generation prompt; tools that a template refuses are tried without
     * their wrapping. */
    KVR_CHAT_SGLANG,
    /* llama.cpp: newlines between text parts, null content is "", developers are system, arguments
     * of tool calls become objects, whole numbers lose their fraction (1.0 is 1), and a last
     * message of the assistant follows the rendered text, which then ends in a generation prompt
     * without thinking. Templates find enable_thinking, date_string and datetime set, and no tools
     * where there are none; a system's message that the template refuses goes into the next one;
     * without a template it is ChatML. */
    KVR_CHAT_LLAMACPP,
};

/* "plain", "transformers5", "vllm", "sglang", "llamacpp"; false where name is none of them. */
bool kvr_chat_style_find(const char *name, enum kvr_chat_style *style);

/* Reads a model's files, gzip or not: config_path a tokenizer_config.json, template_path a Jinja
 * template or a chat_template.json; either may be NULL. Templates of files of their own come before
 * those of the configuration. A chat without a template is no error: it joins plainly. *out is
 * owned by the caller. */
enum kvr_status kvr_chat_load(struct kvr_chat **out, const char *config_path,
    const char *template_path, struct kvr_error *error);

/* The same with all that transformers reads; each may be NULL or empty: named is a folder of
 * templates NAME.jinja (additional_chat_templates), special_map a special_tokens_map.json. */
struct kvr_chat_paths {
    const char *config, *source, *special_map, *named;
};
enum kvr_status kvr_chat_load_files(
    struct kvr_chat **out, const struct kvr_chat_paths *paths, struct kvr_error *error);

/* The same from texts; either may be NULL. */
enum kvr_status kvr_chat_read(struct kvr_chat **out, const char *config, size_t config_length,
    const char *source, size_t source_length, struct kvr_error *error);

/* Looks beside a vocabulary file for what kvr_chat_load_files() wants: for DIR/tokenizer.json
 * DIR/tokenizer_config.json, DIR/chat_template.jinja, DIR/chat_template.json,
 * DIR/special_tokens_map.json and DIR/additional_chat_templates, for DIR/NAME.tokenizer.json
 * DIR/NAME.tokenizer_config.json and so on, each also with ".gz". What is not there is an empty
 * text. */
struct kvr_chat_files {
    char config[1024];
    char source[1024];
    char special_map[1024];
    char named[1024];
};
void kvr_chat_find_files(const char *vocabulary_path, struct kvr_chat_files *files);

void kvr_chat_free(struct kvr_chat *chat);

bool kvr_chat_has_template(const struct kvr_chat *chat);

/* A special token's text by its name ("bos_token"), NULL where the model has none. */
const char *kvr_chat_token(const struct kvr_chat *chat, const char *name);

/* A piece of JSON text; NULL data: absent. */
struct kvr_chat_json {
    const char *data;
    size_t length;
};

/* The members of a request line that make its prompt. */
struct kvr_chat_request {
    struct kvr_chat_json messages;  /* a list of objects */
    struct kvr_chat_json tools;     /* a list; null is as absent */
    struct kvr_chat_json documents; /* a list; null is as absent */
    struct kvr_chat_json kwargs;    /* chat_template_kwargs: an object */
    /* A variable of templates, for vLLM also enable_thinking: whether it is not "none"; null or
     * what is no text is as absent. */
    struct kvr_chat_json reasoning_effort;
    const char *template_name;   /* of a model with several; NULL: tool_use with tools, default */
    bool add_generation_prompt;  /* APIs have it true where a request does not say */
    bool continue_final_message; /* the last message is left open */
    enum kvr_chat_style style;
};

/* A part of the messages that is no text: an image, audio, a video. */
struct kvr_chat_media {
    uint64_t hash;      /* of the part's JSON text without white space: equal content, equal hash */
    const char *uuid;   /* of vLLM's API: the content's name; valid as long as the list */
    size_t uuid_length; /* 0: it has none */
    size_t message;     /* index in messages */
    size_t part;        /* index in its content */
    size_t text_offset; /* its placeholder stands there or later in the rendered text */
};

struct kvr_chat_result {
    bool approximate; /* joined plainly, for want of a template */
    size_t media_count;
    const struct kvr_chat_media *media; /* in order; valid until the run's next rendering */
};

/* Appends the prompt's text to *out; the pieces that are content are kvr_template_trace()'s. Fails
 * as kvr_template_render() does; what is wrong with the request itself is KVR_BAD_INPUT. */
enum kvr_status kvr_chat_render(const struct kvr_chat *chat, struct kvr_template_run *run,
    const struct kvr_chat_request *request, struct kvr_buffer *out, struct kvr_chat_result *result,
    struct kvr_template_fault *fault, struct kvr_error *error);

#endif
