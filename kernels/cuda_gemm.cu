#include "kernels/cuda_gemm.h"

#include <stdlib.h>

enum { PLANS = 256, WORKSPACE_BYTES = 32 << 20 };

struct plan {
    uint32_t rows, outputs, k;
    bool fp8;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t left, right, out;
    cublasLtMatmulAlgo_t algorithm;
};

struct kvr_cuda_gemm {
    cublasLtHandle_t library;
    cudaStream_t stream;
    void *workspace;
    struct plan plans[PLANS];
    uint32_t count, oldest;
};

struct kvr_cuda_gemm *kvr_cuda_gemm_create(cudaStream_t stream)
{
    struct kvr_cuda_gemm *gemm = static_cast<struct kvr_cuda_gemm *>(calloc(1, sizeof *gemm));

    if (!gemm)
        return nullptr;
    gemm->stream = stream;
    if (cublasLtCreate(&gemm->library) != CUBLAS_STATUS_SUCCESS) {
        free(gemm);
        return nullptr;
    }
    if (cudaMalloc(&gemm->workspace, WORKSPACE_BYTES) != cudaSuccess) {
        kvr_cuda_gemm_destroy(gemm);
        return nullptr;
    }
    return gemm;
}

static void release(struct plan *plan)
{
    if (plan->product)
        cublasLtMatmulDescDestroy(plan->product);
    if (plan->left)
        cublasLtMatrixLayoutDestroy(plan->left);
    if (plan->right)
        cublasLtMatrixLayoutDestroy(plan->right);
    if (plan->out)
        cublasLtMatrixLayoutDestroy(plan->out);
    *plan = {};
}

void kvr_cuda_gemm_destroy(struct kvr_cuda_gemm *gemm)
{
    if (!gemm)
        return;
    for (uint32_t i = 0; i < gemm->count; i++)
        release(&gemm->plans[i]);
    cudaFree(gemm->workspace);
    cublasLtDestroy(gemm->library);
    free(gemm);
}

static bool choose(struct kvr_cuda_gemm *gemm, struct plan *plan)
{
    const size_t most = WORKSPACE_BYTES;
    cublasLtMatmulHeuristicResult_t result;
    cublasLtMatmulPreference_t preference;
    int found = 0;

    if (cublasLtMatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS)
        return false;
    bool fine =
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
            &most, sizeof most) == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatmulAlgoGetHeuristic(gemm->library, plan->product, plan->left, plan->right,
            plan->out, plan->out, preference, 1, &result, &found) == CUBLAS_STATUS_SUCCESS &&
        found == 1;
    cublasLtMatmulPreferenceDestroy(preference);
    if (fine)
        plan->algorithm = result.algo;
    return fine;
}

/* Column-major as cuBLAS has it: the outputs of a row stand beneath each other, so the product is
 * out = weightsᵀ · x with both operands read along k. */
static bool make(struct kvr_cuda_gemm *gemm, struct plan *plan)
{
    const cublasOperation_t turned = CUBLAS_OP_T, straight = CUBLAS_OP_N;
    const cudaDataType type = plan->fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;

    return cublasLtMatmulDescCreate(&plan->product, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
               CUBLAS_STATUS_SUCCESS &&
           cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &turned,
               sizeof turned) == CUBLAS_STATUS_SUCCESS &&
           cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSB, &straight,
               sizeof straight) == CUBLAS_STATUS_SUCCESS &&
           cublasLtMatrixLayoutCreate(&plan->left, type, plan->k, plan->outputs, plan->k) ==
               CUBLAS_STATUS_SUCCESS &&
           cublasLtMatrixLayoutCreate(&plan->right, type, plan->k, plan->rows, plan->k) ==
               CUBLAS_STATUS_SUCCESS &&
           cublasLtMatrixLayoutCreate(&plan->out, CUDA_R_16BF, plan->outputs, plan->rows,
               plan->outputs) == CUBLAS_STATUS_SUCCESS &&
           choose(gemm, plan);
}

static struct plan *plan_of(
    struct kvr_cuda_gemm *gemm, uint32_t rows, uint32_t outputs, uint32_t k, bool fp8)
{
    for (uint32_t i = 0; i < gemm->count; i++) {
        struct plan *plan = &gemm->plans[i];
        if (plan->rows == rows && plan->outputs == outputs && plan->k == k && plan->fp8 == fp8)
            return plan;
    }
    struct plan made = {};
    made.rows = rows, made.outputs = outputs, made.k = k, made.fp8 = fp8;
    if (!make(gemm, &made)) {
        release(&made);
        return nullptr;
    }
    struct plan *place = &gemm->plans[gemm->oldest];
    if (gemm->count < PLANS)
        place = &gemm->plans[gemm->count++];
    else
        gemm->oldest = (gemm->oldest + 1) % PLANS;
    release(place);
    *place = made;
    return place;
}

static bool multiply(struct kvr_cuda_gemm *gemm, const struct plan *plan, void *out, const void *x,
    const void *weights)
{
    const float one = 1, zero = 0;

    return cublasLtMatmul(gemm->library, plan->product, &one, weights, plan->left, x, plan->right,
               &zero, out, plan->out, out, plan->out, &plan->algorithm, gemm->workspace,
               WORKSPACE_BYTES, gemm->stream) == CUBLAS_STATUS_SUCCESS;
}

bool kvr_cuda_gemm(struct kvr_cuda_gemm *gemm, uint16_t *out, const uint16_t *x,
    const uint16_t *weights, uint32_t rows, uint32_t outputs, uint32_t k)
{
    const struct plan *plan = plan_of(gemm, rows, outputs, k, false);

    return plan && multiply(gemm, plan, out, x, weights);
}

bool kvr_cuda_gemm_fp8(struct kvr_cuda_gemm *gemm, uint16_t *out, const uint8_t *x,
    const float *x_scale, const uint8_t *weights, const float *weight_scale, uint32_t rows,
    uint32_t outputs, uint32_t k)
{
    const struct plan *plan = plan_of(gemm, rows, outputs, k, true);

    return plan &&
           cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
               &weight_scale, sizeof weight_scale) == CUBLAS_STATUS_SUCCESS &&
           cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
               &x_scale, sizeof x_scale) == CUBLAS_STATUS_SUCCESS &&
           multiply(gemm, plan, out, x, weights);
}
