#include "cost/cost.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

const struct kvr_model kvr_models[] = {
#define MODEL(...) {__VA_ARGS__},
#define GPU(...)
#define LINK(...)
#include "cost/presets.def"
#undef MODEL
#undef GPU
#undef LINK
};
const size_t kvr_model_count = sizeof kvr_models / sizeof *kvr_models;

const struct kvr_gpu kvr_gpus[] = {
#define MODEL(...)
#define GPU(...) {__VA_ARGS__},
#define LINK(...)
#include "cost/presets.def"
#undef MODEL
#undef GPU
#undef LINK
};
const size_t kvr_gpu_count = sizeof kvr_gpus / sizeof *kvr_gpus;

const struct kvr_link kvr_links[] = {
#define MODEL(...)
#define GPU(...)
#define LINK(...) {__VA_ARGS__},
#include "cost/presets.def"
#undef MODEL
#undef GPU
#undef LINK
};
const size_t kvr_link_count = sizeof kvr_links / sizeof *kvr_links;

const struct kvr_model *kvr_model_find(const char *name)
{
    for (size_t i = 0; i < kvr_model_count; i++)
        if (strcasecmp(kvr_models[i].name, name) == 0)
            return &kvr_models[i];
    return NULL;
}

const struct kvr_gpu *kvr_gpu_find(const char *name)
{
    for (size_t i = 0; i < kvr_gpu_count; i++)
        if (strcasecmp(kvr_gpus[i].name, name) == 0)
            return &kvr_gpus[i];
    return NULL;
}

const struct kvr_link *kvr_link_find(const char *name)
{
    for (size_t i = 0; i < kvr_link_count; i++)
        if (strcasecmp(kvr_links[i].name, name) == 0)
            return &kvr_links[i];
    return NULL;
}

enum kvr_status kvr_link_read(const char *text, struct kvr_link *link, struct kvr_error *error)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"B/s", 1}, {"kB/s", 1e3}, {"MB/s", 1e6}, {"GB/s", 1e9}, {"TB/s", 1e12},
        {"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8}};
    const struct kvr_link *preset = kvr_link_find(text);
    char *end;
    double amount;

    if (preset) {
        *link = *preset;
        return KVR_OK;
    }
    amount = *text >= '0' && *text <= '9' ? strtod(text, &end) : 0;
    for (size_t i = 0; amount > 0 && i < sizeof units / sizeof *units; i++) {
        if (strcmp(end, units[i].unit) == 0 && amount * units[i].factor < 1e18) {
            *link = (struct kvr_link){"link", amount * units[i].factor, 0};
            return KVR_OK;
        }
    }

    struct kvr_buffer names = {0};
    for (size_t i = 0; i < kvr_link_count; i++)
        kvr_buffer_append_format(&names, "%s%s", i ? ", " : "", kvr_links[i].name);
    char *list = kvr_buffer_text(&names);
    char shown[64];
    kvr_error_set(error, KVR_BAD_USAGE, "link '%s' is neither a bandwidth (12.5GB/s) nor one of %s",
        kvr_printable(shown, sizeof shown, text, strlen(text)), list ? list : "the presets");
    kvr_buffer_release(&names);
    return KVR_BAD_USAGE;
}

/* The same names for completions; anything else is read all the same. */
#define MODEL(name, ...) name "|"
#define GPU(...)
#define LINK(...)
const char kvr_model_names[] =
#include "cost/presets.def"
    "*";
#undef MODEL
#undef GPU
#undef LINK

#define MODEL(...)
#define GPU(name, ...) name "|"
#define LINK(...)
const char kvr_gpu_names[] =
#include "cost/presets.def"
    "*";
#undef MODEL
#undef GPU
#undef LINK

#define MODEL(...)
#define GPU(...)
#define LINK(name, ...) name "|"
const char kvr_link_names[] =
#include "cost/presets.def"
    "*";
#undef MODEL
#undef GPU
#undef LINK
