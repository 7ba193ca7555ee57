/* Measuring the KV codec (kv_codec.h) on keys and values that a backend has really computed. */
#ifndef KVR_KERNELS_MEASURE_CODEC_H
#define KVR_KERNELS_MEASURE_CODEC_H

#include "kernels/kv_pack.h"
#include "kernels/measure.h"

struct kvr_codec_measure {
    uint32_t prefix_tokens, compared; /* packed; tokens behind them whose logits are compared */
    double raw_bytes, bytes;
    double pack_bytes_per_s, unpack_bytes_per_s; /* of raw bytes; the fastest of bench->repeats */
    double error, key_error, value_error; /* normalised: √(Σ (ours − exact)² / Σ exact²) */
    double logits_error;                  /* the same of the logits */
    double divergence;                    /* Kullback–Leibler, nats a token */
    uint32_t same_top;                    /* tokens whose most likely successor is the same */
};

/*
 * Prefills all but the last few tokens of a prompt (a quarter of it, 16 at most), packs their KV,
 * unpacks it into other pages, compares the numbers, and computes the last tokens one at a time on
 * top of both. KVR_BAD_USAGE for less than 2 tokens, or a pool that does not hold them twice;
 * KVR_BAD_INPUT where the model computes numbers that are not finite.
 */
enum kvr_status kvr_measure_codec(const struct kvr_bench *bench, const uint32_t *tokens,
    uint32_t count, const struct kvr_codec_level *level, struct kvr_codec_measure *measure,
    struct kvr_error *error);

/* Appends it as one JSON object. */
void kvr_codec_measure_write(const struct kvr_codec_measure *measure, const char *level,
    const struct kvr_bench *bench, struct kvr_buffer *out);

#endif
