#include "kernels/likely.h"

#include <math.h>

size_t kvr_likely_find(
    const float *logits, uint32_t vocabulary, struct kvr_likely *likely, size_t most)
{
    double sum = 0;
    size_t count = 0;

    /* An insertion into a short sorted list: most tokens fail at its last place. */
    for (uint32_t token = 0; token < vocabulary; token++) {
        double logit = (double)logits[token];
        if (!isfinite(logit))
            return 0;
        if (count == most && (most == 0 || logit <= likely[count - 1].log_probability))
            continue;
        size_t at = count < most ? count++ : count - 1;
        for (; at > 0 && likely[at - 1].log_probability < logit; at--)
            likely[at] = likely[at - 1];
        likely[at] = (struct kvr_likely){token, logit};
    }
    if (count == 0)
        return 0;
    double largest = likely[0].log_probability;
    for (uint32_t token = 0; token < vocabulary; token++)
        sum += exp((double)logits[token] - largest);
    for (size_t i = 0; i < count; i++)
        likely[i].log_probability -= largest + log(sum);
    return count;
}
