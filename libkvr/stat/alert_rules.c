/* Reading rule files. */
#include "stat/alert.h"

#include "base/grow.h"
#include "base/quantity.h"

#include <math.h>
#include <stdlib.h>

/* The shipped rules are a file for people too, and stand in the program as they stand there. */
__asm__(".section .rodata\n"
        ".globl kvr_alert_defaults\n"
        "kvr_alert_defaults:\n"
        ".incbin \"data/alerts.ndjson\"\n"
        "kvr_alert_defaults_end:\n"
        ".byte 0\n"
        ".balign 8\n"
        ".globl kvr_alert_defaults_length\n"
        "kvr_alert_defaults_length:\n"
        ".quad kvr_alert_defaults_end - kvr_alert_defaults\n"
        ".previous\n");

static void release_rule(struct kvr_rule *rule)
{
    free(rule->name);
    free(rule->hint);
}

void kvr_alerts_release(struct kvr_alerts *alerts)
{
    for (size_t i = 0; i < alerts->rule_count; i++)
        release_rule(&alerts->rules[i]);
    free(alerts->rules);
    free(alerts->states);
    free(alerts->events);
    kvr_pane_release(&alerts->window);
    kvr_pane_release(&alerts->baseline);
    kvr_tally_release(&alerts->worker_tally);
    free(alerts->window_loads);
    free(alerts->baseline_loads);
    kvr_buffer_release(&alerts->line);
    memset(alerts, 0, sizeof *alerts);
}

static enum kvr_status read_text(
    struct kvr_value value, const char *member, char **text, struct kvr_error *error)
{
    struct kvr_buffer buffer = {0};

    if (value.type != KVR_STRING)
        return kvr_error_set(error, KVR_BAD_INPUT, "'%s' is not a string", member);
    kvr_value_string(value, &buffer);
    free(*text);
    *text = kvr_buffer_text(&buffer); /* ends at a NUL byte inside */
    return *text ? KVR_OK : kvr_error_memory(error);
}

static enum kvr_status read_time(
    struct kvr_value value, const char *member, double *ms, struct kvr_error *error)
{
    char *text = NULL;

    if (value.type == KVR_NUMBER && kvr_value_double(value, ms) && *ms >= 0)
        return KVR_OK;
    enum kvr_status status = read_text(value, member, &text, error);
    if (status == KVR_OK && kvr_quantity_time_ms(text, ms, NULL) != KVR_OK)
        status = kvr_error_set(error, KVR_BAD_INPUT,
            "'%s' is not a time (number of ms, or text such as \"2m\")", member);
    free(text);
    return status;
}

static const char *const comparisons[] = {"above", "below", "rises", "falls"};

static enum kvr_status read_condition(
    struct kvr_value object, struct kvr_condition *condition, struct kvr_error *error)
{
    struct kvr_cursor cursor = kvr_value_open(object);
    struct kvr_member member;
    char *name = NULL;
    bool compared = false;

    if (object.type != KVR_OBJECT)
        return kvr_error_set(error, KVR_BAD_INPUT, "a condition is not an object");
    memset(condition, 0, sizeof *condition);
    while (kvr_next_member(&cursor, &member)) {
        bool known = false;
        if (kvr_value_is(member.name, "metric")) {
            if (read_text(member.value, "metric", &name, error) != KVR_OK)
                goto failed;
            known = true;
        } else if (kvr_value_is(member.name, "of")) {
            condition->of_run = kvr_value_is(member.value, "run");
            if (!condition->of_run) {
                kvr_error_set(error, KVR_BAD_INPUT, "'of' can only be \"run\"");
                goto failed;
            }
            known = true;
        }
        for (int i = 0; i < 4 && !known; i++) {
            if (!kvr_value_is(member.name, comparisons[i]))
                continue;
            condition->comparison = (enum kvr_comparison)i;
            if (compared || !kvr_value_double(member.value, &condition->threshold)) {
                kvr_error_set(error, KVR_BAD_INPUT,
                    compared ? "a condition compares twice" : "'%s' is not a number",
                    comparisons[i]);
                goto failed;
            }
            compared = known = true;
        }
        if (!known) {
            kvr_error_set(error, KVR_BAD_INPUT,
                "a condition has metric, of, and one of above, below, rises, falls");
            goto failed;
        }
    }
    if (!name || !compared) {
        kvr_error_set(error, KVR_BAD_INPUT,
            "a condition needs a metric and one of above, below, rises, falls");
        goto failed;
    }
    condition->metric = kvr_metric_find(name, strlen(name));
    if (!condition->metric) {
        char safe[80];
        kvr_error_set(error, KVR_BAD_INPUT, "there is no metric '%s'",
            kvr_printable(safe, sizeof safe, name, strlen(name)));
        goto failed;
    }
    free(name);
    return KVR_OK;
failed:
    free(name);
    return error->status;
}

static enum kvr_status read_conditions(
    struct kvr_value list, struct kvr_rule *rule, struct kvr_error *error)
{
    struct kvr_cursor cursor = kvr_value_open(list);
    struct kvr_value element;

    if (list.type != KVR_ARRAY)
        return kvr_error_set(error, KVR_BAD_INPUT, "'when' is not a list of conditions");
    rule->condition_count = 0;
    while (kvr_next_element(&cursor, &element)) {
        if (rule->condition_count == KVR_RULE_CONDITIONS)
            return kvr_error_set(
                error, KVR_BAD_INPUT, "more than %d conditions", KVR_RULE_CONDITIONS);
        enum kvr_status status =
            read_condition(element, &rule->conditions[rule->condition_count], error);
        if (status != KVR_OK)
            return status;
        rule->condition_count++;
    }
    return KVR_OK;
}

static enum kvr_status read_member(
    struct kvr_member *member, struct kvr_rule *rule, struct kvr_error *error)
{
    static const char *const severities[] = {"info", "warning", "critical"};

    if (kvr_value_is(member->name, "name"))
        return read_text(member->value, "name", &rule->name, error);
    if (kvr_value_is(member->name, "hint"))
        return read_text(member->value, "hint", &rule->hint, error);
    if (kvr_value_is(member->name, "when"))
        return read_conditions(member->value, rule, error);
    if (kvr_value_is(member->name, "for"))
        return read_time(member->value, "for", &rule->for_ms, error);
    if (kvr_value_is(member->name, "against"))
        return read_time(member->value, "against", &rule->against_ms, error);
    if (kvr_value_is(member->name, "requests"))
        return kvr_value_u64(member->value, &rule->requests)
                   ? KVR_OK
                   : kvr_error_set(error, KVR_BAD_INPUT, "'requests' is not a whole number");
    if (kvr_value_is(member->name, "each")) {
        rule->each_worker = kvr_value_is(member->value, "worker");
        return rule->each_worker || kvr_value_is(member->value, "run")
                   ? KVR_OK
                   : kvr_error_set(error, KVR_BAD_INPUT, "'each' is neither run nor worker");
    }
    if (kvr_value_is(member->name, "severity")) {
        for (int i = 0; i < 3; i++) {
            if (kvr_value_is(member->value, severities[i])) {
                rule->severity = severities[i];
                return KVR_OK;
            }
        }
        return kvr_error_set(error, KVR_BAD_INPUT, "'severity' is none of info, warning, critical");
    }
    char safe[80];
    return kvr_error_set(error, KVR_BAD_INPUT, "a rule has no member '%s'",
        kvr_printable(safe, sizeof safe, member->name.text + 1, member->name.length - 2));
}

static enum kvr_status read_rule(
    struct kvr_value object, struct kvr_rule *rule, struct kvr_error *error)
{
    struct kvr_cursor cursor = kvr_value_open(object);
    enum kvr_status status = KVR_OK;
    struct kvr_member member;

    if (object.type != KVR_OBJECT)
        return kvr_error_set(error, KVR_BAD_INPUT, "a rule is not an object");
    rule->severity = "warning";
    rule->against_ms = 600e3;
    while (status == KVR_OK && kvr_next_member(&cursor, &member))
        status = read_member(&member, rule, error);
    if (status != KVR_OK)
        return status;
    if (!rule->name || !*rule->name ||
        rule->name[strspn(rule->name, "abcdefghijklmnopqrstuvwxyz0123456789-")])
        return kvr_error_set(
            error, KVR_BAD_INPUT, "a rule needs a name of lower case letters, digits and '-'");
    if (!rule->condition_count)
        return kvr_error_set(error, KVR_BAD_INPUT, "rule '%s' has no conditions", rule->name);
    return KVR_OK;
}

static enum kvr_status add_rule(
    struct kvr_alerts *alerts, struct kvr_value object, struct kvr_error *error)
{
    if (alerts->rule_count == KVR_RULES)
        return kvr_error_set(error, KVR_BAD_INPUT, "more than %d rules", KVR_RULES);
    struct kvr_rule *rules =
        kvr_grow(alerts->rules, &alerts->rule_capacity, alerts->rule_count + 1, sizeof *rules);
    if (!rules)
        return kvr_error_memory(error);
    alerts->rules = rules;
    struct kvr_rule *rule = &rules[alerts->rule_count];
    memset(rule, 0, sizeof *rule);
    enum kvr_status status = read_rule(object, rule, error);
    for (size_t i = 0; i < alerts->rule_count && status == KVR_OK; i++) {
        if (strcmp(rules[i].name, rule->name) == 0)
            status = kvr_error_set(error, KVR_BAD_INPUT, "rule '%s' is there already", rule->name);
    }
    if (status == KVR_OK)
        alerts->rule_count++;
    else
        release_rule(rule);
    return status;
}

enum kvr_status kvr_alerts_read(struct kvr_alerts *alerts, const char *file, const char *text,
    size_t length, struct kvr_error *error)
{
    struct kvr_structure *structure = kvr_structure_create();
    const char *end = text + length;
    enum kvr_status status = structure ? KVR_OK : kvr_error_memory(error);

    for (uint64_t number = 1; text < end && status == KVR_OK; number++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t size = (size_t)((newline ? newline : end) - text);
        size_t blank = 0;
        struct kvr_value object;
        while (blank < size && (text[blank] == ' ' || text[blank] == '\t' || text[blank] == '\r'))
            blank++;
        if (blank < size && text[blank] != '#') {
            status = kvr_json_check(structure, text, size, &object, NULL, error);
            if (status == KVR_OK)
                status = add_rule(alerts, object, error);
            if (status != KVR_OK)
                kvr_error_prefix(error, "%s:%lu", file, number);
        }
        text += size + 1;
    }
    kvr_structure_destroy(structure);
    return status;
}

double kvr_alerts_baseline_ms(const struct kvr_alerts *alerts)
{
    double most = 0;

    for (size_t i = 0; i < alerts->rule_count; i++) {
        const struct kvr_rule *rule = &alerts->rules[i];
        for (size_t j = 0; j < rule->condition_count; j++) {
            if (rule->conditions[j].comparison >= KVR_RISES)
                most = fmax(most, rule->against_ms);
        }
    }
    return most;
}
