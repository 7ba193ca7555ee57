#include "line/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zlib.h>

enum {
    READ_BYTES = 256 * 1024,
    PADDING = 64, /* vector code may load, not use, a little past the end */
};

static enum kvr_status connect_socket(
    struct kvr_input *input, const char *name, struct kvr_error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(name) >= sizeof address.sun_path)
        return kvr_error_set(error, KVR_IO, "%s: the name is too long for a socket", name);
    strcpy(address.sun_path, name);
    input->descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (input->descriptor < 0 ||
        connect(input->descriptor, (struct sockaddr *)&address, sizeof address) != 0)
        return kvr_error_errno(error, KVR_IO, "cannot connect to %s", name);
    return KVR_OK;
}

enum kvr_status kvr_input_open(
    struct kvr_input *input, const char *name, bool no_wait, struct kvr_error *error)
{
    struct stat status;
    enum kvr_status result = KVR_OK;

    memset(input, 0, sizeof *input);
    input->name = strcmp(name, "-") == 0 ? "stdin" : name;
    input->descriptor = -1;
    if (strcmp(name, "-") == 0) {
        input->descriptor = STDIN_FILENO;
    } else if (stat(name, &status) == 0 && S_ISSOCK(status.st_mode)) {
        result = connect_socket(input, name, error);
    } else {
        input->descriptor = open(name, O_RDONLY | O_CLOEXEC | (no_wait ? O_NONBLOCK : 0));
        if (input->descriptor < 0)
            result =
                errno == EINTR ? KVR_END : kvr_error_errno(error, KVR_IO, "cannot open %s", name);
    }
    if (result == KVR_OK && fstat(input->descriptor, &status) != 0)
        result = kvr_error_errno(error, KVR_IO, "cannot read %s", input->name);
    if (result == KVR_OK && S_ISDIR(status.st_mode))
        result = kvr_error_set(error, KVR_IO, "%s is a directory", input->name);
    if (result != KVR_OK) {
        kvr_input_close(input);
        return result;
    }
    input->regular = S_ISREG(status.st_mode);
    input->fifo = S_ISFIFO(status.st_mode) && input->descriptor != STDIN_FILENO;
    if (input->regular)
        posix_fadvise(input->descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
    return KVR_OK;
}

void kvr_input_close(struct kvr_input *input)
{
    if (input->inflate) {
        inflateEnd(input->inflate);
        free(input->inflate);
    }
    if (input->descriptor > STDIN_FILENO)
        close(input->descriptor);
    free(input->packed);
    free(input->buffer);
    input->descriptor = -1;
    input->inflate = NULL;
    input->packed = NULL;
    input->buffer = NULL;
    input->start = input->scanned = input->end = input->capacity = 0;
}

bool kvr_input_line(struct kvr_input *input, size_t limit, struct kvr_source_line *line)
{
    char *found = NULL;
    size_t length;

    if (input->scanned < input->end)
        found = memchr(input->buffer + input->scanned, '\n', input->end - input->scanned);
    if (!found) {
        input->scanned = input->end;
        if (!input->ended || input->start == input->end) {
            if (input->end - input->start > limit) {
                input->skipping = true;
                input->start = input->scanned = input->end = 0;
            }
            if (!(input->ended && input->skipping))
                return false;
        }
    }
    line->text = input->buffer + input->start;
    length = (found ? (size_t)(found - input->buffer) : input->end) - input->start;
    input->start += length + (found != NULL);
    input->scanned = input->start;
    line->number = ++input->line;
    line->file = input->name;
    if (input->skipping || length > limit) {
        input->skipping = false;
        line->text = NULL;
        length = 0;
    }
    while (length && (line->text[length - 1] == '\r' || line->text[length - 1] == ' ' ||
                         line->text[length - 1] == '\t'))
        length--;
    line->length = length;
    return true;
}

/* Makes room for at least READ_BYTES after end, moving or growing the buffer. */
static bool make_room(struct kvr_input *input)
{
    if (input->start == input->end)
        input->start = input->scanned = input->end = 0;
    if (input->capacity - input->end >= READ_BYTES + PADDING)
        return true;
    size_t held = input->end - input->start;
    if (input->start && input->capacity - held >= READ_BYTES + PADDING) {
        memmove(input->buffer, input->buffer + input->start, held);
    } else {
        size_t capacity = input->capacity ? input->capacity * 2 : 2 * READ_BYTES + PADDING;
        char *buffer = malloc(capacity);
        if (!buffer)
            return false;
        if (held)
            memcpy(buffer, input->buffer + input->start, held);
        free(input->buffer);
        input->buffer = buffer;
        input->capacity = capacity;
    }
    input->scanned -= input->start;
    input->start = 0;
    input->end = held;
    return true;
}

/* The first bytes decide: gzip, a byte order mark, or plain text. */
static enum kvr_status look_at_start(struct kvr_input *input, struct kvr_error *error)
{
    const unsigned char *first = (unsigned char *)input->buffer + input->start;
    size_t length = input->end - input->start;

    if (length < 3 && !input->ended && (length < 1 || first[0] == 0x1f || first[0] == 0xef))
        return KVR_OK; /* not enough to tell yet */
    input->started = true;
    if (length >= 2 && first[0] == 0x1f && first[1] == 0x8b) {
        z_stream *stream = calloc(1, sizeof *stream);
        input->packed = malloc(READ_BYTES);
        if (!stream || !input->packed || inflateInit2(stream, 16 + MAX_WBITS) != Z_OK) {
            free(stream);
            return kvr_error_memory(error);
        }
        input->inflate = stream;
        memcpy(input->packed, first, length);
        input->packed_end = length;
        input->end = input->scanned = input->start;
        input->ended = false;
    } else if (length >= 3 && memcmp(first, "\xef\xbb\xbf", 3) == 0) {
        input->start += 3;
        if (input->scanned < input->start)
            input->scanned = input->start;
    }
    return KVR_OK;
}

/* One read() into `to`. Returns the count, 0 at the end of the input, -1 when nothing came. */
static ssize_t read_once(struct kvr_input *input, void *to, size_t size, enum kvr_status *status,
    struct kvr_error *error)
{
    ssize_t count = read(input->descriptor, to, size);

    *status = KVR_OK;
    if (count > 0)
        input->read_bytes += (uint64_t)count;
    if (count < 0 && errno != EINTR && errno != EAGAIN) {
        *status = kvr_error_errno(error, KVR_IO, "cannot read");
        input->ended = true;
    }
    return count;
}

static enum kvr_status fill_packed(struct kvr_input *input, struct kvr_error *error)
{
    z_stream *stream = input->inflate;
    enum kvr_status status;

    if (input->packed_start == input->packed_end) {
        ssize_t count = read_once(input, input->packed, READ_BYTES, &status, error);
        if (count < 0)
            return status;
        input->packed_start = 0;
        input->packed_end = (size_t)count;
        if (count == 0) {
            input->ended = true;
            if (input->inflate_done)
                return KVR_END;
            input->end = input->scanned = input->start; /* half a line is no line */
            return kvr_error_set(error, KVR_BAD_INPUT, "the gzip data ends too early");
        }
    }
    if (input->inflate_done) {
        if (input->packed[input->packed_start] == 0) { /* padding after the last member */
            input->packed_start = input->packed_end;
            return KVR_OK;
        }
        inflateReset(stream);
        input->inflate_done = false;
    }
    stream->next_in = input->packed + input->packed_start;
    stream->avail_in = (uInt)(input->packed_end - input->packed_start);
    stream->next_out = (unsigned char *)input->buffer + input->end;
    stream->avail_out = (uInt)(input->capacity - input->end - PADDING);
    int result = inflate(stream, Z_NO_FLUSH);
    input->end = input->capacity - PADDING - stream->avail_out;
    input->packed_start = input->packed_end - stream->avail_in;
    if (result == Z_STREAM_END) {
        input->inflate_done = true;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
        input->ended = true;
        input->end = input->scanned = input->start;
        if (result == Z_MEM_ERROR)
            return kvr_error_memory(error);
        return kvr_error_set(
            error, KVR_BAD_INPUT, "bad gzip data: %s", stream->msg ? stream->msg : "?");
    }
    return KVR_OK;
}

enum kvr_status kvr_input_fill(struct kvr_input *input, size_t limit, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    if (input->skipping || input->end - input->start > limit) {
        input->skipping = true;
        input->start = input->scanned = input->end = 0;
    }
    if (!make_room(input)) {
        input->ended = true;
        return kvr_error_memory(error);
    }
    if (input->inflate)
        return fill_packed(input, error);
    /* What turns out to be gzip moves to the packed buffer, so at first no more than that holds. */
    size_t room = input->started ? input->capacity - input->end - PADDING
                                 : READ_BYTES - (input->end - input->start);
    ssize_t count = read_once(input, input->buffer + input->end, room, &status, error);
    if (count < 0)
        return status;
    input->end += (size_t)count;
    if (count == 0)
        input->ended = true;
    if (!input->started) {
        status = look_at_start(input, error);
        if (status != KVR_OK || input->inflate)
            return status;
    }
    return input->ended ? KVR_END : KVR_OK;
}
