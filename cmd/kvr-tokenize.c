/*
 * kvr-tokenize: text or chat to tokens and block ids. What happens to a line is libkvr's
 * (token/annotate.h); here are the options, the loop over lines, and the loop with threads.
 */
#include "cmd/tool.h"

#include "base/ordered.h"
#include "token/annotate.h"
#include "token/directory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREAD_LIMIT = 256, JOB_LINES = 64, JOB_BYTES = 64 * 1024 };

struct settings {
    const char *tokenizer, *template_file, *by_model, *chain, *seed, *extra_keys, *style, *bos;
    uint64_t block_size, truncate, image_tokens, threads;
    bool ids, count, decode, skip_special, render, special, no_added, list, no_cache;
};

#define AT(member) offsetof(struct settings, member)
#define CHAINS "kvr|vllm-sha256_cbor|vllm-xxhash_cbor|vllm-sha256|vllm-xxhash|sglang|dynamo"

static const struct kvr_option options[] = {
    {'t', "tokenizer", KVR_OPTION_TEXT, AT(tokenizer), "NAME",
        "the vocabulary: a name (see --list), a file (tiktoken ranks, tokenizer.json, tekken.json, "
        "gzip or not), 'bytes' or 'chars'",
        KVR_DEFAULT_TOKENIZER, "<file>"},
    {0, "by-model", KVR_OPTION_TEXT, AT(by_model), "MAP",
        "each line's model has its own vocabulary: a file of lines "
        "{\"model\":...,\"tokenizer\":...,\"template\":...}, or 'auto' for vocabularies of the "
        "models' names; other models have that of -t",
        NULL, "auto|*"},
    {0, "list", KVR_OPTION_FLAG, AT(list), NULL, "lists the vocabularies that names find, and ends",
        NULL, NULL},
    TOOL_OPTION_BLOCK_SIZE(struct settings, "16"),
    {0, "ids", KVR_OPTION_FLAG, AT(ids), NULL, "adds token_ids", NULL, NULL},
    {0, "count", KVR_OPTION_FLAG, AT(count), NULL, "adds input_length only", NULL, NULL},
    {0, "decode", KVR_OPTION_FLAG, AT(decode), NULL,
        "turns token ids into prompt instead; lines without ids pass as they are", NULL, NULL},
    {0, "skip-special", KVR_OPTION_FLAG, AT(skip_special), NULL,
        "leaves special tokens out of what is decoded", NULL, NULL},
    {0, "truncate", KVR_OPTION_COUNT, AT(truncate), "TOKENS",
        "keeps so many tokens of a line, from its start; 0: all", "0", NULL},
    {0, "special", KVR_OPTION_FLAG, AT(special), NULL,
        "text of special tokens in prompts is these tokens; without it, it is plain text", NULL,
        NULL},
    {0, "no-added", KVR_OPTION_FLAG, AT(no_added), NULL,
        "text of the vocabulary's other added tokens is plain text in prompts as well", NULL, NULL},
    {0, "bos", KVR_OPTION_TEXT, AT(bos), "WHEN",
        "whether prompts get the tokens that the model adds to them (rendered messages have their "
        "own): 'auto' as its post-processor says, 'config' also as add_bos_token does, 'no'",
        "auto", "auto|config|no"},
    {'j', "threads", KVR_OPTION_COUNT, AT(threads), "N", "threads; lines keep their order", "1",
        NULL},
    {0, "no-cache", KVR_OPTION_FLAG, AT(no_cache), NULL,
        "neither reads nor keeps compiled vocabularies in ~/.cache/kvr", NULL, NULL},
    {0},
};

static const struct kvr_option chat_options[] = {
    {0, "template", KVR_OPTION_TEXT, AT(template_file), "FILE",
        "the chat template (Jinja, or a tokenizer_config.json) instead of the one beside the "
        "vocabulary",
        NULL, "<file>"},
    {0, "render", KVR_OPTION_FLAG, AT(render), NULL, "adds the rendered messages as prompt", NULL,
        NULL},
    {0, "style", KVR_OPTION_TEXT, AT(style), "STYLE",
        "what is done to messages before the template sees them: 'plain' nothing, 'vllm', "
        "'sglang', 'llamacpp' and 'transformers5' as these do; 'auto' is vllm for requests of an "
        "API, plain for lines with add_generation_prompt, which speak to the template itself",
        "auto", "auto|plain|vllm|sglang|llamacpp|transformers5"},
    {0, "image-tokens", KVR_OPTION_COUNT, AT(image_tokens), "TOKENS",
        "that an image takes, where the template has one placeholder for it", "1", NULL},
    {0},
};

static const struct kvr_option chain_options[] = {
    {0, "chain", KVR_OPTION_TEXT, AT(chain), "CHAIN",
        "how blocks hash: kvr's own way, or as an engine does in its event streams", "kvr", CHAINS},
    {0, "seed", KVR_OPTION_TEXT, AT(seed), "TEXT",
        "PYTHONHASHSEED of the vLLM whose ids are wanted; without it that of a vLLM 0.33 that has "
        "none",
        NULL, NULL},
    {0, "extra-keys", KVR_OPTION_TEXT, AT(extra_keys), "STYLE",
        "how vLLM writes LoRA, salt and images into its hashes: 'tagged' (0.33), 'plain' (0.12 to "
        "0.29), 'legacy' (before)",
        "tagged", "tagged|plain|legacy"},
    {0},
};

static const struct kvr_program program = {
    .name = "kvr-tokenize",
    .summary = "turn prompts and chat messages into tokens and block ids",
    .operands = "[FILE...]",
    .description =
        "Request lines with prompt, messages (and tools) or token_ids gain input_length, hash_ids "
        "and block_size: exactly the tokens that the worker will see. Messages are rendered with "
        "the model's own chat template. Other lines pass as they are.",
    .examples = "echo '{\"prompt\":\"Hello, world\"}' | kvr-tokenize --ids\n"
                "kvr-tokenize -t qwen3.tokenizer.json --render chats.jsonl\n"
                "kvr-tokenize --by-model auto -j 4 requests.jsonl | kvr-match --against any\n"
                "kvr-tokenize --chain vllm-sha256_cbor --seed 0 requests.jsonl\n",
};

/* Lines under way with threads: their text, what became of it, and what was wrong. */
struct job_line {
    struct kvr_source_line source;
    uint64_t lines;         /* read so far, it included */
    size_t text;            /* where it starts in job.text */
    size_t out, out_length; /* with its newline */
    struct kvr_error error;
};

struct job {
    struct kvr_buffer text, out;
    struct job_line lines[JOB_LINES];
    size_t count;
    bool some_failed;
};

struct worker {
    struct kvr_annotator *annotator;
    struct kvr_line line;
};

struct pool {
    struct kvr_ordered *ordered;
    struct worker workers[THREAD_LIMIT];
    struct job *filling, *spare[THREAD_LIMIT * 2 + 1];
    size_t spare_count, thread_count;
};

static void list_one(const char *name, const char *path, bool hidden, void *context)
{
    struct kvr_buffer *out = context;

    if (hidden)
        return;
    kvr_buffer_append_text(out, "{\"name\":");
    kvr_json_write_string(out, name, strlen(name));
    if (path) {
        kvr_buffer_append_text(out, ",\"path\":");
        kvr_json_write_string(out, path, strlen(path));
    }
    kvr_buffer_append_text(out, "}\n");
}

static enum kvr_status read_options(
    const struct settings *settings, struct kvr_annotate_options *annotate, struct kvr_error *error)
{
    *annotate = (struct kvr_annotate_options){
        .chain = kvr_chain_find(settings->chain),
        .seed = settings->seed,
        .style = settings->extra_keys[0] == 'p'   ? KVR_EXTRA_PLAIN
                 : settings->extra_keys[0] == 'l' ? KVR_EXTRA_LEGACY
                                                  : KVR_EXTRA_TAGGED,
        .style_auto = strcmp(settings->style, "auto") == 0,
        .block_size = settings->block_size,
        .truncate = settings->truncate,
        .image_tokens = settings->image_tokens,
        .ids = settings->ids,
        .count = settings->count,
        .decode = settings->decode,
        .skip_special = settings->skip_special,
        .render = settings->render,
        .special = settings->special,
        .no_added = settings->no_added,
        .default_is_guess = settings->by_model && settings->tokenizer == options[0].initial,
        .no_bos = settings->bos[0] == 'n',
        .config_bos = settings->bos[0] == 'c',
    };
    if (!annotate->style_auto && !kvr_chat_style_find(settings->style, &annotate->chat_style))
        return kvr_error_set(error, KVR_BAD_USAGE, "--style: no style '%s'", settings->style);
    if (!annotate->chain)
        return kvr_error_set(error, KVR_BAD_USAGE, "--chain: no chain '%s'", settings->chain);
    if (settings->special && settings->no_added)
        return kvr_error_set(error, KVR_BAD_USAGE, "--special and --no-added are opposites");
    if (!settings->block_size)
        return kvr_error_set(error, KVR_BAD_USAGE, "-b: a block has one token or more");
    if (!settings->image_tokens || settings->image_tokens > 1000000)
        return kvr_error_set(error, KVR_BAD_USAGE, "--image-tokens: 1 to 1000000");
    if (settings->seed && strncmp(settings->chain, "vllm", 4) != 0)
        return kvr_error_set(error, KVR_BAD_USAGE, "--seed is for the chains of vLLM");
    if (settings->extra_keys != chain_options[2].initial &&
        strncmp(settings->chain, "vllm", 4) != 0)
        return kvr_error_set(error, KVR_BAD_USAGE, "--extra-keys is for the chains of vLLM");
    if (settings->decode && (settings->count || settings->ids || settings->render))
        return kvr_error_set(error, KVR_BAD_USAGE,
            "--decode turns ids into text: --count, --ids and --render add what it reads");
    if (settings->skip_special && !settings->decode)
        return kvr_error_set(error, KVR_BAD_USAGE, "--skip-special is for --decode");
    if (settings->threads < 1 || settings->threads > THREAD_LIMIT)
        return kvr_error_set(error, KVR_BAD_USAGE, "-j: 1 to %d", THREAD_LIMIT);
    struct kvr_chain_settings chain = {.seed = settings->seed};
    struct kvr_chain_state state = {0};
    enum kvr_status status = annotate->chain->begin(&chain, &state, error);
    kvr_chain_release(&state);
    return status ? kvr_error_prefix(error, "--chain") : KVR_OK;
}

/* The loop without threads. */
static void run_alone(struct tool *tool, struct kvr_annotator *annotator)
{
    struct kvr_error error;

    while (tool_next(tool) == TOOL_LINE) {
        enum kvr_status status = kvr_annotate(annotator, &tool->line, &tool->out.buffer, &error);
        if (!status)
            kvr_writer_line_done(&tool->out);
        else
            tool_bad_line(tool, &error);
    }
}

static void work(void *argument, void *context)
{
    struct job *job = argument;
    struct worker *worker = context;

    for (size_t i = 0; i < job->count; i++) {
        struct job_line *line = &job->lines[i];
        line->error.status = KVR_OK;
        line->source.text = job->text.data + line->text;
        line->out = job->out.length;
        if (!kvr_line_parse(&worker->line, &line->source, &line->error) &&
            !kvr_annotate(worker->annotator, &worker->line, &job->out, &line->error)) {
            kvr_buffer_append_byte(&job->out, '\n');
            if (job->out.failed)
                kvr_error_memory(&line->error);
        }
        line->out_length = job->out.length - line->out;
        job->some_failed |= line->error.status != KVR_OK;
    }
}

/* Writes what became of a job's lines, in order, up to one that ends it all (--strict). */
static void write_lines(struct tool *tool, const struct job *job)
{
    for (size_t i = 0; i < job->count && !tool_stopped(tool); i++) {
        const struct job_line *line = &job->lines[i];
        if (line->error.status) {
            tool_bad_earlier_line(tool, &line->source, line->lines, &line->error);
            continue;
        }
        kvr_buffer_append(&tool->out.buffer, job->out.data + line->out, line->out_length - 1);
        kvr_writer_line_done(&tool->out);
    }
}

/* Keeps the job for later. */
static void finish_job(struct tool *tool, struct pool *pool, struct job *job)
{
    if (job->some_failed)
        write_lines(tool, job);
    else if (!tool_stopped(tool))
        kvr_writer_lines(&tool->out, &job->out);
    job->count = 0;
    job->some_failed = false;
    kvr_buffer_clear(&job->text);
    kvr_buffer_clear(&job->out);
    pool->spare[pool->spare_count++] = job;
}

static void submit(struct tool *tool, struct pool *pool)
{
    struct job *done;

    if (!pool->filling || !pool->filling->count)
        return;
    while ((done = kvr_ordered_take(pool->ordered, kvr_ordered_full(pool->ordered))))
        finish_job(tool, pool, done);
    kvr_ordered_submit(pool->ordered, pool->filling);
    pool->filling = NULL;
}

static void drain(struct tool *tool)
{
    struct pool *pool = tool->context;
    struct job *done;

    submit(tool, pool);
    while ((done = kvr_ordered_take(pool->ordered, true)))
        finish_job(tool, pool, done);
}

/* The loop with threads: lines are copied into jobs, jobs come back in order. */
static void run_pool(struct tool *tool, struct pool *pool)
{
    struct kvr_error error;

    tool->context = pool;
    tool->before_wait = tool->settle = drain;
    while (tool_next(tool) == TOOL_LINE) {
        if (!pool->filling)
            pool->filling = pool->spare_count ? pool->spare[--pool->spare_count]
                                              : calloc(1, sizeof *pool->filling);
        struct job *job = pool->filling;
        if (!job || !kvr_buffer_reserve(&job->text, tool->line.source.length)) {
            drain(tool);
            kvr_error_memory(&error);
            if (!tool_stopped(tool))
                tool_bad_line(tool, &error);
            continue;
        }
        struct job_line *line = &job->lines[job->count++];
        *line = (struct job_line){
            .source = tool->line.source, .lines = tool->lines, .text = job->text.length};
        kvr_buffer_append(&job->text, tool->line.source.text, tool->line.source.length);
        if (job->count == JOB_LINES || job->text.length >= JOB_BYTES)
            submit(tool, pool);
    }
    tool->before_wait = tool->settle = NULL;
    drain(tool);
}

/* A log whose prompts have another name passes as it is, and looks as if nothing could be reused;
 * chats without a template look as if their tokens were the model's. */
static void warn(struct tool *tool, const struct pool *pool)
{
    struct kvr_annotate_counts all = {0};

    for (size_t i = 0; i < pool->thread_count; i++) {
        struct kvr_annotate_counts counts = kvr_annotator_counts(pool->workers[i].annotator);
        all.tokenized += counts.tokenized;
        all.approximate += counts.approximate;
        all.guessed += counts.guessed;
        all.strict += counts.strict;
        all.beyond_vllm += counts.beyond_vllm;
        all.without_text += counts.without_text;
    }
    if (!all.tokenized && all.without_text)
        tool_warn(tool, "no line has a prompt, messages or token_ids: nothing was tokenized (--map "
                        "makes them of other members)");
    if (all.guessed)
        tool_warn(tool,
            "%" PRIu64 " of %" PRIu64 " lines name a model that has no vocabulary here, and have "
            "the tokens of " KVR_DEFAULT_TOKENIZER " (-v names the models; -t says what they have)",
            all.guessed, all.tokenized);
    if (all.approximate)
        tool_warn(tool,
            "messages of %" PRIu64 " of %" PRIu64 " lines were joined plainly: there is no chat "
            "template beside the vocabulary (--template)",
            all.approximate, all.tokenized);
    if (all.strict)
        tool_warn(tool,
            "%" PRIu64 " of the bad lines have messages as only an API has them; "
            "add_generation_prompt makes them calls of the template itself (--style vllm reads "
            "them as a server does)",
            all.strict);
    if (all.beyond_vllm)
        tool_warn(tool,
            "ids of %" PRIu64 " of %" PRIu64 " lines are none that vLLM has: a LoRA lacks its path "
            "(legacy: its id), or an image its uuid",
            all.beyond_vllm, all.tokenized);
}

static void tell(void *context, const char *text)
{
    tool_detail(context, "%s", text);
}

static void release_pool(struct pool *pool)
{
    kvr_ordered_destroy(pool->ordered);
    for (size_t i = 0; i < pool->thread_count; i++) {
        kvr_annotator_destroy(pool->workers[i].annotator);
        kvr_line_release(&pool->workers[i].line);
    }
    if (pool->filling)
        pool->spare[pool->spare_count++] = pool->filling;
    for (size_t i = 0; i < pool->spare_count; i++) {
        kvr_buffer_release(&pool->spare[i]->text);
        kvr_buffer_release(&pool->spare[i]->out);
        free(pool->spare[i]);
    }
    free(pool);
}

static enum kvr_status run(struct tool *tool, const struct settings *settings,
    struct kvr_models *models, const struct kvr_annotate_options *annotate, struct kvr_error *error)
{
    void *contexts[THREAD_LIMIT];
    struct pool *pool = calloc(1, sizeof *pool);
    enum kvr_status status = pool ? KVR_OK : kvr_error_memory(error);

    for (size_t i = 0; i < settings->threads && !status; i++) {
        struct worker *worker = &pool->workers[i];
        status = kvr_annotator_create(&worker->annotator, models, annotate, error);
        if (!status)
            status = kvr_line_init(&worker->line, error);
        contexts[i] = worker;
        pool->thread_count++;
    }
    if (!status && settings->threads == 1) {
        run_alone(tool, pool->workers[0].annotator);
    } else if (!status) {
        status = kvr_ordered_create(
            &pool->ordered, settings->threads, settings->threads * 2, work, contexts, error);
        if (!status)
            run_pool(tool, pool);
    }
    if (!status && !tool_stopped(tool)) /* not ended by --strict, which has read ahead */
        warn(tool, pool);
    if (pool)
        release_pool(pool);
    return status;
}

int main(int argc, char **argv)
{
    static struct settings settings;
    struct tool tool;
    struct kvr_models *models = NULL;
    struct kvr_annotate_options annotate;
    struct kvr_buffer cache = {0};
    struct kvr_error error;
    const struct kvr_option_group groups[] = {{"Tokens", options, &settings},
        {"Chat", chat_options, &settings}, {"Block ids", chain_options, &settings}, {0}};
    int ended = tool_begin(&tool, &program, groups, argc, argv);

    if (ended >= 0)
        return ended;
    if (settings.list) {
        kvr_directory_list(list_one, &tool.out.buffer);
        tool.out.whole = tool.out.buffer.length;
        return tool_end(&tool);
    }
    enum kvr_status status = read_options(&settings, &annotate, &error);
    if (!status) {
        struct kvr_models_options options = {.tokenizer = settings.tokenizer,
            .template_file = settings.template_file,
            .by_model = settings.by_model,
            .cache_directory = settings.no_cache ? NULL : kvr_directory_cache(&cache),
            .tell = tell,
            .context = &tool};
        status = kvr_models_create(&models, &options, &error);
    }
    if (!status)
        status = run(&tool, &settings, models, &annotate, &error);
    if (status)
        tool_fail(&tool, &error);
    kvr_models_destroy(models);
    kvr_buffer_release(&cache);
    return tool_end(&tool);
}
