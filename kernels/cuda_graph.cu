/*
 * Short chunks as graphs. A prefill of a few tokens is hundreds of kernels of a few microseconds,
 * and starting each of them costs as much again; a captured graph starts them all at once. What
 * differs between two chunks (tokens, positions, pages, parts) lies in device memory at the same
 * addresses, and grids are made from sizes rounded up to powers of two, so that one graph serves
 * all chunks of a size. Several GPUs run without graphs.
 */
#include "kernels/cuda_runner.h"

static bool same(const struct kvr_cuda_size *a, const struct kvr_cuda_size *b)
{
    return a->rows == b->rows && a->parts == b->parts && a->longest_part == b->longest_part &&
           a->logits == b->logits;
}

/* Captures; a capture that fails leaves no graph, and the chunk is run without. */
static cudaGraphExec_t capture(struct kvr_runner *runner, const struct kvr_cuda_size *size)
{
    cudaStream_t stream = runner->ranks[0].stream;
    cudaGraphExec_t result = nullptr;
    cudaGraph_t graph = nullptr;

    if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess)
        return nullptr;
    kvr_cuda_walk(runner, size);
    if (cudaStreamEndCapture(stream, &graph) != cudaSuccess || !graph)
        return nullptr;
    if (cudaGraphInstantiate(&result, graph, 0) != cudaSuccess)
        result = nullptr;
    cudaGraphDestroy(graph);
    return result;
}

void kvr_cuda_walk_graph(struct kvr_runner *runner, const struct kvr_cuda_size *size)
{
    for (uint32_t i = 0; i < runner->graph_count; i++) {
        if (same(&runner->graphs[i].size, size)) {
            keep(runner, cudaGraphLaunch(runner->graphs[i].graph, runner->ranks[0].stream));
            return;
        }
    }
    /* The first time without: so the plans of all products are made before anything is captured. */
    kvr_cuda_walk(runner, size);
    if (runner->graph_count == GRAPHS || runner->failure != cudaSuccess)
        return;
    cudaGraphExec_t graph = capture(runner, size);
    if (graph) {
        runner->graphs[runner->graph_count++] = kvr_cuda_graph{*size, graph};
    } else { /* which is no failure of the chunk's */
        cudaGetLastError();
        runner->failure = cudaSuccess;
    }
}

void kvr_cuda_forget_graphs(struct kvr_runner *runner)
{
    while (runner->graph_count > 0)
        cudaGraphExecDestroy(runner->graphs[--runner->graph_count].graph);
}
