/* Unpacking gzip: what is one piece and what is not, small and large, comes out the same. */
#include "base/random.h"
#include "tests/unit/unit.h"
#include "token/file.h"

#include <string.h>
#include <zlib.h>

enum { LARGE = 3 << 20, SMALL = 5000 };

/* Text that packs a little. */
static void make_text(struct kvr_buffer *out, struct kvr_random *random, size_t length)
{
    while (out->length < length)
        kvr_buffer_append_byte(out, (char)('a' + kvr_random_below(random, 20)));
}

/* Appends text as one member; with `checked` its header has a checksum of its own. */
static void pack(struct kvr_buffer *out, const char *text, size_t length, bool checked)
{
    z_stream z = {0};
    gz_header header = {.hcrc = 1};

    assert_int_equal(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    if (checked)
        assert_int_equal(deflateSetHeader(&z, &header), Z_OK);
    assert_true(kvr_buffer_reserve(out, deflateBound(&z, (uLong)length) + 64));
    z.next_in = (Bytef *)(uintptr_t)text;
    z.avail_in = (uInt)length;
    z.next_out = (Bytef *)out->data + out->length;
    z.avail_out = (uInt)(out->capacity - out->length);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out->length += z.total_out;
    deflateEnd(&z);
}

static void assert_unpacks(const struct kvr_buffer *packed, const struct kvr_buffer *wanted)
{
    struct kvr_buffer out = {0};

    assert_int_equal(kvr_gunzip(packed->data, packed->length, &out, NULL), KVR_OK);
    assert_int_equal(out.length, wanted->length);
    assert_memory_equal(out.data, wanted->data, wanted->length);
    kvr_buffer_release(&out);
}

static void assert_damaged(const char *bytes, size_t length)
{
    struct kvr_buffer out = {0};
    struct kvr_error error;

    assert_int_equal(kvr_gunzip(bytes, length, &out, &error), KVR_BAD_INPUT);
    assert_string_equal(error.text, "damaged gzip data");
    kvr_buffer_release(&out);
}

static void check(size_t length)
{
    struct kvr_random random = {.state = length};
    struct kvr_buffer text = {0}, twice = {0}, packed = {0}, behind = {0};

    make_text(&text, &random, length);
    pack(&packed, text.data, text.length, false);
    assert_unpacks(&packed, &text);

    /* what is left out, changed, or too much */
    assert_damaged(packed.data, packed.length - 1);
    assert_damaged(packed.data, packed.length / 2);
    for (size_t from_end = 1; from_end <= 8; from_end++) { /* the checksum and the size */
        packed.data[packed.length - from_end] ^= 4;
        assert_damaged(packed.data, packed.length);
        packed.data[packed.length - from_end] ^= 4;
    }
    packed.data[packed.length / 2] ^= 1;
    assert_damaged(packed.data, packed.length);
    packed.data[packed.length / 2] ^= 1;
    kvr_buffer_append(&behind, packed.data, packed.length);
    kvr_buffer_append_text(&behind, "what gzip ignores");
    assert_unpacks(&behind, &text);

    /* several members: of the same size, and with a last one that is smaller or larger */
    kvr_buffer_append(&twice, text.data, text.length);
    kvr_buffer_append(&twice, text.data, text.length);
    pack(&packed, text.data, text.length, false);
    assert_unpacks(&packed, &twice);
    for (int larger = 0; larger < 2; larger++) {
        size_t first = larger ? length / 3 : length - length / 3;
        kvr_buffer_clear(&packed);
        pack(&packed, text.data, first, false);
        pack(&packed, text.data + first, text.length - first, false);
        assert_unpacks(&packed, &text);
    }

    /* a header with a checksum, right and wrong */
    kvr_buffer_clear(&packed);
    pack(&packed, text.data, text.length, true);
    assert_unpacks(&packed, &text);
    packed.data[4] ^= 1;
    assert_damaged(packed.data, packed.length);
    kvr_buffer_release(&text);
    kvr_buffer_release(&twice);
    kvr_buffer_release(&packed);
    kvr_buffer_release(&behind);
}

static void small_files_unpack(void **state)
{
    (void)state;
    check(SMALL);
}

static void large_files_unpack(void **state)
{
    (void)state;
    check(LARGE);
}

static void it_appends(void **state)
{
    struct kvr_buffer packed = {0}, out = {0};

    (void)state;
    pack(&packed, "def", 3, false);
    kvr_buffer_append_text(&out, "abc");
    assert_int_equal(kvr_gunzip(packed.data, packed.length, &out, NULL), KVR_OK);
    assert_int_equal(out.length, 6);
    assert_memory_equal(out.data, "abcdef", 6);
    kvr_buffer_release(&packed);
    kvr_buffer_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_files_unpack),
        cmocka_unit_test(large_files_unpack),
        cmocka_unit_test(it_appends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
