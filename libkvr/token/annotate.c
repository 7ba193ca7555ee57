#include "token/annotate.h"

#include "base/grow.h"
#include "token/chat_request.h"
#include "token/media.h"
#include "token/request_check.h"

#include <stdlib.h>
#include <string.h>

static const char no_list[] = "token_ids is no list of token ids";
static const char no_prompt[] = "prompt is neither a text nor a list of token ids";

#define ENCODER_LIMIT 16 /* vocabularies with an encoder of their own at a time */

struct encoder_slot {
    const struct kvr_tokenizer *tokenizer;
    struct kvr_encoder *encoder;
    uint64_t used; /* when last */
};

struct kvr_annotator {
    struct kvr_models *models;
    struct kvr_annotate_options options;
    struct kvr_template_run *run;
    struct kvr_chat_result chat; /* of the line's messages; media of none */
    struct encoder_slot encoders[ENCODER_LIMIT];
    uint64_t clock;
    struct kvr_annotate_counts counts;
    bool guessed; /* the line's model is not known, and the default was not asked for */
    struct kvr_ids ids;
    struct kvr_chain_state chain;
    struct kvr_buffer text, scratch[4];
    uint64_t *numbers; /* ids as a line has them, then its block ids */
    size_t number_capacity;
    struct kvr_media_places media;
};

enum kvr_status kvr_annotator_create(struct kvr_annotator **annotator, struct kvr_models *models,
    const struct kvr_annotate_options *options, struct kvr_error *error)
{
    struct kvr_annotator *a = calloc(1, sizeof *a);

    *annotator = NULL;
    if (a)
        a->run = kvr_template_run_new(NULL, -1);
    if (!a || !a->run) {
        free(a);
        return kvr_error_memory(error);
    }
    a->models = models;
    a->options = *options;
    *annotator = a;
    return KVR_OK;
}

void kvr_annotator_destroy(struct kvr_annotator *a)
{
    if (!a)
        return;
    kvr_template_run_free(a->run);
    for (int i = 0; i < ENCODER_LIMIT; i++)
        kvr_encoder_release(a->encoders[i].encoder);
    kvr_ids_release(&a->ids);
    kvr_chain_release(&a->chain);
    kvr_buffer_release(&a->text);
    for (int i = 0; i < 4; i++)
        kvr_buffer_release(&a->scratch[i]);
    free(a->numbers);
    kvr_media_release(&a->media);
    free(a);
}

/* The encoder of a vocabulary; the one not used for longest makes room. */
static enum kvr_status encoder_of(struct kvr_annotator *a, const struct kvr_tokenizer *tokenizer,
    struct kvr_encoder **encoder, struct kvr_error *error)
{
    struct encoder_slot *oldest = &a->encoders[0];

    a->clock++;
    for (int i = 0; i < ENCODER_LIMIT; i++) {
        struct encoder_slot *slot = &a->encoders[i];
        if (slot->tokenizer == tokenizer) {
            slot->used = a->clock;
            *encoder = slot->encoder;
            return KVR_OK;
        }
        if (slot->used < oldest->used)
            oldest = slot;
    }
    kvr_encoder_release(oldest->encoder);
    *oldest = (struct encoder_slot){0};
    enum kvr_status status = kvr_encoder_new(encoder, tokenizer, error);
    if (!status)
        *oldest = (struct encoder_slot){tokenizer, *encoder, a->clock};
    return status;
}

/* Appends a line's token ids, which are below 2^32. otherwise: what is said where it is no list. */
static enum kvr_status read_ids(
    struct kvr_annotator *a, struct kvr_value list, const char *otherwise, struct kvr_error *error)
{
    uint64_t *room =
        kvr_grow(a->numbers, &a->number_capacity, kvr_value_u64s_room(list), sizeof *a->numbers);

    if (!room)
        return kvr_error_memory(error);
    a->numbers = room;
    ptrdiff_t count = kvr_value_u64s(list, a->numbers);
    if (count < 0)
        return kvr_error_set(error, KVR_BAD_INPUT, "%s", otherwise);
    if (!kvr_ids_reserve(&a->ids, (size_t)count))
        return kvr_error_memory(error);
    for (ptrdiff_t i = 0; i < count; i++) {
        if (a->numbers[i] > UINT32_MAX)
            return kvr_error_set(error, KVR_BAD_INPUT, "a token id is 2^32 or more");
        kvr_ids_push(&a->ids, (uint32_t)a->numbers[i]);
    }
    return KVR_OK;
}

/* Text with what the model puts before it, unless that is not wanted. */
static enum kvr_status encode_text(struct kvr_annotator *a, const struct kvr_chat_model *model,
    struct kvr_encoder *encoder, struct kvr_text text, unsigned flags, bool as_model,
    struct kvr_error *error)
{
    if (!as_model)
        return kvr_encode(encoder, text.text, text.length, flags, &a->ids, error);
    if (a->options.config_bos && model->bos_id != KVR_NO_TOKEN)
        kvr_ids_push(&a->ids, model->bos_id);
    return kvr_encode(encoder, text.text, text.length, flags | KVR_ENCODE_MODEL, &a->ids, error);
}

/* A request of an API that its engine would refuse is still text that can be shared: it is rendered
 * as it stands, where that goes. */
static enum kvr_status render(struct kvr_annotator *a, const struct kvr_chat_model *model,
    const struct kvr_line *line, struct kvr_error *error)
{
    struct kvr_chat_request request;
    struct kvr_error second;
    bool choose = a->options.style_auto;

    kvr_chat_request_read(
        line, choose ? kvr_chat_request_style(line) : a->options.chat_style, &request);
    enum kvr_status status =
        kvr_chat_render(model->chat, a->run, &request, &a->text, &a->chat, NULL, error);
    if (status != KVR_BAD_INPUT || !choose)
        return status;
    if (request.style != KVR_CHAT_PLAIN) {
        request.style = KVR_CHAT_PLAIN;
        if (!kvr_chat_render(model->chat, a->run, &request, &a->text, &a->chat, NULL, &second))
            status = KVR_OK;
    } else {
        a->counts.strict += kvr_chat_request_api_forms(line);
    }
    return status;
}

/* What of a line is tokenized. */
enum content { NO_CONTENT, IDS_OF_LINE, IDS_OF_PROMPT, MESSAGES, TEXT };

/* A completion API takes several prompts at once, as a list; a list of one is that one. */
static enum kvr_status single_prompt(struct kvr_value *prompt, struct kvr_error *error)
{
    struct kvr_cursor cursor = kvr_value_open(*prompt);
    struct kvr_value first;
    size_t count = 1;

    if (prompt->type != KVR_ARRAY || !kvr_next_element(&cursor, &first) ||
        (first.type != KVR_STRING && first.type != KVR_ARRAY))
        return KVR_OK;
    for (struct kvr_value other; kvr_next_element(&cursor, &other); count++)
        if (other.type != first.type)
            return kvr_error_set(error, KVR_BAD_INPUT, "%s", no_prompt);
    if (count > 1)
        return kvr_error_set(
            error, KVR_BAD_INPUT, "prompt is a list of %zu prompts: a line is one prompt", count);
    *prompt = first;
    return KVR_OK;
}

/* Finds the content of a line, and its value. */
static enum kvr_status find_content(const struct kvr_line *line, enum content *content,
    struct kvr_value *value, struct kvr_error *error)
{
    *value = kvr_line_get(line, KVR_NAME_TOKEN_IDS);
    *content = IDS_OF_LINE;
    if (!kvr_value_missing(*value))
        return KVR_OK;
    *value = kvr_line_get(line, KVR_NAME_MESSAGES);
    *content = MESSAGES;
    if (!kvr_value_missing(*value))
        return KVR_OK;
    *value = kvr_line_get(line, KVR_NAME_PROMPT);
    enum kvr_status status = single_prompt(value, error);
    *content = kvr_value_missing(*value)   ? NO_CONTENT
               : value->type == KVR_STRING ? TEXT
                                           : IDS_OF_PROMPT;
    return status;
}

/* Reads the content of a line into a->ids, and a->text where it was rendered. */
static enum kvr_status read_content(struct kvr_annotator *a, const struct kvr_chat_model *model,
    const struct kvr_line *line, enum content content, struct kvr_value value,
    struct kvr_error *error)
{
    struct kvr_value own = kvr_line_get(line, KVR_NAME_ADD_SPECIAL_TOKENS);
    struct kvr_encoder *encoder;
    struct kvr_text text;

    if (content == NO_CONTENT)
        return KVR_OK;
    if (content == IDS_OF_LINE || content == IDS_OF_PROMPT)
        return read_ids(a, value, content == IDS_OF_LINE ? no_list : no_prompt, error);
    enum kvr_status status = encoder_of(a, model->tokenizer, &encoder, error);
    if (status)
        return status;
    if (content == TEXT) {
        unsigned flags = (a->options.special ? KVR_ENCODE_SPECIAL : 0) |
                         (a->options.no_added ? KVR_ENCODE_NO_ADDED : 0);
        return kvr_value_text(value, &a->scratch[0], &text)
                   ? encode_text(a, model, encoder, text, flags,
                         !a->options.no_bos && own.type != KVR_FALSE, error)
                   : kvr_error_memory(error);
    }
    status = kvr_request_check_chat(line, error);
    if (!status)
        status = render(a, model, line, error);
    if (!status)
        status = encode_text(a, model, encoder, (struct kvr_text){a->text.data, a->text.length},
            a->chat.approximate && !a->options.special ? 0 : KVR_ENCODE_SPECIAL,
            own.type == KVR_TRUE, error);
    struct kvr_media_prompt media = {.model = model,
        .encoder = encoder,
        .text = {a->text.data, a->text.length},
        .ids = &a->ids,
        .image_tokens = (size_t)a->options.image_tokens};
    return status ? status : kvr_media_place(&a->media, &media, &a->chat, error);
}

/* vLLM's truncate_prompt_tokens keeps a prompt's end. -1, all that the model takes, is not known
 * here and taken for all. */
static bool keep_end(struct kvr_annotator *a, struct kvr_value wanted)
{
    uint64_t most;
    size_t cut;

    if (!kvr_value_u64(wanted, &most) || a->ids.count <= most)
        return false;
    cut = a->ids.count - (size_t)most;
    memmove(a->ids.data, a->ids.data + cut, (size_t)most * sizeof *a->ids.data);
    a->ids.count = (size_t)most;
    kvr_media_cut(&a->media, cut);
    return true;
}

static struct kvr_text text_member(struct kvr_value value, struct kvr_buffer *scratch)
{
    struct kvr_text text = {NULL, 0};

    if (value.type == KVR_NUMBER)
        return (struct kvr_text){value.text, value.length};
    if (value.type == KVR_STRING && kvr_value_text(value, scratch, &text) && !text.text)
        text.text = "";
    return text;
}

/* The namespace of a line: model, lora (a name, a number, or {"name","path","id"}), salt. */
static void read_namespace(
    struct kvr_annotator *a, const struct kvr_line *line, struct kvr_namespace *space)
{
    struct kvr_value lora = kvr_line_get(line, KVR_NAME_LORA), name = lora;

    memset(space, 0, sizeof *space);
    if (lora.type == KVR_OBJECT) {
        name = kvr_value_get(lora, "name");
        space->lora_path = text_member(kvr_value_get(lora, "path"), &a->scratch[3]);
        kvr_value_u64(kvr_value_get(lora, "id"), &space->lora_id);
        if (kvr_value_missing(name))
            name = kvr_value_get(lora, "id");
    } else {
        kvr_value_u64(lora, &space->lora_id);
    }
    space->model = text_member(kvr_line_get(line, KVR_NAME_MODEL), &a->scratch[0]);
    space->lora = text_member(name, &a->scratch[1]);
    struct kvr_value salt = kvr_line_get(line, KVR_NAME_SALT);
    if (kvr_value_missing(salt)) /* as vLLM's API has it */
        salt = kvr_line_get(line, KVR_NAME_CACHE_SALT);
    space->salt = text_member(salt, &a->scratch[2]);
}

/* Whether vLLM hashes something of the line that the line does not tell. */
static bool is_beyond_vllm(const struct kvr_annotator *a, const struct kvr_namespace *space)
{
    if (strncmp(a->options.chain->name, "vllm", 4) != 0)
        return false;
    if (space->lora.text && a->options.style == KVR_EXTRA_TAGGED && !space->lora_path.text)
        return true;
    if (space->lora.text && a->options.style == KVR_EXTRA_LEGACY && !space->lora_id)
        return true;
    return a->media.count && a->media.without_uuid;
}

static enum kvr_status add_hashes(struct kvr_annotator *a, const struct kvr_line *line,
    size_t block_size, struct kvr_buffer *out, struct kvr_error *error)
{
    const struct kvr_chain *chain = a->options.chain;
    const struct kvr_media_places *places = &a->media;
    struct kvr_chain_settings settings = {.seed = a->options.seed, .style = a->options.style};
    size_t blocks = a->ids.count / block_size;
    uint64_t *room = kvr_grow(a->numbers, &a->number_capacity, blocks + 1, sizeof *a->numbers);

    if (!room)
        return kvr_error_memory(error);
    a->numbers = room;
    a->chain.digest_length = a->chain.tokens = 0;
    read_namespace(a, line, &settings.space);
    a->counts.beyond_vllm += is_beyond_vllm(a, &settings.space);
    enum kvr_status status = chain->begin(&settings, &a->chain, error);
    kvr_line_add(out, "hash_ids");
    kvr_buffer_append_byte(out, '[');
    for (size_t i = 0, past = 0; i < blocks && !status; i++) {
        while (past < places->count &&
               places->items[past].start + places->items[past].length <= i * block_size)
            past++;
        status = chain->block(&settings, &a->chain, a->ids.data + i * block_size, block_size,
            places->items + past, places->count - past, error);
        a->numbers[i] = a->chain.id;
    }
    kvr_buffer_append_u64s(out, a->numbers, status ? 0 : blocks);
    kvr_buffer_append_byte(out, ']');
    return status;
}

static void add_ids(const struct kvr_annotator *a, const char *name, struct kvr_buffer *out)
{
    kvr_line_add(out, name);
    kvr_buffer_append_byte(out, '[');
    kvr_buffer_append_u32s(out, a->ids.data, a->ids.count);
    kvr_buffer_append_byte(out, ']');
}

/* Keeps as many ids as the line and --truncate say. True when some were cut off. */
static bool truncate(struct kvr_annotator *a, const struct kvr_line *line)
{
    bool cut = keep_end(a, kvr_line_get(line, KVR_NAME_TRUNCATE_PROMPT_TOKENS));

    if (!a->options.truncate || a->ids.count <= a->options.truncate)
        return cut;
    a->ids.count = (size_t)a->options.truncate;
    return true;
}

/* Token ids to text; lines that have none pass as they are. */
static enum kvr_status decode_line(struct kvr_annotator *a, const struct kvr_chat_model *model,
    const struct kvr_line *line, enum content content, struct kvr_value value,
    struct kvr_buffer *out, struct kvr_error *error)
{
    static const enum kvr_name dropped[] = {KVR_NAME_PROMPT, KVR_NAME_TOKEN_IDS};

    if (content != IDS_OF_LINE && content != IDS_OF_PROMPT) {
        kvr_buffer_append(out, line->object.text, line->object.length);
        return KVR_OK;
    }
    enum kvr_status status =
        read_ids(a, value, content == IDS_OF_LINE ? no_list : no_prompt, error);
    bool cut = !status && truncate(a, line) && content == IDS_OF_LINE;
    if (!status)
        status = kvr_decode(
            model->tokenizer, a->ids.data, a->ids.count, a->options.skip_special, &a->text, error);
    if (status)
        return status;
    kvr_line_begin(line, out, dropped, cut ? 2 : 1);
    if (cut)
        add_ids(a, "token_ids", out);
    kvr_line_add(out, "prompt");
    kvr_json_write_string(out, a->text.data, a->text.length);
    kvr_line_end(out);
    return KVR_OK;
}

/* Writes the line with what was found. Token ids that it came with are cut as its length is. */
static enum kvr_status write_line(struct kvr_annotator *a, const struct kvr_line *line,
    enum content content, struct kvr_buffer *out, struct kvr_error *error)
{
    const struct kvr_annotate_options *o = &a->options;
    enum kvr_name dropped[5];
    size_t count = 0;
    uint64_t block_size = o->block_size;
    enum kvr_status status = KVR_OK;
    bool cut = truncate(a, line), rendered = content == MESSAGES && o->render;
    bool prompt_cut = cut && content == IDS_OF_PROMPT;
    bool ids = o->ids || (cut && content == IDS_OF_LINE);

    kvr_value_u64(kvr_line_get(line, KVR_NAME_BLOCK_SIZE), &block_size);
    dropped[count++] = KVR_NAME_INPUT_LENGTH;
    if (rendered || prompt_cut)
        dropped[count++] = KVR_NAME_PROMPT;
    if (ids)
        dropped[count++] = KVR_NAME_TOKEN_IDS;
    if (!o->count) {
        dropped[count++] = KVR_NAME_HASH_IDS;
        dropped[count++] = KVR_NAME_BLOCK_SIZE;
    }
    kvr_line_begin(line, out, dropped, count);
    if (rendered) {
        kvr_line_add(out, "prompt");
        kvr_json_write_string(out, a->text.data, a->text.length);
    }
    if (prompt_cut)
        add_ids(a, "prompt", out);
    if (ids)
        add_ids(a, "token_ids", out);
    kvr_line_add(out, "input_length");
    kvr_buffer_append_u64(out, a->ids.count);
    if (!o->count) {
        status = add_hashes(a, line, (size_t)block_size, out, error);
        kvr_line_add(out, "block_size");
        kvr_buffer_append_u64(out, block_size);
    }
    if (a->guessed || (content == MESSAGES && a->chat.approximate)) {
        kvr_line_add(out, "approximate");
        kvr_buffer_append_text(out, "true");
    }
    kvr_line_end(out);
    return status;
}

static void count_line(struct kvr_annotator *a, const struct kvr_line *line, enum content content)
{
    if (content != NO_CONTENT)
        a->counts.tokenized++;
    else if (kvr_value_missing(kvr_line_get(line, KVR_NAME_HASH_IDS)))
        a->counts.without_text++;
    a->counts.guessed += a->guessed;
    if (content == MESSAGES && !a->options.decode)
        a->counts.approximate += a->chat.approximate;
}

enum kvr_status kvr_annotate(struct kvr_annotator *a, const struct kvr_line *line,
    struct kvr_buffer *out, struct kvr_error *error)
{
    const struct kvr_chat_model *model;
    size_t before = out->length;
    enum content content = NO_CONTENT;
    struct kvr_value value;
    bool own = true;

    if (kvr_line_is_event(line)) {
        kvr_buffer_append(out, line->object.text, line->object.length);
        return out->failed ? kvr_error_memory(error) : KVR_OK;
    }
    a->ids.count = 0;
    a->ids.failed = false;
    a->media.count = 0;
    a->guessed = false;
    kvr_buffer_clear(&a->text);
    enum kvr_status status = find_content(line, &content, &value, error);
    if (!status && content == NO_CONTENT) {
        kvr_buffer_append(out, line->object.text, line->object.length);
    } else if (!status) {
        status = kvr_request_check_namespace(line, error);
        if (!status)
            status = kvr_request_check_text(line, error);
        struct kvr_text name = text_member(kvr_line_get(line, KVR_NAME_MODEL), &a->scratch[0]);
        if (!status)
            status = kvr_models_get(a->models, name, &model, &own, error);
        a->guessed = !own && a->options.default_is_guess && content != IDS_OF_LINE &&
                     content != IDS_OF_PROMPT;
        if (!status && a->options.decode)
            status = decode_line(a, model, line, content, value, out, error);
        else if (!status)
            status = read_content(a, model, line, content, value, error);
        if (!status && !a->options.decode)
            status = write_line(a, line, content, out, error);
    }
    if (!status && out->failed)
        status = kvr_error_memory(error);
    if (status)
        out->length = before;
    else
        count_line(a, line, content);
    return status;
}

struct kvr_annotate_counts kvr_annotator_counts(const struct kvr_annotator *annotator)
{
    return annotator->counts;
}
