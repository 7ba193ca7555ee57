/* Between the parts of the decoder: kv_event.c finds the fields, kv_event_fields.c reads them. */
#ifndef KVR_NET_KV_EVENT_PRIVATE_H
#define KVR_NET_KV_EVENT_PRIVATE_H

#include "net/kv_event.h"

/* Reads the event's fields, which are found, into its members. What is wrong with them, or NULL. */
const char *kvr_kv_read_fields(struct kvr_kv_decoder *decoder, struct kvr_kv_event *event);

#endif
