#include "cost/fit.h"

#include <math.h>
#include <string.h>

/* Solves the normal equations of the terms in `subset` by Gaussian elimination; rows are scaled so
 * that the diagonal is 1. */
static bool solve(double matrix[KVR_FIT_TERMS][KVR_FIT_TERMS], const double right[KVR_FIT_TERMS],
    unsigned subset, double x[KVR_FIT_TERMS])
{
    double work[KVR_FIT_TERMS][KVR_FIT_TERMS + 1], scale[KVR_FIT_TERMS];
    int index[KVR_FIT_TERMS], count = 0;

    memset(x, 0, KVR_FIT_TERMS * sizeof *x);
    for (int i = 0; i < KVR_FIT_TERMS; i++)
        if (subset >> i & 1)
            index[count++] = i;
    for (int i = 0; i < count; i++) {
        if (!(matrix[index[i]][index[i]] > 0))
            return false;
        scale[i] = sqrt(matrix[index[i]][index[i]]);
    }
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < count; j++)
            work[i][j] = matrix[index[i]][index[j]] / (scale[i] * scale[j]);
        work[i][count] = right[index[i]] / scale[i];
    }
    for (int i = 0; i < count; i++) {
        if (work[i][i] < 1e-10) /* what is left of 1 when the terms before explain it */
            return false;
        for (int row = i + 1; row < count; row++) {
            double factor = work[row][i] / work[i][i];
            for (int j = i; j <= count; j++)
                work[row][j] -= factor * work[i][j];
        }
    }
    for (int i = count - 1; i >= 0; i--) {
        double sum = work[i][count];
        for (int j = i + 1; j < count; j++)
            sum -= work[i][j] * x[index[j]] * scale[j];
        x[index[i]] = sum / work[i][i] / scale[i];
    }
    return true;
}

static double error_of(const struct kvr_fit_row *rows, size_t count, const double x[KVR_FIT_TERMS])
{
    double squares = 0;

    for (size_t row = 0; row < count; row++) {
        double predicted = 0;
        for (int i = 0; i < KVR_FIT_TERMS; i++)
            predicted += x[i] * rows[row].term[i];
        squares += (predicted / rows[row].time_ms - 1) * (predicted / rows[row].time_ms - 1);
    }
    return sqrt(squares / (double)count);
}

bool kvr_fit(const struct kvr_fit_row *rows, size_t count, double x[KVR_FIT_TERMS], double *error)
{
    double matrix[KVR_FIT_TERMS][KVR_FIT_TERMS] = {{0}}, right[KVR_FIT_TERMS] = {0};
    bool found = false;

    for (size_t row = 0; row < count; row++) {
        for (int i = 0; i < KVR_FIT_TERMS; i++) {
            double term = rows[row].term[i] / rows[row].time_ms;
            for (int j = 0; j < KVR_FIT_TERMS; j++)
                matrix[i][j] += term * rows[row].term[j] / rows[row].time_ms;
            right[i] += term;
        }
    }
    memset(x, 0, KVR_FIT_TERMS * sizeof *x);
    *error = 0;
    for (unsigned subset = 1; subset < 1u << KVR_FIT_TERMS; subset++) {
        double candidate[KVR_FIT_TERMS];
        if (!solve(matrix, right, subset, candidate))
            continue;
        if (candidate[0] < 0 || candidate[1] < 0 || candidate[2] < 0)
            continue;
        double its_error = error_of(rows, count, candidate);
        if (!found || its_error < *error) {
            memcpy(x, candidate, sizeof candidate);
            *error = its_error;
            found = true;
        }
    }
    return found;
}
