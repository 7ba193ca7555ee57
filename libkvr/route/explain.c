#include "route/explain.h"

#include "route/policy.h"

#include <string.h>

static void write_list(struct kvr_buffer *out)
{
    for (size_t i = 0; i < kvr_route_policy_count; i++)
        kvr_buffer_append_format(
            out, "%-14s %s\n", kvr_route_policies[i]->name, kvr_route_policies[i]->summary);
}

/* A paragraph in lines of at most 80 columns, indented by four. */
static void write_paragraph(const char *label, const char *text, struct kvr_buffer *out)
{
    size_t column = 4 + strlen(label);

    kvr_buffer_append_format(out, "    %s", label);
    while (*text) {
        size_t word = strcspn(text, " ");
        if (column + 1 + word > 80) {
            kvr_buffer_append_text(out, "\n      ");
            column = 6;
        }
        kvr_buffer_append_byte(out, ' ');
        kvr_buffer_append(out, text, word);
        column += 1 + word;
        text += word + (text[word] == ' ');
    }
    kvr_buffer_append_byte(out, '\n');
}

static void write_help(struct kvr_buffer *out)
{
    for (size_t i = 0; i < kvr_route_policy_count; i++) {
        const struct kvr_route_policy *policy = kvr_route_policies[i];
        kvr_buffer_append_format(out, "%s%s: %s\n", i ? "\n" : "", policy->name, policy->summary);
        write_paragraph("Formula.", policy->formula, out);
        write_paragraph("Source.", policy->source, out);
        write_paragraph("When to use it.", policy->use, out);
        write_paragraph("Fails.", policy->fails, out);
        kvr_parameter_describe(policy->parameters, policy->parameter_count, out);
    }
}

/* scdoc reads _ and * as marks and \ before them as none. */
static void write_escaped(const char *text, struct kvr_buffer *out)
{
    for (; *text; text++) {
        if (strchr("_*\\", *text))
            kvr_buffer_append_byte(out, '\\');
        kvr_buffer_append_byte(out, *text);
    }
}

static void write_part(const char *label, const char *text, struct kvr_buffer *out)
{
    kvr_buffer_append_format(out, "*%s* ", label);
    write_escaped(text, out);
    kvr_buffer_append_text(out, "\n\n");
}

static void write_manual(struct kvr_buffer *out)
{
    for (size_t i = 0; i < kvr_route_policy_count; i++) {
        const struct kvr_route_policy *policy = kvr_route_policies[i];
        kvr_buffer_append_format(out, "## %s\n\n", policy->name);
        write_escaped(policy->summary, out);
        kvr_buffer_append_text(out, "\n\n");
        write_part("Formula.", policy->formula, out);
        for (size_t j = 0; j < policy->parameter_count; j++) {
            const struct kvr_parameter *parameter = &policy->parameters[j];
            kvr_buffer_append_format(out, "*%s=*%s++\n\t", parameter->name, parameter->initial);
            write_escaped(parameter->help, out);
            if (parameter->choices)
                kvr_buffer_append_format(out, " (%s)", parameter->choices);
            kvr_buffer_append_text(out, "\n\n");
        }
        write_part("Source.", policy->source, out);
        write_part("When to use it.", policy->use, out);
        write_part("How it fails.", policy->fails, out);
    }
}

bool kvr_route_policies_text(const char *what, struct kvr_buffer *out)
{
    if (strcmp(what, "list") == 0)
        write_list(out);
    else if (strcmp(what, "help") == 0)
        write_help(out);
    else if (strcmp(what, "scdoc") == 0)
        write_manual(out);
    else
        return false;
    return true;
}
