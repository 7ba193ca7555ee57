/*
 * What runs a prefill: a model's weights, a pool of KV pages, and one entry that computes new
 * tokens of any number of sequences on top of what their pages hold.
 *
 * A page table may name any pages in any order; the caller decides which page belongs to whom. A
 * step reads pages of tokens before `first` as they are and writes those of its own tokens; nothing
 * else is touched. Several sequences may name the same pages for a common prefix as long as none of
 * them writes there.
 */
#ifndef KVR_KERNELS_BACKEND_H
#define KVR_KERNELS_BACKEND_H

#include "kernels/kv_codec.h"
#include "kernels/operations.h"
#include "kernels/shape.h"

struct kvr_backend_options {
    const struct kvr_shape *shape;
    uint64_t seed;        /* of the weights */
    uint32_t page_tokens; /* at least 1 */
    uint32_t pages;       /* of the pool */
    uint32_t threads;     /* cpu: at least 1 */
    uint32_t device;      /* cuda: the first GPU */
    uint32_t gpus;        /* cuda: that share the model, tensor parallel; 0: one */
    bool fp8;             /* cuda: matrix products in 8 bits, where the GPU has them */
    bool eager;           /* cuda: no graphs; every kernel is started on its own */
};

/* New tokens of one sequence: a chunk of its prefill, or one token of its decoding. */
struct kvr_step {
    const uint32_t *tokens; /* [count], below the vocabulary */
    uint32_t count;         /* at least 1 */
    uint32_t first;         /* position of the first: so many tokens are cached */
    const uint32_t *page_table;
    float *logits; /* [vocabulary] of the last token, the caller's; NULL: computed, not kept */
};

struct kvr_runner;

/* Bytes a second, a copy of n bytes counted as n; 0: there is no such copy. */
struct kvr_copy_rates {
    double to_host, from_host; /* pinned memory of the host, over PCIe or what there is */
    double on_device;
};

struct kvr_backend {
    const char *name;
    /* KVR_UNSUPPORTED where the machine lacks something, memory included. */
    enum kvr_status (*create)(const struct kvr_backend_options *options, struct kvr_runner **runner,
        struct kvr_error *error);
    void (*destroy)(struct kvr_runner *runner);
    /* Returns when the results are there. */
    enum kvr_status (*run)(struct kvr_runner *runner, const struct kvr_step *steps, size_t count,
        struct kvr_error *error);
    const char *(*device)(const struct kvr_runner *runner);
    /* FLOP/s of one large matrix product by the device's own library, measured now: the yardstick
     * for MFU. 0 where it cannot be measured. */
    double (*matrix_flops)(struct kvr_runner *runner);
    double bound; /* normalised error of logits that another split may cause; 0: not a bit */
    /* The first `tokens` tokens of a page table made small (kv_codec.h), at least 1, into *size
     * bytes that the caller frees. */
    enum kvr_status (*pack)(struct kvr_runner *runner, const uint32_t *page_table, uint32_t tokens,
        const struct kvr_codec_level *level, uint8_t **bytes, size_t *size,
        struct kvr_error *error);
    /* The way back, into pages for at most max_tokens tokens; *tokens says how many there were.
     * KVR_BAD_INPUT for damaged bytes: the pages hold anything then. */
    enum kvr_status (*unpack)(struct kvr_runner *runner, const uint32_t *page_table,
        uint32_t max_tokens, const uint8_t *bytes, size_t size, uint32_t *tokens,
        struct kvr_error *error);
    /* Pages as they are, out to the host's memory or in from it: host[count][layers][2][kv_heads]
     * [page_tokens][head_dim] in bfloat16. */
    enum kvr_status (*copy_pages)(struct kvr_runner *runner, const uint32_t *pages, uint32_t count,
        void *host, bool out, struct kvr_error *error);
    enum kvr_status (*copy_rates)(
        struct kvr_runner *runner, struct kvr_copy_rates *rates, struct kvr_error *error);
};

extern const struct kvr_backend kvr_cpu_backend;

/*
 * A runner of the CPU backend with the weights of a model file, which must outlive it;
 * options->shape is the file's. NULL: random ones, as kvr_cpu_backend.create() makes them.
 * float_kv: the pages keep single precision, so that nothing is rounded on the way from the weights
 * to the logits; they take twice the memory.
 */
struct kvr_model_file;
enum kvr_status kvr_cpu_create(const struct kvr_backend_options *options,
    const struct kvr_model_file *file, bool float_kv, struct kvr_runner **runner,
    struct kvr_error *error);

/* The pool of the CPU backend, for tests and for copying pages; and where it is in single
 * precision, whose layout is the same, its numbers, else NULL. */
struct kvr_kv *kvr_cpu_kv(struct kvr_runner *runner);
float *kvr_cpu_kv_floats(struct kvr_runner *runner);

#endif
