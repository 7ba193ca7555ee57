/*
 * Unicode normalization (16.0) and the small questions about characters that added tokens ask.
 */
#ifndef KVR_TOKEN_NORMALIZE_H
#define KVR_TOKEN_NORMALIZE_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kvr_normal_form { KVR_NFC, KVR_NFD, KVR_NFKC, KVR_NFKD };

/* Whether text is surely in NFC already: quick, and right for nearly all text. */
bool kvr_is_nfc(const uint8_t *text, size_t length);

/* Appends text in that form. Bytes that are not UTF-8 stay as they are. */
void kvr_normal_form(
    enum kvr_normal_form form, const uint8_t *text, size_t length, struct kvr_buffer *out);

/* Word characters as \w: letters, marks, numbers, connectors. */
bool kvr_starts_with_word(const uint8_t *text, size_t length);
bool kvr_ends_with_word(const uint8_t *text, size_t length);

/* Bytes of white space at the start, or at the end, of text. */
size_t kvr_spaces_after(const uint8_t *text, size_t length);
size_t kvr_spaces_before(const uint8_t *text, size_t length);

#endif
