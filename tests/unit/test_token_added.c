/*
 * Added tokens in text: the leftmost, the longest that starts there, whichever way they are found;
 * texts longer than LONG_TEXT have a way of their own, which goes block by block.
 */
#include "base/random.h"
#include "tests/unit/unit.h"
#include "token/added.h"

#include <stdlib.h>
#include <string.h>

enum { TEXTS = 12, TEXT_BYTES = 200000 };

struct texts {
    struct kvr_buffer bytes;
    struct kvr_source_token texts[TEXTS];
};

/* Runs of a, and of a and b, some of them with an end that few texts have; one is empty. */
static void make_texts(struct kvr_random *random, bool is_long, struct texts *made)
{
    memset(made, 0, sizeof *made);
    for (int i = 1; i < TEXTS; i++) {
        size_t length = 1 + kvr_random_below(random, is_long && i < 4 ? 300 : 9);
        made->texts[i].offset = (uint32_t)made->bytes.length;
        for (size_t k = 0; k < length; k++)
            kvr_buffer_append_byte(&made->bytes, kvr_random_below(random, 40) ? 'a' : 'b');
        if (kvr_random_below(random, 2))
            kvr_buffer_append_byte(&made->bytes, '|');
        made->texts[i].length = (uint32_t)(made->bytes.length - made->texts[i].offset);
    }
}

static uint32_t naive(const struct texts *made, const uint8_t *text, size_t at, size_t length)
{
    uint32_t best = KVR_NO_TOKEN;

    for (uint32_t i = 0; i < TEXTS; i++) {
        const struct kvr_source_token *t = &made->texts[i];
        if (t->length && t->length <= length - at &&
            (best == KVR_NO_TOKEN || t->length > made->texts[best].length) &&
            memcmp(made->bytes.data + t->offset, text + at, t->length) == 0)
            best = i;
    }
    return best;
}

static void compare(struct kvr_random *random, bool is_long)
{
    static uint8_t text[TEXT_BYTES];
    struct kvr_backward_matches matches = {0};
    struct kvr_added added;
    struct texts made;
    size_t from = 0, start, stop;

    make_texts(random, is_long, &made);
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = kvr_random_below(random, 90) ? 'a' : kvr_random_below(random, 4) ? 'b' : '|';
    if (kvr_added_build(&added, (const uint8_t *)made.bytes.data, made.texts, TEXTS, NULL))
        fail_msg("the texts are not built");
    while (from < sizeof text) {
        uint32_t found = kvr_added_find(&added, &matches, text, from, sizeof text, &start, &stop);
        size_t at = from;
        uint32_t wanted = KVR_NO_TOKEN;
        while (at < sizeof text && (wanted = naive(&made, text, at, sizeof text)) == KVR_NO_TOKEN)
            at++;
        assert_int_equal(found, wanted);
        if (found == KVR_NO_TOKEN)
            break;
        assert_int_equal(start, at);
        assert_int_equal(stop, at + made.texts[found].length);
        from = stop + kvr_random_below(random, kvr_random_below(random, 50) ? 300 : 100000);
    }
    kvr_backward_matches_release(&matches);
    kvr_added_release(&added);
    kvr_buffer_release(&made.bytes);
}

static void short_texts_are_found(void **state)
{
    struct kvr_random random = {.state = 21};

    (void)state;
    for (int round = 0; round < 20; round++)
        compare(&random, false);
}

static void long_texts_are_found(void **state)
{
    struct kvr_random random = {.state = 22};

    (void)state;
    for (int round = 0; round < 20; round++)
        compare(&random, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_texts_are_found),
        cmocka_unit_test(long_texts_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
