/* The filters that take sequences, for the table of filters. */
#ifndef KVR_TOKEN_TEMPLATE_SEQUENCE_H
#define KVR_TOKEN_TEMPLATE_SEQUENCE_H

#include "token/template_internal.h"

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

#endif
