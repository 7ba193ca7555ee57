#include "token/merge_queue.h"
#include "base/grow.h"

#include <string.h>

static bool heap_push(struct kvr_number_heap *heap, uint64_t number)
{
    uint64_t *grown =
        kvr_grow(heap->numbers, &heap->capacity, heap->count + 1, sizeof *heap->numbers);
    size_t i = heap->count;

    if (!grown)
        return false;
    heap->numbers = grown;
    for (; i && number < grown[(i - 1) / 2]; i = (i - 1) / 2)
        grown[i] = grown[(i - 1) / 2];
    grown[i] = number;
    heap->count++;
    return true;
}

static void heap_pop(struct kvr_number_heap *heap)
{
    uint64_t *numbers = heap->numbers, last = numbers[--heap->count];
    size_t i = 0, child;

    for (; (child = 2 * i + 1) < heap->count; i = child) {
        child += child + 1 < heap->count && numbers[child + 1] < numbers[child];
        if (numbers[child] >= last)
            break;
        numbers[i] = numbers[child];
    }
    numbers[i] = last;
}

static bool is_empty(const struct kvr_order_list *list)
{
    return list->first == list->count && !list->late.count;
}

/* The list of an order, made when it is new; NULL when memory is short. */
static struct kvr_order_list *list_of(struct kvr_merge_queue *queue, uint32_t order)
{
    bool is_new;

    if (queue->order_count && queue->last_order == order)
        return &queue->orders[queue->last_list];
    uint64_t *number = kvr_u64_map_insert(&queue->known, order, &is_new);
    if (!number)
        return NULL;
    if (is_new) {
        void *grown = kvr_grow(
            queue->orders, &queue->order_capacity, queue->order_count + 1, sizeof *queue->orders);
        if (!grown)
            return NULL;
        queue->orders = grown;
        *number = queue->order_count++;
        memset(&queue->orders[*number], 0, sizeof *queue->orders);
    }
    queue->last_order = order;
    queue->last_list = (uint32_t)*number;
    return &queue->orders[*number];
}

static bool append(struct kvr_order_list *list, uint32_t place)
{
    if (list->first < list->count && list->places[list->count - 1] > place)
        return heap_push(&list->late, place);
    if (list->count == list->capacity && list->first > list->capacity / 2) {
        memmove(list->places, list->places + list->first,
            (list->count - list->first) * sizeof *list->places);
        list->count -= list->first;
        list->first = 0;
    }
    uint32_t *grown =
        kvr_grow(list->places, &list->capacity, list->count + 1, sizeof *list->places);
    if (!grown)
        return false;
    list->places = grown;
    list->places[list->count++] = place;
    return true;
}

void kvr_merge_queue_push(struct kvr_merge_queue *queue, uint32_t order, uint32_t place)
{
    struct kvr_order_list *list = list_of(queue, order);
    if (!list) {
        queue->failed = true;
        return;
    }
    if (is_empty(list)) {
        list->first = list->count = 0;
        queue->failed |= !heap_push(&queue->heap, (uint64_t)order << 32 | queue->last_list);
    }
    queue->failed |= !append(list, place);
}

bool kvr_merge_queue_pop(struct kvr_merge_queue *queue, uint32_t *order, uint32_t *place)
{
    if (!queue->heap.count || queue->failed)
        return false;
    *order = (uint32_t)(queue->heap.numbers[0] >> 32);
    *place = (uint32_t)queue->heap.numbers[0];
    struct kvr_order_list *list = &queue->orders[*place];
    bool late = list->late.count &&
                (list->first == list->count || list->late.numbers[0] < list->places[list->first]);
    if (late) {
        *place = (uint32_t)list->late.numbers[0];
        heap_pop(&list->late);
    } else {
        *place = list->places[list->first++];
    }
    if (is_empty(list))
        heap_pop(&queue->heap);
    return true;
}

void kvr_merge_queue_release(struct kvr_merge_queue *queue)
{
    for (size_t i = 0; i < queue->order_count; i++) {
        free(queue->orders[i].places);
        free(queue->orders[i].late.numbers);
    }
    free(queue->orders);
    free(queue->heap.numbers);
    kvr_u64_map_release(&queue->known);
    memset(queue, 0, sizeof *queue);
}
