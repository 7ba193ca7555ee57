/* The filters of other files, for the table of filters. */
#ifndef KVR_TOKEN_TEMPLATE_SEQUENCE_H
#define KVR_TOKEN_TEMPLATE_SEQUENCE_H

#include "token/template_internal.h"

struct value kvr_filter_abs(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_filesize(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_float(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_int(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_round(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_batch(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_dictsort(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_first(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_groupby(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_items(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_join(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_last(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_list(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_map(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_max(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_min(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_reject(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_rejectattr(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_reverse(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_select(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_selectattr(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_slice(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_sort(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_sum(struct run *run, struct value value, const struct call *call);
struct value kvr_filter_unique(struct run *run, struct value value, const struct call *call);

/* ---- what both files of filters use ---- */

/* "a.b.0" as a list of keys; none where no attribute is given. */
struct list *kvr_attribute_parts(struct run *run, struct value attribute);
/* The attribute of an item; `otherwise`, if given, where one on the way is undefined. */
struct value kvr_attribute_get(
    struct run *run, struct value item, const struct list *parts, struct value otherwise);
struct value kvr_ignore_case(struct run *run, struct value value, bool case_sensitive);
bool kvr_given_true(struct run *run, struct value value);
void kvr_filter_no_arguments(struct run *run, const struct call *call, const char *filter);

#endif
