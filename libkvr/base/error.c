#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum kvr_status kvr_error_set(
    struct kvr_error *error, enum kvr_status status, const char *format, ...)
{
    va_list arguments;

    if (error) {
        va_start(arguments, format);
        vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
        error->status = status;
    }
    return status;
}

enum kvr_status kvr_error_errno(
    struct kvr_error *error, enum kvr_status status, const char *format, ...)
{
    va_list arguments;
    int number = errno;

    if (error) {
        va_start(arguments, format);
        vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
        size_t used = strlen(error->text);
        snprintf(error->text + used, sizeof error->text - used, ": %s", strerror(number));
        error->status = status;
    }
    return status;
}

enum kvr_status kvr_error_memory(struct kvr_error *error)
{
    return kvr_error_set(error, KVR_NO_MEMORY, "out of memory");
}

enum kvr_status kvr_error_prefix(struct kvr_error *error, const char *format, ...)
{
    char old[sizeof error->text];
    va_list arguments;

    memcpy(old, error->text, sizeof old);
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    size_t used = strlen(error->text), room = sizeof error->text - used - 1;
    size_t length = strlen(old);
    if (room >= 2) {
        length = length < room - 2 ? length : room - 2;
        memcpy(error->text + used, ": ", 2);
        memcpy(error->text + used + 2, old, length);
        error->text[used + 2 + length] = '\0';
    }
    return error->status;
}

int kvr_status_exit(enum kvr_status status)
{
    switch (status) {
    case KVR_OK:
    case KVR_END:
        return 0;
    case KVR_BAD_INPUT:
        return 1;
    case KVR_BAD_USAGE:
        return 2;
    case KVR_UNSUPPORTED:
        return 4;
    case KVR_IO:
    case KVR_NO_MEMORY:
        break;
    }
    return 3;
}

unsigned kvr_character_bytes(const char *text, size_t length, bool *unsafe)
{
    const unsigned char *bytes = (const unsigned char *)text;
    unsigned count = bytes[0] < 0xc2 ? 1 : bytes[0] < 0xe0 ? 2 : bytes[0] < 0xf0 ? 3 : 4;

    *unsafe = bytes[0] < 0x20 || bytes[0] == 0x7f || (bytes[0] >= 0x80 && bytes[0] < 0xc2) ||
              bytes[0] > 0xf4 || count > length;
    for (unsigned i = 1; i < count && !*unsafe; i++)
        *unsafe = (bytes[i] & 0xc0) != 0x80;
    if (*unsafe)
        return 1;
    /* U+0080 to U+009F; U+2028 to U+202E and U+2066 to U+2069 turn or break lines. */
    *unsafe = (bytes[0] == 0xc2 && bytes[1] < 0xa0) ||
              (bytes[0] == 0xe2 && bytes[1] == 0x80 && bytes[2] >= 0xa8 && bytes[2] <= 0xae) ||
              (bytes[0] == 0xe2 && bytes[1] == 0x81 && bytes[2] >= 0xa6 && bytes[2] <= 0xa9);
    return count;
}

char *kvr_printable(char *out, size_t size, const char *text, size_t length)
{
    static const char hexadecimal[] = "0123456789abcdef";
    size_t used = 0;

    for (size_t i = 0; i < length;) {
        bool unsafe;
        unsigned count = kvr_character_bytes(text + i, length - i, &unsafe);
        if (used + (unsafe ? 4 : 1) * count >= size)
            break;
        for (unsigned end = count; end > 0; end--, i++) {
            unsigned char byte = (unsigned char)text[i];
            if (!unsafe) {
                out[used++] = text[i];
                continue;
            }
            out[used++] = '\\';
            out[used++] = 'x';
            out[used++] = hexadecimal[byte >> 4];
            out[used++] = hexadecimal[byte & 15];
        }
    }
    if (size)
        out[used] = '\0';
    return out;
}
