/*
 * Causal attention over pages on tensor cores, in the manner of FlashAttention-2 (Dao,
 * arXiv:2307.08691).
 *
 * A block of 8 warps (4 for heads of 256) takes 128 rows (64) of one sequence and one key head; a
 * row is a query token of one of the heads that share the key head, so that few tokens with many
 * shared heads still fill the tile. The block walks the keys in blocks of 64, counted from the
 * start of the sequence, and each warp multiplies its 16 rows with them. Keys and values come out
 * of their pages by asynchronous copies into one of two stages of shared memory, the next block's
 * while this one is multiplied; slots behind the end of the sequence become zeros, unread.
 *
 * Layout. The queries stay in registers as fragments of the 16×8×16 product. Scores of two
 * neighbouring 8-column tiles lie in registers just as the left operand of the next product wants
 * them, so probabilities never pass through shared memory. A thread holds parts of rows g and
 * g + 8 (g = lane / 4); the four threads of a group share these rows, and a maximum or a sum of a
 * row takes two shuffles. Rows of shared memory are padded by 8 numbers, so that the eight rows
 * that a fragment load touches lie in different banks. Only blocks on the diagonal look at what a
 * row may see, and those behind all rows of a warp are not computed; blocks of late rows, which
 * have most to do, start first.
 *
 * Order of sums: a row's blocks in order, from key 0; so a cached prefix changes no bit as long as
 * the row stands in the same place of a fragment, and else only the place in it.
 */
#include "kernels/cuda_operations.h"
#include "kernels/device.cuh"

enum { TILE_KEYS = 64, PADDING = 8, STAGES = 2 };

template <int DIM> struct tile {
    enum {
        WARPS = DIM > 128 ? 4 : 8,
        THREADS = WARPS * 32,
        ROWS = WARPS * 16,
        STRIDE = DIM + PADDING,
        BLOCK = TILE_KEYS * STRIDE, /* keys or values of a stage */
        BYTES = STAGES * 2 * BLOCK * 2,
    };
};

struct attention_place {
    const uint32_t *page_table;
    uint32_t first, count, end; /* of the part; end: tokens of the sequence */
    uint32_t shared;            /* query heads of the key head */
};

/* Starts to copy a block of keys and values into a stage. */
template <int DIM>
static __device__ __forceinline__ void fetch_block(uint16_t *stage, const struct kvr_cuda_kv &kv,
    const struct attention_place &place, uint32_t start)
{
    const size_t half = static_cast<size_t>(kv.kv_heads) * kv.page_tokens * DIM;

    for (uint32_t i = threadIdx.x; i < TILE_KEYS * (DIM / 8); i += tile<DIM>::THREADS) {
        uint32_t key = i / (DIM / 8), piece = i % (DIM / 8) * 8, token = start + key;
        uint16_t *to = stage + key * tile<DIM>::STRIDE + piece;
        const bool there = token < place.end;
        const uint16_t *from = kv.layer;
        if (there) {
            size_t page = place.page_table[token / kv.page_tokens];
            from +=
                ((page * 2 * kv.kv_heads + blockIdx.y) * kv.page_tokens + token % kv.page_tokens) *
                    DIM +
                piece;
        }
        copy_16_bytes(to, from, there);
        copy_16_bytes(to + tile<DIM>::BLOCK, there ? from + half : from, there);
    }
}

static __device__ __forceinline__ uint32_t pair_at(const uint16_t *numbers)
{
    return *reinterpret_cast<const uint32_t *>(numbers);
}

/* The left fragments of 16 rows from `base`; rows behind the last are zero. */
template <int DIM>
static __device__ __forceinline__ void load_queries(uint32_t (&fragments)[DIM / 16][4],
    const uint16_t *queries, uint32_t stride, const struct attention_place &place, uint32_t base)
{
    uint32_t group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;

    for (int half = 0; half < 2; half++) {
        uint32_t row = base + group + 8 * half;
        const uint16_t *from = queries + static_cast<size_t>(row / place.shared) * stride +
                               (blockIdx.y * place.shared + row % place.shared) * DIM + pair;
        bool there = row < place.count * place.shared;
        for (int step = 0; step < DIM / 16; step++) {
            fragments[step][half] = there ? pair_at(from + step * 16) : 0;
            fragments[step][half + 2] = there ? pair_at(from + step * 16 + 8) : 0;
        }
    }
}

/* Raw scores of 16 rows and 64 keys. */
template <int DIM>
static __device__ __forceinline__ void score_block(
    float (&scores)[TILE_KEYS / 8][4], const uint32_t (&queries)[DIM / 16][4], const uint16_t *keys)
{
    uint32_t lane = threadIdx.x % 32;
    const uint16_t *row = keys + lane % 8 * tile<DIM>::STRIDE + lane / 8 * 8;

    for (int at = 0; at < TILE_KEYS / 8; at++) {
        for (int i = 0; i < 4; i++)
            scores[at][i] = 0;
        for (int step = 0; step < DIM / 16; step += 2) {
            uint32_t b[4]; /* eight keys, four runs of eight numbers: two right fragments */
            load_matrices(b, row + at * 8 * tile<DIM>::STRIDE + step * 16);
            const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
            mma_16x8x16(scores[at], queries[step], left);
            mma_16x8x16(scores[at], queries[step + 1], right);
        }
    }
}

/* Scores that a row must not see become −∞. */
static __device__ __forceinline__ void hide(float (&scores)[TILE_KEYS / 8][4],
    const struct attention_place &place, uint32_t base, uint32_t start)
{
    uint32_t group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;

    for (int at = 0; at < TILE_KEYS / 8; at++) {
        for (int i = 0; i < 4; i++) {
            uint32_t row = base + group + 8 * (i / 2), token = start + at * 8 + pair + i % 2;
            if (token > place.first + row / place.shared || token >= place.end)
                scores[at][i] = -INFINITY;
        }
    }
}

/* Online softmax of rows g and g + 8, in powers of two: scores become weights, older sums are
 * scaled down. */
template <int DIM>
static __device__ __forceinline__ void soften(float (&scores)[TILE_KEYS / 8][4],
    float (&sums)[DIM / 8][4], float (&maximum)[2], float (&total)[2])
{
    const float scale = 1.4426950408889634f * rsqrtf(static_cast<float>(DIM));

    for (int half = 0; half < 2; half++) {
        float most = maximum[half], added = 0;
        for (int at = 0; at < TILE_KEYS / 8; at++)
            most = fmaxf(most, fmaxf(scores[at][2 * half], scores[at][2 * half + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        float base = most == -INFINITY ? 0 : most * scale; /* a row that has seen nothing yet */
        float keep = power_of_two(fmaf(maximum[half], scale, -base));
        for (int at = 0; at < TILE_KEYS / 8; at++) {
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                scores[at][i] = power_of_two(fmaf(scores[at][i], scale, -base));
                added += scores[at][i];
            }
        }
        for (int at = 0; at < DIM / 8; at++) {
            sums[at][2 * half] *= keep;
            sums[at][2 * half + 1] *= keep;
        }
        added += __shfl_xor_sync(0xffffffffu, added, 1);
        added += __shfl_xor_sync(0xffffffffu, added, 2);
        total[half] = total[half] * keep + added;
        maximum[half] = most;
    }
}

template <int DIM>
static __device__ __forceinline__ void add_values(
    float (&sums)[DIM / 8][4], const float (&weights)[TILE_KEYS / 8][4], const uint16_t *values)
{
    uint32_t lane = threadIdx.x % 32;

    for (int step = 0; step < TILE_KEYS / 16; step++) {
        const float(&left)[4] = weights[2 * step];
        const float(&right)[4] = weights[2 * step + 1];
        uint32_t a[4] = {bf16_pair(left[0], left[1]), bf16_pair(left[2], left[3]),
            bf16_pair(right[0], right[1]), bf16_pair(right[2], right[3])};
        const uint16_t *row = values + (step * 16 + lane % 16) * tile<DIM>::STRIDE + lane / 16 * 8;
        for (int at = 0; at < DIM / 8; at += 2) {
            uint32_t b[4]; /* sixteen keys, twice eight numbers of each */
            load_transposed(b, row + at * 8);
            const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
            mma_16x8x16(sums[at], a, first);
            mma_16x8x16(sums[at + 1], a, second);
        }
    }
}

template <int DIM>
static __device__ __forceinline__ void write_rows(uint16_t *out, const float (&sums)[DIM / 8][4],
    const float (&total)[2], const struct kvr_cuda_part &part, const struct attention_place &place,
    uint32_t base, uint32_t heads)
{
    for (int half = 0; half < 2; half++) {
        uint32_t row = base + threadIdx.x % 32 / 4 + 8 * half;
        if (row >= place.count * place.shared)
            continue;
        size_t token = part.row + row / place.shared;
        uint16_t *to = out +
                       (token * heads + blockIdx.y * place.shared + row % place.shared) * DIM +
                       threadIdx.x % 4 * 2;
        float inverse = 1 / total[half];
        for (int at = 0; at < DIM / 8; at++)
            *reinterpret_cast<uint32_t *>(to + at * 8) =
                bf16_pair(sums[at][2 * half] * inverse, sums[at][2 * half + 1] * inverse);
    }
}

template <int DIM>
static __global__ void attend(uint16_t *out, const uint16_t *queries, uint32_t stride,
    struct kvr_cuda_kv kv, const uint32_t *page_tables, const struct kvr_cuda_part *parts,
    uint32_t heads)
{
    KVR_SHARED(uint16_t, stages);
    const struct kvr_cuda_part part = parts[blockIdx.z];
    const struct attention_place place = {page_tables + part.table_offset, part.first, part.count,
        part.first + part.count, heads / kv.kv_heads};
    const uint32_t rows = part.count * place.shared;
    const uint32_t block = (gridDim.x - 1 - blockIdx.x) * tile<DIM>::ROWS;
    const uint32_t base = block + threadIdx.x / 32 * 16;
    uint32_t query[DIM / 16][4];
    float sums[DIM / 8][4] = {}, maximum[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};

    if (block >= rows)
        return; /* another part is longer: the whole block leaves */
    uint32_t last = block + tile<DIM>::ROWS < rows ? block + tile<DIM>::ROWS - 1 : rows - 1;
    uint32_t end = part.first + last / place.shared + 1;
    /* What the warp's rows see: all of them the tokens before `all`, none from `none` on. */
    uint32_t all = part.first + base / place.shared + 1, none = 0;
    if (base < rows)
        none = part.first + (base + 15 < rows ? base + 15 : rows - 1) / place.shared + 1;
    fetch_block<DIM>(stages, kv, place, 0);
    copies_begun();
    load_queries<DIM>(query, queries + static_cast<size_t>(part.row) * stride, stride, place, base);
    for (uint32_t start = 0, number = 0; start < end; start += TILE_KEYS, number++) {
        const uint16_t *keys = stages + number % STAGES * 2 * tile<DIM>::BLOCK;
        if (start + TILE_KEYS < end)
            fetch_block<DIM>(stages + (number + 1) % STAGES * 2 * tile<DIM>::BLOCK, kv, place,
                start + TILE_KEYS);
        copies_begun();
        copies_done_but<1>();
        __syncthreads(); /* everybody's copies are there */
        if (start < none) {
            float scores[TILE_KEYS / 8][4];
            score_block<DIM>(scores, query, keys);
            if (start + TILE_KEYS > all)
                hide(scores, place, base, start);
            soften<DIM>(scores, sums, maximum, total);
            add_values<DIM>(sums, scores, keys + tile<DIM>::BLOCK);
        }
        __syncthreads(); /* the stage may be written again */
    }
    copies_done_but<0>();
    write_rows<DIM>(out, sums, total, part, place, base, heads);
}

template <int DIM>
static bool start(kvr_stream stream, uint16_t *out, const uint16_t *queries, uint32_t stride,
    const struct kvr_cuda_kv *kv, const uint32_t *page_tables, const struct kvr_cuda_part *parts,
    uint32_t part_count, uint32_t most_count, uint32_t heads)
{
    const uint32_t rows = most_count * (heads / kv->kv_heads), per_block = tile<DIM>::ROWS;

    if (cudaFuncSetAttribute(attend<DIM>, cudaFuncAttributeMaxDynamicSharedMemorySize,
            tile<DIM>::BYTES) != cudaSuccess)
        return false;
    KVR_LAUNCH(attend<DIM>, dim3((rows + per_block - 1) / per_block, kv->kv_heads, part_count),
        tile<DIM>::THREADS, tile<DIM>::BYTES, stream, out, queries, stride, *kv, page_tables, parts,
        heads);
    return true;
}

bool kvr_cuda_attention(kvr_stream stream, uint16_t *out, const uint16_t *queries, uint32_t stride,
    const struct kvr_cuda_kv *kv, const uint32_t *page_tables, const struct kvr_cuda_part *parts,
    uint32_t part_count, uint32_t most_count, uint32_t heads)
{
    switch (kv->head_dim) {
    case 64:
        return start<64>(
            stream, out, queries, stride, kv, page_tables, parts, part_count, most_count, heads);
    case 128:
        return start<128>(
            stream, out, queries, stride, kv, page_tables, parts, part_count, most_count, heads);
    case 256:
        return start<256>(
            stream, out, queries, stride, kv, page_tables, parts, part_count, most_count, heads);
    }
    return false;
}
