/*
 * Coefficients from measured times: time ≈ Σ x[i] · term[i], no coefficient below zero, with the
 * relative errors made small, so that a short run counts as much as a long one.
 *
 * Least squares on rows divided by their time. A cost below zero would make no sense and a cost
 * file refuses it, so all subsets of the terms are solved (at most seven) and the best one without
 * a negative coefficient is taken; with so few terms that is exact and simpler than the active-set
 * method of Lawson and Hanson.
 */
#ifndef KVR_COST_FIT_H
#define KVR_COST_FIT_H

#include "cost/cost.h"

#include <stdbool.h>
#include <stddef.h>

enum { KVR_FIT_TERMS = 3 };

struct kvr_fit_row {
    double term[KVR_FIT_TERMS]; /* terms that are not used are 0 in all rows */
    double time_ms;             /* above 0 */
};

/* False, and x all zero, where nothing can be fitted (no rows, or all terms zero). *error becomes
 * the root of the mean squared relative error. */
bool kvr_fit(const struct kvr_fit_row *rows, size_t count, double x[KVR_FIT_TERMS], double *error);

/* A measured decode step: one token for each sequence, whose contexts sum to context_tokens. */
struct kvr_decode_sample {
    double sequences, context_tokens, time_ms;
};

/*
 * The decode coefficients of a cost whose prefill coefficients are there: overhead +
 * max(B·token + t·pair, weights + t·read). Which side of the maximum a step is on is not known
 * beforehand, so fitting and deciding alternate, and the best of some rounds is kept. Where no step
 * is bound by arithmetic, overhead and weights cannot be told apart and count as weights. Returns
 * the root of the mean squared relative error over all samples; at most 64 are used.
 */
double kvr_fit_decode(struct kvr_cost *cost, const struct kvr_decode_sample *samples, size_t count);

#endif
