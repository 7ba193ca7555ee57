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

/* The byte that a character stands for, or -1. */
static int byte_of(uint32_t character)
{
    if ((character >= 33 && character <= 126) || (character >= 161 && character <= 172) ||
        (character >= 174 && character <= 255))
        return (int)character;
    if (character < 256 || character >= 256 + 68)
        return -1;
    uint32_t index = character - 256; /* 0..32, 127..160, 173 in order */
    return index < 33 ? (int)index : index < 67 ? (int)(127 + index - 33) : 173;
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
        unsigned size;
        int byte = byte_of(kvr_utf8_decode(p, end, &size));
        if (byte < 0)
            return false;
        *to++ = (char)byte;
        p += size;
    }
    out->length = (size_t)(to - out->data);
    return true;
}
