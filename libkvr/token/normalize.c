/*
 * Normal forms. Nearly all text is normal already, so the text is copied in stretches of
 * characters that need no attention (kvr_unicode_record has a bit for those that may change, sort
 * or join); only around the others is a run taken apart: from the last such character before, whose
 * successors may join it, to the next one after. Decompose, sort marks by class, compose.
 */
#include "token/normalize.h"
#include "token/unicode.h"

#include <stdlib.h>
#include <string.h>

#define HANGUL_S UINT32_C(0xac00)
#define HANGUL_L UINT32_C(0x1100)
#define HANGUL_V UINT32_C(0x1161)
#define HANGUL_T UINT32_C(0x11a7)
#define HANGUL_COUNT 11172

/* Characters of a run: malformed bytes are kept as MALFORMED + byte, which nothing changes. */
#define MALFORMED UINT32_C(0x200000)

struct run {
    uint32_t *characters;
    uint8_t *classes; /* combining classes of these */
    size_t count, capacity;
    bool failed;
};

bool kvr_is_nfc(const uint8_t *text, size_t length)
{
    const uint8_t *p = text, *end = text + length;

    while (p < end) {
        uint64_t word;
        if (end - p >= 8) {
            memcpy(&word, p, 8);
            /* below U+0300, bytes below 0xcc, nothing needs attention: of these none has the two
             * upper bits and, with 0x34 added to the lower six, carries into them */
            uint64_t lead = word & word << 1 & UINT64_C(0x8080808080808080);
            if (!lead || !(((word & UINT64_C(0x3f3f3f3f3f3f3f3f)) + UINT64_C(0x3434343434343434)) &
                             lead >> 1)) {
                p += 8;
                continue;
            }
        }
        if (*p < 0xcc) {
            p++;
            continue;
        }
        unsigned size;
        uint32_t character = kvr_utf8_decode(p, end, &size);
        if (kvr_unicode_record_of(character) & KVR_NFC_ATTENTION)
            return false;
        p += size;
    }
    return true;
}

static uint8_t combining_class(uint32_t character)
{
    size_t low = 0, high = kvr_unicode_class_run_count;

    if (character < 0x300)
        return 0;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct kvr_unicode_class_run *run = &kvr_unicode_class_runs[middle];
        if (character > run->last)
            low = middle + 1;
        else if (character < run->first)
            high = middle;
        else
            return run->combining_class;
    }
    return 0;
}

static void push(struct run *run, uint32_t character)
{
    if (run->count == run->capacity) {
        size_t capacity = run->capacity ? run->capacity * 2 : 64;
        uint32_t *characters = realloc(run->characters, capacity * sizeof *characters);
        if (characters)
            run->characters = characters;
        uint8_t *classes = realloc(run->classes, capacity);
        if (classes)
            run->classes = classes;
        if (!characters || !classes) {
            run->failed = true;
            return;
        }
        run->capacity = capacity;
    }
    run->classes[run->count] = combining_class(character);
    run->characters[run->count++] = character;
}

static void decompose(struct run *run, uint32_t character, bool compatibility)
{
    size_t low = 0, high = kvr_unicode_decomposition_count;

    if (character - HANGUL_S < HANGUL_COUNT) {
        uint32_t index = character - HANGUL_S;
        push(run, HANGUL_L + index / 588);
        push(run, HANGUL_V + index % 588 / 28);
        if (index % 28)
            push(run, HANGUL_T + index % 28);
        return;
    }
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct kvr_unicode_decomposition *d = &kvr_unicode_decompositions[middle];
        if (character > d->character) {
            low = middle + 1;
        } else if (character < d->character) {
            high = middle;
        } else {
            unsigned count = compatibility ? d->compatibility_length : d->canonical_length;
            unsigned from = compatibility ? d->compatibility : d->canonical;
            if (!count)
                break;
            for (unsigned i = 0; i < count; i++)
                push(run, kvr_unicode_decomposition_text[from + i]);
            return;
        }
    }
    push(run, character);
}

/* Sorts marks by class, keeping the order of equals, by counting the classes: a run may be long. */
static bool sort_stretch(uint32_t *characters, uint8_t *classes, size_t count)
{
    size_t places[257] = {0};
    uint32_t *sorted = malloc(count * (sizeof *sorted + 1));

    if (!sorted)
        return false;
    uint8_t *sorted_classes = (uint8_t *)(sorted + count);
    for (size_t i = 0; i < count; i++)
        places[classes[i] + 1]++;
    for (int class = 0; class < 256; class ++)
        places[class + 1] += places[class];
    for (size_t i = 0; i < count; i++) {
        size_t place = places[classes[i]]++;
        sorted[place] = characters[i];
        sorted_classes[place] = classes[i];
    }
    memcpy(characters, sorted, count * sizeof *characters);
    memcpy(classes, sorted_classes, count);
    free(sorted);
    return true;
}

static void sort_marks(struct run *run)
{
    for (size_t i = 0; i < run->count && !run->failed;) {
        size_t end = i;
        bool sorted = true;
        while (end < run->count && run->classes[end]) {
            sorted = sorted && (end == i || run->classes[end] >= run->classes[end - 1]);
            end++;
        }
        if (!sorted && !sort_stretch(run->characters + i, run->classes + i, end - i))
            run->failed = true;
        i = end > i ? end : i + 1;
    }
}

/* The character that first and second compose to, or 0. */
static uint32_t compose_pair(uint32_t first, uint32_t second)
{
    size_t low = 0, high = kvr_unicode_pair_count;

    if (first - HANGUL_L < 19 && second - HANGUL_V < 21)
        return HANGUL_S + ((first - HANGUL_L) * 21 + (second - HANGUL_V)) * 28;
    if (first - HANGUL_S < HANGUL_COUNT && (first - HANGUL_S) % 28 == 0 &&
        second - HANGUL_T - 1 < 27)
        return first + (second - HANGUL_T);
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct kvr_unicode_pair *p = &kvr_unicode_pairs[middle];
        if (p->first < first || (p->first == first && p->second < second))
            low = middle + 1;
        else if (p->first == first && p->second == second)
            return p->composed;
        else
            high = middle;
    }
    return 0;
}

static void compose(struct run *run)
{
    uint32_t *c = run->characters, last_class = 0;
    size_t starter = SIZE_MAX, out = 0;

    for (size_t i = 0; i < run->count; i++) {
        uint32_t class = run->classes[i], composed = 0;
        bool adjacent = starter != SIZE_MAX && out == starter + 1;
        if (starter != SIZE_MAX && (adjacent || last_class < class))
            composed = compose_pair(c[starter], c[i]);
        if (composed) {
            c[starter] = composed;
            continue;
        }
        if (!class)
            starter = out;
        last_class = class;
        c[out++] = c[i];
    }
    run->count = out;
}

static void append_characters(const struct run *run, struct kvr_buffer *out)
{
    for (size_t i = 0; i < run->count; i++) {
        uint8_t bytes[4] = {(uint8_t)run->characters[i]};
        unsigned size =
            run->characters[i] >= MALFORMED ? 1 : kvr_utf8_encode(run->characters[i], bytes);
        kvr_buffer_append(out, bytes, size);
    }
}

/* The next character; malformed bytes become MALFORMED + byte. */
static uint32_t next_character(const uint8_t *p, const uint8_t *end, unsigned *size)
{
    uint32_t character = kvr_utf8_decode(p, end, size);

    return *size == 1 && *p >= 0x80 ? MALFORMED + *p : character;
}

void kvr_normal_form(
    enum kvr_normal_form form, const uint8_t *text, size_t length, struct kvr_buffer *out)
{
    const uint8_t *p = text, *end = text + length, *copied = text;
    bool compatibility = form >= KVR_NFKC, composing = form == KVR_NFC || form == KVR_NFKC;
    uint8_t attention = compatibility ? KVR_NFKC_ATTENTION : KVR_NFC_ATTENTION;
    const uint8_t *last = text; /* start of the last character without attention */
    struct run run = {0};

    if (!composing)
        attention = 0; /* anything may decompose: all of the text is one run of runs */
    while (p < end) {
        unsigned size;
        uint32_t character = next_character(p, end, &size);
        bool calm = character >= MALFORMED || character < 0x80 ||
                    (composing && !(kvr_unicode_record_of(character) & attention));
        if (calm) {
            last = p;
            p += size;
            continue;
        }
        kvr_buffer_append(out, copied, (size_t)(last - copied));
        run.count = 0;
        for (p = last; p < end; p += size) {
            character = next_character(p, end, &size);
            calm = character >= MALFORMED || character < 0x80 ||
                   (composing && !(kvr_unicode_record_of(character) & attention));
            if (calm && p > last)
                break;
            if (character >= MALFORMED)
                push(&run, character);
            else
                decompose(&run, character, compatibility);
        }
        sort_marks(&run);
        if (composing)
            compose(&run);
        out->failed |= run.failed;
        append_characters(&run, out);
        copied = last = p;
    }
    kvr_buffer_append(out, copied, (size_t)(end - copied));
    free(run.characters);
    free(run.classes);
}

#define IS_WORD                                                                                    \
    (KVR_IS_LETTER | KVR_IS_MARK | KVR_CATEGORY_BIT(KVR_ND) | KVR_CATEGORY_BIT(KVR_NL) |           \
        KVR_CATEGORY_BIT(KVR_PC))

static size_t last_character(const uint8_t *text, size_t length)
{
    size_t at = length - 1;

    while (at && length - at < 4 && (text[at] & 0xc0) == 0x80)
        at--;
    return at;
}

/* \w of Rust: also the joiners, and the letters in circles and squares. */
static bool is_word(uint32_t character)
{
    return kvr_category_bit(character) & IS_WORD || character == 0x200c || character == 0x200d ||
           character - 0x24b6 < 52 || character - 0x1f130 < 26 || character - 0x1f150 < 26 ||
           character - 0x1f170 < 26;
}

bool kvr_starts_with_word(const uint8_t *text, size_t length)
{
    unsigned size;

    return length && is_word(kvr_utf8_decode(text, text + length, &size));
}

bool kvr_ends_with_word(const uint8_t *text, size_t length)
{
    unsigned size;

    return length &&
           is_word(kvr_utf8_decode(text + last_character(text, length), text + length, &size));
}

size_t kvr_spaces_after(const uint8_t *text, size_t length)
{
    size_t at = 0;
    unsigned size;

    while (at < length &&
           kvr_category_bit(kvr_utf8_decode(text + at, text + length, &size)) & KVR_IS_SPACE)
        at += size;
    return at;
}

size_t kvr_spaces_before(const uint8_t *text, size_t length)
{
    size_t at = length;
    unsigned size;

    while (at) {
        size_t start = last_character(text, at);
        if (!(kvr_category_bit(kvr_utf8_decode(text + start, text + at, &size)) & KVR_IS_SPACE))
            break;
        at = start;
    }
    return length - at;
}
