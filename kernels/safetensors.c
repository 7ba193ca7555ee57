#include "kernels/safetensors.h"

#include <string.h>

enum { HEADER_MOST = 100 << 20, SHOWN_BYTES = 80 };

static enum kvr_status damaged(
    const struct kvr_tensor *tensor, const char *why, struct kvr_error *error)
{
    char shown[SHOWN_BYTES];

    return kvr_error_set(error, KVR_BAD_INPUT, "tensor '%s' %s",
        kvr_printable(shown, sizeof shown, tensor->name, tensor->name_bytes), why);
}

/* One or two sizes, outermost first. */
static bool read_shape(struct kvr_value shape, struct kvr_tensor *tensor)
{
    struct kvr_cursor cursor = kvr_value_open(shape);
    struct kvr_value element;
    uint64_t sizes[2] = {1, 1};

    if (shape.type != KVR_ARRAY)
        return false;
    for (tensor->dimensions = 0; kvr_next_element(&cursor, &element); tensor->dimensions++)
        if (tensor->dimensions == 2 || !kvr_value_u64(element, &sizes[tensor->dimensions]))
            return false;
    tensor->rows = tensor->dimensions == 2 ? sizes[0] : 1;
    tensor->columns = sizes[tensor->dimensions == 2];
    return tensor->dimensions > 0;
}

static bool read_span(struct kvr_value offsets, uint64_t *begin, uint64_t *end)
{
    struct kvr_cursor cursor = kvr_value_open(offsets);
    struct kvr_value element;

    return offsets.type == KVR_ARRAY && kvr_next_element(&cursor, &element) &&
           kvr_value_u64(element, begin) && kvr_next_element(&cursor, &element) &&
           kvr_value_u64(element, end) && !kvr_next_element(&cursor, &element) && *begin <= *end;
}

static enum kvr_status read_tensor(struct kvr_tensors *tensors, const struct kvr_member *member,
    const unsigned char *data, size_t size, struct kvr_error *error)
{
    static const struct {
        const char *name;
        enum kvr_tensor_type type;
    } types[] = {{"BF16", KVR_TENSOR_BF16}, {"F16", KVR_TENSOR_F16}, {"F32", KVR_TENSOR_F32}};
    struct kvr_value type = kvr_value_get(member->value, "dtype");
    /* Between its quotes: names with escapes match none that is looked for. */
    struct kvr_tensor tensor = {
        .name = member->name.text + 1, .name_bytes = member->name.length - 2};
    uint64_t begin, end, bytes;
    size_t i = 0;

    if (member->value.type != KVR_OBJECT || type.type != KVR_STRING)
        return damaged(&tensor, "has no dtype", error);
    while (i < sizeof types / sizeof *types && !kvr_value_is(type, types[i].name))
        i++;
    if (i == sizeof types / sizeof *types) {
        damaged(&tensor, "is not of type F32, F16 or BF16", error);
        return error ? error->status = KVR_UNSUPPORTED : KVR_UNSUPPORTED;
    }
    tensor.type = types[i].type;
    if (!read_shape(kvr_value_get(member->value, "shape"), &tensor))
        return damaged(&tensor, "has not one or two dimensions", error);
    if (!read_span(kvr_value_get(member->value, "data_offsets"), &begin, &end) || end > size)
        return damaged(&tensor, "ends behind the file", error);
    if (!kvr_tensor_bytes(&tensor, &bytes) || bytes != end - begin)
        return damaged(&tensor, "has a shape that is not of the size of its data", error);
    tensor.data = data + begin;
    return kvr_tensors_add(tensors, &tensor, error);
}

enum kvr_status kvr_safetensors_read(struct kvr_tensors *tensors, const void *bytes, size_t size,
    struct kvr_structure *structure, struct kvr_error *error)
{
    const char *header = (const char *)bytes + sizeof(uint64_t);
    struct kvr_member member;
    struct kvr_value object;
    uint64_t length = 0;

    if (size >= sizeof length)
        memcpy(&length, bytes, sizeof length);
    if (length < 2 || length > HEADER_MOST || length > size - sizeof length)
        return kvr_error_set(
            error, KVR_BAD_INPUT, "not a safetensors file, nor GGUF: no header that fits into it");
    enum kvr_status status =
        kvr_json_check(structure, header, (size_t)length, &object, NULL, error);
    if (status != KVR_OK)
        return kvr_error_prefix(error, "the safetensors header");
    if (object.type != KVR_OBJECT)
        return kvr_error_set(error, KVR_BAD_INPUT, "the safetensors header is no object");
    struct kvr_cursor cursor = kvr_value_open(object);
    while (status == KVR_OK && kvr_next_member(&cursor, &member))
        if (!kvr_value_is(member.name, "__metadata__"))
            status = read_tensor(tensors, &member, (const unsigned char *)header + length,
                size - sizeof length - (size_t)length, error);
    return status;
}
