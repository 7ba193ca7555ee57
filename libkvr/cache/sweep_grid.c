/* Reading --sweep, and printing its cells. */
#include "cache/sweep.h"

#include "base/grow.h"
#include "cache/evict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct axes {
    struct kvr_text_piece policies, admissions, pools;
    uint64_t *sizes;
    size_t size_count, size_room;
};

static enum kvr_status read_capacity(const struct kvr_sweep *sweep, struct kvr_text_piece piece,
    uint64_t *blocks, struct kvr_error *error)
{
    struct kvr_capacity capacity;
    char text[64];

    if (piece.length >= sizeof text)
        return kvr_error_set(error, KVR_BAD_USAGE, "size: too long a text");
    memcpy(text, piece.text, piece.length);
    text[piece.length] = '\0';
    enum kvr_status status = kvr_quantity_capacity(text, &capacity, error);
    if (status == KVR_OK)
        status = kvr_capacity_blocks(
            &capacity, sweep->block_tokens, sweep->kv_bytes_per_token, blocks, error);
    if (status != KVR_OK)
        return kvr_error_prefix(error, "size");
    if (!*blocks)
        *blocks = 1; /* less than a block is rounded up: a sweep begins somewhere */
    return KVR_OK;
}

static enum kvr_status add_size(struct axes *axes, uint64_t blocks, struct kvr_error *error)
{
    for (size_t i = 0; i < axes->size_count; i++)
        if (axes->sizes[i] == blocks)
            return KVR_OK;
    uint64_t *sizes = kvr_grow(axes->sizes, &axes->size_room, axes->size_count + 1, sizeof *sizes);
    if (!sizes)
        return kvr_error_memory(error);
    axes->sizes = sizes;
    sizes[axes->size_count++] = blocks;
    return KVR_OK;
}

/* FIRST:LAST:xFACTOR or FIRST:LAST:+STEP */
static enum kvr_status add_range(const struct kvr_sweep *sweep, struct axes *axes,
    struct kvr_text_piece first, struct kvr_text_piece last, struct kvr_text_piece step,
    struct kvr_error *error)
{
    uint64_t from, to, by = 0;
    double factor = 0;
    char text[32];

    enum kvr_status status = read_capacity(sweep, first, &from, error);
    if (status == KVR_OK)
        status = read_capacity(sweep, last, &to, error);
    if (status != KVR_OK)
        return status;
    if (step.length > 1 && *step.text == '+') {
        step.text++, step.length--;
        status = read_capacity(sweep, step, &by, error);
        if (status != KVR_OK)
            return status;
    } else {
        if (step.length > 2 && !memcmp(step.text, "\xc3\x97", 2))
            step.text += 2, step.length -= 2;
        else if (step.length > 1 && (*step.text == 'x' || *step.text == '*'))
            step.text++, step.length--;
        snprintf(text, sizeof text, "%.*s", (int)step.length, step.text);
        status = kvr_quantity_real(text, &factor, error);
        if (status != KVR_OK || !(factor > 1))
            return kvr_error_set(error, KVR_BAD_USAGE,
                "size: a range is FIRST:LAST:xFACTOR with a factor above 1, or FIRST:LAST:+STEP");
    }
    double at = (double)from;
    for (int steps = 0; at <= (double)to * (1 + 1e-9); steps++) {
        if (steps > KVR_SWEEP_CELLS_MOST)
            return kvr_error_set(error, KVR_BAD_USAGE, "size: too many steps");
        status = add_size(axes, (uint64_t)llround(at), error);
        if (status != KVR_OK)
            return status;
        at = by ? at + (double)by : at * factor;
    }
    return KVR_OK;
}

static enum kvr_status add_sizes(const struct kvr_sweep *sweep, struct axes *axes,
    struct kvr_text_piece list, struct kvr_error *error)
{
    struct kvr_text_piece item, first, last, step;
    enum kvr_status status = KVR_OK;

    while (status == KVR_OK && kvr_list_next(&list, ',', &item)) {
        uint64_t blocks;
        struct kvr_text_piece rest = item;
        kvr_list_next(&rest, ':', &first);
        if (!kvr_list_next(&rest, ':', &last)) {
            status = read_capacity(sweep, item, &blocks, error);
            if (status == KVR_OK)
                status = add_size(axes, blocks, error);
        } else {
            if (!kvr_list_next(&rest, ':', &step))
                step = (struct kvr_text_piece){"x2", 2};
            status = add_range(sweep, axes, first, last, step, error);
        }
    }
    return status;
}

static enum kvr_status read_axis(const struct kvr_sweep *sweep, struct axes *axes,
    struct kvr_text_piece axis, struct kvr_error *error)
{
    const char *equals = memchr(axis.text, '=', axis.length);
    size_t name = equals ? (size_t)(equals - axis.text) : 0;
    struct kvr_text_piece list = {axis.text + name + 1, equals ? axis.length - name - 1 : 0};

    if (name == 6 && !memcmp(axis.text, "policy", 6))
        axes->policies = list;
    else if (name == 9 && !memcmp(axis.text, "admission", 9))
        axes->admissions = list;
    else if (name == 4 && !memcmp(axis.text, "pool", 4))
        axes->pools = list;
    else if (name == 4 && !memcmp(axis.text, "size", 4))
        return add_sizes(sweep, axes, list, error);
    else
        return kvr_error_set(error, KVR_BAD_USAGE,
            "'%.*s' is no axis; there are policy=, size=, admission= and pool=",
            (int)(axis.length < 40 ? axis.length : 40), axis.text);
    return KVR_OK;
}

static enum kvr_status read_pool(
    struct kvr_text_piece piece, double *share, struct kvr_error *error)
{
    char text[32];
    char *end;

    snprintf(text, sizeof text, "%.*s", (int)piece.length, piece.text);
    *share = strtod(text, &end);
    if (*end == '%' && end != text) {
        *share /= 100;
        end++;
    }
    if (end == text || *end || !(*share >= 0 && *share < 1))
        return kvr_error_set(error, KVR_BAD_USAGE, "pool: '%s' is not a share such as 30%%", text);
    return KVR_OK;
}

static enum kvr_status add_cells(
    struct kvr_sweep *sweep, const struct axes *axes, uint64_t blocks, struct kvr_error *error)
{
    struct kvr_text_piece policies = axes->policies, policy, admission, pool;
    enum kvr_status status = KVR_OK;

    while (status == KVR_OK && kvr_list_next(&policies, ',', &policy)) {
        struct kvr_text_piece admissions = axes->admissions;
        while (status == KVR_OK && kvr_list_next(&admissions, ',', &admission)) {
            struct kvr_text_piece pools = axes->pools;
            while (status == KVR_OK && kvr_list_next(&pools, ',', &pool)) {
                double share;
                status = read_pool(pool, &share, error);
                if (status == KVR_OK)
                    status = kvr_sweep_add(sweep, policy, admission, blocks, share, NULL, error);
            }
        }
    }
    return status;
}

enum kvr_status kvr_sweep_grid(struct kvr_sweep *sweep, const char *grid, struct kvr_error *error)
{
    struct axes axes = {.policies = {"lru", 3}, .admissions = {"always", 6}, .pools = {"0", 1}};
    struct kvr_text_piece rest = {grid, strlen(grid)}, axis;
    enum kvr_status status = KVR_OK;

    while (status == KVR_OK && kvr_list_next(&rest, ' ', &axis))
        if (axis.length)
            status = read_axis(sweep, &axes, axis, error);
    if (status == KVR_OK && !axes.size_count)
        status = kvr_error_set(
            error, KVR_BAD_USAGE, "a sweep needs sizes, as size=10k:10M:x2 (or 100b:10kb:x2)");
    for (size_t i = 0; i < axes.size_count && status == KVR_OK; i++) {
        struct kvr_sweep_cell *ceiling;
        status = add_cells(sweep, &axes, axes.sizes[i], error);
        if (status == KVR_OK)
            status = kvr_sweep_add(sweep, (struct kvr_text_piece){"belady-bypass", 13},
                (struct kvr_text_piece){"always", 6}, axes.sizes[i], 0, &ceiling, error);
        if (status == KVR_OK)
            ceiling->ceiling = true;
    }
    free(axes.sizes);
    return status;
}

/* ── printing ── */

static double rate(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

static void append_text(struct kvr_buffer *out, const char *name, const char *text)
{
    kvr_buffer_append_format(out, "\"%s\":\"%s\",", name, text);
}

static void append_u64(struct kvr_buffer *out, const char *name, uint64_t number)
{
    kvr_buffer_append_format(out, "\"%s\":%llu,", name, (unsigned long long)number);
}

static void append_real(struct kvr_buffer *out, const char *name, double number, const char *end)
{
    kvr_buffer_append_format(out, "\"%s\":", name);
    kvr_append_decimal(out, number, 6);
    kvr_buffer_append_text(out, end);
}

void kvr_sweep_write_json(const struct kvr_sweep *sweep, struct kvr_buffer *out)
{
    double block_bytes = sweep->block_tokens * sweep->kv_bytes_per_token;

    for (size_t i = 0; i < sweep->cell_count; i++) {
        const struct kvr_sweep_cell *cell = &sweep->cells[i];
        const struct kvr_sweep_cell *ceiling = kvr_sweep_ceiling(sweep, cell->capacity_blocks);
        kvr_buffer_append_byte(out, '{');
        append_text(out, "policy", cell->policy_text);
        append_text(out, "admission", cell->admission_text);
        append_real(out, "pool", cell->pool_shared, ",");
        append_u64(out, "capacity_blocks", cell->capacity_blocks);
        append_u64(out, "capacity_tokens", cell->capacity_blocks * sweep->block_tokens);
        append_u64(
            out, "capacity_bytes", (uint64_t)llround((double)cell->capacity_blocks * block_bytes));
        append_u64(out, "requests", cell->requests);
        append_u64(out, "accesses", cell->accesses);
        append_u64(out, "hits", cell->hits);
        append_u64(out, "prompt_tokens", cell->prompt_tokens);
        append_u64(out, "hit_tokens", cell->hit_tokens);
        append_real(out, "token_hit_rate", rate(cell->hit_tokens, cell->prompt_tokens), ",");
        append_real(
            out, "of_ceiling", ceiling ? rate(cell->hit_tokens, ceiling->hit_tokens) : 0, ",");
        append_real(out, "saved_prefill_ms", cell->saved_ms, ",");
        append_u64(out, "insertions", cell->inserted);
        append_u64(out, "evictions", cell->evicted);
        append_u64(out, "refused", cell->refused);
        append_real(out, "written_bytes", (double)cell->inserted * block_bytes, "}\n");
    }
}

void kvr_sweep_write_table(const struct kvr_sweep *sweep, struct kvr_buffer *out)
{
    double block_bytes = sweep->block_tokens * sweep->kv_bytes_per_token;
    uint64_t size = 0;

    kvr_buffer_append_format(out, "%-24s %-20s %6s %12s %14s %9s %8s %8s %12s %12s %12s\n",
        "policy", "admission", "pool", "blocks", "tokens", "GiB", "tokens%", "of best", "saved s",
        "evicted", "written GiB");
    for (size_t i = 0; i < sweep->cell_count; i++) {
        const struct kvr_sweep_cell *cell = &sweep->cells[i];
        const struct kvr_sweep_cell *ceiling = kvr_sweep_ceiling(sweep, cell->capacity_blocks);
        if (i && cell->capacity_blocks != size)
            kvr_buffer_append_byte(out, '\n');
        size = cell->capacity_blocks;
        kvr_buffer_append_format(out,
            "%-24s %-20s %5.0f%% %12llu %14llu %9.2f %7.2f%% %7.1f%% %12.1f %12llu %12.1f\n",
            cell->policy_text, cell->admission_text, 100 * cell->pool_shared,
            (unsigned long long)cell->capacity_blocks,
            (unsigned long long)(cell->capacity_blocks * sweep->block_tokens),
            (double)cell->capacity_blocks * block_bytes / 1073741824.0,
            100 * rate(cell->hit_tokens, cell->prompt_tokens),
            ceiling ? 100 * rate(cell->hit_tokens, ceiling->hit_tokens) : 0, cell->saved_ms / 1000,
            (unsigned long long)cell->evicted, (double)cell->inserted * block_bytes / 1073741824.0);
    }
}
