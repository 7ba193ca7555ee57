#include "line/json_walk.h"

struct kvr_json_walk kvr_json_walk_open(
    const struct kvr_structure *structure, const char *text, struct kvr_value value)
{
    struct kvr_json_walk walk = {.text = text};
    size_t count, low = 0;
    const uint32_t *positions = kvr_structure_positions(structure, &count);

    if (value.type != KVR_ARRAY && value.type != KVR_OBJECT)
        return walk;
    uint32_t wanted = (uint32_t)(value.text - text);
    while (count > 1) { /* wanted is among `count` of them from `low` on */
        size_t half = count / 2;
        if (positions[low + half] <= wanted) {
            low += half;
            count -= half;
        } else {
            count = half;
        }
    }
    walk.at = positions + low + 1;
    return walk;
}

struct kvr_json_walk kvr_json_walk_into(const struct kvr_json_walk *walk)
{
    struct kvr_json_walk inner = {.text = walk->text};
    char first = walk->text[*walk->value];

    if (first == '[' || first == '{')
        inner.at = walk->value + 1;
    return inner;
}

const uint32_t *kvr_json_walk_over(const char *text, const uint32_t *at)
{
    static const int8_t deeper[256] = {['['] = 1, ['{'] = 1, [']'] = -1, ['}'] = -1};
    int depth = 0; /* at most KVR_JSON_DEPTH */

    do
        depth += deeper[(unsigned char)text[*at++]];
    while (depth);
    return at;
}
