/*
 * SGLang's host tier (HiCache), as its tree with tiers works in 0.5.23.
 *
 * Three ways to write. write_through copies a node to the host at its first hit (its insertion
 * counts as one), write_through_selective at its second, write_back when it is evicted from the
 * device. A copy never hangs in the air: the ancestors without one are written first. Eviction from
 * the device keeps the node in the tree where the host has it. The host pool makes room by evicting
 * its own leaves, by the same strategy; under write_back it first gives up copies of nodes that are
 * on the device as well, in the order in which they came to be twofold, sparing device leaves in a
 * first pass since these are next to be evicted and would only be written again.
 *
 * Loading back is all or nothing, and makes room on the device by the ordinary eviction.
 *
 * Transfers here are done the moment they start: locks that the real engine holds while a copy is
 * under way last no time.
 */
#include "cache/sglang_tree.h"

/* ── nodes on both tiers ── */

static void twin_unlink(struct sglang_tree *tree, uint32_t index)
{
    struct sglang_node *node = &tree->nodes[index];
    *(node->twin_previous ? &tree->nodes[node->twin_previous].twin_next : &tree->twin_first) =
        node->twin_next;
    *(node->twin_next ? &tree->nodes[node->twin_next].twin_previous : &tree->twin_last) =
        node->twin_previous;
    node->twin = false;
}

void sglang_forget_twin(struct sglang_tree *tree, uint32_t index)
{
    if (tree->nodes[index].twin)
        twin_unlink(tree, index);
}

/* A node that is on the list keeps its place; one that has left the device stays on it, stale,
 * until a reclaim meets it, and keeps its place if it has come back by then. */
void sglang_note_twin(struct sglang_tree *tree, uint32_t index)
{
    struct sglang_node *node = &tree->nodes[index];
    if (!tree->has_host || tree->write != WRITE_BACK)
        return;
    if (!node->device || !node->host) {
        sglang_forget_twin(tree, index);
    } else if (!node->twin) {
        node->twin = true;
        node->twin_next = 0;
        node->twin_previous = tree->twin_last;
        *(tree->twin_last ? &tree->nodes[tree->twin_last].twin_next : &tree->twin_first) = index;
        tree->twin_last = index;
    }
}

/* Gives up host copies of what the device has, until `count` pages are free or none is left. */
static uint64_t reclaim_twins(struct sglang_tree *tree, uint64_t count)
{
    uint64_t gone = 0;
    for (int pass = 0; pass < 2 && gone < count; pass++) {
        for (uint32_t index = tree->twin_first, next; index && gone < count; index = next) {
            struct sglang_node *node = &tree->nodes[index];
            next = node->twin_next;
            bool twofold = node->device && node->host;
            if (twofold && pass == 0 && kvr_order_has(&tree->leaves[0], index))
                continue;
            twin_unlink(tree, index);
            if (!twofold)
                continue;
            sglang_tell_removed(tree, KVR_MEDIUM_CPU, index);
            node->host = false;
            tree->host_free += node->length;
            gone += node->length;
        }
    }
    return gone;
}

/* ── host pool ── */

static void evict_host_leaf(struct sglang_tree *tree, uint32_t index)
{
    sglang_tell_removed(tree, KVR_MEDIUM_CPU, index);
    tree->host_free += tree->nodes[index].length;
    sglang_delete(tree, index);
}

/* One node's copy to the host; false where the host has no room and cannot make it. */
static bool copy_to_host(struct sglang_tree *tree, uint32_t index)
{
    uint64_t length = tree->nodes[index].length;
    if (tree->host_free < length) {
        uint64_t needed = length - tree->host_free;
        uint64_t gone = tree->write == WRITE_BACK ? reclaim_twins(tree, needed) : 0;
        while (gone < needed) {
            uint32_t leaf = kvr_order_first(&tree->leaves[1]);
            if (leaf == KVR_ORDER_NONE)
                return false;
            gone += tree->nodes[leaf].length;
            evict_host_leaf(tree, leaf);
        }
    }
    tree->host_free -= length;
    tree->nodes[index].host = true;
    sglang_tell_stored(tree, KVR_MEDIUM_CPU, index);
    sglang_note_twin(tree, index);
    return true;
}

void sglang_backup(struct sglang_tree *tree, uint32_t node)
{
    size_t count = 0;
    for (; node && !tree->nodes[node].host; node = tree->nodes[node].parent)
        tree->path[count++] = node;
    while (count && copy_to_host(tree, tree->path[--count]))
        ;
}

/* ── device to host and back ── */

static void leave_device(struct sglang_tree *tree, uint32_t index)
{
    struct sglang_node *node = &tree->nodes[index];
    uint32_t parent = node->parent;
    sglang_tell_removed(tree, KVR_MEDIUM_GPU, index);
    tree->free += node->length;
    if (!node->host) {
        sglang_delete(tree, index);
        return;
    }
    node->device = false;
    tree->nodes[parent].device_children--;
    sglang_refresh(tree, index);
    sglang_refresh(tree, parent);
}

void sglang_demote(struct sglang_tree *tree, uint32_t index)
{
    /* Where a copy fails, all host leaves are gone by then, so nothing hangs below: it is deleted.
     */
    if (tree->has_host && tree->write == WRITE_BACK && !tree->nodes[index].host)
        copy_to_host(tree, index);
    leave_device(tree, index);
}

bool sglang_load_back(struct sglang_tree *tree, uint32_t bottom, uint64_t least_pages)
{
    uint64_t pages = 0;
    for (uint32_t at = bottom; at && !tree->nodes[at].device; at = tree->nodes[at].parent)
        pages += tree->nodes[at].length;
    if (!pages || pages < least_pages)
        return false;
    sglang_lock(tree, bottom);
    if (tree->free < pages)
        sglang_evict(tree, pages - tree->free);
    bool room = tree->free >= pages;
    if (room) {
        size_t count = 0;
        for (uint32_t at = bottom; !tree->nodes[at].device; at = tree->nodes[at].parent)
            tree->path[count++] = at;
        /* top down, so that each event's parent is there */
        for (size_t i = count; i--;) {
            struct sglang_node *node = &tree->nodes[tree->path[i]];
            node->device = true;
            tree->nodes[node->parent].device_children++;
            tree->free -= node->length;
            sglang_tell_stored(tree, KVR_MEDIUM_GPU, tree->path[i]);
        }
        for (size_t i = 0; i < count; i++)
            sglang_note_twin(tree, tree->path[i]);
    }
    sglang_unlock(tree, bottom);
    return room;
}

void sglang_drop_all(struct sglang_tree *tree)
{
    /* host leaves first: then nothing but what is locked hangs below a device leaf */
    for (;;) {
        if (tree->leaves[1].count)
            evict_host_leaf(tree, kvr_order_first(&tree->leaves[1]));
        else if (tree->leaves[0].count)
            leave_device(tree, kvr_order_first(&tree->leaves[0]));
        else
            break;
    }
}
