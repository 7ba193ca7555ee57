/* The policy table as text: for --policy list and help, and for kvr-policies(7). */
#ifndef KVR_ROUTE_EXPLAIN_H
#define KVR_ROUTE_EXPLAIN_H

#include "base/buffer.h"

/* When `what` is "list" (a line a policy), "help" (all about each) or "scdoc" (the chapter of the
 * manual page) appends that and returns true; any other text is a chain: false. */
bool kvr_route_policies_text(const char *what, struct kvr_buffer *out);

#endif
