#include "kernels/number.h"
#include "tests/cuda_host.h"

#include <string>
#include <time.h>

struct CUstream_st {
    int device;
    cuda_host_work *capture; /* NULL: it does its work at once */
};

struct ncclComm {
    int device, count;
};

namespace
{

int device_count = getenv("CUDA_HOST_DEVICES") ? atoi(getenv("CUDA_HOST_DEVICES")) : 1;
int capability = 90, current;
unsigned captures, launches, plans;
std::string log_text;

/* A sum over devices: what each put in since the group began. */
struct summand {
    const ncclComm *member;
    uint16_t *numbers;
    size_t count;
    cudaStream_t stream;
};
std::vector<summand> group;
bool grouped;

void do_work(const char *name, const std::function<void()> &work)
{
    log_text += name;
    log_text += ' ';
    work();
}

float number_of(const void *matrix, int type, int64_t at)
{
    return type == CUDA_R_16BF ? kvr_bf16_value(static_cast<const uint16_t *>(matrix)[at])
                               : kvr_fp8_value(static_cast<const uint8_t *>(matrix)[at]);
}

bool fits(const cuda_host_product *product, const cuda_host_layout *left,
    const cuda_host_layout *right, const cuda_host_layout *out)
{
    const bool eight = left->type == CUDA_R_8F_E4M3;

    return product->left_form == CUBLAS_OP_T && product->right_form == CUBLAS_OP_N &&
           left->type == right->type && (eight || left->type == CUDA_R_16BF) &&
           out->type == CUDA_R_16BF && left->rows == right->rows && left->rows % 8 == 0 &&
           out->rows == left->columns && out->columns == right->columns &&
           left->stride >= static_cast<int64_t>(left->rows) &&
           right->stride >= static_cast<int64_t>(right->rows) &&
           out->stride >= static_cast<int64_t>(out->rows) &&
           (!eight || (left->rows % 16 == 0 && left->columns % 16 == 0)) && left->columns > 0 &&
           right->columns > 0;
}

int nccl_init_all(ncclComm **members, int count, const int *devices)
{
    for (int i = 0; i < count; i++)
        members[i] = new ncclComm{devices[i], count};
    return 0;
}

int nccl_destroy(ncclComm *member)
{
    delete member;
    return 0;
}

int nccl_group_start()
{
    if (grouped)
        cuda_host_found("a group of sums begins in another");
    grouped = true;
    return 0;
}

int nccl_all_reduce(const void *from, void *to, size_t count, int type, int operation,
    ncclComm *member, cudaStream_t stream)
{
    if (!grouped || from != to || type != 9 || operation != 0)
        cuda_host_found("a sum that is none of ours");
    if (stream->device != member->device)
        cuda_host_found("a sum on a stream of another device");
    group.push_back({member, static_cast<uint16_t *>(to), count, stream});
    return 0;
}

int nccl_group_end()
{
    grouped = false;
    bool whole = !group.empty() && group.size() == static_cast<size_t>(group[0].member->count);
    for (const summand &one : group)
        whole &= one.count == group[0].count;
    if (!whole)
        cuda_host_found("a sum that not all devices take part in, or not with as much");
    log_text += "sum ";
    for (size_t i = 0; whole && i < group[0].count; i++) {
        float sum = 0;
        for (const summand &one : group)
            sum += kvr_bf16_value(one.numbers[i]);
        for (const summand &one : group)
            one.numbers[i] = kvr_bf16_round(sum);
    }
    group.clear();
    return 0;
}

} // namespace

void cuda_host_runtime_begin()
{
    log_text.clear();
    launches = plans = 0;
}

const char *cuda_host_log(void)
{
    return log_text.c_str();
}

unsigned cuda_host_graph_launches(void)
{
    return launches;
}

unsigned cuda_host_plans(void)
{
    return plans;
}

void cuda_host_set_devices(int count, int wanted)
{
    device_count = count;
    capability = wanted;
    current = 0;
}

void cuda_host_outside_capture(const char *what)
{
    if (captures > 0)
        cuda_host_found(what);
}

void cuda_host_submit(const char *name, cudaStream_t stream, std::function<void()> work)
{
    if (stream && stream->device != current)
        cuda_host_found("work on a stream of another device than the current one");
    if (stream && stream->capture)
        stream->capture->emplace_back(name, work);
    else
        do_work(name, work);
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = device_count;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= device_count)
        return cudaErrorUnknown;
    current = device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    if (device < 0 || device >= device_count)
        return cudaErrorUnknown;
    strcpy(properties->name, "processor in the place of a GPU");
    properties->major = capability / 10;
    properties->minor = capability % 10;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    *stream = new CUstream_st{current, nullptr};
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    if (stream && stream->capture)
        cuda_host_found("a stream is waited for while it is captured");
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int)
{
    if (!stream || stream->capture)
        return cudaErrorUnknown;
    stream->capture = new cuda_host_work;
    captures++;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    *graph = stream->capture;
    stream->capture = nullptr;
    captures--;
    return *graph ? cudaSuccess : cudaErrorUnknown;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *start, cudaGraph_t graph, unsigned long long)
{
    *start = new cuda_host_work(*graph);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t start)
{
    delete start;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t start, cudaStream_t stream)
{
    if (!stream || stream->capture || stream->device != current)
        cuda_host_found("a graph is started where it cannot be");
    launches++;
    for (const auto &[name, work] : *start)
        do_work(name, work);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    *event = new double(0);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    *event = static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *time_ms, cudaEvent_t begin, cudaEvent_t end)
{
    *time_ms = static_cast<float>(*end - *begin);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    *memory = malloc(bytes);
    return *memory ? cudaSuccess : 2;
}

cudaError_t cudaMemcpyAsync(
    void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream)
{
    cuda_host_submit("copy", stream, [=]() { memcpy(to, from, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
    size_t width, size_t height, cudaMemcpyKind, cudaStream_t stream)
{
    if (width > to_pitch || width > from_pitch)
        return cudaErrorUnknown;
    cuda_host_submit("copy", stream, [=]() {
        for (size_t i = 0; i < height; i++)
            memcpy(static_cast<char *>(to) + i * to_pitch,
                static_cast<const char *>(from) + i * from_pitch, width);
    });
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int byte, size_t bytes, cudaStream_t stream)
{
    cuda_host_submit("set", stream, [=]() { memset(memory, byte, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *free_bytes = *total = static_cast<size_t>(1) << 28;
    return cudaSuccess;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = new int(0);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *product, int compute, int scale_type)
{
    *product = new cuda_host_product{CUBLAS_OP_N, CUBLAS_OP_N, nullptr, nullptr};
    return compute == CUBLAS_COMPUTE_32F && scale_type == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : 7;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product)
{
    delete product;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
    cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes)
{
    void *const places[] = {
        &product->left_form, &product->right_form, &product->left_scale, &product->right_scale};
    const size_t sizes[] = {sizeof(int), sizeof(int), sizeof(float *), sizeof(float *)};

    if (bytes != sizes[attribute])
        return 7;
    memcpy(places[attribute], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(
    cublasLtMatrixLayout_t *layout, int type, uint64_t rows, uint64_t columns, int64_t stride)
{
    *layout = new cuda_host_layout{type, rows, columns, stride};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference = new size_t(0);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t, const void *value, size_t bytes)
{
    if (bytes != sizeof *preference)
        return 7;
    memcpy(preference, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
    cublasLtMatrixLayout_t left, cublasLtMatrixLayout_t right, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t out, cublasLtMatmulPreference_t, int wanted,
    cublasLtMatmulHeuristicResult_t *results, int *found)
{
    cuda_host_outside_capture("a plan is made while a graph is captured");
    *found = wanted > 0 && fits(product, left, right, out);
    results[0].algo.number = 7;
    plans++;
    return *found ? CUBLAS_STATUS_SUCCESS : 15;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void *alpha,
    const void *left, cublasLtMatrixLayout_t left_layout, const void *right,
    cublasLtMatrixLayout_t right_layout, const void *beta, const void *, cublasLtMatrixLayout_t,
    void *out, cublasLtMatrixLayout_t out_layout, const cublasLtMatmulAlgo_t *algorithm,
    void *workspace, size_t, cudaStream_t stream)
{
    const cuda_host_layout a = *left_layout, b = *right_layout, c = *out_layout;
    float one, zero, scale = 1;

    memcpy(&one, alpha, sizeof one);
    memcpy(&zero, beta, sizeof zero);
    if (!fits(product, &a, &b, &c) || algorithm->number != 7 || !workspace || one < 1 || one > 1 ||
        zero < 0 || zero > 0)
        return 7;
    const float *left_scale = a.type == CUDA_R_8F_E4M3 ? product->left_scale : nullptr;
    const float *right_scale = a.type == CUDA_R_8F_E4M3 ? product->right_scale : nullptr;
    cuda_host_submit("product", stream, [=]() mutable {
        scale = (left_scale ? *left_scale : 1) * (right_scale ? *right_scale : 1);
        const uint64_t k = a.rows;
        std::vector<float> rows(k * c.columns), weights(k);
        for (uint64_t column = 0; column < c.columns; column++)
            for (uint64_t i = 0; i < k; i++)
                rows[column * k + i] = number_of(right, b.type,
                    static_cast<int64_t>(column) * b.stride + static_cast<int64_t>(i));
        for (uint64_t output = 0; output < c.rows; output++) {
            for (uint64_t i = 0; i < k; i++)
                weights[i] = number_of(left, a.type,
                    static_cast<int64_t>(output) * a.stride + static_cast<int64_t>(i));
            for (uint64_t column = 0; column < c.columns; column++) {
                float sums[8] = {}, sum = 0; /* k is a multiple of 8 */
                for (uint64_t i = 0; i < k; i += 8)
                    for (uint64_t j = 0; j < 8; j++)
                        sums[j] += weights[i + j] * rows[column * k + i + j];
                for (float part : sums)
                    sum += part;
                static_cast<uint16_t *>(out)[column * static_cast<uint64_t>(c.stride) + output] =
                    kvr_bf16_round(sum * scale);
            }
        }
    });
    return CUBLAS_STATUS_SUCCESS;
}

void *kvr_open_library(const char *name)
{
    static int nccl;

    return strcmp(name, "libnccl.so.2") == 0 ? &nccl : nullptr;
}

void *kvr_library_symbol(void *, const char *name)
{
    const struct {
        const char *name;
        void *symbol;
    } symbols[] = {{"ncclCommInitAll", reinterpret_cast<void *>(nccl_init_all)},
        {"ncclCommDestroy", reinterpret_cast<void *>(nccl_destroy)},
        {"ncclGroupStart", reinterpret_cast<void *>(nccl_group_start)},
        {"ncclGroupEnd", reinterpret_cast<void *>(nccl_group_end)},
        {"ncclAllReduce", reinterpret_cast<void *>(nccl_all_reduce)}};

    for (const auto &symbol : symbols)
        if (strcmp(symbol.name, name) == 0)
            return symbol.symbol;
    return nullptr;
}
