/* The engines. Adding one is its file and a line here. */
#include "cache/engine.h"

extern const struct kvr_engine kvr_engine_vllm;

const struct kvr_engine *const kvr_engines[] = {
    &kvr_engine_vllm,
};

const size_t kvr_engine_count = sizeof kvr_engines / sizeof *kvr_engines;
