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

#endif
