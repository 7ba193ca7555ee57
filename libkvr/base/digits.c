#include "base/digits.h"
#include "base/processor.h"

#include <endian.h>
#include <string.h>

#ifdef KVR_HAS_BYTE_VECTORS
#include <immintrin.h>
#endif

/*
 * Token ids are five or six digits and block ids sixteen, and there are thousands in a line.
 *
 * An id is two lookups in a table of "000," to "999,", joined to one word of six digits and their
 * comma; eight digits come from four products, as bytes of one word: halves of four digits,
 * quarters of two, then single ones, each a division by a product that is exact for so few digits.
 * Leading zeros are shifted out of the word, so that no step depends on how long a number is, and
 * only the place to write to is carried from one number to the next.
 */
#define EIGHT_DIGITS 100000000
#define SIX_DIGITS 1000000
#define ASCII_ZEROS UINT64_C(0x3030303030303030)

#define ENTRIES_10(digits)                                                                         \
    digits "0," digits "1," digits "2," digits "3," digits "4," digits "5," digits "6," digits     \
           "7," digits "8," digits "9,"
#define ENTRIES_100(digit)                                                                         \
    ENTRIES_10(digit "0")                                                                          \
    ENTRIES_10(digit "1")                                                                          \
    ENTRIES_10(digit "2")                                                                          \
    ENTRIES_10(digit "3")                                                                          \
    ENTRIES_10(digit "4")                                                                          \
    ENTRIES_10(digit "5")                                                                          \
    ENTRIES_10(digit "6")                                                                          \
    ENTRIES_10(digit "7")                                                                          \
    ENTRIES_10(digit "8")                                                                          \
    ENTRIES_10(digit "9")

static const char three_digits[] =
    ENTRIES_100("0") ENTRIES_100("1") ENTRIES_100("2") ENTRIES_100("3") ENTRIES_100("4")
        ENTRIES_100("5") ENTRIES_100("6") ENTRIES_100("7") ENTRIES_100("8") ENTRIES_100("9");

/* Three digits and their comma, the first digit lowest. */
static inline uint64_t three_digits_of(uint32_t number)
{
    uint32_t word;

    memcpy(&word, three_digits + 4 * (size_t)number, sizeof word);
    return le32toh(word);
}

/* Writes the word's bytes from the lowest on. */
static inline void put_bytes(char *out, uint64_t word)
{
    word = htole64(word);
    memcpy(out, &word, sizeof word);
}

/* Writes a number below 10^6 and a comma; returns where they end. */
static inline char *put_six(char *out, uint32_t number)
{
    uint64_t word = (three_digits_of(number / 1000) & 0xffffff) | three_digits_of(number % 1000)
                                                                      << 24;
    uint64_t first = (word & UINT64_C(0x0f0f0f0f0f)) | UINT64_C(1) << 40; /* five may be zeros */
    unsigned zero_bits = (unsigned)__builtin_ctzll(first) & ~7U;

    put_bytes(out, word >> zero_bits);
    return out + 7 - zero_bits / 8;
}

/* The digits as numbers, the first one lowest. */
static inline uint64_t eight_digits(uint32_t number)
{
    uint64_t halves = number / 10000 | (uint64_t)(number % 10000) << 32;
    uint64_t hundreds = (halves * 10486 >> 20) & UINT64_C(0x0000007f0000007f);
    uint64_t pairs = hundreds | (halves - hundreds * 100) << 16;
    uint64_t tens = (pairs * 103 >> 10) & UINT64_C(0x000f000f000f000f);

    return tens | (pairs - tens * 10) << 8;
}

/* Writes a number below 10^8 without leading zeros; returns where it ends. */
static inline char *put_short(char *out, uint32_t number)
{
    uint64_t digits = eight_digits(number);
    unsigned zero_bits = (unsigned)__builtin_ctzll(digits | UINT64_C(1) << 56) & ~7U;

    put_bytes(out, (digits | ASCII_ZEROS) >> zero_bits);
    return out + 8 - zero_bits / 8;
}

/* Writes a number below 10^8 with leading zeros. */
static inline char *put_eight(char *out, uint32_t number)
{
    put_bytes(out, eight_digits(number) | ASCII_ZEROS);
    return out + 8;
}

char *kvr_put_u64(char *out, uint64_t number)
{
    uint64_t high = number / EIGHT_DIGITS;

    if (!high)
        return put_short(out, (uint32_t)number);
    if (high < EIGHT_DIGITS) {
        out = put_short(out, (uint32_t)high);
    } else {
        out = put_short(out, (uint32_t)(high / EIGHT_DIGITS));
        out = put_eight(out, (uint32_t)(high % EIGHT_DIGITS));
    }
    return put_eight(out, (uint32_t)(number % EIGHT_DIGITS));
}

char *kvr_put_u32s_plain(char *out, const uint32_t *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (numbers[i] < SIX_DIGITS) {
            out = put_six(out, numbers[i]);
        } else {
            out = kvr_put_u64(out, numbers[i]);
            *out++ = ',';
        }
    }
    return out;
}

#ifdef KVR_HAS_BYTE_VECTORS
/*
 * Eight numbers below 10^6, each in a lane of eight bytes: thousands and the rest in a half each,
 * their hundreds, tens and ones by products of 16 bits that are exact below 1,000, then the six
 * digits and a comma side by side. The bytes but for leading zeros and each lane's last one move
 * together into one run of text.
 */
KVR_BYTE_VECTORS static char *put_eight_numbers(char *out, __m512i numbers)
{
    __m512i thousands =
        _mm512_srli_epi64(_mm512_mul_epu32(numbers, _mm512_set1_epi64(274877907)), 38);
    __m512i rest = _mm512_sub_epi64(numbers, _mm512_mul_epu32(thousands, _mm512_set1_epi64(1000)));
    __m512i halves = _mm512_or_si512(thousands, _mm512_slli_epi64(rest, 32));
    __m512i hundreds = _mm512_mulhi_epu16(halves, _mm512_set1_epi16(656));
    __m512i below = _mm512_sub_epi16(halves, _mm512_mullo_epi16(hundreds, _mm512_set1_epi16(100)));
    __m512i tens = _mm512_mulhi_epu16(below, _mm512_set1_epi16(6554));
    __m512i ones = _mm512_sub_epi16(below, _mm512_mullo_epi16(tens, _mm512_set1_epi16(10)));
    __m512i three = _mm512_or_si512(
        hundreds, _mm512_or_si512(_mm512_slli_epi32(tens, 8), _mm512_slli_epi32(ones, 16)));
    __m512i digits = _mm512_or_si512(_mm512_and_si512(three, _mm512_set1_epi64(0xffffff)),
        _mm512_srli_epi64(_mm512_and_si512(three, _mm512_set1_epi64(0xffffff00000000)), 8));
    __m512i text = _mm512_or_si512(digits, _mm512_set1_epi64(0x002c303030303030));
    /* the last digit and the comma stay; what follows a byte that stays, stays */
    uint64_t stays = _mm512_test_epi8_mask(digits, digits) | UINT64_C(0x6060606060606060);
    stays |= stays << 1 & UINT64_C(0xfefefefefefefefe);
    stays |= stays << 2 & UINT64_C(0xfcfcfcfcfcfcfcfc);
    stays |= stays << 4 & UINT64_C(0xf0f0f0f0f0f0f0f0);
    stays &= UINT64_C(0x7f7f7f7f7f7f7f7f);

    _mm512_storeu_si512(out, _mm512_maskz_compress_epi8(stays, text));
    return out + __builtin_popcountll(stays);
}

KVR_BYTE_VECTORS static char *put_in_vectors(char *out, const uint32_t *numbers, size_t count)
{
    size_t i = 0;

    for (; i + 8 <= count; i += 8) {
        __m512i eight =
            _mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)(const void *)(numbers + i)));
        if (_mm512_cmplt_epu64_mask(eight, _mm512_set1_epi64(SIX_DIGITS)) == 0xff)
            out = put_eight_numbers(out, eight);
        else
            out = kvr_put_u32s_plain(out, numbers + i, 8);
    }
    return kvr_put_u32s_plain(out, numbers + i, count - i);
}
#endif

char *kvr_put_u32s(char *out, const uint32_t *numbers, size_t count)
{
#ifdef KVR_HAS_BYTE_VECTORS
    if (kvr_leaves_bytes_out())
        return put_in_vectors(out, numbers, count);
#endif
    return kvr_put_u32s_plain(out, numbers, count);
}
