/*
 * The runtime, cuBLASLt and NCCL in the place of a GPU's, as far as kernels/ uses them.
 *
 * A device's memory is the processor's, and new memory is NaN. A stream does its work at once,
 * unless it is being captured: then the work becomes part of a graph and is done when that is
 * started, as often as it is. Found as faults: work on a stream of another device than the current
 * one; what may not be done during a capture; products of layouts that do not fit; a sum over
 * devices that not all of them take part in.
 */
#ifndef KVR_TESTS_CUDA_HOST_RUNTIME_H
#define KVR_TESTS_CUDA_HOST_RUNTIME_H

#include <functional>
#include <tuple>
#include <vector>

typedef int cudaError_t, cudaMemcpyKind, cudaDataType;
typedef struct CUstream_st *cudaStream_t;
typedef std::vector<std::pair<const char *, std::function<void()>>> cuda_host_work;
typedef cuda_host_work *cudaGraph_t, *cudaGraphExec_t;

enum {
    cudaSuccess = 0,
    cudaErrorUnknown = 999,
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaStreamCaptureModeThreadLocal = 1,
};

struct cudaDeviceProp {
    char name[256];
    int major, minor;
};

/* Does the work, or adds it to the graph that is being captured. */
void cuda_host_submit(const char *name, cudaStream_t stream, std::function<void()> work);

/* A fault where a capture is going on. */
void cuda_host_outside_capture(const char *what);

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *start, cudaGraph_t graph, unsigned long long);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t start);
cudaError_t cudaGraphLaunch(cudaGraphExec_t start, cudaStream_t stream);
cudaError_t cudaMallocHost(void **memory, size_t bytes);
cudaError_t cudaMemcpyAsync(
    void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
    size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *memory, int byte, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total);

typedef double *cudaEvent_t; /* when it was, in milliseconds */
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventElapsedTime(float *time_ms, cudaEvent_t begin, cudaEvent_t end);

template <typename Kernel> static inline cudaError_t cudaFuncSetAttribute(Kernel, int, int)
{
    return cudaSuccess;
}

template <typename Type> static inline cudaError_t cudaMalloc(Type **memory, size_t bytes)
{
    cuda_host_outside_capture("memory is taken");
    *memory = static_cast<Type *>(malloc(bytes));
    if (*memory)
        memset(static_cast<void *>(*memory), 0xff, bytes);
    return *memory ? cudaSuccess : 2;
}

static inline cudaError_t cudaFree(void *memory)
{
    cuda_host_outside_capture("memory is freed");
    free(memory);
    return cudaSuccess;
}

static inline cudaError_t cudaFreeHost(void *memory)
{
    free(memory);
    return cudaSuccess;
}

static inline cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}

static inline const char *cudaGetErrorString(cudaError_t)
{
    return "the processor in the place of a GPU failed";
}

/* cuBLASLt: one algorithm, and only products of a turned left with a straight right matrix into
 * bfloat16, sums in float. */
typedef int cublasStatus_t, cublasOperation_t, cublasComputeType_t;
enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_OP_N = 0,
    CUBLAS_OP_T = 1,
    CUDA_R_32F = 0,
    CUDA_R_16BF = 14,
    CUDA_R_8F_E4M3 = 28,
    CUBLAS_COMPUTE_32F = 68,
};
enum cublasLtMatmulDescAttributes_t {
    CUBLASLT_MATMUL_DESC_TRANSA,
    CUBLASLT_MATMUL_DESC_TRANSB,
    CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
    CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
};
enum cublasLtMatmulPreferenceAttributes_t { CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES };

struct cuda_host_product {
    int left_form, right_form;
    const float *left_scale, *right_scale;
};
struct cuda_host_layout {
    int type;
    uint64_t rows, columns;
    int64_t stride;
};
typedef int *cublasLtHandle_t;
typedef struct cuda_host_product *cublasLtMatmulDesc_t;
typedef struct cuda_host_layout *cublasLtMatrixLayout_t;
typedef size_t *cublasLtMatmulPreference_t;
struct cublasLtMatmulAlgo_t {
    int number;
};
struct cublasLtMatmulHeuristicResult_t {
    cublasLtMatmulAlgo_t algo;
};

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle);
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle);
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *product, int compute, int scale_type);
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product);
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
    cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes);
cublasStatus_t cublasLtMatrixLayoutCreate(
    cublasLtMatrixLayout_t *layout, int type, uint64_t rows, uint64_t columns, int64_t stride);
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout);
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference);
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference);
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t attribute, const void *value, size_t bytes);
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
    cublasLtMatrixLayout_t left, cublasLtMatrixLayout_t right, cublasLtMatrixLayout_t in,
    cublasLtMatrixLayout_t out, cublasLtMatmulPreference_t preference, int wanted,
    cublasLtMatmulHeuristicResult_t *results, int *found);
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
    const void *alpha, const void *left, cublasLtMatrixLayout_t left_layout, const void *right,
    cublasLtMatrixLayout_t right_layout, const void *beta, const void *in,
    cublasLtMatrixLayout_t in_layout, void *out, cublasLtMatrixLayout_t out_layout,
    const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes,
    cudaStream_t stream);

/* NCCL, found where a library is looked for. */
void *kvr_open_library(const char *name);
void *kvr_library_symbol(void *library, const char *name);

#endif
