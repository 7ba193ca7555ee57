/*
 * A shell command as a stage: the pipeline that kvr-serve and kvr-sim run, and the folder with the
 * FIFO through which it hears of placements (KVR_LOOP).
 */
#ifndef KVR_BASE_COMMAND_H
#define KVR_BASE_COMMAND_H

#include <stdbool.h>

struct kvr_command_place {
    char directory[64], fifo[80]; /* "": there is none */
};

/* Makes a folder of this program's own in TMPDIR, or /tmp, and names the FIFO in it, which is the
 * caller's to make, and to unlink before kvr_command_place_remove(). False where it cannot. */
bool kvr_command_place_make(struct kvr_command_place *place, const char *program);
void kvr_command_place_remove(struct kvr_command_place *place);

/* In a forked child: becomes `sh -c command` at the head of a process group of its own, with these
 * descriptors as stdin and stdout, KVR_LOOP in its environment, and the folder of this program
 * first in its PATH, so that an uninstalled build runs its own programs. Does not return: exit
 * status 127 where there is no shell. */
_Noreturn void kvr_command_run(
    const struct kvr_command_place *place, const char *command, int in, int out);

#endif
