/* The engines. Adding one is its file and a line here. */
#include "cache/engine.h"

extern const struct kvr_engine kvr_engine_block;
extern const struct kvr_engine kvr_engine_vllm;
extern const struct kvr_engine kvr_engine_sglang;
extern const struct kvr_engine kvr_engine_lmcache;
extern const struct kvr_engine kvr_engine_mooncake;

const struct kvr_engine *const kvr_engines[] = {
    &kvr_engine_block,
    &kvr_engine_vllm,
    &kvr_engine_sglang,
    &kvr_engine_lmcache,
    &kvr_engine_mooncake,
};

const size_t kvr_engine_count = sizeof kvr_engines / sizeof *kvr_engines;
