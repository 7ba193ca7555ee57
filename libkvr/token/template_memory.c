/*
 * Memory of a rendering: arenas, and strings in them.
 *
 * Strings are immutable, but templates build long ones piece by piece (a + b + c, `system = system
 * + message`), which would copy the whole at each step. So bytes of strings have an arena of their
 * own, and a string that ends where the arena's free space begins is extended in place: the longer
 * string shares the bytes of its prefix, which stay as they are. When a chunk is full the next one
 * is twice what was asked for, so that a string of n bytes costs O(n) however it grew. The list of
 * a string's pieces (which bytes are content) is shared and extended in the same way.
 */
#include "token/template_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
    CHUNK_FIRST_BYTES = 64 << 10,
    CHUNK_MOST_BYTES = 4 << 20,
    CHUNK_KEPT_BYTES = 16 << 20, /* a chunk larger than this is not kept for the next rendering */
};

struct arena_chunk {
    struct arena_chunk *older;
    size_t bytes;
    _Alignas(16) char data[];
};

static bool arena_grow(struct arena *arena, size_t bytes, size_t limit_bytes)
{
    size_t size = CHUNK_FIRST_BYTES;
    struct arena_chunk *chunk;
    if (bytes > limit_bytes || arena->total_bytes > limit_bytes - bytes)
        return false;
    if (arena->chunks && arena->chunks->bytes >= size)
        size = arena->chunks->bytes * 2;
    if (size > CHUNK_MOST_BYTES)
        size = CHUNK_MOST_BYTES;
    if (size < bytes * 2)
        size = bytes * 2;
    if (size > limit_bytes - arena->total_bytes)
        size = limit_bytes - arena->total_bytes;
    chunk = malloc(sizeof *chunk + size);
    if (!chunk)
        return false;
    chunk->older = arena->chunks;
    chunk->bytes = size;
    arena->chunks = chunk;
    arena->next = chunk->data;
    arena->end = chunk->data + size;
    arena->total_bytes += size;
    return true;
}

void *kvr_arena_take(struct arena *arena, size_t bytes, size_t limit_bytes)
{
    char *taken;
    if (bytes > limit_bytes)
        return NULL;
    bytes = (bytes + 15) & ~(size_t)15;
    if ((size_t)(arena->end - arena->next) < bytes && !arena_grow(arena, bytes, limit_bytes))
        return NULL;
    taken = arena->next;
    arena->next += bytes;
    return taken;
}

void kvr_arena_reset(struct arena *arena)
{
    struct arena_chunk *kept = arena->chunks;
    if (!kept)
        return;
    while (kept->older) {
        struct arena_chunk *older = kept->older;
        kept->older = older->older;
        free(older);
    }
    if (kept->bytes > CHUNK_KEPT_BYTES) {
        kvr_arena_release(arena);
        return;
    }
    arena->next = kept->data;
    arena->end = kept->data + kept->bytes;
    arena->total_bytes = kept->bytes;
}

void kvr_arena_release(struct arena *arena)
{
    while (arena->chunks) {
        struct arena_chunk *older = arena->chunks->older;
        free(arena->chunks);
        arena->chunks = older;
    }
    memset(arena, 0, sizeof *arena);
}

/* Both arenas share one bound. */
static size_t limit_of(const struct run *run, const struct arena *arena)
{
    const struct arena *other = arena == &run->objects ? &run->texts : &run->objects;
    return run->limits.memory_bytes > other->total_bytes
               ? run->limits.memory_bytes - other->total_bytes
               : 0;
}

void *kvr_run_take(struct run *run, size_t bytes)
{
    struct arena *arena = &run->objects;
    size_t rounded = (bytes + 15) & ~(size_t)15;
    void *taken;
    if ((size_t)(arena->end - arena->next) >= rounded && rounded >= bytes) {
        taken = arena->next;
        arena->next += rounded;
        return taken;
    }
    taken = kvr_arena_take(arena, bytes, limit_of(run, arena));
    if (!taken)
        kvr_run_no_memory(run);
    return taken;
}

void *kvr_run_array(struct run *run, size_t count, size_t size)
{
    if (count > run->limits.memory_bytes / size)
        kvr_run_no_memory(run);
    return kvr_run_take(run, count * size);
}

char *kvr_run_bytes(struct run *run, size_t length)
{
    struct arena *arena = &run->texts;
    char *taken;
    if ((size_t)(arena->end - arena->next) < length &&
        !arena_grow(arena, length, limit_of(run, arena)))
        kvr_run_no_memory(run);
    taken = arena->next;
    if (length)
        arena->next += length;
    return taken;
}

void kvr_run_bytes_trim(struct run *run, size_t unused)
{
    if (unused)
        run->texts.next -= unused;
}

/* ---- strings ---- */

struct text *kvr_text_new(struct run *run, const char *data, size_t length)
{
    struct text *text = kvr_run_take(run, sizeof *text);
    *text = (struct text){.data = data, .length = length, .points = SIZE_MAX};
    return text;
}

struct text *kvr_text_literal(struct run *run, const char *literal)
{
    return kvr_text_new(run, literal, strlen(literal));
}

struct text *kvr_text_copy(struct run *run, const char *data, size_t length)
{
    char *bytes = kvr_run_bytes(run, length);
    if (length)
        memcpy(bytes, data, length);
    return kvr_text_new(run, bytes, length);
}

struct text *kvr_text_format(struct run *run, const char *format, ...)
{
    char buffer[512];
    va_list arguments;
    int length;
    va_start(arguments, format);
    length = vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    if (length < 0)
        length = 0;
    if ((size_t)length >= sizeof buffer)
        length = sizeof buffer - 1;
    return kvr_text_copy(run, buffer, (size_t)length);
}

struct text *kvr_text_from(struct text *made, const struct text *source)
{
    if (source->origin != ORIGIN_TEMPLATE) {
        made->origin = ORIGIN_CONTENT;
        made->ranges = NULL;
        made->range_count = 0;
    }
    return made;
}

size_t kvr_text_points(struct text *text)
{
    size_t points = 0;
    if (text->points != SIZE_MAX)
        return text->points;
    for (size_t i = 0; i < text->length; i++)
        points += ((unsigned char)text->data[i] & 0xc0) != 0x80;
    text->points = points;
    return points;
}

size_t kvr_text_offset(struct text *text, size_t point)
{
    size_t offset = 0;
    if (kvr_text_ascii(text))
        return point < text->length ? point : text->length;
    if (point >= text->points)
        return text->length;
    while (point--) {
        offset++;
        while (offset < text->length && ((unsigned char)text->data[offset] & 0xc0) == 0x80)
            offset++;
    }
    return offset;
}

uint32_t kvr_text_hash(struct text *text)
{
    /* Seeded by where the program was loaded, so that keys made to collide do so in no other
     * process. The order of dicts is that of insertion: the hash is never seen. */
    static const char seed = 0;
    if (!text->hash) {
        uint64_t hash =
            XXH3_64bits_withSeed(text->data ? text->data : "", text->length, (uintptr_t)&seed);
        text->hash = (uint32_t)(hash ^ (hash >> 32)) | 1;
    }
    return text->hash;
}

bool kvr_text_equal(const struct text *left, const struct text *right)
{
    return left == right ||
           (left->length == right->length &&
               (!left->length || memcmp(left->data, right->data, left->length) == 0));
}

bool kvr_template_text_is(const struct text *text, const char *literal)
{
    size_t length = strlen(literal);
    return text->length == length && memcmp(text->data, literal, length) == 0;
}

/* ---- pieces of strings ---- */

/* Adds a range in place where the text is the newest owner of the shared list. Ranges there are
 * never changed, so touching ones are merged only when they are printed. */
static void add_range(struct run *run, struct text *text, size_t start, size_t end)
{
    struct ranges *ranges = text->ranges;
    if (start >= end)
        return;
    if (!ranges || ranges->used != text->range_count || ranges->used == ranges->capacity) {
        struct ranges *grown = kvr_run_take(run, sizeof *grown);
        grown->capacity = text->range_count < 2 ? 4 : text->range_count * 2;
        grown->used = text->range_count;
        grown->items = kvr_run_array(run, grown->capacity, sizeof *grown->items);
        if (text->range_count)
            memcpy(grown->items, ranges->items, text->range_count * sizeof *grown->items);
        text->ranges = ranges = grown;
    }
    ranges->items[text->range_count++] = (struct kvr_template_range){start, end};
    ranges->used = text->range_count;
}

/* Gives text, which ends in the bytes [from, to) of source at `at`, the pieces of those. */
static void add_pieces(struct run *run, struct text *text, const struct text *source, size_t from,
    size_t to, size_t at)
{
    if (source->origin == ORIGIN_CONTENT)
        add_range(run, text, at, at + to - from);
    for (size_t i = 0; source->origin == ORIGIN_MIXED && i < source->range_count; i++) {
        size_t start = source->ranges->items[i].start;
        size_t end = source->ranges->items[i].end;
        start = start < from ? from : start;
        end = end > to ? to : end;
        if (start < end)
            add_range(run, text, at + start - from, at + end - from);
    }
}

struct text *kvr_text_cut(struct run *run, const struct text *text, size_t start, size_t end)
{
    struct text *cut = kvr_text_new(run, text->data + start, end - start);
    cut->markup = text->markup;
    cut->origin = text->origin;
    if (text->points == text->length)
        cut->points = cut->length;
    if (text->origin == ORIGIN_MIXED)
        add_pieces(run, cut, text, start, end, 0);
    return cut;
}

struct text *kvr_text_join(struct run *run, const struct text *left, const struct text *right)
{
    struct text *joined = kvr_run_take(run, sizeof *joined);
    size_t length = left->length + right->length;
    struct arena *arena = &run->texts;
    if (length > run->limits.memory_bytes)
        kvr_run_no_memory(run);
    *joined = *left;
    joined->markup = left->markup || right->markup;
    joined->hash = 0;
    joined->length = length;
    joined->points = left->points != SIZE_MAX && right->points != SIZE_MAX
                         ? left->points + right->points
                         : SIZE_MAX;
    if (left->length && left->data + left->length == arena->next &&
        (size_t)(arena->end - arena->next) >= right->length) {
        if (right->length)
            memcpy(kvr_run_bytes(run, right->length), right->data, right->length);
    } else {
        char *bytes = kvr_run_bytes(run, length);
        if (left->length)
            memcpy(bytes, left->data, left->length);
        if (right->length)
            memcpy(bytes + left->length, right->data, right->length);
        joined->data = bytes;
        kvr_run_charge(run, length);
    }
    if (left->origin == right->origin && left->origin != ORIGIN_MIXED)
        return joined;
    if (left->origin != ORIGIN_MIXED) {
        joined->origin = ORIGIN_MIXED;
        joined->ranges = NULL;
        joined->range_count = 0;
        add_pieces(run, joined, left, 0, left->length, 0);
    }
    add_pieces(run, joined, right, 0, right->length, left->length);
    return joined;
}

/* ---- building ---- */

void kvr_builder_start(struct builder *builder, struct run *run, size_t capacity)
{
    *builder = (struct builder){.run = run};
    builder->capacity = capacity < 64 ? 64 : capacity;
    builder->data = kvr_run_bytes(run, builder->capacity);
}

static void builder_reserve(struct builder *builder, size_t more)
{
    if (builder->capacity - builder->length < more) {
        size_t capacity = (builder->length + more) * 2;
        char *grown;
        if (more > builder->run->limits.memory_bytes || builder->length + more < more)
            kvr_run_no_memory(builder->run);
        grown = kvr_run_bytes(builder->run, capacity);
        memcpy(grown, builder->data, builder->length);
        builder->data = grown;
        builder->capacity = capacity;
    }
}

void kvr_builder_add(struct builder *builder, const char *data, size_t length)
{
    if (!length)
        return;
    builder_reserve(builder, length);
    memcpy(builder->data + builder->length, data, length);
    builder->length += length;
}

void kvr_builder_add_byte(struct builder *builder, char byte)
{
    builder_reserve(builder, 1);
    builder->data[builder->length++] = byte;
}

void kvr_builder_add_text(struct builder *builder, const struct text *text)
{
    builder->content |= text->origin != ORIGIN_TEMPLATE && text->length;
    kvr_builder_add(builder, text->data, text->length);
}

void kvr_builder_add_point(struct builder *builder, uint32_t point)
{
    char bytes[4];
    kvr_builder_add(builder, bytes, kvr_point_write(bytes, point));
}

void kvr_builder_pad(struct builder *builder, const char *fill, size_t length, size_t times)
{
    if (length && times > builder->run->limits.memory_bytes / length)
        kvr_run_no_memory(builder->run);
    kvr_run_charge(builder->run, length * times);
    builder_reserve(builder, length * times);
    for (size_t i = 0; i < times; i++)
        kvr_builder_add(builder, fill, length);
}

struct text *kvr_builder_end(struct builder *builder)
{
    struct run *run = builder->run;
    struct text *text;
    /* Nothing else may have taken string space since, or the rest stays unused. */
    if (builder->data + builder->capacity == run->texts.next)
        kvr_run_bytes_trim(run, builder->capacity - builder->length);
    text = kvr_text_new(run, builder->data, builder->length);
    text->origin = builder->content ? ORIGIN_CONTENT : ORIGIN_TEMPLATE;
    kvr_run_charge(run, builder->length);
    return text;
}
