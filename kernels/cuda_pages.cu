/*
 * KV pages on their way: packed and unpacked on the device, copied as they are, and how fast copies
 * are. Tiles are encoded into rooms of the largest size, a batch at a time, and put together on the
 * host, so that only what is small crosses the link.
 */
#include "kernels/cuda_runner.h"

#include <time.h>

enum { BATCH_TILES = 1024, COPY_BYTES = 256 << 20, COPIES = 5 };

static struct kvr_cuda_codec codec_of(
    const struct kvr_runner *runner, const uint32_t *table, uint32_t tokens)
{
    const struct kvr_shape *shape = &runner->shape;

    return kvr_cuda_codec{
        {runner->ranks[0].kv, shape->kv_heads, shape->head_dim, runner->page_tokens}, table,
        shape->layers, runner->pages + 1, tokens, {0, 0, 0}};
}

static struct kvr_codec_shape shape_of(const struct kvr_runner *runner, uint32_t tokens)
{
    return kvr_codec_shape{
        runner->shape.layers, runner->shape.kv_heads, runner->shape.head_dim, tokens};
}

/* A page table on the device; NULL where a page is not in the pool or memory is short. */
static uint32_t *send_table(struct kvr_runner *runner, const uint32_t *page_table, uint32_t tokens)
{
    const uint32_t pages = (tokens - 1) / runner->page_tokens + 1;
    uint32_t *table = nullptr;

    for (uint32_t i = 0; i < pages; i++)
        if (page_table[i] >= runner->pages)
            return nullptr;
    if (cudaMalloc(&table, pages * sizeof *table) != cudaSuccess)
        return nullptr;
    keep(runner, cudaMemcpyAsync(table, page_table, pages * sizeof *table, cudaMemcpyHostToDevice,
                     runner->ranks[0].stream));
    return table;
}

static enum kvr_status end_with(
    struct kvr_runner *runner, enum kvr_status status, struct kvr_error *error)
{
    keep(runner, cudaGetLastError());
    if (status == KVR_OK && runner->failure != cudaSuccess)
        return fail(error, KVR_IO, "the GPU failed", cudaGetErrorString(runner->failure));
    return status;
}

/* Room on the host and on the device for a batch of tiles. */
struct batch {
    uint8_t *rooms, *host_rooms;
    uint32_t *sizes;
    uint32_t host_sizes[BATCH_TILES];
};

static bool encode_batch(struct kvr_runner *runner, struct batch *batch,
    const struct kvr_cuda_codec *codec, size_t first, uint32_t tiles, size_t room)
{
    kvr_cuda_codec_encode(runner->ranks[0].stream, codec, static_cast<uint32_t>(first), tiles,
        batch->rooms, room, batch->sizes);
    keep(runner, cudaMemcpyAsync(batch->host_sizes, batch->sizes, tiles * sizeof(uint32_t),
                     cudaMemcpyDeviceToHost, runner->ranks[0].stream));
    keep(runner, cudaStreamSynchronize(runner->ranks[0].stream));
    for (uint32_t i = 0; runner->failure == cudaSuccess && i < tiles; i++)
        keep(runner, cudaMemcpyAsync(batch->host_rooms + i * room, batch->rooms + i * room,
                         batch->host_sizes[i], cudaMemcpyDeviceToHost, runner->ranks[0].stream));
    keep(runner, cudaStreamSynchronize(runner->ranks[0].stream));
    return runner->failure == cudaSuccess;
}

/* Appends a batch to what is packed so far. */
static bool append(uint8_t **bytes, size_t *size, size_t *have, const struct batch *batch,
    size_t first, uint32_t tiles, size_t room)
{
    for (uint32_t i = 0; i < tiles; i++) {
        const size_t more = batch->host_sizes[i];
        if (*size + more > *have) {
            *have = 2 * (*size + more);
            void *grown = realloc(*bytes, *have);
            if (!grown)
                return false;
            *bytes = static_cast<uint8_t *>(grown);
        }
        memcpy(*bytes + *size, batch->host_rooms + i * room, more);
        kvr_codec_put(*bytes + KVR_CODEC_HEADER_BYTES + 4 * (first + i), batch->host_sizes[i]);
        *size += more;
    }
    return true;
}

enum kvr_status kvr_cuda_pack(struct kvr_runner *runner, const uint32_t *page_table,
    uint32_t tokens, const struct kvr_codec_level *level, uint8_t **bytes, size_t *size,
    struct kvr_error *error)
{
    struct kvr_codec_shape shape = shape_of(runner, tokens);
    size_t tiles = kvr_codec_tiles(&shape);
    size_t room = kvr_codec_tile_room(KVR_CODEC_SPAN, shape.head_dim, KVR_CODEC_BINS);
    uint32_t most =
        tiles < BATCH_TILES ? static_cast<uint32_t>(tiles) : static_cast<uint32_t>(BATCH_TILES);
    enum kvr_status status = KVR_OK;

    if (runner->rank_count > 1)
        return fail(error, KVR_UNSUPPORTED, "the pages of several GPUs are not copied", "");
    struct batch *batch = static_cast<struct batch *>(calloc(1, sizeof *batch));

    if (tokens == 0 || tokens > runner->pages * static_cast<uint64_t>(runner->page_tokens)) {
        free(batch);
        return fail(error, KVR_BAD_USAGE, "no tokens to pack, or more than the pool has", "");
    }
    cudaSetDevice(runner->ranks[0].device);
    uint32_t *table = send_table(runner, page_table, tokens);
    size_t have = KVR_CODEC_HEADER_BYTES + 4 * tiles;
    *size = have;
    *bytes = static_cast<uint8_t *>(malloc(have));
    if (!batch || !table || !*bytes ||
        !(batch->host_rooms = static_cast<uint8_t *>(malloc(most * room))) ||
        cudaMalloc(&batch->rooms, most * room) != cudaSuccess ||
        cudaMalloc(&batch->sizes, most * sizeof(uint32_t)) != cudaSuccess)
        status = fail(error, KVR_NO_MEMORY, "out of memory for packing KV", "");
    if (status == KVR_OK)
        kvr_codec_write_header(&shape, *bytes);
    struct kvr_cuda_codec codec = codec_of(runner, table, tokens);
    memcpy(codec.bins, level->bins, sizeof codec.bins);
    for (size_t first = 0; status == KVR_OK && first < tiles; first += most) {
        uint32_t now = tiles - first < most ? static_cast<uint32_t>(tiles - first) : most;
        if (!encode_batch(runner, batch, &codec, first, now, room))
            break;
        if (!append(bytes, size, &have, batch, first, now, room))
            status = fail(error, KVR_NO_MEMORY, "out of memory for packing KV", "");
    }
    status = end_with(runner, status, error);
    if (batch) {
        cudaFree(batch->rooms);
        cudaFree(batch->sizes);
        free(batch->host_rooms);
    }
    cudaFree(table);
    free(batch);
    if (status != KVR_OK) {
        free(*bytes);
        *bytes = nullptr;
    }
    return status;
}

/* Sends tiles and where they begin, decodes, and fetches which are damaged. */
static enum kvr_status decode_all(struct kvr_runner *runner, const uint32_t *table,
    const struct kvr_codec_shape *shape, const uint8_t *bytes, const uint64_t *begin,
    uint32_t *damaged, struct kvr_error *error)
{
    const size_t tiles = kvr_codec_tiles(shape), size = static_cast<size_t>(begin[tiles]);
    struct kvr_cuda_codec codec = codec_of(runner, table, shape->tokens);
    uint8_t *device_bytes = nullptr;
    uint64_t *device_begin = nullptr;
    uint32_t *device_damaged = nullptr;
    enum kvr_status status = KVR_OK;

    if (cudaMalloc(&device_bytes, size) != cudaSuccess ||
        cudaMalloc(&device_begin, (tiles + 1) * sizeof *begin) != cudaSuccess ||
        cudaMalloc(&device_damaged, tiles * sizeof *damaged) != cudaSuccess) {
        status = fail(error, KVR_NO_MEMORY, "out of memory for unpacking KV", "");
    } else {
        const struct {
            void *to;
            const void *from;
            size_t bytes;
        } sent[] = {{device_bytes, bytes, size}, {device_begin, begin, (tiles + 1) * sizeof *begin},
            {device_damaged, damaged, tiles * sizeof *damaged}};
        for (size_t i = 0; i < sizeof sent / sizeof *sent; i++)
            keep(runner, cudaMemcpyAsync(sent[i].to, sent[i].from, sent[i].bytes,
                             cudaMemcpyHostToDevice, runner->ranks[0].stream));
        kvr_cuda_codec_decode(runner->ranks[0].stream, &codec, static_cast<uint32_t>(tiles),
            device_bytes, device_begin, device_damaged);
        keep(runner, cudaMemcpyAsync(damaged, device_damaged, tiles * sizeof *damaged,
                         cudaMemcpyDeviceToHost, runner->ranks[0].stream));
        keep(runner, cudaStreamSynchronize(runner->ranks[0].stream));
        status = end_with(runner, KVR_OK, error);
    }
    cudaFree(device_bytes);
    cudaFree(device_begin);
    cudaFree(device_damaged);
    return status;
}

enum kvr_status kvr_cuda_unpack(struct kvr_runner *runner, const uint32_t *page_table,
    uint32_t max_tokens, const uint8_t *bytes, size_t size, uint32_t *tokens,
    struct kvr_error *error)
{
    struct kvr_codec_shape shape = shape_of(runner, max_tokens);
    if (runner->rank_count > 1)
        return fail(error, KVR_UNSUPPORTED, "the pages of several GPUs are not copied", "");
    cudaSetDevice(runner->ranks[0].device);
    const char *wrong = kvr_codec_read_header(&shape, bytes, size, nullptr);
    if (wrong)
        return fail(error, KVR_BAD_INPUT, "the packed KV does not fit", wrong);
    const size_t tiles = kvr_codec_tiles(&shape);
    uint64_t *begin = static_cast<uint64_t *>(calloc(tiles + 1, sizeof *begin));
    uint32_t *damaged = static_cast<uint32_t *>(calloc(tiles, sizeof *damaged));
    uint32_t *table = send_table(runner, page_table, shape.tokens);
    enum kvr_status status = KVR_OK;

    *tokens = shape.tokens;
    shape.tokens = max_tokens;
    if (begin)
        kvr_codec_read_header(&shape, bytes, size, begin);
    if (!begin || !damaged || !table)
        status = fail(error, KVR_NO_MEMORY, "out of memory for unpacking KV", "");
    else
        status = decode_all(runner, table, &shape, bytes + KVR_CODEC_HEADER_BYTES + 4 * tiles,
            begin, damaged, error);
    for (size_t i = 0; status == KVR_OK && i < tiles; i++)
        if (damaged[i])
            status = fail(error, KVR_BAD_INPUT, "the packed KV is damaged", "");
    cudaFree(table);
    free(begin);
    free(damaged);
    return status;
}

enum kvr_status kvr_cuda_copy_pages(struct kvr_runner *runner, const uint32_t *pages,
    uint32_t count, void *host, bool out, struct kvr_error *error)
{
    const struct kvr_shape *shape = &runner->shape;
    const size_t bytes = 2ul * shape->kv_heads * runner->page_tokens * shape->head_dim * 2;
    const size_t pitch = (runner->pages + 1ul) * bytes;
    char *place = static_cast<char *>(host);

    if (runner->rank_count > 1)
        return fail(error, KVR_UNSUPPORTED, "the pages of several GPUs are not copied", "");
    cudaSetDevice(runner->ranks[0].device);
    for (uint32_t i = 0; i < count; i++, place += bytes * shape->layers) {
        if (pages[i] >= runner->pages)
            return fail(error, KVR_BAD_USAGE, "a page is not in the pool", "");
        char *page = reinterpret_cast<char *>(runner->ranks[0].kv) + pages[i] * bytes;
        keep(runner,
            cudaMemcpy2DAsync(out ? place : page, out ? bytes : pitch, out ? page : place,
                out ? pitch : bytes, bytes, shape->layers,
                out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, runner->ranks[0].stream));
    }
    keep(runner, cudaStreamSynchronize(runner->ranks[0].stream));
    return end_with(runner, KVR_OK, error);
}

static double now_s()
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

enum kvr_status kvr_cuda_copy_rates(
    struct kvr_runner *runner, struct kvr_copy_rates *rates, struct kvr_error *error)
{
    size_t free_bytes = 0, total = 0, bytes = COPY_BYTES;
    char *device = nullptr;
    void *host = nullptr;

    cudaSetDevice(runner->ranks[0].device);
    keep(runner, cudaMemGetInfo(&free_bytes, &total));
    while (bytes > 4096 && 2 * bytes > free_bytes / 2)
        bytes /= 2;
    if (cudaMalloc(&device, 2 * bytes) != cudaSuccess ||
        cudaMallocHost(&host, bytes) != cudaSuccess) {
        cudaFree(device);
        return fail(error, KVR_NO_MEMORY, "out of memory for measuring copies", "");
    }
    memset(host, 0, bytes);
    const struct {
        void *to, *from;
        cudaMemcpyKind kind;
        double *rate;
    } copies[] = {{device, host, cudaMemcpyHostToDevice, &rates->from_host},
        {host, device, cudaMemcpyDeviceToHost, &rates->to_host},
        {device + bytes, device, cudaMemcpyDeviceToDevice, &rates->on_device}};
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        *copies[i].rate = 0;
        for (int run = 0; run <= COPIES; run++) {
            double start = now_s();
            keep(runner, cudaMemcpyAsync(copies[i].to, copies[i].from, bytes, copies[i].kind,
                             runner->ranks[0].stream));
            keep(runner, cudaStreamSynchronize(runner->ranks[0].stream));
            double rate = static_cast<double>(bytes) / (now_s() - start);
            *copies[i].rate = run > 0 && rate > *copies[i].rate ? rate : *copies[i].rate;
        }
    }
    cudaFree(device);
    cudaFreeHost(host);
    return end_with(runner, KVR_OK, error);
}
