/* Python's methods of strings, for the table of methods. */
#ifndef KVR_TOKEN_TEMPLATE_METHOD_H
#define KVR_TOKEN_TEMPLATE_METHOD_H

#include "token/template_internal.h"

struct value kvr_method_capitalize(struct run *run, struct value self, const struct call *call);
struct value kvr_method_casefold(struct run *run, struct value self, const struct call *call);
struct value kvr_method_center(struct run *run, struct value self, const struct call *call);
struct value kvr_method_count(struct run *run, struct value self, const struct call *call);
struct value kvr_method_endswith(struct run *run, struct value self, const struct call *call);
struct value kvr_method_expandtabs(struct run *run, struct value self, const struct call *call);
struct value kvr_method_find_text(struct run *run, struct value self, const struct call *call);
struct value kvr_method_format(struct run *run, struct value self, const struct call *call);
struct value kvr_method_format_map(struct run *run, struct value self, const struct call *call);
struct value kvr_method_index(struct run *run, struct value self, const struct call *call);
struct value kvr_method_isalnum(struct run *run, struct value self, const struct call *call);
struct value kvr_method_isalpha(struct run *run, struct value self, const struct call *call);
struct value kvr_method_isascii(struct run *run, struct value self, const struct call *call);
struct value kvr_method_isdecimal(struct run *run, struct value self, const struct call *call);
struct value kvr_method_isdigit(struct run *run, struct value self, const struct call *call);
struct value kvr_method_isidentifier(struct run *run, struct value self, const struct call *call);
struct value kvr_method_islower(struct run *run, struct value self, const struct call *call);
struct value kvr_method_isnumeric(struct run *run, struct value self, const struct call *call);
struct value kvr_method_isprintable(struct run *run, struct value self, const struct call *call);
struct value kvr_method_isspace(struct run *run, struct value self, const struct call *call);
struct value kvr_method_istitle(struct run *run, struct value self, const struct call *call);
struct value kvr_method_isupper(struct run *run, struct value self, const struct call *call);
struct value kvr_method_join(struct run *run, struct value self, const struct call *call);
struct value kvr_method_ljust(struct run *run, struct value self, const struct call *call);
struct value kvr_method_lower(struct run *run, struct value self, const struct call *call);
struct value kvr_method_lstrip(struct run *run, struct value self, const struct call *call);
struct value kvr_method_partition(struct run *run, struct value self, const struct call *call);
struct value kvr_method_removeprefix(struct run *run, struct value self, const struct call *call);
struct value kvr_method_removesuffix(struct run *run, struct value self, const struct call *call);
struct value kvr_method_replace(struct run *run, struct value self, const struct call *call);
struct value kvr_method_rfind(struct run *run, struct value self, const struct call *call);
struct value kvr_method_rindex(struct run *run, struct value self, const struct call *call);
struct value kvr_method_rjust(struct run *run, struct value self, const struct call *call);
struct value kvr_method_rpartition(struct run *run, struct value self, const struct call *call);
struct value kvr_method_rsplit(struct run *run, struct value self, const struct call *call);
struct value kvr_method_rstrip(struct run *run, struct value self, const struct call *call);
struct value kvr_method_split(struct run *run, struct value self, const struct call *call);
struct value kvr_method_splitlines(struct run *run, struct value self, const struct call *call);
struct value kvr_method_startswith(struct run *run, struct value self, const struct call *call);
struct value kvr_method_strip(struct run *run, struct value self, const struct call *call);
struct value kvr_method_swapcase(struct run *run, struct value self, const struct call *call);
struct value kvr_method_title(struct run *run, struct value self, const struct call *call);
struct value kvr_method_upper(struct run *run, struct value self, const struct call *call);
struct value kvr_method_zfill(struct run *run, struct value self, const struct call *call);

#endif
