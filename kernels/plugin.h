/* The CUDA backend as a plug-in, libkvr_cuda.so, loaded when asked for, so that a program that
 * never meets a GPU does not link it. */
#ifndef KVR_KERNELS_PLUGIN_H
#define KVR_KERNELS_PLUGIN_H

#include "kernels/backend.h"

/* Loads the plug-in: it stands beside the program, in ../lib/kvr of it, or where the loader looks.
 * KVR_UNSUPPORTED says what is missing: the driver, or the plug-in. */
enum kvr_status kvr_plugin_load(const struct kvr_backend **backend, struct kvr_error *error);

#endif
