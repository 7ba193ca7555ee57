#include "kernels/gguf.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

enum { NESTING_MOST = 4, PAIRS_MOST = 1 << 16, TENSORS_MOST = 1 << 20, SHOWN_BYTES = 80 };

enum value_type { BOOL = 7, STRING = 8, ARRAY = 9, VALUE_TYPES = 13 };

/* Bytes of a value; 0: it says itself. */
static const unsigned char widths[VALUE_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

struct reader {
    const unsigned char *at, *start;
    size_t left;
};

bool kvr_is_gguf(const void *bytes, size_t size)
{
    return size >= 4 && memcmp(bytes, "GGUF", 4) == 0;
}

static bool skip(struct reader *reader, uint64_t bytes)
{
    if (bytes > reader->left)
        return false;
    reader->at += bytes;
    reader->left -= (size_t)bytes;
    return true;
}

static bool read_u32(struct reader *reader, uint32_t *number)
{
    const unsigned char *at = reader->at;

    if (!skip(reader, sizeof *number))
        return false;
    memcpy(number, at, sizeof *number);
    return true;
}

static bool read_u64(struct reader *reader, uint64_t *number)
{
    const unsigned char *at = reader->at;

    if (!skip(reader, sizeof *number))
        return false;
    memcpy(number, at, sizeof *number);
    return true;
}

static bool read_string(struct reader *reader, const char **text, size_t *length)
{
    uint64_t bytes;

    if (!read_u64(reader, &bytes))
        return false;
    *text = (const char *)reader->at;
    *length = (size_t)bytes;
    return skip(reader, bytes);
}

/* An array of fixed width is skipped at once; an element of another takes at least eight bytes, so
 * that the loop is as short as the file. */
static bool skip_value(struct reader *reader, uint32_t type, int depth)
{
    const char *text;
    size_t length;
    uint64_t count;

    if (type >= VALUE_TYPES || depth > NESTING_MOST)
        return false;
    if (widths[type])
        return skip(reader, widths[type]);
    if (type == STRING)
        return read_string(reader, &text, &length);
    if (!read_u32(reader, &type) || type >= VALUE_TYPES || !read_u64(reader, &count))
        return false;
    if (widths[type])
        return count <= reader->left && skip(reader, count * widths[type]);
    while (count-- > 0)
        if (!skip_value(reader, type, depth + 1))
            return false;
    return true;
}

static enum kvr_status cut_short(const struct reader *reader, struct kvr_error *error)
{
    return kvr_error_set(error, KVR_BAD_INPUT, "damaged GGUF: nothing whole follows byte %zu",
        (size_t)(reader->at - reader->start));
}

static enum kvr_status read_pairs(
    struct kvr_gguf *gguf, struct reader *reader, uint64_t count, struct kvr_error *error)
{
    for (uint64_t i = 0; i < count; i++) {
        struct kvr_gguf_pair pair;
        if (!read_string(reader, &pair.key, &pair.key_bytes) || !read_u32(reader, &pair.type))
            return cut_short(reader, error);
        pair.value = reader->at;
        if (!skip_value(reader, pair.type, 0))
            return cut_short(reader, error);
        struct kvr_gguf_pair *pairs =
            kvr_grow(gguf->pairs, &gguf->pair_capacity, gguf->pair_count + 1, sizeof *pairs);
        if (!pairs)
            return kvr_error_memory(error);
        gguf->pairs = pairs;
        pairs[gguf->pair_count++] = pair;
    }
    return KVR_OK;
}

/* Types by their number in the file; -1: not read. */
static int tensor_type(uint32_t number)
{
    static const signed char known[] = {KVR_TENSOR_F32, KVR_TENSOR_F16, KVR_TENSOR_Q4_0,
        KVR_TENSOR_Q4_1, -1, -1, KVR_TENSOR_Q5_0, KVR_TENSOR_Q5_1, KVR_TENSOR_Q8_0, -1, -1, -1,
        KVR_TENSOR_Q4_K, KVR_TENSOR_Q5_K, KVR_TENSOR_Q6_K};
    enum { BF16 = 30 };

    return number == BF16 ? KVR_TENSOR_BF16 : number < sizeof known ? known[number] : -1;
}

static enum kvr_status read_tensor(
    struct kvr_gguf *gguf, struct reader *reader, uint64_t *offset, struct kvr_error *error)
{
    struct kvr_tensor tensor = {.rows = 1};
    uint64_t sizes[4] = {1, 1, 1, 1};
    uint32_t type;
    char shown[SHOWN_BYTES];

    if (!read_string(reader, &tensor.name, &tensor.name_bytes) ||
        !read_u32(reader, &tensor.dimensions) || tensor.dimensions > 4)
        return cut_short(reader, error);
    for (uint32_t i = 0; i < tensor.dimensions; i++)
        if (!read_u64(reader, &sizes[i]))
            return cut_short(reader, error);
    if (!read_u32(reader, &type) || !read_u64(reader, offset))
        return cut_short(reader, error);
    kvr_printable(shown, sizeof shown, tensor.name, tensor.name_bytes);
    int known = tensor_type(type);
    if (known < 0)
        return kvr_error_set(
            error, KVR_UNSUPPORTED, "tensor '%s' has type %u, which is not read", shown, type);
    if (tensor.dimensions == 0 || sizes[2] != 1 || sizes[3] != 1)
        return kvr_error_set(
            error, KVR_UNSUPPORTED, "tensor '%s' has not one or two dimensions", shown);
    tensor.type = (enum kvr_tensor_type)known;
    tensor.dimensions = tensor.dimensions > 1 ? 2 : 1;
    tensor.columns = sizes[0];
    tensor.rows = sizes[1];
    return kvr_tensors_add(&gguf->tensors, &tensor, error);
}

/* Where the data begins, and whether each tensor is in the file. */
static enum kvr_status place_tensors(
    struct kvr_gguf *gguf, struct reader *reader, const uint64_t *offsets, struct kvr_error *error)
{
    double alignment = 32;
    const struct kvr_gguf_pair *pair = kvr_gguf_find(gguf, "general.alignment");
    char shown[SHOWN_BYTES];
    uint64_t bytes;

    if (pair && (!kvr_gguf_number(pair, &alignment) || alignment < 1 || alignment > 1 << 20))
        return kvr_error_set(error, KVR_BAD_INPUT, "'general.alignment' is no alignment");
    size_t unit = (size_t)alignment, behind = (size_t)(reader->at - reader->start) % unit;
    if (gguf->tensors.count > 0 && behind > 0 && !skip(reader, unit - behind))
        return cut_short(reader, error);
    for (size_t i = 0; i < gguf->tensors.count; i++) {
        struct kvr_tensor *tensor = &gguf->tensors.items[i];
        if (!kvr_tensor_bytes(tensor, &bytes) || offsets[i] > reader->left ||
            bytes > reader->left - offsets[i])
            return kvr_error_set(error, KVR_BAD_INPUT, "tensor '%s' ends behind the file",
                kvr_printable(shown, sizeof shown, tensor->name, tensor->name_bytes));
        tensor->data = reader->at + offsets[i];
    }
    return KVR_OK;
}

enum kvr_status kvr_gguf_read(
    struct kvr_gguf *gguf, const void *bytes, size_t size, struct kvr_error *error)
{
    struct reader reader = {bytes, bytes, size};
    uint64_t tensors, pairs, *offsets;
    uint32_t magic, version;

    *gguf = (struct kvr_gguf){0};
    if (!kvr_is_gguf(bytes, size))
        return kvr_error_set(error, KVR_BAD_INPUT, "not a GGUF file");
    if (!read_u32(&reader, &magic) || !read_u32(&reader, &version))
        return cut_short(&reader, error);
    if (version != 2 && version != 3)
        return kvr_error_set(
            error, KVR_UNSUPPORTED, "GGUF version %u; versions 2 and 3 are read", version);
    if (!read_u64(&reader, &tensors) || !read_u64(&reader, &pairs))
        return cut_short(&reader, error);
    if (tensors > TENSORS_MOST || pairs > PAIRS_MOST || tensors > reader.left / 24)
        return kvr_error_set(error, KVR_BAD_INPUT, "damaged GGUF: %llu tensors and %llu pairs",
            (unsigned long long)tensors, (unsigned long long)pairs);
    enum kvr_status status = read_pairs(gguf, &reader, pairs, error);
    if (status != KVR_OK)
        return status;
    if (!(offsets = calloc((size_t)tensors + 1, sizeof *offsets)))
        return kvr_error_memory(error);
    for (uint64_t i = 0; status == KVR_OK && i < tensors; i++)
        status = read_tensor(gguf, &reader, &offsets[i], error);
    if (status == KVR_OK)
        status = place_tensors(gguf, &reader, offsets, error);
    free(offsets);
    return status;
}

void kvr_gguf_release(struct kvr_gguf *gguf)
{
    free(gguf->pairs);
    kvr_tensors_release(&gguf->tensors);
    *gguf = (struct kvr_gguf){0};
}

const struct kvr_gguf_pair *kvr_gguf_find(const struct kvr_gguf *gguf, const char *key)
{
    size_t length = strlen(key);

    for (size_t i = 0; i < gguf->pair_count; i++)
        if (gguf->pairs[i].key_bytes == length && memcmp(gguf->pairs[i].key, key, length) == 0)
            return &gguf->pairs[i];
    return NULL;
}

static double read_number(uint32_t type, const unsigned char *value)
{
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        float f32;
        uint64_t u64;
        int64_t i64;
        double f64;
    } number;

    memcpy(&number, value, widths[type]);
    switch (type) {
    case 0:
    case BOOL:
        return number.u8;
    case 1:
        return number.i8;
    case 2:
        return number.u16;
    case 3:
        return number.i16;
    case 4:
        return number.u32;
    case 5:
        return number.i32;
    case 6:
        return (double)number.f32;
    case 10:
        return (double)number.u64;
    case 11:
        return (double)number.i64;
    default:
        return number.f64;
    }
}

bool kvr_gguf_number(const struct kvr_gguf_pair *pair, double *number)
{
    uint32_t type = pair->type;
    const unsigned char *value = pair->value;
    uint64_t count = 1;

    if (type == ARRAY) {
        memcpy(&type, value, sizeof type);
        memcpy(&count, value + sizeof type, sizeof count);
        value += sizeof type + sizeof count;
    }
    if (!widths[type] || count == 0)
        return false;
    *number = read_number(type, value);
    for (uint64_t i = 1; i < count; i++)
        if (memcmp(value, value + i * widths[type], widths[type]) != 0)
            return false;
    return true;
}

const char *kvr_gguf_text(const struct kvr_gguf_pair *pair, size_t *length)
{
    uint64_t bytes;

    if (pair->type != STRING)
        return NULL;
    memcpy(&bytes, pair->value, sizeof bytes);
    *length = (size_t)bytes;
    return (const char *)pair->value + sizeof bytes;
}
