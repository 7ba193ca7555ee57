#include "token/pattern_set.h"
#include "base/grow.h"
#include "token/codepoints.h"
#include "token/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#define WORDS (0x110000 / 64)

/* Bytes beyond ASCII that characters from first to last start with. */
static void add_leads(struct kvr_pattern_set *set, uint32_t first, uint32_t last)
{
    uint8_t from[4], to[4];

    kvr_utf8_encode(first < 0x80 ? 0x80 : first, from);
    kvr_utf8_encode(last, to);
    for (unsigned byte = from[0]; byte <= to[0]; byte++)
        set->leads[byte / 64] |= UINT64_C(1) << byte % 64;
}

/* Packs a set of code points. */
static bool pack(struct kvr_pattern_set *set, const struct kvr_codepoints *points)
{
    size_t capacity = 2;

    set->bits = calloc(capacity, sizeof *set->bits);
    if (!set->bits)
        return false;
    memset(set->bits[1], 0xff, sizeof *set->bits);
    set->bit_count = 2;
    memcpy(set->ascii, points->words, sizeof set->ascii);
    for (size_t block = 0; block < 0x1100; block++) {
        const uint64_t *words = &points->words[block * 4];
        uint32_t same = 0;
        while (same < set->bit_count && memcmp(set->bits[same], words, sizeof *set->bits) != 0)
            same = same == 1 && set->bit_count > 2 ? set->bit_count - 1 : same + 1;
        if (same == set->bit_count) {
            void *grown = kvr_grow(set->bits, &capacity, same + 1, sizeof *set->bits);
            if (!grown)
                return false;
            set->bits = grown;
            memcpy(set->bits[same], words, sizeof *set->bits);
            set->bit_count++;
        }
        set->block[block] = (uint16_t)same;
        if (same)
            add_leads(set, (uint32_t)block * 256, (uint32_t)block * 256 + 255);
    }
    memcpy(set->leads, set->ascii, sizeof set->ascii);
    if (set->bits[set->block[0xff]][3] >> 61 & 1) /* U+FFFD: so do malformed bytes read */
        memset(set->leads + 2, 0xff, 2 * sizeof *set->leads);
    return true;
}

/* \x{..}; false: something else stands here. */
static bool read_escape(const char **at, const char *end, uint32_t *character)
{
    if (end - *at < 4 || memcmp(*at, "\\x{", 3) != 0)
        return false;
    *character = (uint32_t)strtoul(*at + 3, NULL, 16);
    *at = memchr(*at, '}', (size_t)(end - *at));
    return *at && (*at)++ && *character < 0x110000;
}

/* The members of what stands in `source`: [..], an escape, a character, or a dot. */
static bool read_points(struct kvr_codepoints *points, const struct kvr_pattern_set_source *source)
{
    const char *at = source->text, *end = at + source->length;
    uint32_t first, last;
    unsigned size;

    if (*at == '.' || *at == '[') {
        bool inverted = *at == '.' || (source->length > 1 && at[1] == '^');
        if (*at == '.' && !source->dot_all)
            kvr_codepoints_add_range(points, '\n', '\n');
        for (at += *at == '.' ? 1 : 1 + inverted; at < end && *at != ']';) {
            if (!read_escape(&at, end, &first))
                return false;
            last = first;
            if (at < end && *at == '-' && (at++, !read_escape(&at, end, &last)))
                return false;
            kvr_codepoints_add_range(points, first, last);
        }
        if (inverted)
            kvr_codepoints_invert(points);
        return true;
    }
    if (*at == '\\'
            ? !read_escape(&at, end, &first)
            : (first = kvr_utf8_decode((const uint8_t *)at, (const uint8_t *)end, &size), false))
        return false;
    kvr_codepoints_add_range(points, first, first);
    return true;
}

/* Characters that have others of another case, and some that have not. Of ASCII's, only two are
 * beyond it: the long s and the sign of Kelvin. */
static void add_cased(struct kvr_codepoints *cased, bool ascii)
{
    kvr_codepoints_add_range(cased, 'A', 'Z');
    kvr_codepoints_add_range(cased, 'a', 'z');
    kvr_codepoints_add_range(cased, 0x17f, 0x17f);
    kvr_codepoints_add_range(cased, 0x212a, 0x212a);
    if (ascii)
        return;
    kvr_codepoints_add_categories(cased, KVR_IS_UPPER | KVR_IS_LOWER | KVR_CATEGORY_BIT(KVR_NL));
    kvr_codepoints_add_range(cased, 0x345, 0x345);   /* iota below */
    kvr_codepoints_add_range(cased, 0x24b6, 0x24e9); /* letters in circles */
}

/* Letters that Unicode 15 and 16 have given another case: [0] to [1] and those from [2] on. */
static const uint32_t newer[][3] = {{0x19b, 0x19b, 0xa7dc}, {0x264, 0x264, 0xa7cb},
    {0x1c89, 0x1c89, 0x1c8a}, {0xa7cc, 0xa7cc, 0xa7cd}, {0xa7da, 0xa7da, 0xa7db},
    {0x10d50, 0x10d65, 0x10d70}};

/* Makes these the same where PCRE2 does not know that yet: both are in, or, of all characters but
 * some, both are out. */
static void join_newer(struct kvr_codepoints *points, bool all_but)
{
    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++) {
        for (uint32_t a = newer[i][0], b = newer[i][2]; a <= newer[i][1]; a++, b++) {
            bool has_a = points->words[a / 64] >> a % 64 & 1;
            bool has_b = points->words[b / 64] >> b % 64 & 1;
            uint64_t member = all_but ? has_a && has_b : has_a || has_b;
            points->words[a / 64] &= ~(UINT64_C(1) << a % 64);
            points->words[a / 64] |= member << a % 64;
            points->words[b / 64] &= ~(UINT64_C(1) << b % 64);
            points->words[b / 64] |= member << b % 64;
        }
    }
}

/* Makes points what they stand for under (?i): PCRE2 is asked which characters are the same. */
static bool ask_caseless(struct kvr_codepoints *points, const struct kvr_pattern_set_source *source)
{
    int number;
    PCRE2_SIZE offset;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)source->text, source->length,
        PCRE2_UTF | PCRE2_CASELESS | PCRE2_ANCHORED | (source->dot_all ? PCRE2_DOTALL : 0), &number,
        &offset, NULL);
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    struct kvr_codepoints *cased = kvr_codepoints_new();
    bool ascii = true, ok = code && data && cased;

    for (size_t i = 2; i < WORDS; i++)
        ascii = ascii && !points->words[i];
    if (ok)
        add_cased(cased, ascii);
    for (size_t i = 0; ok && i < WORDS; i++) {
        for (uint64_t left = cased->words[i]; left; left &= left - 1) {
            unsigned bit = (unsigned)__builtin_ctzll(left);
            uint8_t bytes[4];
            unsigned size = kvr_utf8_encode((uint32_t)i * 64 + bit, bytes);
            bool member = pcre2_match(code, bytes, size, 0, PCRE2_NO_UTF_CHECK, data, NULL) >= 0;
            points->words[i] &= ~(UINT64_C(1) << bit);
            points->words[i] |= (uint64_t)member << bit;
        }
    }
    if (ok)
        join_newer(points, source->length > 1 && source->text[0] == '[' && source->text[1] == '^');
    pcre2_code_free(code);
    pcre2_match_data_free(data);
    free(cased);
    return ok;
}

enum kvr_status kvr_pattern_set_create(
    struct kvr_pattern_set **set, const struct kvr_pattern_set_source *source)
{
    struct kvr_codepoints *points = kvr_codepoints_new();
    enum kvr_status status = KVR_NO_MEMORY;

    *set = calloc(1, sizeof **set);
    if (*set && points && !read_points(points, source))
        status = KVR_UNSUPPORTED;
    else if (*set && points && (!source->caseless || ask_caseless(points, source)) &&
             pack(*set, points))
        status = KVR_OK;
    free(points);
    if (status) {
        kvr_pattern_set_destroy(*set);
        *set = NULL;
    }
    return status;
}

void kvr_pattern_set_destroy(struct kvr_pattern_set *set)
{
    if (!set)
        return;
    free(set->bits);
    free(set);
}
