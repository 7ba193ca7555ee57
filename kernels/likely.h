/* The likeliest next tokens of a prefill, from its logits. */
#ifndef KVR_KERNELS_LIKELY_H
#define KVR_KERNELS_LIKELY_H

#include <stddef.h>
#include <stdint.h>

struct kvr_likely {
    uint32_t token;
    double log_probability; /* natural, over the whole vocabulary */
};

/*
 * The `most` largest logits, largest first, of equal ones the lower token first, with
 * logit − log Σ exp(logits) summed in double precision. Returns how many there are (the vocabulary
 * may be smaller), or 0 where a logit is no number.
 */
size_t kvr_likely_find(
    const float *logits, uint32_t vocabulary, struct kvr_likely *likely, size_t most);

#endif
