/*
 * The alphabet of byte-level vocabularies: each byte written as a printable character, itself where
 * it is one (0x20 as U+0120 "Ġ").
 */
#ifndef KVR_TOKEN_ALPHABET_H
#define KVR_TOKEN_ALPHABET_H

#include "base/buffer.h"

/* Appends the characters that stand for bytes. */
void kvr_bytes_to_alphabet(const char *bytes, size_t length, struct kvr_buffer *out);

/* Appends the bytes that characters stand for. False, and nothing appended, where one of them is no
 * letter of the alphabet. */
bool kvr_bytes_from_alphabet(const char *text, size_t length, struct kvr_buffer *out);

#endif
