#include "token/alphabet.h"
#include "token/unicode.h"

static uint32_t character_of(uint8_t byte)
{
    if (byte < 33)
        return 256u + byte;
    if (byte >= 127 && byte <= 160)
        return 256u + 33 + byte - 127;
    return byte == 173 ? 256u + 67 : byte;
}

/* The bytes that the characters from U+0100 on stand for. */
static const uint8_t others[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18,
    19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 127, 128, 129, 130, 131, 132, 133, 134,
    135, 136, 137, 138, 139, 140, 141, 142, 143, 144, 145, 146, 147, 148, 149, 150, 151, 152, 153,
    154, 155, 156, 157, 158, 159, 160, 173};

/* The byte that a character stands for, or -1. */
static inline int byte_of(uint32_t character)
{
    if (character >= 256)
        return character < 256 + sizeof others ? others[character - 256] : -1;
    return (character > 160 && character != 173) || (character > 32 && character < 127)
               ? (int)character
               : -1;
}

void kvr_bytes_to_alphabet(const char *bytes, size_t length, struct kvr_buffer *out)
{
    for (size_t i = 0; i < length; i++) {
        uint8_t encoded[4];
        kvr_buffer_append(out, encoded, kvr_utf8_encode(character_of((uint8_t)bytes[i]), encoded));
    }
}

bool kvr_bytes_from_alphabet(const char *text, size_t length, struct kvr_buffer *out)
{
    const uint8_t *p = (const uint8_t *)text, *end = p + length;

    if (!kvr_buffer_reserve(out, length + 1))
        return true; /* as said by out->failed */
    char *to = out->data + out->length;
    while (p < end) {
        if (*p > 32 && *p < 127) { /* itself, as most are */
            *to++ = (char)*p++;
            continue;
        }
        /* the others are of two bytes: U+00A1 to U+0143 */
        bool two = *p >= 0xc2 && *p <= 0xc5 && end - p > 1 && (p[1] & 0xc0) == 0x80;
        int byte = two ? byte_of((uint32_t)(*p & 31) << 6 | (p[1] & 63)) : -1;
        if (byte < 0)
            return false;
        *to++ = (char)byte;
        p += 2;
    }
    out->length = (size_t)(to - out->data);
    return true;
}
