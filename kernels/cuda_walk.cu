/*
 * A step on its way through the layers. Rows of all steps are taken in order, CHUNK_ROWS at a time.
 * Each GPU computes its heads and its part of the inner width for all rows; after the attention's
 * and the inner layer's last product the parts are added up (Shoeybi et al., arXiv:1909.08053), so
 * that every GPU goes on with the same residual. The first one computes the logits.
 *
 * A chunk of at most SHORT_ROWS rows is padded to a power of two, with or without graphs: its rows
 * beyond the last have token 0 at position 0 and write to a page that is nobody's.
 */
#include "kernels/cuda_runner.h"

static void multiply(struct kvr_runner *runner, struct kvr_cuda_rank *rank, uint16_t *out,
    const uint16_t *x, const struct kvr_cuda_matrix *weights, uint32_t rows, uint32_t outputs,
    uint32_t k)
{
    if (runner->fp8) {
        kvr_cuda_fp8(rank->stream, rank->bytes, rank->scale, x, static_cast<size_t>(rows) * k);
        keep_true(runner, kvr_cuda_gemm_fp8(rank->gemm, out, rank->bytes, rank->scale,
                              weights->bytes, weights->scale, rows, outputs, k));
    } else {
        keep_true(runner, kvr_cuda_gemm(rank->gemm, out, x, weights->numbers, rows, outputs, k));
    }
}

static void norm(struct kvr_runner *runner, struct kvr_cuda_rank *rank, uint32_t rows,
    const uint16_t *weight, const uint16_t *added)
{
    uint32_t hidden = runner->shape.hidden;

    kvr_cuda_rms_norm(rank->stream, rank->normed, rank->residual, added, weight, rows, hidden, 1,
        hidden, runner->shape.norm_epsilon);
}

/* From the residual to the attention's update. */
static void attend(struct kvr_runner *runner, struct kvr_cuda_rank *rank, uint32_t number,
    const struct kvr_cuda_size *size)
{
    const struct kvr_shape *shape = &runner->shape;
    const struct device_layer *layer = &rank->layers[number];
    uint32_t dim = shape->head_dim, heads = rank->heads * dim, kv_heads = rank->kv_heads * dim;
    uint32_t width = heads + 2 * kv_heads, rows = size->rows;
    const uint32_t *positions = rank->numbers + CHUNK_ROWS, *slots = positions + CHUNK_ROWS;
    uint16_t *keys = rank->qkv + heads;
    struct kvr_cuda_kv kv = {rank->kv + static_cast<size_t>(number) * (runner->pages + 1) * 2 *
                                            kv_heads * runner->page_tokens,
        rank->kv_heads, dim, runner->page_tokens};

    norm(runner, rank, rows, layer->attention_norm, number > 0 ? rank->update : nullptr);
    multiply(runner, rank, rank->qkv, rank->normed, &layer->qkv, rows, width, shape->hidden);
    if (shape->head_norms) {
        kvr_cuda_rms_norm(rank->stream, rank->qkv, rank->qkv, nullptr, layer->query_norm, rows,
            width, rank->heads, dim, shape->norm_epsilon);
        kvr_cuda_rms_norm(rank->stream, keys, keys, nullptr, layer->key_norm, rows, width,
            rank->kv_heads, dim, shape->norm_epsilon);
    }
    kvr_cuda_rope(rank->stream, rank->qkv, width, rank->turns, positions, rows,
        rank->heads + rank->kv_heads, dim);
    kvr_cuda_kv_write(rank->stream, &kv, slots, keys, keys + kv_heads, width, rows);
    keep_true(runner, kvr_cuda_attention(rank->stream, rank->attended, rank->qkv, width, &kv,
                          rank->tables, rank->parts, size->parts, size->longest_part, rank->heads));
    multiply(runner, rank, rank->update, rank->attended, &layer->out, rows, shape->hidden, heads);
}

/* From the attention's update to the inner layer's. */
static void transform(
    struct kvr_runner *runner, struct kvr_cuda_rank *rank, uint32_t number, uint32_t rows)
{
    const struct device_layer *layer = &rank->layers[number];
    uint32_t hidden = runner->shape.hidden;

    norm(runner, rank, rows, layer->inner_norm, rank->update);
    multiply(
        runner, rank, rank->gate_up, rank->normed, &layer->gate_up, rows, 2 * rank->inner, hidden);
    kvr_cuda_swiglu(rank->stream, rank->activated, rank->gate_up, rows, rank->inner);
    multiply(runner, rank, rank->update, rank->activated, &layer->down, rows, hidden, rank->inner);
}

static struct kvr_cuda_rank *use(struct kvr_runner *runner, uint32_t number)
{
    if (runner->rank_count > 1)
        keep(runner, cudaSetDevice(runner->ranks[number].device));
    return &runner->ranks[number];
}

static void add_up(struct kvr_runner *runner, uint32_t rows)
{
    uint16_t *updates[RANKS];
    cudaStream_t streams[RANKS];

    if (runner->rank_count == 1)
        return;
    for (uint32_t i = 0; i < runner->rank_count; i++) {
        updates[i] = runner->ranks[i].update;
        streams[i] = runner->ranks[i].stream;
    }
    keep_true(runner, kvr_cuda_link_sum(runner->link, updates, streams,
                          static_cast<size_t>(rows) * runner->shape.hidden));
}

/* Logits of `count` rows that stand in numbers[3] from `at` on. */
static void start_logits(struct kvr_runner *runner, uint32_t at, uint32_t count)
{
    struct kvr_cuda_rank *rank = use(runner, 0);

    kvr_cuda_logits(rank->stream, rank->logits, rank->normed, rank->numbers + 3 * CHUNK_ROWS + at,
        count, rank->logits_table, runner->shape.vocabulary, runner->shape.hidden);
}

void kvr_cuda_walk(struct kvr_runner *runner, const struct kvr_cuda_size *size)
{
    for (uint32_t i = 0; i < runner->rank_count; i++) {
        struct kvr_cuda_rank *rank = use(runner, i);
        kvr_cuda_embed(rank->stream, rank->residual, rank->embedding, rank->numbers, size->rows,
            runner->shape.hidden);
    }
    for (uint32_t layer = 0; layer < runner->shape.layers; layer++) {
        for (uint32_t i = 0; i < runner->rank_count; i++)
            attend(runner, use(runner, i), layer, size);
        add_up(runner, size->rows);
        for (uint32_t i = 0; i < runner->rank_count; i++)
            transform(runner, use(runner, i), layer, size->rows);
        add_up(runner, size->rows);
    }
    struct kvr_cuda_rank *rank = use(runner, 0);
    norm(runner, rank, size->rows, rank->final_norm, rank->update);
    start_logits(runner, 0, size->logits);
}

static void send(
    struct kvr_runner *runner, struct kvr_cuda_rank *rank, void *to, const void *from, size_t bytes)
{
    keep(runner, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, rank->stream));
}

/* Steps that end in this chunk, their last rows in numbers[3]. */
static uint32_t find_ending(struct kvr_runner *runner, const struct kvr_step **ending)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < runner->part_count; i++) {
        const struct kvr_cuda_part *part = &runner->host_parts[i];
        if (part->first + part->count != runner->steps[i]->first + runner->steps[i]->count)
            continue;
        ending[count] = runner->steps[i];
        runner->host_numbers[3][count++] = part->row + part->count - 1;
    }
    return count;
}

static uint32_t round_up(uint32_t number)
{
    uint32_t rounded = 1;

    while (rounded < number)
        rounded *= 2;
    return number > 0 ? rounded : 0;
}

/* Pads a short chunk; returns what grids are to be made from. */
static struct kvr_cuda_size settle_size(struct kvr_runner *runner, uint32_t ending)
{
    struct kvr_cuda_size size = {runner->rows, runner->part_count, 0,
        ending < LOGITS_ROWS ? ending : static_cast<uint32_t>(LOGITS_ROWS)};

    for (uint32_t i = 0; i < runner->part_count; i++)
        if (runner->host_parts[i].count > size.longest_part)
            size.longest_part = runner->host_parts[i].count;
    if (runner->rows > SHORT_ROWS || runner->fp8)
        return size;
    size = kvr_cuda_size{
        round_up(size.rows), round_up(size.parts), round_up(size.rows), round_up(size.logits)};
    for (uint32_t i = runner->rows; i < size.rows; i++) {
        runner->host_numbers[0][i] = runner->host_numbers[1][i] = 0;
        runner->host_numbers[2][i] = runner->pages * runner->page_tokens;
    }
    for (uint32_t i = runner->part_count; i < size.parts; i++)
        runner->host_parts[i] = kvr_cuda_part{0, 0, 0, 0};
    for (uint32_t i = ending; i < size.logits; i++)
        runner->host_numbers[3][i] = 0;
    return size;
}

/* Room for the chunk's page tables on all GPUs. */
static bool grow_tables(struct kvr_runner *runner)
{
    if (runner->table_used <= runner->table_room)
        return true;
    kvr_cuda_forget_graphs(runner); /* they know the old address */
    runner->table_room = 0;
    for (uint32_t i = 0; i < runner->rank_count; i++) {
        struct kvr_cuda_rank *rank = use(runner, i);
        cudaFree(rank->tables);
        rank->tables = nullptr;
        keep(runner, cudaMalloc(&rank->tables, 2 * runner->table_used * sizeof(uint32_t)));
    }
    if (runner->failure == cudaSuccess)
        runner->table_room = 2 * runner->table_used;
    return runner->failure == cudaSuccess;
}

static void fetch_logits(
    struct kvr_runner *runner, const struct kvr_step *const *ending, uint32_t count)
{
    struct kvr_cuda_rank *rank = use(runner, 0);
    size_t vocabulary = runner->shape.vocabulary;

    for (uint32_t i = 0; i < count; i++)
        if (ending[i]->logits)
            keep(runner, cudaMemcpyAsync(ending[i]->logits, rank->logits + i * vocabulary,
                             vocabulary * sizeof(float), cudaMemcpyDeviceToHost, rank->stream));
}

static void run_chunk(struct kvr_runner *runner)
{
    const struct kvr_step *ending[CHUNK_ROWS];
    uint32_t count = find_ending(runner, ending);
    struct kvr_cuda_size size = settle_size(runner, count);
    uint32_t last_rows = count > size.logits ? count : size.logits;

    if (!grow_tables(runner))
        return;
    for (uint32_t i = 0; i < runner->rank_count; i++) {
        struct kvr_cuda_rank *rank = use(runner, i);
        send(
            runner, rank, rank->tables, runner->host_tables, runner->table_used * sizeof(uint32_t));
        send(
            runner, rank, rank->parts, runner->host_parts, size.parts * sizeof *runner->host_parts);
        for (int j = 0; j < 4; j++)
            send(runner, rank, rank->numbers + j * CHUNK_ROWS, runner->host_numbers[j],
                (j < 3 ? size.rows : last_rows) * sizeof(uint32_t));
    }
    if (size.rows > SHORT_ROWS || runner->eager || runner->fp8 || runner->rank_count > 1)
        kvr_cuda_walk(runner, &size);
    else
        kvr_cuda_walk_graph(runner, &size);
    for (uint32_t at = 0; at < count; at += LOGITS_ROWS) {
        uint32_t now = count - at < LOGITS_ROWS ? count - at : static_cast<uint32_t>(LOGITS_ROWS);
        if (at > 0)
            start_logits(runner, at, now);
        fetch_logits(runner, ending + at, now);
    }
    for (uint32_t i = 0; i < runner->rank_count; i++)
        keep(runner, cudaStreamSynchronize(use(runner, i)->stream));
    keep(runner, cudaGetLastError());
    runner->rows = runner->part_count = 0;
    runner->table_used = 0;
}

/* Takes rows of a step into the chunk; 0 when memory is short. */
static uint32_t take(struct kvr_runner *runner, const struct kvr_step *step, uint32_t done)
{
    uint32_t count = step->count - done, room = CHUNK_ROWS - runner->rows;
    if (count > room)
        count = room;
    uint32_t first = step->first + done;
    size_t pages = (static_cast<size_t>(first) + count - 1) / runner->page_tokens + 1;

    if (runner->table_used + pages > runner->host_table_room) {
        size_t wanted = 2 * (runner->table_used + pages);
        void *grown = realloc(runner->host_tables, wanted * sizeof(uint32_t));
        if (!grown)
            return 0;
        runner->host_tables = static_cast<uint32_t *>(grown);
        runner->host_table_room = wanted;
    }
    memcpy(runner->host_tables + runner->table_used, step->page_table, pages * sizeof(uint32_t));
    runner->host_parts[runner->part_count] =
        kvr_cuda_part{runner->rows, count, first, static_cast<uint32_t>(runner->table_used)};
    runner->steps[runner->part_count++] = step;
    runner->table_used += pages;
    for (uint32_t i = 0; i < count; i++, runner->rows++) {
        uint32_t position = first + i;
        runner->host_numbers[0][runner->rows] = step->tokens[done + i];
        runner->host_numbers[1][runner->rows] = position;
        runner->host_numbers[2][runner->rows] =
            step->page_table[position / runner->page_tokens] * runner->page_tokens +
            position % runner->page_tokens;
    }
    return count;
}

static enum kvr_status check_step(
    const struct kvr_runner *runner, const struct kvr_step *step, struct kvr_error *error)
{
    uint64_t end = static_cast<uint64_t>(step->first) + step->count;
    uint64_t positions = static_cast<uint64_t>(runner->pages) * runner->page_tokens;

    if (step->count == 0 || end > positions)
        return fail(error, KVR_BAD_USAGE, "a step has no tokens, or more than the KV cache", "");
    for (uint32_t i = 0; i < step->count; i++)
        if (step->tokens[i] >= runner->shape.vocabulary)
            return fail(error, KVR_BAD_INPUT, "a token is not in the vocabulary", "");
    for (uint64_t i = 0; i < (end + runner->page_tokens - 1) / runner->page_tokens; i++)
        if (step->page_table[i] >= runner->pages)
            return fail(error, KVR_BAD_USAGE, "a page is not in the pool", "");
    return KVR_OK;
}

enum kvr_status kvr_cuda_run(
    struct kvr_runner *runner, const struct kvr_step *steps, size_t count, struct kvr_error *error)
{
    for (size_t i = 0; i < count; i++) {
        enum kvr_status status = check_step(runner, &steps[i], error);
        if (status != KVR_OK)
            return status;
    }
    runner->rows = runner->part_count = 0;
    runner->table_used = 0;
    for (size_t i = 0; i < count; i++) {
        for (uint32_t done = 0; done < steps[i].count;) {
            uint32_t taken = take(runner, &steps[i], done);
            if (taken == 0)
                return fail(error, KVR_NO_MEMORY, "out of memory", "");
            done += taken;
            if (runner->rows == CHUNK_ROWS)
                run_chunk(runner);
        }
    }
    if (runner->rows > 0)
        run_chunk(runner);
    if (runner->failure != cudaSuccess)
        return fail(error, KVR_IO, "the GPU failed", cudaGetErrorString(runner->failure));
    return KVR_OK;
}
