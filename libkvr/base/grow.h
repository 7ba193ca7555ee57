/* Growing a plain array to hold at least `need` elements: doubling, sizes checked, old data kept.
 *
 *     struct thing *grown = kvr_grow(list, &capacity, count + 1, sizeof *list);
 *     if (!grown)
 *         return kvr_error_memory(error); // list and capacity are as before
 *     list = grown;
 */
#ifndef KVR_BASE_GROW_H
#define KVR_BASE_GROW_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* The same, but never beyond `most` elements, where it is known that no more will be needed. */
static inline void *kvr_grow_within(
    void *array, size_t *capacity, size_t need, size_t most, size_t element_bytes)
{
    if (need <= *capacity && array)
        return array;
    size_t wanted = *capacity < 8 ? 8 : *capacity;
    while (wanted < need)
        wanted = wanted > SIZE_MAX / 2 ? need : wanted * 2;
    if (wanted > most)
        wanted = most > need ? most : need;
    if (wanted > SIZE_MAX / element_bytes)
        return NULL;
    void *grown = realloc(array, wanted * element_bytes);
    if (grown)
        *capacity = wanted;
    return grown;
}

static inline void *kvr_grow(void *array, size_t *capacity, size_t need, size_t element_bytes)
{
    return kvr_grow_within(array, capacity, need, SIZE_MAX, element_bytes);
}

#endif
