/*
 * Numbers as decimal digits, for lists of thousands of them. Room is the caller's: nothing here
 * looks at where memory ends, and more bytes than a number has may be written after it.
 */
#ifndef KVR_BASE_DIGITS_H
#define KVR_BASE_DIGITS_H

#include <stddef.h>
#include <stdint.h>

#define KVR_NUMBER_BYTES 24 /* room for one number and a comma */
#define KVR_LIST_BYTES 64   /* and for what is written after a list's last */

/* Writes a number; returns where it ends. */
char *kvr_put_u64(char *out, uint64_t number);

/* Writes numbers with a comma after each, eight at a time where the processor can; returns where
 * they end. The plain way is for all processors, and gives the same bytes. */
char *kvr_put_u32s(char *out, const uint32_t *numbers, size_t count);
char *kvr_put_u32s_plain(char *out, const uint32_t *numbers, size_t count);

#endif
