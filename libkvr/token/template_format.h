/* What Python's two ways to format share. */
#ifndef KVR_TOKEN_TEMPLATE_FORMAT_H
#define KVR_TOKEN_TEMPLATE_FORMAT_H

#include "token/template_internal.h"

enum { WIDTH_LIMIT = 1 << 24 };

struct spec {
    uint32_t fill;
    char align; /* '<' '>' '^' '=' or 0 */
    char sign;  /* '+' '-' ' ' or 0 */
    char group; /* ',' '_' or 0 */
    char type;  /* 0: none given */
    char shown; /* the same for messages */
    bool alternate;
    int64_t width;
    int64_t precision; /* -1: none */
};

/* Append a value as the spec says; ascii is ascii(value). */
void kvr_spec_pad(struct builder *builder, const struct spec *spec, char align, const char *prefix,
    struct text *body);
void kvr_spec_integer(struct builder *builder, const struct spec *spec, struct value value);
void kvr_spec_float(struct builder *builder, const struct spec *spec, double real);
void kvr_spec_text(struct builder *builder, const struct spec *spec, struct text *text);
struct text *kvr_spec_ascii(struct run *run, struct value value);

#endif
