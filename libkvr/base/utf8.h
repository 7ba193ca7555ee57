/*
 * Characters as UTF-8.
 */
#ifndef KVR_BASE_UTF8_H
#define KVR_BASE_UTF8_H

#include <stdint.h>

/* Writes character (below U+110000) as UTF-8; returns its length. */
static inline unsigned kvr_utf8_encode(uint32_t character, uint8_t out[4])
{
    if (character < 0x80) {
        out[0] = (uint8_t)character;
        return 1;
    }
    if (character < 0x800) {
        out[0] = (uint8_t)(0xc0 | character >> 6);
        out[1] = (uint8_t)(0x80 | (character & 63));
        return 2;
    }
    if (character < 0x10000) {
        out[0] = (uint8_t)(0xe0 | character >> 12);
        out[1] = (uint8_t)(0x80 | (character >> 6 & 63));
        out[2] = (uint8_t)(0x80 | (character & 63));
        return 3;
    }
    out[0] = (uint8_t)(0xf0 | character >> 18);
    out[1] = (uint8_t)(0x80 | (character >> 12 & 63));
    out[2] = (uint8_t)(0x80 | (character >> 6 & 63));
    out[3] = (uint8_t)(0x80 | (character & 63));
    return 4;
}

#endif
