/* Strings of checked JSON to text, and text to strings. */
#include "line/json.h"
#include "line/json_unescape.h"

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

void kvr_json_write_string(struct kvr_buffer *out, const char *text, size_t length)
{
    static const char hexadecimal[] = "0123456789abcdef";
    size_t plain = 0; /* start of the run not yet appended */

    kvr_buffer_append_byte(out, '"');
    for (size_t i = 0; i < length;) {
        unsigned char byte = (unsigned char)text[i];
        size_t size = 1;
        if (byte >= 0x20 && byte != '"' && byte != '\\') {
            size = utf8_length((const unsigned char *)text + i, length - i);
            if (size) {
                i += size;
                continue;
            }
        }
        kvr_buffer_append(out, text + plain, i - plain);
        if (size == 0) {
            kvr_buffer_append(out, "\xef\xbf\xbd", 3);
            size = broken_length((const unsigned char *)text + i, length - i);
        } else if (byte == '"' || byte == '\\') {
            char pair[2] = {'\\', (char)byte};
            kvr_buffer_append(out, pair, 2);
        } else if (strchr("\b\f\n\r\t", byte) && byte) {
            char pair[2] = {'\\', "btn\0fr"[byte - '\b']};
            kvr_buffer_append(out, pair, 2);
        } else {
            char code[6] = {'\\', 'u', '0', '0', hexadecimal[byte >> 4], hexadecimal[byte & 15]};
            kvr_buffer_append(out, code, 6);
        }
        i += size;
        plain = i;
    }
    kvr_buffer_append(out, text + plain, length - plain);
    kvr_buffer_append_byte(out, '"');
}
