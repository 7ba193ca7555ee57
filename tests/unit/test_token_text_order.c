/* Texts in order, what they share and what they start with, against comparing them one by one. */
#include "base/random.h"
#include "tests/unit/unit.h"
#include "token/text_order.h"
#include "token/vocabulary_source.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 1000 };

struct texts {
    struct kvr_buffer bytes;
    struct kvr_source_token tokens[MOST];
    struct kvr_ordered_text order[MOST];
    uint32_t count;
};

static const uint8_t *text_of(const struct texts *t, uint32_t id)
{
    return (const uint8_t *)t->bytes.data + t->tokens[id].offset;
}

static int compare(const struct texts *t, uint32_t x, uint32_t y)
{
    uint32_t a = t->tokens[x].length, b = t->tokens[y].length;
    int order = memcmp(text_of(t, x), text_of(t, y), a < b ? a : b);

    return order ? order : (a > b) - (a < b);
}

static bool starts(const struct texts *t, uint32_t x, uint32_t y)
{
    return t->tokens[x].length <= t->tokens[y].length &&
           memcmp(text_of(t, x), text_of(t, y), t->tokens[x].length) == 0;
}

/* Few letters, zeros among them, and many long runs, so that the first eight bytes are often equal.
 */
static void make_texts(struct texts *t, struct kvr_random *random, bool distinct)
{
    uint32_t letters = 1 + kvr_random_below(random, 4), tries = kvr_random_below(random, MOST);

    t->count = 0;
    kvr_buffer_clear(&t->bytes);
    while (tries--) {
        uint32_t length = 1 + kvr_random_below(random, kvr_random_below(random, 2) ? 5 : 20);
        t->tokens[t->count] =
            (struct kvr_source_token){(uint32_t)t->bytes.length, length, KVR_TOKEN_PRESENT};
        for (uint32_t i = 0; i < length; i++)
            kvr_buffer_append_byte(&t->bytes, "\0a\xff\x01"[kvr_random_below(random, letters)]);
        bool known = false;
        for (uint32_t i = 0; i < t->count; i++)
            known = known || compare(t, i, t->count) == 0;
        t->order[t->count].id = t->count;
        t->count += !(known && distinct);
    }
}

static void check(struct texts *t, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        uint32_t x = t->order[i - 1].id, y = t->order[i].id, shared = 0;
        int order = compare(t, x, y);
        assert_true(order < 0 || (order == 0 && x < y));
        while (shared < t->tokens[x].length && shared < t->tokens[y].length &&
               text_of(t, x)[shared] == text_of(t, y)[shared])
            shared++;
        assert_int_equal(t->order[i].shared, shared);
        assert_int_equal(t->order[i].length, t->tokens[y].length);
    }
    assert_true(!count || t->order[0].shared == 0);
}

static void check_shorter(struct texts *t, uint32_t count)
{
    uint32_t shorter[MOST];

    assert_true(kvr_text_order_shorter(t->order, count, shorter));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = t->order[i].id, longest = KVR_NO_TOKEN;
        for (uint32_t k = 0; k < count; k++) {
            uint32_t other = t->order[k].id;
            if (other != id && starts(t, other, id) &&
                (longest == KVR_NO_TOKEN || t->tokens[other].length > t->tokens[longest].length))
                longest = other;
        }
        assert_int_equal(shorter[id], longest);
    }
}

static void texts_come_in_order(void **state)
{
    struct kvr_random random = {.state = 3};
    struct texts t = {0};

    (void)state;
    for (int round = 0; round < 60; round++) {
        uint8_t flags[MOST];
        make_texts(&t, &random, true);
        assert_true(kvr_text_order(t.order, t.count, (const uint8_t *)t.bytes.data, t.tokens));
        check(&t, t.count);
        check_shorter(&t, t.count);
        for (uint32_t i = 0; i < t.count; i++)
            flags[i] = (uint8_t)kvr_random_below(&random, 4);
        uint32_t kept = kvr_text_order_keep(t.order, t.count, flags, 2), wanted = 0;
        for (uint32_t i = 0; i < t.count; i++)
            wanted += flags[i] >> 1 & 1;
        assert_int_equal(kept, wanted);
        check(&t, kept);
        check_shorter(&t, kept);
    }
    kvr_buffer_release(&t.bytes);
}

static void equal_texts_come_by_number(void **state)
{
    struct kvr_random random = {.state = 4};
    struct texts t = {0};

    (void)state;
    for (int round = 0; round < 60; round++) {
        make_texts(&t, &random, false);
        assert_true(kvr_text_order(t.order, t.count, (const uint8_t *)t.bytes.data, t.tokens));
        check(&t, t.count);
    }
    kvr_buffer_release(&t.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_come_in_order),
        cmocka_unit_test(equal_texts_come_by_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
