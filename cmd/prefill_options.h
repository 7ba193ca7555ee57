/* The options of kvr-prefill: the tables that help and manual are made of. */
#ifndef KVR_CMD_PREFILL_OPTIONS_H
#define KVR_CMD_PREFILL_OPTIONS_H

#include "cmd/prefill.h"
#include "kernels/measure_codec.h"

#define AT(member) offsetof(struct prefill_settings, member)

static const struct kvr_option run_options[] = {
    {0, "backend", KVR_OPTION_TEXT, AT(backend), "BACKEND",
        "what computes: cuda, cpu, model (nothing: the cost model predicts), or auto: cuda where "
        "there is a GPU, else cpu",
        "auto", "auto|cuda|cpu|model"},
    {0, "model", KVR_OPTION_TEXT, AT(model), "MODEL",
        "the model whose shape is run, with random weights: tiny, 1b, or a dense one of "
        "kvr-cost(5); any of them with --backend model",
        "1b", NULL},
    {0, "weights", KVR_OPTION_TEXT, AT(weights), "PATH",
        "a real model's weights and shape instead: a .gguf or .safetensors file, or a folder of "
        "the latter, with config.json beside it; on the cpu backend",
        NULL, "<file>"},
    {0, "top", KVR_OPTION_COUNT, AT(top), "N",
        "adds to prefill the N likeliest next tokens with their log probabilities", "0", NULL},
    TOOL_OPTION_CAPACITY(struct prefill_settings, "of the KV cache", "16384"),
    TOOL_OPTION_BLOCK_SIZE(struct prefill_settings, "512"),
    {0, "page-size", KVR_OPTION_COUNT, AT(page_size), "TOKENS", "tokens in a page of the KV cache",
        "16", NULL},
    {0, "cached", KVR_OPTION_TEXT, AT(cached), "WHERE",
        "how much of a prompt is cached: line (cache, match or route.matched say it), own (what "
        "this program's cache of hash_ids holds), none, or auto: line where it says so, else own",
        "auto", "auto|line|own|none"},
    {'j', "threads", KVR_OPTION_COUNT, AT(threads), "N",
        "threads of the cpu backend; 0: as many as there are processors", "0", NULL},
    {0, "tp", KVR_OPTION_COUNT, AT(gpus), "GPUS",
        "with cuda, shares the model out among so many GPUs (tensor parallel, over NCCL)", "1",
        NULL},
    {0, "fp8", KVR_OPTION_FLAG, AT(fp8), NULL,
        "with cuda, matrix products in 8 bits (E4M3, a scale each tensor) where the GPU has them",
        NULL, NULL},
    {0, "eager", KVR_OPTION_FLAG, AT(eager), NULL,
        "with cuda, starts every kernel on its own: short prefills are graphs otherwise", NULL,
        NULL},
    {0, "seed", KVR_OPTION_COUNT, AT(seed), "N", "of the weights", "1", NULL},
    {0},
};

static const struct kvr_option measure_options[] = {
    {0, "table", KVR_OPTION_FLAG, AT(table), NULL,
        "prints the time to first token with 0, 50, 90 and 99 % cached, and ends", NULL, NULL},
    {0, "calibrate", KVR_OPTION_FLAG, AT(calibrate), NULL,
        "measures and prints a cost file, see kvr-cost(5), and ends", NULL, NULL},
    {0, "kv-codec", KVR_OPTION_TEXT, AT(codec), "LEVEL",
        "packs the KV of a prompt for a link, unpacks it, prints ratio, rates and errors, and "
        "ends; the prompt is the token_ids of the FILEs, or made up. With --calibrate, the cost "
        "file tells of it",
        NULL, kvr_codec_level_names},
    {'n', "tokens", KVR_OPTION_COUNT, AT(tokens), "TOKENS",
        "the prompt of --table and --kv-codec, and the longest of --calibrate", "4096", NULL},
    {0, "repeats", KVR_OPTION_COUNT, AT(repeats), "N",
        "times that each measurement is made after one that does not count; the fastest counts",
        "2", NULL},
    {0, "disk", KVR_OPTION_TEXT, AT(directory), "DIRECTORY",
        "with --calibrate, also measures a file in this folder", NULL, "<directory>"},
    {0, "smoke", KVR_OPTION_FLAG, AT(smoke), NULL,
        "tests the machine, one line a check, and ends: 0 all passed, 1 one failed, 4 no GPU", NULL,
        NULL},
    {0, "tap", KVR_OPTION_FLAG, AT(tap), NULL, "with --smoke, writes TAP", NULL, NULL},
    {0, "expect", KVR_OPTION_REAL, AT(expect), "TFLOPS",
        "with --smoke, a matrix product slower than this fails", "0", NULL},
    {0, "seconds", KVR_OPTION_REAL, AT(seconds), "SECONDS", "with --smoke, of sustained load", "0",
        NULL},
    {0, "all-gpus", KVR_OPTION_FLAG, AT(all_gpus), NULL,
        "with --smoke, all GPUs and not only the first", NULL, NULL},
    {0},
};

static const struct kvr_option cost_options[] = {
    {0, "gpu", KVR_OPTION_TEXT, AT(gpu), "GPU", "with --backend model, as h100 or 8xh100",
        KVR_COST_DEFAULT_GPU, NULL},
    {0, "mfu", KVR_OPTION_REAL, AT(mfu), "SHARE",
        "with --backend model, the share of the GPU's peak; 0: the preset's", "0", NULL},
    {0, "cost", KVR_OPTION_TEXT, AT(cost_file), "FILE",
        "with --backend model, a cost file, as --calibrate writes it", NULL, "<file>"},
    {0},
};

static const struct kvr_program program = {
    .name = "kvr-prefill",
    .summary = "run the prefill itself, its cached prefix skipped, and measure it",
    .operands = "[FILE...]",
    .description =
        "For every request line, computes the prompt's tokens that are not cached on top of those "
        "that are, in a model of real shape with random weights and a paged KV cache, and adds "
        "`prefill`: the time and the rate. Or measures this machine: --table, --calibrate, "
        "--kv-codec, --smoke.",
    .examples =
        "kvr-prefill --table --model 1b -n 1024\n"
        "mkfifo loop; kvr-match -w 1 --loop loop trace.jsonl | kvr-route | tee loop | kvr-prefill\n"
        "kvr-prefill --calibrate > cost.json && kvr-route --cost cost.json -w 4 trace.jsonl\n"
        "kvr-prefill --kv-codec medium --model 1b -n 512\n"
        "kvr-prefill --smoke --tap --seconds 60 --expect 500\n",
};

#undef AT

#endif
