/* Strings of checked JSON to text, and text to strings. */
#include "line/json.h"
#include "line/json_escape.h"

static unsigned hexadecimal4(const char *at)
{
    unsigned code = 0;

    for (int i = 0; i < 4; i++) {
        unsigned digit = (unsigned char)at[i];
        code = code << 4 | (digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10);
    }
    return code;
}

static size_t write_utf8(char *out, unsigned code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* What a letter after a backslash stands for; 0 for u. */
static const char plain[128] = {['"'] = '"',
    ['\\'] = '\\',
    ['/'] = '/',
    ['b'] = '\b',
    ['f'] = '\f',
    ['n'] = '\n',
    ['r'] = '\r',
    ['t'] = '\t'};

/* Decodes the escape whose backslash is at `at`; writes at most four bytes. */
static const char *decode_escape(const char *at, char *out, size_t *size)
{
    const char *end = at + 2;

    if (at[1] != 'u') {
        out[0] = plain[at[1] & 127];
        *size = 1;
        return end;
    }
    unsigned code = hexadecimal4(at + 2);
    end = at + 6;
    if (code >= 0xd800 && code < 0xdc00 && end[0] == '\\' && end[1] == 'u') {
        unsigned low = hexadecimal4(end + 2);
        if (low >= 0xdc00 && low < 0xe000) {
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            end += 6;
        }
    }
    if (code >= 0xd800 && code < 0xe000)
        code = 0xfffd;
    *size = write_utf8(out, code);
    return end;
}

/*
 * Prompts have an escape every few dozen bytes at no regular distance, so what decoding costs is
 * branches guessed wrongly. Hence 64 bytes at a time: which of them are backslashes is one word,
 * each run up to one is copied as if it were 64 bytes long, and the loop over the word's bits is
 * the only branch that depends on the text, but for \u.
 *
 * Decodes from *at on while 128 bytes are left, and writes up to 64 bytes more than it decodes.
 */
static void decode_blocks(const char **at, const char *end, char **to)
{
    const char *from = *at;
    char *out = *to;

    while (end - from >= 2 * KVR_ESCAPE_BLOCK) {
        const char *block = from, *stop = from + KVR_ESCAPE_BLOCK;
        uint64_t found = kvr_bytes_equal(block, '\\');
        while (found) {
            int bit = __builtin_ctzll(found);
            const char *backslash = block + bit;
            char letter = plain[backslash[1] & 127];
            memcpy(out, from, KVR_ESCAPE_BLOCK);
            out += backslash - from;
            if (!letter) {
                size_t size;
                from = stop = decode_escape(backslash, out, &size);
                out += size;
                break;
            }
            *out++ = letter;
            from = backslash + 2;
            found &= ~(UINT64_C(3) << bit); /* with the backslash that this one may escape */
        }
        if (from < stop) {
            memcpy(out, from, KVR_ESCAPE_BLOCK);
            out += stop - from;
            from = stop;
        }
    }
    *at = from;
    *to = out;
}

bool kvr_value_string(struct kvr_value value, struct kvr_buffer *out)
{
    if (value.type != KVR_STRING)
        return false;
    const char *at = value.text + 1, *end = value.text + value.length - 1;
    if (!kvr_buffer_reserve(out, value.length + KVR_ESCAPE_BLOCK))
        return false;
    char *to = out->data + out->length;
    decode_blocks(&at, end, &to);
    while (at < end) {
        const char *backslash = memchr(at, '\\', (size_t)(end - at));
        size_t length = (size_t)((backslash ? backslash : end) - at);
        memcpy(to, at, length);
        to += length;
        at += length;
        if (backslash) {
            at = decode_escape(at, to, &length);
            to += length;
        }
    }
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
            at = decode_escape(at, bytes, &size);
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
        plain = ++i;
    }
    kvr_buffer_append(out, text + plain, length - plain);
    kvr_buffer_append_byte(out, '"');
}
