#include "line/json_unescape.h"
#include "base/processor.h"
#include "base/utf8.h"
#include "line/json_escape.h"

#include <string.h>

#ifdef KVR_HAS_BYTE_VECTORS
#include <immintrin.h>
#endif

static unsigned hexadecimal4(const char *at)
{
    unsigned code = 0;

    for (int i = 0; i < 4; i++) {
        unsigned digit = (unsigned char)at[i];
        code = code << 4 | (digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10);
    }
    return code;
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

const char *kvr_unescape_one(const char *at, char *out, size_t *size)
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
    *size = kvr_utf8_encode(code, (uint8_t *)out);
    return end;
}

/*
 * Prompts have an escape every few dozen bytes at no regular distance, so what decoding costs is
 * branches guessed wrongly. Hence 64 bytes at a time: which of them are backslashes is one word,
 * each run up to one is copied as if it were 64 bytes long, and the loop over the word's bits is
 * the only branch that depends on the text, but for \u.
 *
 * Decodes while 128 bytes are left and returns the rest of the text; writes up to 64 bytes more
 * than it decodes.
 */
static const char *decode_blocks(const char *from, const char *end, char **to)
{
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
                from = stop = kvr_unescape_one(backslash, out, &size);
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
    *to = out;
    return from;
}

#ifdef KVR_HAS_BYTE_VECTORS
/* The backslashes that begin an escape, of those in a block that begins with no escaped byte. */
static uint64_t beginnings(uint64_t backslashes)
{
    uint64_t found = 0;

    if (!(backslashes & backslashes << 1))
        return backslashes;
    while (backslashes) {
        int bit = __builtin_ctzll(backslashes);
        found |= UINT64_C(1) << bit;
        backslashes &= ~(UINT64_C(3) << bit);
    }
    return found;
}

/*
 * The same without a loop over escapes: every byte of a block is looked up as if it stood behind a
 * backslash, those that do are replaced, and all but the backslashes move together. A block ends
 * before a \u, which is decoded by itself, and before a backslash in its last byte.
 */
KVR_BYTE_VECTORS static const char *decode_vectors(const char *from, const char *end, char **to)
{
    const __m512i low = _mm512_loadu_si512(plain), high = _mm512_loadu_si512(plain + 64);
    char *out = *to;

    while (end - from >= KVR_ESCAPE_BLOCK) {
        __m512i bytes = _mm512_loadu_si512(from);
        uint64_t found = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('\\'));
        if (!found) {
            _mm512_storeu_si512(out, bytes);
            out += KVR_ESCAPE_BLOCK;
            from += KVR_ESCAPE_BLOCK;
            continue;
        }
        uint64_t begins = beginnings(found), letters = begins << 1;
        __m512i meant = _mm512_permutex2var_epi8(low, bytes, high);
        uint64_t unknown = letters & ~_mm512_test_epi8_mask(meant, meant);
        uint64_t last = begins & UINT64_C(1) << 63, stop = unknown ? unknown >> 1 : last;
        int taken = stop ? __builtin_ctzll(stop) : KVR_ESCAPE_BLOCK;
        uint64_t stays = ~begins & (stop ? (stop & -stop) - 1 : ~UINT64_C(0));
        bytes = _mm512_mask_mov_epi8(bytes, letters, meant);
        _mm512_storeu_si512(out, _mm512_maskz_compress_epi8(stays, bytes));
        out += __builtin_popcountll(stays);
        from += taken;
        if (unknown) {
            size_t size;
            from = kvr_unescape_one(from, out, &size);
            out += size;
        }
    }
    *to = out;
    return from;
}
#endif

static char *decode_rest(const char *at, const char *end, char *out)
{
    while (at < end) {
        const char *backslash = memchr(at, '\\', (size_t)(end - at));
        size_t length = (size_t)((backslash ? backslash : end) - at);
        memcpy(out, at, length);
        out += length;
        at += length;
        if (backslash) {
            at = kvr_unescape_one(at, out, &length);
            out += length;
        }
    }
    return out;
}

char *kvr_unescape_plain(const char *at, const char *end, char *out)
{
    at = decode_blocks(at, end, &out);
    return decode_rest(at, end, out);
}

char *kvr_unescape(const char *at, const char *end, char *out)
{
#ifdef KVR_HAS_BYTE_VECTORS
    if (kvr_leaves_bytes_out()) {
        at = decode_vectors(at, end, &out);
        return decode_rest(at, end, out);
    }
#endif
    return kvr_unescape_plain(at, end, out);
}
