/*
 * Chat templates: a Jinja interpreter that runs the templates of real models as they are shipped.
 *
 * It follows jinja2 3.1 as Hugging Face transformers sets it up (ImmutableSandboxedEnvironment,
 * trim_blocks, lstrip_blocks, loop controls, {% generation %}, its own tojson, raise_exception and
 * strftime_now), value for value: Python's integers, floats, strings by code points, str() and
 * repr(), jinja2's undefined values and the words of their errors. include, import and extends are
 * refused when the template is compiled, for there is nothing to load from; so is a filter or test
 * that is not known, and a method that Python has and kvr lacks is an error that names it.
 *
 * A template is compiled once and can be rendered by many threads at a time, each with a working
 * memory of its own (struct kvr_template_run), which is reset, not freed, between two renderings.
 *
 * Pieces: the rendering also yields the byte ranges of the text that come from the caller's data
 * (message content, tools, kwargs) and not from the template. They are exact for strings that were
 * printed, concatenated, joined, sliced, stripped, split or captured; what any other operation
 * makes out of content (upper, replace, tojson, format, ...) counts as content as a whole, and so
 * does the text of a number of three digits or more, which may be content or not. With them a
 * tokenizer can take special-token text that lies wholly inside such a range as plain text. Hugging
 * Face's own default tokenizes the rendered text as a whole, and so is that of kvr.
 */
#ifndef KVR_TOKEN_TEMPLATE_H
#define KVR_TOKEN_TEMPLATE_H

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvr_template;
struct kvr_template_run;

/* Compiles length bytes of UTF-8 template text into *out, owned by the caller. What is wrong with
 * the template is KVR_BAD_INPUT with "template line N: ..." as its text; constructs that jinja2 has
 * and that kvr does not know are KVR_UNSUPPORTED. The text is not kept. */
enum kvr_status kvr_template_compile(
    struct kvr_template **out, const char *text, size_t length, struct kvr_error *error);

void kvr_template_free(struct kvr_template *compiled);

/* Whether the template reads a variable or attribute of this name, or has it in a string literal:
 * whether it can have any use for it. */
bool kvr_template_mentions(const struct kvr_template *compiled, const char *name);

/* Bounds on one rendering; reaching one is KVR_BAD_INPUT (steps, depth) or KVR_NO_MEMORY (bytes). A
 * member that is 0 means the default. */
struct kvr_template_limits {
    uint64_t steps; /* statements, iterations and 64-byte units of text looked at; 50,000,000 */
    size_t output_bytes; /* rendered text; 256 MiB */
    size_t memory_bytes; /* values alive and dead of one rendering; 1 GiB */
    unsigned depth;      /* nested expressions, calls and values; 2,000, in 800 KiB of stack */
};

/* Working memory. now_ms is the clock that strftime_now reads (milliseconds of Unix time, in the
 * local time zone); negative is the real clock. NULL when memory is short. */
struct kvr_template_run *kvr_template_run_new(
    const struct kvr_template_limits *limits, int64_t now_ms);

void kvr_template_run_free(struct kvr_template_run *run);

/* One variable of the context: a name and its value as JSON text. */
struct kvr_template_variable {
    const char *name;
    const char *json;
    size_t json_length;
    bool trusted; /* part of the model (bos_token and the like), not of the request */
};

/* What stopped a rendering. */
struct kvr_template_fault {
    bool raised;      /* the template called raise_exception(); content in its message is cut */
    unsigned line;    /* of the template, 0 if not known */
    const char *kind; /* Python's name for it: "TypeError", "UndefinedError", ...; static */
};

/* Appends the rendered text to *out. On failure out is as it was, error has "template line N: KIND:
 * MESSAGE" and *fault (which may be NULL) the details: KVR_BAD_INPUT when the template or the
 * context is at fault, KVR_UNSUPPORTED when kvr is. The JSON texts are not kept after the call. */
enum kvr_status kvr_template_render(const struct kvr_template *compiled,
    struct kvr_template_run *run, const struct kvr_template_variable *variables, size_t count,
    struct kvr_buffer *out, struct kvr_template_fault *fault, struct kvr_error *error);

/* A piece of the rendered text, in bytes from the start of what the last rendering appended. */
struct kvr_template_range {
    size_t start;
    size_t end;
};

/* The pieces of the last rendering that come from the context's variables, in order, apart from
 * each other, never empty. Valid until the next rendering. */
const struct kvr_template_range *kvr_template_trace(
    const struct kvr_template_run *run, size_t *count);

#endif
