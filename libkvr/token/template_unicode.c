/*
 * Strings as Python's str sees them: code points, classes, case, white space, lines, search.
 *
 * Classes are runs of code points with the same bits, found by binary search; case mappings are
 * runs of equal distance (with a stride of two where upper and lower case alternate) and a short
 * list of characters that become several. Both come from the table that Python itself wrote.
 */
#include "base/utf8.h"
#include "token/template_internal.h"
#include "token/template_unicode_table.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

uint32_t kvr_point_read(const char *data, size_t length, size_t *used)
{
    const unsigned char *bytes = (const unsigned char *)data;
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    size_t more = bytes[0] < 0x80   ? 0
                  : bytes[0] < 0xc2 ? 9
                  : bytes[0] < 0xe0 ? 1
                  : bytes[0] < 0xf0 ? 2
                  : bytes[0] < 0xf5 ? 3
                                    : 9;
    uint32_t point;
    *used = 1;
    if (more == 0)
        return bytes[0];
    if (more > 3 || length <= more)
        return UINT32_MAX;
    point = bytes[0] & (0x3fu >> more);
    for (size_t i = 1; i <= more; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return UINT32_MAX;
        point = point << 6 | (bytes[i] & 0x3fu);
    }
    if (point < least[more] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
        return UINT32_MAX;
    *used = more + 1;
    return point;
}

size_t kvr_point_write(char out[4], uint32_t point)
{
    return kvr_utf8_encode(point, (uint8_t *)out);
}

/* The last run that starts at or before point. */
static size_t run_of(uint32_t point)
{
    size_t low = 0;
    size_t high = COUNT(run_starts);
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (run_starts[middle] <= point)
            low = middle;
        else
            high = middle;
    }
    return low;
}

unsigned kvr_point_bits(uint32_t point)
{
    return run_bits[run_of(point)];
}

bool kvr_point_space(uint32_t point)
{
    if (point < 0x80)
        return point == ' ' || (point >= 9 && point <= 13) || (point >= 0x1c && point <= 0x1f);
    return point == 0x85 || point == 0xa0 || point == 0x1680 ||
           (point >= 0x2000 && point <= 0x200a) || point == 0x2028 || point == 0x2029 ||
           point == 0x202f || point == 0x205f || point == 0x3000;
}

bool kvr_point_printable(uint32_t point)
{
    return kvr_point_bits(point) & POINT_PRINTABLE;
}

int kvr_point_decimal_value(uint32_t point)
{
    size_t run;
    if (point < 0x80)
        return point >= '0' && point <= '9' ? (int)(point - '0') : -1;
    run = run_of(point);
    return run_bits[run] & POINT_DECIMAL ? (int)((point - run_starts[run]) % 10) : -1;
}

/* ---- case ---- */

static size_t map_point(uint32_t point, const struct case_range *ranges, size_t range_count,
    const struct case_several *several, size_t several_count, uint32_t out[3])
{
    size_t low = 0;
    size_t high = range_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].last < point)
            low = middle + 1;
        else
            high = middle;
    }
    out[0] = point;
    if (low < range_count && point >= ranges[low].first &&
        (point - ranges[low].first) % ranges[low].stride == 0) {
        out[0] = (uint32_t)((int64_t)point + ranges[low].delta);
        return 1;
    }
    for (size_t i = 0; i < several_count; i++) {
        if (several[i].point == point) {
            memcpy(out, several[i].out, sizeof several[i].out);
            return out[2] ? 3 : 2;
        }
    }
    return 1;
}

static size_t map_case(enum case_kind kind, uint32_t point, uint32_t out[3])
{
    if (point < 0x80) {
        bool upper = point >= 'A' && point <= 'Z';
        bool lower = point >= 'a' && point <= 'z';
        out[0] = point;
        if (upper && (kind == CASE_LOWER || kind == CASE_FOLD))
            out[0] = point + 32;
        else if (lower && (kind == CASE_UPPER || kind == CASE_TITLE))
            out[0] = point - 32;
        return 1;
    }
    switch (kind) {
    case CASE_UPPER:
        return map_point(
            point, upper_ranges, COUNT(upper_ranges), upper_several, COUNT(upper_several), out);
    case CASE_LOWER:
        return map_point(
            point, lower_ranges, COUNT(lower_ranges), lower_several, COUNT(lower_several), out);
    case CASE_TITLE:
        return map_point(
            point, title_ranges, COUNT(title_ranges), title_several, COUNT(title_several), out);
    default:
        return map_point(
            point, fold_ranges, COUNT(fold_ranges), fold_several, COUNT(fold_several), out);
    }
}

/* Whether the capital sigma at `at` ends a word: a cased letter before it and none after, those
 * that case ignores left aside. */
static bool sigma_is_final(const struct text *text, size_t at)
{
    size_t before = at;
    size_t after = at + 2;
    size_t used;
    bool cased = false;
    while (before) {
        unsigned bits;
        before--;
        while (before && ((unsigned char)text->data[before] & 0xc0) == 0x80)
            before--;
        bits = kvr_point_bits(kvr_point_read(text->data + before, text->length - before, &used));
        if (bits & POINT_IGNORABLE)
            continue;
        cased = bits & POINT_CASED;
        break;
    }
    if (!cased)
        return false;
    while (after < text->length) {
        unsigned bits =
            kvr_point_bits(kvr_point_read(text->data + after, text->length - after, &used));
        after += used;
        if (bits & POINT_IGNORABLE)
            continue;
        return !(bits & POINT_CASED);
    }
    return true;
}

static void add_case(struct builder *builder, const struct text *text, size_t at, uint32_t point,
    enum case_kind kind)
{
    uint32_t out[3] = {0};
    size_t count;
    if (point == 0x3a3 && kind == CASE_LOWER && sigma_is_final(text, at)) {
        kvr_builder_add_point(builder, 0x3c2);
        return;
    }
    count = map_case(kind, point, out);
    for (size_t i = 0; i < count; i++)
        kvr_builder_add_point(builder, out[i]);
}

/* Maps every point with `rest`, but the first (first_only) or those that begin a word with `first`.
 */
static struct text *change_case(
    struct run *run, struct text *text, enum case_kind first, enum case_kind rest, bool words)
{
    struct builder builder;
    size_t used;
    bool inside = false;
    struct text *changed;
    kvr_builder_start(&builder, run, text->length + 16);
    for (size_t at = 0; at < text->length; at += used) {
        uint32_t point = kvr_point_read(text->data + at, text->length - at, &used);
        add_case(&builder, text, at, point, inside ? rest : first);
        inside = words ? kvr_point_bits(point) & POINT_CASED : true;
    }
    changed = kvr_text_from(kvr_builder_end(&builder), text);
    changed->markup = text->markup;
    return changed;
}

struct text *kvr_text_upper(struct run *run, struct text *text)
{
    return change_case(run, text, CASE_UPPER, CASE_UPPER, false);
}

struct text *kvr_text_lower(struct run *run, struct text *text)
{
    return change_case(run, text, CASE_LOWER, CASE_LOWER, false);
}

struct text *kvr_text_casefold(struct run *run, struct text *text)
{
    return change_case(run, text, CASE_FOLD, CASE_FOLD, false);
}

struct text *kvr_text_capitalize(struct run *run, struct text *text)
{
    return change_case(run, text, CASE_TITLE, CASE_LOWER, false);
}

struct text *kvr_text_title(struct run *run, struct text *text)
{
    return change_case(run, text, CASE_TITLE, CASE_LOWER, true);
}

struct text *kvr_text_swapcase(struct run *run, struct text *text)
{
    struct builder builder;
    size_t used;
    kvr_builder_start(&builder, run, text->length + 16);
    for (size_t at = 0; at < text->length; at += used) {
        uint32_t point = kvr_point_read(text->data + at, text->length - at, &used);
        unsigned bits = kvr_point_bits(point);
        if (bits & (POINT_UPPER | POINT_LOWER))
            add_case(&builder, text, at, point, bits & POINT_UPPER ? CASE_LOWER : CASE_UPPER);
        else
            kvr_builder_add_point(&builder, point);
    }
    return kvr_text_from(kvr_builder_end(&builder), text);
}

void kvr_builder_add_title(struct builder *builder, struct text *text, size_t start, size_t end)
{
    struct text word = {.data = text->data + start, .length = end - start};
    size_t used;
    bool inside = false;
    for (size_t at = 0; at < word.length; at += used) {
        uint32_t point = kvr_point_read(word.data + at, word.length - at, &used);
        if (!inside) {
            add_case(builder, &word, at, point, CASE_UPPER);
            word.data += used; /* what is lowered does not see the first letter */
            word.length -= used;
            used = 0;
            inside = true;
        } else {
            add_case(builder, &word, at, point, CASE_LOWER);
        }
    }
}

/* ---- white space and lines ---- */

static bool in_set(const struct text *characters, const char *data, size_t length, uint32_t point)
{
    if (!characters)
        return kvr_point_space(point);
    return kvr_bytes_find(characters->data, characters->length, data, length);
}

size_t kvr_text_strip_left(const struct text *text, const struct text *characters, size_t end)
{
    size_t at = 0;
    size_t used;
    while (at < end) {
        uint32_t point = kvr_point_read(text->data + at, end - at, &used);
        if (!in_set(characters, text->data + at, used, point))
            break;
        at += used;
    }
    return at;
}

size_t kvr_text_strip_right(const struct text *text, const struct text *characters, size_t start)
{
    size_t end = text->length;
    size_t used;
    while (end > start) {
        size_t at = end - 1;
        uint32_t point;
        while (at > start && ((unsigned char)text->data[at] & 0xc0) == 0x80)
            at--;
        point = kvr_point_read(text->data + at, end - at, &used);
        if (!in_set(characters, text->data + at, end - at, point))
            break;
        end = at;
    }
    return end;
}

void kvr_text_charge_set(struct run *run, const struct text *text, const struct text *characters)
{
    /* Each point is looked for in the set; only a long set makes that dear. */
    if (characters && characters->length > 64)
        for (size_t i = 0; i < text->length; i += 64)
            kvr_run_charge(run, characters->length);
}

struct text *kvr_text_strip(struct run *run, struct text *text, const struct text *characters)
{
    size_t start;
    size_t end;
    kvr_text_charge_set(run, text, characters);
    start = kvr_text_strip_left(text, characters, text->length);
    end = kvr_text_strip_right(text, characters, start);
    kvr_run_charge(run, text->length - (end - start));
    if (start == 0 && end == text->length)
        return text;
    return kvr_text_cut(run, text, start, end);
}

struct list *kvr_text_lines(struct run *run, struct text *text, bool keep_ends)
{
    struct list *lines = kvr_list_new(run, 0);
    size_t start = 0;
    size_t used;
    kvr_run_charge(run, text->length);
    for (size_t at = 0; at < text->length;) {
        uint32_t point = kvr_point_read(text->data + at, text->length - at, &used);
        bool breaks = (point >= 10 && point <= 13) || (point >= 0x1c && point <= 0x1e) ||
                      point == 0x85 || point == 0x2028 || point == 0x2029;
        if (!breaks) {
            at += used;
            continue;
        }
        if (point == '\r' && at + 1 < text->length && text->data[at + 1] == '\n')
            used = 2;
        kvr_list_add(
            run, lines, kvr_text_value(kvr_text_cut(run, text, start, keep_ends ? at + used : at)));
        at += used;
        start = at;
    }
    if (start < text->length)
        kvr_list_add(run, lines, kvr_text_value(kvr_text_cut(run, text, start, text->length)));
    return lines;
}

/* ---- search ---- */

const char *kvr_bytes_find(
    const char *data, size_t length, const char *needle, size_t needle_length)
{
    if (!needle_length)
        return data ? data : "";
    if (needle_length > length)
        return NULL;
    return memmem(data, length, needle, needle_length);
}

struct text *kvr_text_replace(
    struct run *run, struct text *text, struct text *old, struct text *new, int64_t count)
{
    struct builder builder;
    size_t at = 0;
    size_t used;
    struct text *replaced;
    if (count == 0 ||
        (old->length && !kvr_bytes_find(text->data, text->length, old->data, old->length))) {
        kvr_run_charge(run, text->length);
        return text;
    }
    kvr_builder_start(&builder, run, text->length + new->length + 16);
    if (!old->length) {
        /* Between all code points, and at both ends. */
        while (count != 0) {
            kvr_builder_add_text(&builder, new);
            count--;
            if (at >= text->length)
                break;
            kvr_point_read(text->data + at, text->length - at, &used);
            kvr_builder_add(&builder, text->data + at, used);
            at += used;
        }
    } else {
        const char *found;
        while (count-- != 0 && (found = kvr_bytes_find(
                                    text->data + at, text->length - at, old->data, old->length))) {
            size_t offset = (size_t)(found - text->data);
            kvr_builder_add(&builder, text->data + at, offset - at);
            kvr_builder_add_text(&builder, new);
            at = offset + old->length;
        }
    }
    kvr_builder_add(&builder, text->data + at, text->length - at);
    replaced = kvr_text_from(kvr_builder_end(&builder), text);
    replaced->markup = text->markup;
    return replaced;
}
