/* The two halves of kvr-events, and what they share. */
#ifndef KVR_CMD_EVENTS_H
#define KVR_CMD_EVENTS_H

#include "cmd/tool.h"

struct events_settings {
    const char *record, *model, *layout;
    struct kvr_text_list replay, publish;
    bool native, ids, raw;
    uint64_t max_memory, max_message, wait, batch, keep, block_size;
    double idle_ms, replay_timeout_ms, reorder_ms, linger_ms;
};

/* --publish: the operands' lines, or the messages of --replay, to subscribers. Ends the tool and
 * returns the exit status. */
int publish_events(struct tool *tool, const struct events_settings *settings);

#endif
