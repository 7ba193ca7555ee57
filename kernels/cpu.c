/*
 * The CPU backend: the layers of a transformer over rows of tokens.
 *
 * A row is one new token of one sequence. The rows of all steps are taken in order, 504 at a time,
 * through all layers, so that the activations stay small and a later chunk finds the keys and
 * values of an earlier one in the pages. A row meets other rows only in attention, through the
 * pages, and every operation gives a row the same bits in any company (gemm.h, attention_tiled.h):
 * so neither the chunks nor the order of the steps, nor the length of the cached prefix, nor the
 * size of a page or the number of threads can change a result.
 */
#include "kernels/attention_tiled.h"
#include "kernels/backend.h"
#include "kernels/cpu_weights.h"
#include "kernels/kv_pack.h"
#include "kernels/measure.h"
#include "kernels/weight.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CHUNK_ROWS = 504, ROW_JOB = 12, LOGITS_ROWS = 12 };

/* The rows of one step in a chunk. */
struct part {
    const struct kvr_step *step;
    uint32_t row, first, count;
};

/* A tile of attention: tokens `at` and following of a part. */
struct tile_place {
    uint32_t part, at, count;
};

struct kvr_runner {
    struct kvr_shape shape;
    struct kvr_crew *crew;
    struct kvr_tile tile;
    struct kvr_cpu_weights weights;
    struct kvr_pages kv_memory, work_memory;
    struct kvr_kv kv;
    float *kv_floats; /* the pool in single precision; then kv.data is NULL */
    size_t qkv_width, heads_width;
    float *residual, *normed, *qkv, *attended, *gate_up, *inner, *update, *turns, *last, *logits;
    float *scratch; /* of attention, one piece a thread */
    struct part parts[CHUNK_ROWS];
    struct tile_place tiles[CHUNK_ROWS];
    uint32_t positions[CHUNK_ROWS], tokens[CHUNK_ROWS], part_of[CHUNK_ROWS];
    uint32_t rows, part_count, tile_count;
    uint32_t layer;             /* that is being computed */
    const float *norm;          /* of the next norm_rows() */
    const float *norm_added;    /* what it adds to the residual */
    const float *rope_divisors; /* the model file's, which outlives the runner; NULL: none */
    char device[128];
};

/* Calls job for pieces of ROW_JOB rows. */
static void over_rows(struct kvr_runner *runner, void (*job)(void *, size_t, unsigned))
{
    kvr_crew_run(runner->crew, (runner->rows + ROW_JOB - 1) / ROW_JOB, job, runner);
}

static size_t rows_of(const struct kvr_runner *runner, size_t number)
{
    size_t left = runner->rows - number * ROW_JOB;

    return left < ROW_JOB ? left : ROW_JOB;
}

static void embed_rows(void *context, size_t number, unsigned thread)
{
    struct kvr_runner *runner = context;
    const struct kvr_packed *table = &runner->weights.embedding;
    size_t hidden = runner->shape.hidden;

    (void)thread;
    for (size_t row = number * ROW_JOB, end = row + rows_of(runner, number); row < end; row++)
        for (size_t i = 0; i < hidden; i++) {
            size_t at = kvr_gemm_packed_at(runner->tokens[row], i, hidden);
            runner->residual[row * hidden + i] =
                table->floats ? table->floats[at] : kvr_bf16_value(table->halves[at]);
        }
}

static void norm_rows(void *context, size_t number, unsigned thread)
{
    struct kvr_runner *runner = context;
    size_t at = number * ROW_JOB * runner->shape.hidden;

    (void)thread;
    kvr_rms_norm_float(runner->normed + at, runner->residual + at,
        runner->norm_added ? runner->norm_added + at : NULL, runner->norm, rows_of(runner, number),
        runner->shape.hidden, runner->shape.norm_epsilon);
}

static void norm(struct kvr_runner *runner, const float *weight, const float *added)
{
    runner->norm = weight;
    runner->norm_added = added;
    over_rows(runner, norm_rows);
}

/* Biases, head norms, rotation, and the way into the pages. */
static void place_rows(void *context, size_t number, unsigned thread)
{
    struct kvr_runner *runner = context;
    const struct kvr_shape *shape = &runner->shape;
    const struct kvr_cpu_layer *layer = &runner->weights.layers[runner->layer];
    size_t dim = shape->head_dim, width = runner->qkv_width;

    (void)thread;
    for (size_t row = number * ROW_JOB, end = row + rows_of(runner, number); row < end; row++) {
        const struct part *part = &runner->parts[runner->part_of[row]];
        float *query = runner->qkv + row * width, *key = query + runner->heads_width;
        for (size_t i = 0; layer->qkv_bias && i < width; i++)
            query[i] += layer->qkv_bias[i];
        if (shape->head_norms) {
            kvr_rms_norm_float(
                query, query, NULL, layer->query_norm, shape->heads, dim, shape->norm_epsilon);
            kvr_rms_norm_float(
                key, key, NULL, layer->key_norm, shape->kv_heads, dim, shape->norm_epsilon);
        }
        kvr_rope(query, width, runner->turns + row * dim, 1, shape->heads + shape->kv_heads, dim);
        const float *value = key + (size_t)shape->kv_heads * dim;
        if (runner->kv_floats)
            kvr_kv_write_float(&runner->kv, runner->kv_floats, part->step->page_table,
                runner->layer, runner->positions[row], key, value);
        else
            kvr_kv_write(&runner->kv, part->step->page_table, runner->layer, runner->positions[row],
                1, key, value, width);
    }
}

static void attend_tile(void *context, size_t number, unsigned thread)
{
    struct kvr_runner *runner = context;
    const struct tile_place *place = &runner->tiles[number / runner->shape.kv_heads];
    const struct part *part = &runner->parts[place->part];
    size_t row = part->row + place->at;

    kvr_attention_tile(&runner->tile,
        runner->scratch + thread * kvr_attention_scratch(runner->shape.head_dim),
        runner->attended + row * runner->heads_width, runner->qkv + row * runner->qkv_width,
        runner->qkv_width, &runner->kv, runner->kv_floats, part->step->page_table, runner->layer,
        part->first + place->at, place->count, runner->shape.heads,
        (uint32_t)(number % runner->shape.kv_heads));
}

static void activate_rows(void *context, size_t number, unsigned thread)
{
    struct kvr_runner *runner = context;
    size_t row = number * ROW_JOB, inner = runner->shape.inner;

    (void)thread;
    kvr_swiglu(runner->inner + row * inner, runner->gate_up + row * 2 * inner,
        rows_of(runner, number), inner);
}

static void gemm(struct kvr_runner *runner, float *out, const float *x, struct kvr_packed packed,
    size_t outputs, size_t k)
{
    kvr_gemm(runner->crew, &runner->tile, out, x, runner->rows, packed, outputs, k);
}

static void run_layer(struct kvr_runner *runner, uint32_t number)
{
    const struct kvr_shape *shape = &runner->shape;
    const struct kvr_cpu_layer *layer = &runner->weights.layers[number];

    runner->layer = number;
    norm(runner, layer->attention_norm, number > 0 ? runner->update : NULL);
    gemm(runner, runner->qkv, runner->normed, layer->qkv, runner->qkv_width, shape->hidden);
    over_rows(runner, place_rows);
    kvr_crew_run(runner->crew, (size_t)runner->tile_count * shape->kv_heads, attend_tile, runner);
    gemm(runner, runner->update, runner->attended, layer->out, shape->hidden, runner->heads_width);
    norm(runner, layer->inner_norm, runner->update);
    gemm(runner, runner->gate_up, runner->normed, layer->gate_up, (size_t)2 * shape->inner,
        shape->hidden);
    over_rows(runner, activate_rows);
    gemm(runner, runner->update, runner->inner, layer->down, shape->hidden, shape->inner);
}

/* Logits of those parts whose step ends in this chunk, a few at a time. */
static void run_logits(struct kvr_runner *runner)
{
    size_t hidden = runner->shape.hidden, vocabulary = runner->shape.vocabulary;
    const struct part *ending[LOGITS_ROWS];
    size_t count = 0;

    for (uint32_t i = 0; i < runner->part_count; i++) {
        const struct part *part = &runner->parts[i];
        bool ends = part->first + part->count == part->step->first + part->step->count;
        if (ends) {
            memcpy(runner->last + count * hidden,
                runner->normed + (part->row + part->count - 1) * hidden,
                hidden * sizeof *runner->last);
            ending[count++] = part;
        }
        if (count == 0 || (count < LOGITS_ROWS && i + 1 < runner->part_count))
            continue;
        kvr_gemm(runner->crew, &runner->tile, runner->logits, runner->last, count,
            runner->weights.logits, vocabulary, hidden);
        for (size_t at = 0; at < count; at++)
            if (ending[at]->step->logits)
                memcpy(ending[at]->step->logits, runner->logits + at * vocabulary,
                    vocabulary * sizeof(float));
        count = 0;
    }
}

static void run_chunk(struct kvr_runner *runner)
{
    kvr_rope_turns(runner->turns, runner->positions, runner->rows, runner->shape.head_dim,
        runner->shape.rope_theta, runner->rope_divisors);
    over_rows(runner, embed_rows);
    for (uint32_t layer = 0; layer < runner->shape.layers; layer++)
        run_layer(runner, layer);
    norm(runner, runner->weights.final_norm, runner->update);
    run_logits(runner);
}

/* Takes rows of a step into the chunk; returns how many found room. */
static uint32_t take(struct kvr_runner *runner, const struct kvr_step *step, uint32_t done)
{
    uint32_t count = step->count - done, room = CHUNK_ROWS - runner->rows;
    uint32_t tile = kvr_attention_tile_tokens(runner->shape.heads, runner->shape.kv_heads);

    if (count > room)
        count = room;
    runner->parts[runner->part_count] =
        (struct part){step, runner->rows, step->first + done, count};
    for (uint32_t at = 0; at < count; at += tile)
        runner->tiles[runner->tile_count++] =
            (struct tile_place){runner->part_count, at, count - at < tile ? count - at : tile};
    for (uint32_t i = 0; i < count; i++) {
        runner->positions[runner->rows] = step->first + done + i;
        runner->tokens[runner->rows] = step->tokens[done + i];
        runner->part_of[runner->rows++] = runner->part_count;
    }
    runner->part_count++;
    return count;
}

static enum kvr_status check_step(
    const struct kvr_runner *runner, const struct kvr_step *step, struct kvr_error *error)
{
    uint64_t end = (uint64_t)step->first + step->count;

    if (step->count == 0 || end > UINT32_MAX)
        return kvr_error_set(error, KVR_BAD_USAGE, "a step has no tokens, or too many");
    for (uint32_t i = 0; i < step->count; i++)
        if (step->tokens[i] >= runner->shape.vocabulary)
            return kvr_error_set(error, KVR_BAD_INPUT, "token %u is not in the vocabulary of %u",
                step->tokens[i], runner->shape.vocabulary);
    for (uint64_t i = 0; i < (end + runner->kv.page_tokens - 1) / runner->kv.page_tokens; i++)
        if (step->page_table[i] >= runner->kv.pages)
            return kvr_error_set(error, KVR_BAD_USAGE, "page %u is not in the pool of %u",
                step->page_table[i], runner->kv.pages);
    return KVR_OK;
}

static enum kvr_status cpu_run(
    struct kvr_runner *runner, const struct kvr_step *steps, size_t count, struct kvr_error *error)
{
    for (size_t i = 0; i < count; i++) {
        enum kvr_status status = check_step(runner, &steps[i], error);
        if (status != KVR_OK)
            return status;
    }
    runner->rows = runner->part_count = runner->tile_count = 0;
    for (size_t i = 0; i < count; i++) {
        for (uint32_t done = 0; done < steps[i].count;) {
            done += take(runner, &steps[i], done);
            if (runner->rows < CHUNK_ROWS)
                continue;
            run_chunk(runner);
            runner->rows = runner->part_count = runner->tile_count = 0;
        }
    }
    if (runner->rows > 0)
        run_chunk(runner);
    return KVR_OK;
}

static void cpu_destroy(struct kvr_runner *runner)
{
    if (!runner)
        return;
    kvr_cpu_weights_release(&runner->weights);
    kvr_pages_release(&runner->kv_memory);
    kvr_pages_release(&runner->work_memory);
    kvr_crew_destroy(runner->crew);
    free(runner);
}

static const char *cpu_device(const struct kvr_runner *runner)
{
    return runner->device;
}

/* Cuts the work memory into arrays; with NULL only counts. */
static size_t cut_work(struct kvr_runner *runner, float *data, unsigned threads)
{
    const struct kvr_shape *shape = &runner->shape;
    const struct {
        float **array;
        size_t size;
    } arrays[] = {
        {&runner->residual, (size_t)CHUNK_ROWS * shape->hidden},
        {&runner->normed, (size_t)CHUNK_ROWS * shape->hidden},
        {&runner->update, (size_t)CHUNK_ROWS * shape->hidden},
        {&runner->qkv, CHUNK_ROWS * runner->qkv_width},
        {&runner->attended, CHUNK_ROWS * runner->heads_width},
        {&runner->gate_up, (size_t)CHUNK_ROWS * 2 * shape->inner},
        {&runner->inner, (size_t)CHUNK_ROWS * shape->inner},
        {&runner->turns, (size_t)CHUNK_ROWS * shape->head_dim},
        {&runner->last, (size_t)LOGITS_ROWS * shape->hidden},
        {&runner->logits, (size_t)LOGITS_ROWS * shape->vocabulary},
        {&runner->scratch, threads * kvr_attention_scratch(shape->head_dim)},
    };
    size_t used = 0;

    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        *arrays[i].array = data ? data + used : NULL;
        used += (arrays[i].size + 15) / 16 * 16;
    }
    return used;
}

static void name_device(struct kvr_runner *runner)
{
    char line[256], model[96] = "CPU";
    FILE *file = fopen("/proc/cpuinfo", "r");

    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "model name : %95[^\n]", model) == 1)
            break;
    if (file)
        fclose(file);
    snprintf(runner->device, sizeof runner->device, "%.80s, %u threads, %s", model,
        kvr_crew_threads(runner->crew), runner->tile.name);
}

enum kvr_status kvr_cpu_create(const struct kvr_backend_options *options,
    const struct kvr_model_file *file, bool float_kv, struct kvr_runner **out,
    struct kvr_error *error)
{
    const struct kvr_shape *shape = options->shape;
    double kv_bytes = kvr_shape_kv_bytes_per_token(shape) * options->pages * options->page_tokens *
                      (float_kv ? 2 : 1);
    double wanted = kvr_cpu_weights_bytes(shape, file) + kv_bytes;
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    struct kvr_runner *runner;
    struct kvr_tile tiles[3];

    if (options->page_tokens == 0)
        return kvr_error_set(error, KVR_BAD_USAGE, "a page has no tokens");
    if (wanted > memory)
        return kvr_error_set(error, KVR_UNSUPPORTED,
            "%s with its KV cache takes %.1f GiB and this machine has %.1f", shape->name,
            wanted / 0x1p30, memory / 0x1p30);
    if (!(runner = calloc(1, sizeof *runner)))
        return kvr_error_memory(error);
    runner->shape = *shape;
    runner->rope_divisors = file ? kvr_model_file_rope_divisors(file) : NULL;
    kvr_tiles(tiles);
    runner->tile = tiles[0];
    runner->heads_width = (size_t)shape->heads * shape->head_dim;
    runner->qkv_width = runner->heads_width + (size_t)2 * shape->kv_heads * shape->head_dim;
    runner->kv = (struct kvr_kv){NULL, shape->layers, options->pages, shape->kv_heads,
        shape->head_dim, options->page_tokens};
    enum kvr_status status = kvr_crew_create(options->threads, &runner->crew, error);
    if (status == KVR_OK && (!kvr_pages_grow(&runner->kv_memory, (size_t)kv_bytes) ||
                                !kvr_pages_grow(&runner->work_memory,
                                    cut_work(runner, NULL, options->threads) * sizeof(float))))
        status = kvr_error_memory(error);
    if (status == KVR_OK) {
        if (float_kv)
            runner->kv_floats = runner->kv_memory.data;
        else
            runner->kv.data = runner->kv_memory.data;
        cut_work(runner, runner->work_memory.data, options->threads);
        status =
            kvr_cpu_weights_make(&runner->weights, shape, options->seed, file, runner->crew, error);
    }
    if (status != KVR_OK) {
        cpu_destroy(runner);
        return status;
    }
    name_device(runner);
    *out = runner;
    return KVR_OK;
}

static enum kvr_status cpu_create(
    const struct kvr_backend_options *options, struct kvr_runner **out, struct kvr_error *error)
{
    return kvr_cpu_create(options, NULL, false, out, error);
}

static double cpu_matrix_flops(struct kvr_runner *runner)
{
    return kvr_measure_sgemm_flops(kvr_crew_threads(runner->crew));
}

struct kvr_kv *kvr_cpu_kv(struct kvr_runner *runner)
{
    return &runner->kv;
}

float *kvr_cpu_kv_floats(struct kvr_runner *runner)
{
    return runner->kv_floats;
}

static enum kvr_status only_halves(struct kvr_error *error)
{
    return kvr_error_set(error, KVR_UNSUPPORTED,
        "keys and values in single precision are neither packed nor copied");
}

static enum kvr_status cpu_pack(struct kvr_runner *runner, const uint32_t *page_table,
    uint32_t tokens, const struct kvr_codec_level *level, uint8_t **bytes, size_t *size,
    struct kvr_error *error)
{
    struct kvr_buffer packed = {0};
    enum kvr_status status = runner->kv_floats ? only_halves(error)
                                               : kvr_codec_pack(&runner->kv, page_table, tokens,
                                                     level, runner->crew, &packed, error);

    if (status != KVR_OK)
        kvr_buffer_release(&packed);
    *bytes = (uint8_t *)packed.data;
    *size = packed.length;
    return status;
}

static enum kvr_status cpu_unpack(struct kvr_runner *runner, const uint32_t *page_table,
    uint32_t max_tokens, const uint8_t *bytes, size_t size, uint32_t *tokens,
    struct kvr_error *error)
{
    if (runner->kv_floats)
        return only_halves(error);
    return kvr_codec_unpack(
        &runner->kv, page_table, max_tokens, bytes, size, runner->crew, tokens, error);
}

static enum kvr_status cpu_copy_pages(struct kvr_runner *runner, const uint32_t *pages,
    uint32_t count, void *host, bool out, struct kvr_error *error)
{
    const struct kvr_kv *kv = &runner->kv;
    size_t bytes = (size_t)2 * kv->kv_heads * kv->page_tokens * kv->head_dim * sizeof *kv->data;
    char *place = host;

    if (runner->kv_floats)
        return only_halves(error);
    for (uint32_t i = 0; i < count; i++) {
        if (pages[i] >= kv->pages)
            return kvr_error_set(error, KVR_BAD_USAGE, "page %u is not in the pool", pages[i]);
        for (uint32_t layer = 0; layer < kv->layers; layer++, place += bytes) {
            char *page = (char *)kv->data + ((size_t)layer * kv->pages + pages[i]) * bytes;
            memcpy(out ? place : page, out ? page : place, bytes);
        }
    }
    return KVR_OK;
}

static enum kvr_status cpu_copy_rates(
    struct kvr_runner *runner, struct kvr_copy_rates *rates, struct kvr_error *error)
{
    (void)runner;
    *rates = (struct kvr_copy_rates){.on_device = kvr_measure_copy()};
    return rates->on_device > 0 ? KVR_OK : kvr_error_memory(error);
}

const struct kvr_backend kvr_cpu_backend = {"cpu", cpu_create, cpu_destroy, cpu_run, cpu_device,
    cpu_matrix_flops, 0, cpu_pack, cpu_unpack, cpu_copy_pages, cpu_copy_rates};
