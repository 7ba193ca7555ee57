/*
 * Causal attention over pages on tensor cores, in the manner of FlashAttention-2 (Dao,
 * arXiv:2307.08691).
 *
 * A block of four warps takes 64 rows of one sequence and one key head; a row is a query token of
 * one of the heads that share the key head, so that few tokens with many shared heads still fill
 * the tile. The block walks the keys in blocks of 64, counted from the start of the sequence: it
 * copies keys and values out of their pages into shared memory (slots behind the end of the
 * sequence become zeros, unread), and each warp multiplies its 16 rows with them.
 *
 * Layout. The queries stay in registers as fragments of the 16×8×16 product. Scores of two
 * neighbouring 8-column tiles lie in registers just as the left operand of the next product wants
 * them, so probabilities never pass through shared memory. A thread holds parts of rows g and
 * g + 8 (g = lane / 4); the four threads of a group share these rows, and a maximum or a sum of a
 * row takes two shuffles. Rows of shared memory are padded by 8 numbers, so that the eight rows
 * that a fragment load touches lie in different banks.
 *
 * Order of sums: a row's blocks in order, from key 0; so a cached prefix changes no bit as long as
 * the row stands in the same place of a fragment, and else only the place in it.
 */
#include "kernels/cuda_operations.h"
#include "kernels/device.cuh"

enum { TILE_ROWS = 64, TILE_KEYS = 64, TILE_THREADS = 128, PADDING = 8 };

struct attention_place {
    const uint32_t *page_table;
    uint32_t first, count, end; /* of the part; end: tokens of the sequence */
    uint32_t shared;            /* query heads of the key head */
};

/* One key or value block into shared memory [TILE_KEYS][DIM + PADDING]. */
template <int DIM>
static __device__ __forceinline__ void load_block(uint16_t *to, const struct kvr_cuda_kv &kv,
    const struct attention_place &place, uint32_t value, uint32_t start)
{
    for (uint32_t i = threadIdx.x; i < TILE_KEYS * (DIM / 8); i += TILE_THREADS) {
        uint32_t key = i / (DIM / 8), piece = i % (DIM / 8) * 8, token = start + key;
        eight numbers = {};
        if (token < place.end) {
            size_t page = place.page_table[token / kv.page_tokens];
            size_t from = (((page * 2 + value) * kv.kv_heads + blockIdx.y) * kv.page_tokens +
                              token % kv.page_tokens) *
                              DIM +
                          piece;
            numbers = *reinterpret_cast<const eight *>(kv.layer + from);
        }
        *reinterpret_cast<eight *>(to + key * (DIM + PADDING) + piece) = numbers;
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

/* Scores of 16 rows and 64 keys, in powers of two, those that a row must not see −∞. */
template <int DIM>
static __device__ __forceinline__ void score_block(float (&scores)[TILE_KEYS / 8][4],
    const uint32_t (&queries)[DIM / 16][4], const uint16_t *keys,
    const struct attention_place &place, uint32_t base, uint32_t start)
{
    const float scale = 1.4426950408889634f * rsqrtf(static_cast<float>(DIM));
    uint32_t group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;

    for (int tile = 0; tile < TILE_KEYS / 8; tile++) {
        for (int i = 0; i < 4; i++)
            scores[tile][i] = 0;
        const uint16_t *key = keys + (tile * 8 + group) * (DIM + PADDING) + pair;
        for (int step = 0; step < DIM / 16; step++) {
            uint32_t b[2] = {pair_at(key + step * 16), pair_at(key + step * 16 + 8)};
            mma_16x8x16(scores[tile], queries[step], b);
        }
        for (int i = 0; i < 4; i++) {
            uint32_t row = base + group + 8 * (i / 2);
            uint32_t token = start + tile * 8 + pair + i % 2;
            bool seen = token <= place.first + row / place.shared && token < place.end;
            scores[tile][i] = seen ? scores[tile][i] * scale : -INFINITY;
        }
    }
}

/* Online softmax of rows g and g + 8: scores become weights, older sums are scaled down. */
template <int DIM>
static __device__ __forceinline__ void soften(float (&scores)[TILE_KEYS / 8][4],
    float (&sums)[DIM / 8][4], float (&maximum)[2], float (&total)[2])
{
    for (int half = 0; half < 2; half++) {
        float most = maximum[half], added = 0;
        for (int tile = 0; tile < TILE_KEYS / 8; tile++)
            most = fmaxf(most, fmaxf(scores[tile][2 * half], scores[tile][2 * half + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        float base = most == -INFINITY ? 0 : most; /* a row that has seen nothing yet */
        float keep = exp2f(maximum[half] - base);
        for (int tile = 0; tile < TILE_KEYS / 8; tile++) {
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                scores[tile][i] = exp2f(scores[tile][i] - base);
                added += scores[tile][i];
            }
        }
        for (int tile = 0; tile < DIM / 8; tile++) {
            sums[tile][2 * half] *= keep;
            sums[tile][2 * half + 1] *= keep;
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
        const uint16_t *row = values + (step * 16 + lane % 16) * (DIM + PADDING);
        for (int tile = 0; tile < DIM / 8; tile++) {
            uint32_t b[2];
            load_transposed(b, row + tile * 8);
            mma_16x8x16(sums[tile], a, b);
        }
    }
}

template <int DIM>
static __global__ void attend(uint16_t *out, const uint16_t *queries, uint32_t stride,
    struct kvr_cuda_kv kv, const uint32_t *page_tables, const struct kvr_cuda_part *parts,
    uint32_t heads)
{
    KVR_SHARED(uint16_t, keys);
    uint16_t *values = keys + TILE_KEYS * (DIM + PADDING);
    const struct kvr_cuda_part part = parts[blockIdx.z];
    const struct attention_place place = {page_tables + part.table_offset, part.first, part.count,
        part.first + part.count, heads / kv.kv_heads};
    const uint32_t rows = part.count * place.shared, block = blockIdx.x * TILE_ROWS;
    const uint32_t base = block + threadIdx.x / 32 * 16;
    uint32_t query[DIM / 16][4];
    float sums[DIM / 8][4] = {}, maximum[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};

    if (block >= rows)
        return; /* another part is longer: the whole block leaves */
    uint32_t last = block + TILE_ROWS < rows ? block + TILE_ROWS - 1 : rows - 1;
    uint32_t end = part.first + last / place.shared + 1;
    load_queries<DIM>(query, queries + static_cast<size_t>(part.row) * stride, stride, place, base);
    for (uint32_t start = 0; start < end; start += TILE_KEYS) {
        float scores[TILE_KEYS / 8][4];
        __syncthreads(); /* the block before has been used */
        load_block<DIM>(keys, kv, place, 0, start);
        load_block<DIM>(values, kv, place, 1, start);
        __syncthreads();
        score_block<DIM>(scores, query, keys, place, base, start);
        soften<DIM>(scores, sums, maximum, total);
        add_values<DIM>(sums, scores, values);
    }
    for (int half = 0; half < 2; half++) {
        uint32_t row = base + threadIdx.x % 32 / 4 + 8 * half;
        if (row >= rows)
            continue;
        size_t token = part.row + row / place.shared;
        uint16_t *to = out +
                       (token * heads + blockIdx.y * place.shared + row % place.shared) * DIM +
                       threadIdx.x % 4 * 2;
        for (int tile = 0; tile < DIM / 8; tile++)
            *reinterpret_cast<uint32_t *>(to + tile * 8) = bf16_pair(
                sums[tile][2 * half] / total[half], sums[tile][2 * half + 1] / total[half]);
    }
}

template <int DIM>
static bool start(kvr_stream stream, uint16_t *out, const uint16_t *queries, uint32_t stride,
    const struct kvr_cuda_kv *kv, const uint32_t *page_tables, const struct kvr_cuda_part *parts,
    uint32_t part_count, uint32_t most_count, uint32_t heads)
{
    const size_t bytes = 2 * TILE_KEYS * (DIM + PADDING) * sizeof(uint16_t);
    uint32_t rows = most_count * (heads / kv->kv_heads);

    if (cudaFuncSetAttribute(attend<DIM>, cudaFuncAttributeMaxDynamicSharedMemorySize,
            static_cast<int>(bytes)) != cudaSuccess)
        return false;
    KVR_LAUNCH(attend<DIM>, dim3((rows + TILE_ROWS - 1) / TILE_ROWS, kv->kv_heads, part_count),
        TILE_THREADS, bytes, stream, out, queries, stride, *kv, page_tables, parts, heads);
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
