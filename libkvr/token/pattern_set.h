/*
 * The set of characters that one step of a pattern's program takes.
 */
#ifndef KVR_TOKEN_PATTERN_SET_H
#define KVR_TOKEN_PATTERN_SET_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A set of characters in two levels: blocks of 256 of them, equal ones shared. */
struct kvr_pattern_set {
    uint64_t ascii[2];
    uint64_t leads[4];      /* the bytes that a member may start with */
    uint16_t block[0x1100]; /* into bits; 0: no member, 1: all are */
    uint64_t (*bits)[4];
    uint32_t bit_count;
};

/* What a set is written as in an expression that pattern_rewrite.c has written: [..] of code
 * points, \x{..}, a character, or a dot. */
struct kvr_pattern_set_source {
    const char *text;
    size_t length;
    bool caseless, dot_all; /* the options i and s where it stands */
};

/* KVR_UNSUPPORTED where the source is something else. */
enum kvr_status kvr_pattern_set_create(
    struct kvr_pattern_set **set, const struct kvr_pattern_set_source *source);
void kvr_pattern_set_destroy(struct kvr_pattern_set *set);

static inline bool kvr_byte_in(const uint64_t map[4], uint8_t byte)
{
    return map[byte / 64] >> byte % 64 & 1;
}

#endif
