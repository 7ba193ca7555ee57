#include "line/structure.h"
#include "base/pages.h"

#include <memory>
#include <new>
#include <simdjson.h>

/* From here on a text's positions are megabytes. */
static const size_t LARGE_TEXT = size_t(1) << 20;

struct kvr_structure {
    std::unique_ptr<simdjson::internal::dom_parser_implementation> parser;
    size_t capacity;
};

struct kvr_structure *kvr_structure_create(void)
{
    struct kvr_structure *structure = new (std::nothrow) kvr_structure;

    if (structure)
        structure->capacity = 0;
    return structure;
}

void kvr_structure_destroy(struct kvr_structure *structure)
{
    delete structure;
}

/* Doubling keeps the number of allocations small however lengths rise. */
static bool reserve(struct kvr_structure *structure, size_t length)
{
    size_t capacity = structure->capacity ? structure->capacity : 4096;

    if (structure->parser && length <= structure->capacity)
        return true;
    while (capacity < length)
        capacity *= 2;
    structure->parser.reset();
    structure->capacity = 0;
    if (simdjson::get_active_implementation()->create_dom_parser_implementation(
            capacity, 1, structure->parser) != simdjson::SUCCESS)
        return false;
    structure->capacity = capacity;
    if (capacity >= LARGE_TEXT)
        kvr_pages_advise(structure->parser->structural_indexes.get(), capacity * sizeof(uint32_t));
    return true;
}

enum kvr_status kvr_structure_find(struct kvr_structure *structure, const char *text, size_t length,
    const uint32_t **positions, size_t *count, struct kvr_error *error)
{
    if (!reserve(structure, length))
        return kvr_error_memory(error);
    switch (structure->parser->stage1(
        reinterpret_cast<const uint8_t *>(text), length, simdjson::stage1_mode::regular)) {
    case simdjson::SUCCESS:
        *positions = structure->parser->structural_indexes.get();
        *count = structure->parser->n_structural_indexes;
        return KVR_OK;
    case simdjson::UTF8_ERROR:
        return kvr_error_set(error, KVR_BAD_INPUT, "invalid UTF-8");
    case simdjson::UNCLOSED_STRING:
        return kvr_error_set(error, KVR_BAD_INPUT, "a string is not closed");
    case simdjson::UNESCAPED_CHARS:
        return kvr_error_set(error, KVR_BAD_INPUT, "a raw control character in a string");
    case simdjson::EMPTY:
        return kvr_error_set(error, KVR_BAD_INPUT, "no JSON value");
    case simdjson::MEMALLOC:
        return kvr_error_memory(error);
    default:
        return kvr_error_set(error, KVR_BAD_INPUT, "not JSON");
    }
}

const uint32_t *kvr_structure_positions(const struct kvr_structure *structure, size_t *count)
{
    *count = structure->parser ? structure->parser->n_structural_indexes : 0;
    return structure->parser ? structure->parser->structural_indexes.get() : nullptr;
}
