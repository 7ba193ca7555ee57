#include "cache/ghost.h"

#include <string.h>

void kvr_ghost_release(struct kvr_ghost *ghost)
{
    free(ghost->nodes);
    kvr_block_table_release(&ghost->table);
    memset(ghost, 0, sizeof *ghost);
}

bool kvr_ghost_reserve(struct kvr_ghost *ghost, uint32_t ids)
{
    if (ids > ghost->most)
        ids = ghost->most;
    if (ghost->nodes && ids + 1 <= ghost->size)
        return true;
    struct kvr_ghost_node *nodes = realloc(ghost->nodes, ((size_t)ids + 1) * sizeof *nodes);
    if (!nodes)
        return false;
    if (!ghost->nodes) {
        nodes[0] = (struct kvr_ghost_node){0};
        ghost->used = 1;
    }
    ghost->nodes = nodes;
    ghost->size = ids + 1;
    return kvr_block_table_reserve(&ghost->table, ids);
}

static void take_node(struct kvr_ghost *ghost, uint32_t node)
{
    struct kvr_ghost_node *nodes = ghost->nodes;

    kvr_block_table_remove(&ghost->table, kvr_block_table_hash(nodes[node].id), node);
    nodes[nodes[node].older].newer = nodes[node].newer;
    nodes[nodes[node].newer].older = nodes[node].older;
    nodes[node].newer = ghost->free;
    ghost->free = node;
    ghost->count--;
}

void kvr_ghost_drop_oldest(struct kvr_ghost *ghost)
{
    if (ghost->count)
        take_node(ghost, ghost->nodes[0].newer);
}

void kvr_ghost_push(struct kvr_ghost *ghost, uint64_t id)
{
    uint32_t most = ghost->most < ghost->size - 1 ? ghost->most : ghost->size - 1;

    if (!most)
        return;
    kvr_ghost_take(ghost, id);
    if (ghost->count >= most)
        kvr_ghost_drop_oldest(ghost);
    uint32_t node = ghost->free;
    if (node)
        ghost->free = ghost->nodes[node].newer;
    else
        node = ghost->used++;
    struct kvr_ghost_node *nodes = ghost->nodes;
    uint32_t newest = nodes[0].older;
    nodes[node] = (struct kvr_ghost_node){id, newest, 0};
    nodes[newest].newer = node;
    nodes[0].older = node;
    kvr_block_table_insert(&ghost->table, kvr_block_table_hash(id), node);
    ghost->count++;
}

bool kvr_ghost_take(struct kvr_ghost *ghost, uint64_t id)
{
    uint32_t node = kvr_block_table_find(
        &ghost->table, id, kvr_block_table_hash(id), &ghost->nodes[0].id, sizeof *ghost->nodes);

    if (!node)
        return false;
    take_node(ghost, node);
    return true;
}

uint64_t kvr_ghost_memory_bytes(const struct kvr_ghost *ghost)
{
    return sizeof *ghost->nodes * (uint64_t)ghost->size +
           kvr_block_table_memory_bytes(&ghost->table);
}
