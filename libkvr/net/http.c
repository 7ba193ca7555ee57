#include "net/http.h"

enum { CHUNK_LINE_BYTES = 4096, TRAILER_BYTES = 16 * 1024 };

static enum kvr_status refuse(
    struct kvr_http_head *head, unsigned status, const char *why, struct kvr_error *error)
{
    head->status = status;
    return kvr_error_set(error, KVR_BAD_INPUT, "%s", why);
}

static bool is_token_byte(unsigned char byte)
{
    static const char others[] = "!#$%&'*+-.^_`|~";

    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || (byte && memchr(others, byte, sizeof others - 1));
}

static bool is_token(struct kvr_text text)
{
    for (size_t i = 0; i < text.length; i++)
        if (!is_token_byte((unsigned char)text.text[i]))
            return false;
    return text.length > 0;
}

bool kvr_text_is_word(struct kvr_text text, const char *word)
{
    for (size_t i = 0; i < text.length; i++) {
        char byte = text.text[i];
        if (byte >= 'A' && byte <= 'Z')
            byte = (char)(byte + 32);
        if (!word[i] || byte != word[i])
            return false;
    }
    return !word[text.length];
}

/* One line without its CR LF. KVR_END: it is not whole. */
static enum kvr_status take_line(struct kvr_http_head *head, const char *bytes, size_t length,
    size_t *at, struct kvr_text *line, struct kvr_error *error)
{
    const char *start = bytes + *at;
    const char *end = memchr(start, '\n', length - *at);

    if (!end)
        return length >= KVR_HTTP_HEAD_BYTES ? refuse(head, 431, "the head is too large", error)
                                             : KVR_END;
    if (end == start || end[-1] != '\r')
        return refuse(head, 400, "a line of the head does not end with CR LF", error);
    *line = (struct kvr_text){start, (size_t)(end - start) - 1};
    for (size_t i = 0; i < line->length; i++) {
        unsigned char byte = (unsigned char)start[i];
        if ((byte < ' ' && byte != '\t') || byte == 0x7f)
            return refuse(head, 400, "a control byte in the head", error);
    }
    *at += (size_t)(end - start) + 1;
    return *at > KVR_HTTP_HEAD_BYTES ? refuse(head, 431, "the head is too large", error) : KVR_OK;
}

static bool read_version(struct kvr_text text, unsigned *minor)
{
    if (text.length != 8 || memcmp(text.text, "HTTP/1.", 7) != 0 ||
        (text.text[7] != '0' && text.text[7] != '1'))
        return false;
    *minor = (unsigned)(text.text[7] - '0');
    return true;
}

static enum kvr_status read_length(
    struct kvr_http_head *head, struct kvr_text value, struct kvr_error *error)
{
    if (head->content_length >= 0)
        return refuse(head, 400, "more than one Content-Length", error);
    if (value.length == 0 || value.length > 18)
        return refuse(head, 400, "Content-Length is no length", error);
    head->content_length = 0;
    for (size_t i = 0; i < value.length; i++) {
        if (value.text[i] < '0' || value.text[i] > '9')
            return refuse(head, 400, "Content-Length is no length", error);
        head->content_length = head->content_length * 10 + (value.text[i] - '0');
    }
    return KVR_OK;
}

/* Calls of the words of a list separated by commas. */
static bool next_word(struct kvr_text *list, struct kvr_text *word)
{
    while (list->length && (*list->text == ',' || *list->text == ' ' || *list->text == '\t'))
        list->text++, list->length--;
    if (!list->length)
        return false;
    const char *comma = memchr(list->text, ',', list->length);
    size_t length = comma ? (size_t)(comma - list->text) : list->length;
    *word = (struct kvr_text){list->text, length};
    list->text += length;
    list->length -= length;
    while (word->length &&
           (word->text[word->length - 1] == ' ' || word->text[word->length - 1] == '\t'))
        word->length--;
    return true;
}

static bool same_word(struct kvr_text a, struct kvr_text b)
{
    for (size_t i = 0; i < a.length && a.length == b.length; i++)
        if ((a.text[i] | 32) != (b.text[i] | 32))
            return false;
    return a.length == b.length;
}

/* Headers that belong to this connection, and those that Connection names. */
static void mark_hops(struct kvr_http_head *head)
{
    static const char *const hops[] = {"connection", "keep-alive", "proxy-connection",
        "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
        "upgrade", "content-length"};
    struct kvr_text word;

    for (size_t i = 0; i < head->header_count; i++) {
        struct kvr_http_header *header = &head->headers[i];
        for (size_t j = 0; j < sizeof hops / sizeof *hops && !header->hop; j++)
            header->hop = kvr_text_is_word(header->name, hops[j]);
        if (!kvr_text_is_word(header->name, "connection"))
            continue;
        struct kvr_text list = header->value;
        while (next_word(&list, &word)) {
            if (kvr_text_is_word(word, "close"))
                head->keeps_alive = false;
            else if (kvr_text_is_word(word, "keep-alive") && head->minor == 0)
                head->keeps_alive = true;
            for (size_t j = 0; j < head->header_count; j++)
                head->headers[j].hop |= same_word(head->headers[j].name, word);
        }
    }
}

static enum kvr_status read_header(struct kvr_http_head *head, struct kvr_text line,
    unsigned *hosts, bool *encoded, struct kvr_error *error)
{
    const char *colon = memchr(line.text, ':', line.length);

    if (line.text[0] == ' ' || line.text[0] == '\t')
        return refuse(head, 400, "a folded header line", error);
    if (!colon)
        return refuse(head, 400, "a header line without a colon", error);
    if (head->header_count == KVR_HTTP_HEADERS)
        return refuse(head, 431, "too many headers", error);
    struct kvr_http_header *header = &head->headers[head->header_count++];
    header->name = (struct kvr_text){line.text, (size_t)(colon - line.text)};
    header->value = (struct kvr_text){colon + 1, line.length - header->name.length - 1};
    header->hop = false;
    if (!is_token(header->name))
        return refuse(head, 400, "a header name that is no token", error);
    while (header->value.length && (*header->value.text == ' ' || *header->value.text == '\t'))
        header->value.text++, header->value.length--;
    while (header->value.length && (header->value.text[header->value.length - 1] == ' ' ||
                                       header->value.text[header->value.length - 1] == '\t'))
        header->value.length--;
    switch (header->name.length) {
    case 4:
        *hosts += kvr_text_is_word(header->name, "host");
        return KVR_OK;
    case 6:
        if (kvr_text_is_word(header->name, "expect"))
            head->expects_continue = kvr_text_is_word(header->value, "100-continue");
        return KVR_OK;
    case 14:
        return kvr_text_is_word(header->name, "content-length")
                   ? read_length(head, header->value, error)
                   : KVR_OK;
    case 17:
        if (!kvr_text_is_word(header->name, "transfer-encoding"))
            return KVR_OK;
        if (*encoded)
            return refuse(head, 400, "more than one Transfer-Encoding", error);
        *encoded = true;
        if (!kvr_text_is_word(header->value, "chunked"))
            return refuse(head, 501, "a Transfer-Encoding that is not chunked", error);
        head->chunked = true;
        return KVR_OK;
    default:
        return KVR_OK;
    }
}

static enum kvr_status read_headers(struct kvr_http_head *head, const char *bytes, size_t length,
    size_t at, unsigned *hosts, struct kvr_error *error)
{
    struct kvr_text line;
    bool encoded = false;

    head->header_count = 0;
    head->content_length = -1;
    head->chunked = head->expects_continue = false;
    head->keeps_alive = head->minor == 1;
    *hosts = 0;
    for (;;) {
        enum kvr_status status = take_line(head, bytes, length, &at, &line, error);
        if (status != KVR_OK)
            return status;
        if (line.length == 0)
            break;
        status = read_header(head, line, hosts, &encoded, error);
        if (status != KVR_OK)
            return status;
    }
    if (head->chunked && head->content_length >= 0)
        return refuse(head, 400, "both Content-Length and Transfer-Encoding", error);
    if (head->chunked && head->minor == 0)
        return refuse(head, 400, "Transfer-Encoding in HTTP/1.0", error);
    head->length = at;
    mark_hops(head);
    return KVR_OK;
}

enum kvr_status kvr_http_request(
    struct kvr_http_head *head, const char *bytes, size_t length, struct kvr_error *error)
{
    struct kvr_text line, version;
    unsigned hosts;
    size_t at = 0;

    /* An empty line before a request is allowed once by the RFC, for ancient clients' sake; a
     * reader that skips it and one that does not disagree, so it is refused. */
    enum kvr_status status = take_line(head, bytes, length, &at, &line, error);
    if (status != KVR_OK)
        return status;
    const char *space = memchr(line.text, ' ', line.length);
    if (!space)
        return refuse(head, 400, "not a request line", error);
    head->method = (struct kvr_text){line.text, (size_t)(space - line.text)};
    const char *target = space + 1, *end = line.text + line.length;
    space = memchr(target, ' ', (size_t)(end - target));
    if (!space || !is_token(head->method) || *target != '/')
        return refuse(head, 400, "not a request line with a path", error);
    head->target = (struct kvr_text){target, (size_t)(space - target)};
    version = (struct kvr_text){space + 1, (size_t)(end - space) - 1};
    for (size_t i = 0; i < head->target.length; i++)
        if ((unsigned char)target[i] > 0x7e || target[i] == '\t' || target[i] == '#')
            return refuse(head, 400, "a path with bytes that no path has", error);
    if (!read_version(version, &head->minor))
        return refuse(head,
            version.length == 8 && memcmp(version.text, "HTTP/", 5) == 0 ? 505 : 400,
            "not HTTP/1.1", error);
    status = read_headers(head, bytes, length, at, &hosts, error);
    if (status == KVR_OK && (hosts > 1 || (hosts == 0 && head->minor == 1)))
        return refuse(head, 400, "not exactly one Host", error);
    return status;
}

enum kvr_status kvr_http_response(
    struct kvr_http_head *head, const char *bytes, size_t length, struct kvr_error *error)
{
    struct kvr_text line;
    unsigned hosts;
    size_t at = 0;

    enum kvr_status status = take_line(head, bytes, length, &at, &line, error);
    if (status != KVR_OK)
        return status;
    if (line.length < 12 || !read_version((struct kvr_text){line.text, 8}, &head->minor) ||
        line.text[8] != ' ' || (line.length > 12 && line.text[12] != ' '))
        return refuse(head, 0, "not an HTTP/1.1 status line", error);
    unsigned code = 0;
    for (size_t i = 9; i < 12; i++) {
        if (line.text[i] < '0' || line.text[i] > '9')
            return refuse(head, 0, "not an HTTP/1.1 status line", error);
        code = code * 10 + (unsigned)(line.text[i] - '0');
    }
    if (code < 100 || code > 599)
        return refuse(head, 0, "a status that is none", error);
    status = read_headers(head, bytes, length, at, &hosts, error);
    if (status == KVR_OK)
        head->status = code;
    return status;
}

struct kvr_text kvr_http_header(const struct kvr_http_head *head, const char *name)
{
    for (size_t i = 0; i < head->header_count; i++)
        if (kvr_text_is_word(head->headers[i].name, name))
            return head->headers[i].value;
    return (struct kvr_text){0};
}

/* ---- bodies ---- */

enum state {
    SIZE,
    EXTENSION,
    SIZE_NEWLINE,
    DATA,
    DATA_RETURN,
    DATA_NEWLINE,
    TRAILER,
    TRAILER_LINE,
    TRAILER_NEWLINE,
    LAST_NEWLINE
};

static void begin_body(struct kvr_http_body *body, const struct kvr_http_head *head)
{
    *body = (struct kvr_http_body){0};
    if (head->chunked) {
        body->framing = KVR_HTTP_CHUNKED;
    } else if (head->content_length > 0) {
        body->framing = KVR_HTTP_LENGTH;
        body->left = (uint64_t)head->content_length;
    } else {
        body->ended = true;
    }
}

void kvr_http_request_body(struct kvr_http_body *body, const struct kvr_http_head *head)
{
    begin_body(body, head);
}

void kvr_http_response_body(
    struct kvr_http_body *body, const struct kvr_http_head *head, bool to_head)
{
    begin_body(body, head);
    if (to_head || head->status < 200 || head->status == 204 || head->status == 304) {
        *body = (struct kvr_http_body){.ended = true};
    } else if (!head->chunked && head->content_length < 0) {
        body->framing = KVR_HTTP_UNTIL_CLOSE;
        body->ended = false;
    }
}

static int hex_digit(char byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    if (byte >= 'a' && byte <= 'f')
        return byte - 'a' + 10;
    return byte >= 'A' && byte <= 'F' ? byte - 'A' + 10 : -1;
}

static enum kvr_status bad_chunk(struct kvr_error *error)
{
    return kvr_error_set(error, KVR_BAD_INPUT, "the chunks of the body are broken");
}

/* One byte that is no payload. */
static enum kvr_status take_framing(struct kvr_http_body *body, char byte, struct kvr_error *error)
{
    int digit;

    if (byte != '\t' && byte != '\r' && byte != '\n' && (unsigned char)byte < ' ')
        return bad_chunk(error);
    switch ((enum state)body->state) {
    case SIZE:
        digit = hex_digit(byte);
        if (digit >= 0) {
            if (++body->digits > 15)
                return bad_chunk(error);
            body->left = body->left * 16 + (unsigned)digit;
            return KVR_OK;
        }
        if (!body->digits || (byte != '\r' && byte != ';'))
            return bad_chunk(error);
        body->state = byte == '\r' ? SIZE_NEWLINE : EXTENSION;
        body->line_bytes = 0;
        return KVR_OK;
    case EXTENSION:
        if (byte == '\n' || ++body->line_bytes > CHUNK_LINE_BYTES)
            return bad_chunk(error);
        if (byte == '\r')
            body->state = SIZE_NEWLINE;
        return KVR_OK;
    case SIZE_NEWLINE:
        body->line_bytes = 0;
        body->state = body->left ? DATA : TRAILER;
        return byte == '\n' ? KVR_OK : bad_chunk(error);
    case DATA_RETURN:
        body->state = DATA_NEWLINE;
        return byte == '\r' ? KVR_OK : bad_chunk(error);
    case DATA_NEWLINE:
        body->state = SIZE;
        body->digits = 0;
        body->left = 0;
        return byte == '\n' ? KVR_OK : bad_chunk(error);
    case TRAILER:
    case TRAILER_LINE:
        if (byte == '\n' || ++body->line_bytes > TRAILER_BYTES)
            return bad_chunk(error);
        if (byte == '\r')
            body->state = body->state == TRAILER ? LAST_NEWLINE : TRAILER_NEWLINE;
        else
            body->state = TRAILER_LINE;
        return KVR_OK;
    case TRAILER_NEWLINE:
        body->state = TRAILER;
        return byte == '\n' ? KVR_OK : bad_chunk(error);
    case LAST_NEWLINE:
        body->ended = true;
        return byte == '\n' ? KVR_OK : bad_chunk(error);
    case DATA:
        break;
    }
    return KVR_OK;
}

enum kvr_status kvr_http_take(struct kvr_http_body *body, const char **bytes, size_t *length,
    struct kvr_text *piece, struct kvr_error *error)
{
    *piece = (struct kvr_text){*bytes, 0};
    while (*length && !body->ended) {
        bool payload = body->framing != KVR_HTTP_CHUNKED || body->state == DATA;
        if (!payload) {
            enum kvr_status status = take_framing(body, **bytes, error);
            if (status != KVR_OK)
                return status;
            ++*bytes;
            --*length;
            continue;
        }
        size_t most = *length;
        if (body->framing != KVR_HTTP_UNTIL_CLOSE && most > body->left)
            most = (size_t)body->left;
        *piece = (struct kvr_text){*bytes, most};
        *bytes += most;
        *length -= most;
        if (body->framing == KVR_HTTP_UNTIL_CLOSE)
            return KVR_OK;
        body->left -= most;
        if (body->left == 0 && body->framing == KVR_HTTP_LENGTH)
            body->ended = true;
        else if (body->left == 0)
            body->state = DATA_RETURN;
        return KVR_OK;
    }
    return KVR_OK;
}
