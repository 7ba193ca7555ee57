/*
 * Where a byte stands in a string, 64 bytes at a time: what checking escapes and decoding them
 * share.
 */
#ifndef KVR_LINE_JSON_ESCAPE_H
#define KVR_LINE_JSON_ESCAPE_H

#include <stdint.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define KVR_ESCAPE_BLOCK 64 /* bytes */

/* A bit for each of 64 bytes, the first one lowest, that is set where it equals `byte`. */
static inline uint64_t kvr_bytes_equal(const char *at, char byte)
{
    uint64_t found = 0;

#ifdef __SSE2__
    const __m128i wanted = _mm_set1_epi8(byte);
#pragma GCC unroll 4
    for (int i = 0; i < KVR_ESCAPE_BLOCK; i += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(at + i));
        found |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, wanted)) << i;
    }
#else
    for (int i = 0; i < KVR_ESCAPE_BLOCK; i++)
        found |= (uint64_t)(at[i] == byte) << i;
#endif
    return found;
}

#endif
