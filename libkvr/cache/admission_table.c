#include "cache/admission.h"

#include <stdlib.h>
#include <string.h>

extern const struct kvr_admission_rule kvr_admission_always, kvr_admission_min_length,
    kvr_admission_max_length, kvr_admission_second, kvr_admission_tinylfu,
    kvr_admission_prefix_aware;

const struct kvr_admission_rule *const kvr_admission_rules[] = {
    &kvr_admission_always,
    &kvr_admission_min_length,
    &kvr_admission_max_length,
    &kvr_admission_second,
    &kvr_admission_tinylfu,
    &kvr_admission_prefix_aware,
};

const size_t kvr_admission_rule_count = sizeof kvr_admission_rules / sizeof *kvr_admission_rules;

const struct kvr_admission_rule *kvr_admission_find(const char *name, size_t length)
{
    for (size_t i = 0; i < kvr_admission_rule_count; i++)
        if (strlen(kvr_admission_rules[i]->name) == length &&
            memcmp(kvr_admission_rules[i]->name, name, length) == 0)
            return kvr_admission_rules[i];
    return NULL;
}

enum kvr_status kvr_gate_create(const struct kvr_admission_rule *rule, uint32_t capacity,
    const struct kvr_parameter_value *values, uint64_t seed, struct kvr_gate **out,
    struct kvr_error *error)
{
    struct kvr_parameter_value defaults[KVR_ADMISSION_PARAMETERS_MOST];
    struct kvr_gate *gate = calloc(1, rule->size);
    enum kvr_status status = KVR_OK;

    if (!gate)
        return kvr_error_memory(error);
    *gate = (struct kvr_gate){rule, capacity};
    if (!values) {
        status = kvr_parameter_defaults(rule->parameters, rule->parameter_count, defaults, error);
        values = defaults;
    }
    if (status == KVR_OK && rule->init)
        status = rule->init(gate, values, seed, error);
    if (status != KVR_OK) {
        kvr_gate_destroy(gate);
        return status;
    }
    *out = gate;
    return KVR_OK;
}

void kvr_gate_destroy(struct kvr_gate *gate)
{
    if (!gate)
        return;
    if (gate->rule->release)
        gate->rule->release(gate);
    free(gate);
}
