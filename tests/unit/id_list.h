/* A list of ids that grows; for tests, which stop where memory ends. */
#ifndef KVR_TESTS_ID_LIST_H
#define KVR_TESTS_ID_LIST_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct id_list {
    uint64_t *items;
    size_t count, capacity;
};

static void id_push(struct id_list *list, uint64_t item)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? list->capacity * 2 : 16;
        list->items = realloc(list->items, list->capacity * sizeof *list->items);
        if (!list->items)
            abort();
    }
    list->items[list->count++] = item;
}

static void id_free(struct id_list *list)
{
    free(list->items);
    memset(list, 0, sizeof *list);
}

#endif
