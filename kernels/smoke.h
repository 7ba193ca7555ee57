/*
 * The smoke test of a node: one line a check, with value, unit and verdict, for people or as TAP
 * (Test Anything Protocol 13).
 */
#ifndef KVR_KERNELS_SMOKE_H
#define KVR_KERNELS_SMOKE_H

#include "kernels/measure.h"
#include "kernels/nvml.h"

struct kvr_smoke {
    struct kvr_buffer *out;
    bool tap;
    bool numbered; /* checks of what a GPU computes name it */
    uint32_t number;
    uint32_t checks, failed;
};

/* One check; a value that is NAN has none to print. */
void kvr_smoke_check(struct kvr_smoke *smoke, bool passes, const char *name, double value,
    const char *unit, const char *remark);

/*
 * What NVML says about one GPU. Fails: a GPU that is lost; less memory than nine tenths of what its
 * name says ("80GB", or that of a preset of kvr-cost(5)); uncorrected ECC errors; pages that wait
 * to be retired, or more than 60 that are; rows of memory whose replacement has failed or waits for
 * a reset; above 90 °C; a PCIe link narrower than it can be.
 */
void kvr_smoke_gpu(struct kvr_smoke *smoke, const struct kvr_gpu_state *gpu, uint32_t number);

/* Xids that came since the watch began: each is a failed check, none is a passed one. */
void kvr_smoke_xids(struct kvr_smoke *smoke, struct kvr_nvml *nvml);

/*
 * What the backend computes: the rate of a matrix product (fails below expected_flops, 0: any), the
 * copy rates (a GPU's fail below half of what its PCIe link, or twice the copy below half of what
 * its memory, is made for; gpu NULL: any), the same bits twice, logits with a cached prefix against
 * those without (bit for bit, unless the backend states a bound), a small model's logits against
 * those of the processor, and `seconds` of prefills whose bits must not change. KVR_BAD_USAGE where
 * the pool holds less than two pages.
 */
enum kvr_status kvr_smoke_compute(struct kvr_smoke *smoke, const struct kvr_bench *bench,
    const struct kvr_gpu_state *gpu, double expected_flops, double seconds,
    struct kvr_error *error);

/* The closing line: TAP's plan, or how many checks failed. */
void kvr_smoke_end(struct kvr_smoke *smoke);

#endif
