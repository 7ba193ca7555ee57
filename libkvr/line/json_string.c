/* Strings of checked JSON to text, and text to strings. */
#include "line/json.h"
#include "line/json_unescape.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

bool kvr_value_string(struct kvr_value value, struct kvr_buffer *out)
{
    if (value.type != KVR_STRING)
        return false;
    const char *at = value.text + 1, *end = value.text + value.length - 1;
    if (!kvr_buffer_reserve(out, value.length + KVR_UNESCAPE_BYTES))
        return false;
    char *to = kvr_unescape(at, end, out->data + out->length);
    out->length = (size_t)(to - out->data);
    return true;
}

bool kvr_value_text(struct kvr_value value, struct kvr_buffer *scratch, struct kvr_text *text)
{
    if (value.type != KVR_STRING)
        return false;
    text->text = value.text + 1;
    text->length = value.length - 2;
    if (!memchr(text->text, '\\', text->length))
        return true;
    kvr_buffer_clear(scratch);
    if (!kvr_value_string(value, scratch))
        return false;
    text->text = scratch->data;
    text->length = scratch->length;
    return true;
}

bool kvr_value_is(struct kvr_value value, const char *text)
{
    if (value.type != KVR_STRING)
        return false;
    const char *at = value.text + 1, *end = value.text + value.length - 1;
    while (at < end) {
        char bytes[4];
        size_t size = 1;
        if (*at == '\\')
            at = kvr_unescape_one(at, bytes, &size);
        else
            bytes[0] = *at++;
        if (strncmp(text, bytes, size) != 0 || memchr(bytes, '\0', size))
            return false;
        text += size;
    }
    return *text == '\0';
}

/* Bytes of the valid UTF-8 sequence at `at`, 0 when there is none. */
static size_t utf8_length(const unsigned char *at, size_t left)
{
    if (at[0] < 0x80)
        return 1;
    if (at[0] < 0xc2 || at[0] > 0xf4 || left < 2 || (at[1] & 0xc0) != 0x80)
        return 0;
    if (at[0] < 0xe0)
        return 2;
    if (left < 3 || (at[2] & 0xc0) != 0x80)
        return 0;
    if (at[0] < 0xf0) {
        bool overlong = at[0] == 0xe0 && at[1] < 0xa0, surrogate = at[0] == 0xed && at[1] > 0x9f;
        return overlong || surrogate ? 0 : 3;
    }
    if (left < 4 || (at[3] & 0xc0) != 0x80 || (at[0] == 0xf0 && at[1] < 0x90) ||
        (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    return 4;
}

/* Bytes at `at`, which start no valid sequence, that one U+FFFD stands for: as many as could have
 * started one, as Python, Rust and the browsers have it. */
static size_t broken_length(const unsigned char *at, size_t left)
{
    size_t wanted = at[0] < 0xc2 || at[0] > 0xf4 ? 1 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    size_t length = 1;

    if (wanted > 2 && left > 1) {
        unsigned char first = at[0] == 0xe0 ? 0xa0 : at[0] == 0xf0 ? 0x90 : 0x80;
        unsigned char last = at[0] == 0xed ? 0x9f : at[0] == 0xf4 ? 0x8f : 0xbf;
        if (at[1] < first || at[1] > last)
            return 1;
    }
    while (length < wanted && length < left && (at[length] & 0xc0) == 0x80)
        length++;
    return length;
}

/* Copies the ASCII bytes up to one that a string cannot hold as it is; how many. Up to 15 bytes
 * more may be written. */
static inline size_t copy_plain(char *out, const char *text, size_t length)
{
    size_t done = 0;

#ifdef __SSE2__
    for (; length - done >= 16; done += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(text + done));
        /* compared as signed bytes, those from 0x80 on are below a space as well */
        __m128i other = _mm_or_si128(_mm_cmplt_epi8(bytes, _mm_set1_epi8(' ')),
            _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')),
                _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'))));
        unsigned found = (unsigned)_mm_movemask_epi8(other);
        _mm_storeu_si128((__m128i *)(void *)(out + done), bytes);
        if (found)
            return done + (size_t)__builtin_ctz(found);
    }
#endif
    for (; done < length; done++) {
        unsigned char byte = (unsigned char)text[done];
        if (byte < ' ' || byte >= 0x80 || byte == '"' || byte == '\\')
            break;
        out[done] = (char)byte;
    }
    return done;
}

/* Writes an ASCII byte that a string cannot hold as it is: 2 bytes or 6. */
static inline size_t put_escape(char *out, unsigned char byte)
{
    static const char hexadecimal[] = "0123456789abcdef";
    static const char letters[' '] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    char letter = byte >= ' ' ? (char)byte : letters[byte];

    out[0] = '\\';
    if (letter) {
        out[1] = letter;
        return 2;
    }
    memcpy(out + 1, "u00", 3);
    out[4] = hexadecimal[byte >> 4];
    out[5] = hexadecimal[byte & 15];
    return 6;
}

enum { WRITE_CHUNK = 4096, ESCAPE_BYTES_MOST = 6, WRITTEN_BEYOND = 16 };

void kvr_json_write_string(struct kvr_buffer *out, const char *text, size_t length)
{
    kvr_buffer_append_byte(out, '"');
    for (size_t i = 0; i < length;) {
        size_t stop = length - i < WRITE_CHUNK ? length : i + WRITE_CHUNK;
        if (!kvr_buffer_reserve(out, (stop - i) * ESCAPE_BYTES_MOST + WRITTEN_BEYOND))
            return;
        char *to = out->data + out->length;
        while (i < stop) {
            size_t run = copy_plain(to, text + i, stop - i);
            to += run;
            i += run;
            while (i < stop && (unsigned char)text[i] >= 0x80) {
                const unsigned char *at = (const unsigned char *)text + i;
                size_t size = utf8_length(at, length - i);
                if (size) {
                    memcpy(to, at, length - i >= 4 ? 4 : size);
                    to += size;
                    i += size;
                } else {
                    memcpy(to, "\xef\xbf\xbd", 3);
                    to += 3;
                    i += broken_length(at, length - i);
                }
            }
            unsigned char byte = i < stop ? (unsigned char)text[i] : 'x';
            if (byte < ' ' || byte == '"' || byte == '\\') {
                to += put_escape(to, byte);
                i++;
            }
        }
        out->length = (size_t)(to - out->data);
    }
    kvr_buffer_append_byte(out, '"');
}
