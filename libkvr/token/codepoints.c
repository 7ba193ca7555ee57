#include "token/codepoints.h"
#include "token/unicode.h"

#include <stdlib.h>
#include <string.h>

#define BIT KVR_CATEGORY_BIT
#define WORDS (0x110000 / 64)

static const struct {
    const char *name;
    uint32_t categories;
} properties[] = {
    {"L", KVR_IS_LETTER},
    {"Letter", KVR_IS_LETTER},
    {"Lu", BIT(KVR_LU)},
    {"Ll", BIT(KVR_LL)},
    {"Lt", BIT(KVR_LT)},
    {"Lm", BIT(KVR_LM)},
    {"Lo", BIT(KVR_LO)},
    {"LC", KVR_IS_UPPER | KVR_IS_LOWER},
    {"M", KVR_IS_MARK},
    {"Mark", KVR_IS_MARK},
    {"Mn", BIT(KVR_MN)},
    {"Mc", BIT(KVR_MC)},
    {"Me", BIT(KVR_ME)},
    {"N", KVR_IS_NUMBER},
    {"Number", KVR_IS_NUMBER},
    {"Nd", BIT(KVR_ND)},
    {"Nl", BIT(KVR_NL)},
    {"No", BIT(KVR_NO)},
    {"P", KVR_IS_PUNCTUATION},
    {"Punctuation", KVR_IS_PUNCTUATION},
    {"Pc", BIT(KVR_PC)},
    {"Pd", BIT(KVR_PD)},
    {"Ps", BIT(KVR_PS)},
    {"Pe", BIT(KVR_PE)},
    {"Pi", BIT(KVR_PI)},
    {"Pf", BIT(KVR_PF)},
    {"Po", BIT(KVR_PO)},
    {"S", KVR_IS_SYMBOL},
    {"Symbol", KVR_IS_SYMBOL},
    {"Sm", BIT(KVR_SM)},
    {"Sc", BIT(KVR_SC)},
    {"Sk", BIT(KVR_SK)},
    {"So", BIT(KVR_SO)},
    {"Z", BIT(KVR_ZS) | BIT(KVR_ZL) | BIT(KVR_ZP)},
    {"Separator", BIT(KVR_ZS) | BIT(KVR_ZL) | BIT(KVR_ZP)},
    {"Zs", BIT(KVR_ZS)},
    {"Zl", BIT(KVR_ZL)},
    {"Zp", BIT(KVR_ZP)},
    {"White_Space", KVR_IS_SPACE},
    {"Cc", BIT(KVR_CC) | BIT(KVR_CONTROL_SPACE)},
    {"Cf", BIT(KVR_CF)},
    {"Co", BIT(KVR_CO)},
    {"Cn", BIT(KVR_CN)},
    {"Cs", BIT(KVR_CS)},
    {"C", BIT(KVR_CC) | BIT(KVR_CONTROL_SPACE) | BIT(KVR_CF) | BIT(KVR_CO) | BIT(KVR_CN) |
              BIT(KVR_CS)},
};

struct kvr_codepoints *kvr_codepoints_new(void)
{
    return calloc(1, sizeof(struct kvr_codepoints));
}

void kvr_codepoints_add_range(struct kvr_codepoints *set, uint32_t first, uint32_t last)
{
    for (uint32_t c = first; c <= last && c < 0x110000;) {
        bool surrogate = c >= 0xd800 && c <= 0xdfff, whole = c % 64 == 0 && last - c >= 63;
        if (!surrogate)
            set->words[c / 64] |= whole ? UINT64_MAX : UINT64_C(1) << c % 64;
        c += whole ? 64 : 1;
    }
}

void kvr_codepoints_add(struct kvr_codepoints *set, const struct kvr_codepoints *other)
{
    for (size_t i = 0; i < WORDS; i++)
        set->words[i] |= other->words[i];
}

void kvr_codepoints_keep(struct kvr_codepoints *set, const struct kvr_codepoints *other)
{
    for (size_t i = 0; i < WORDS; i++)
        set->words[i] &= other->words[i];
}

void kvr_codepoints_invert(struct kvr_codepoints *set)
{
    for (size_t i = 0; i < WORDS; i++)
        if (i < 0xd800 / 64 || i >= 0xe000 / 64)
            set->words[i] = ~set->words[i];
}

void kvr_codepoints_add_categories(struct kvr_codepoints *set, uint32_t categories)
{
    /* most blocks of 256 characters have the record of the one before: planes without characters,
     * ideographs, syllables */
    uint64_t words[4];
    int known = -1;

    for (uint32_t block = 0; block < 0x110000 / 256; block++) {
        if (kvr_unicode_block[block] != known) {
            known = kvr_unicode_block[block];
            memset(words, 0, sizeof words);
            for (uint32_t c = 0; c < 256; c++)
                if (UINT32_C(1) << (kvr_unicode_record[known][c] & 31) & categories)
                    words[c / 64] |= UINT64_C(1) << c % 64;
        }
        for (uint32_t i = 0; i < 4 && (block < 0xd8 || block > 0xdf); i++)
            set->words[block * 4 + i] |= words[i];
    }
}

bool kvr_codepoints_add_property(struct kvr_codepoints *set, const char *name)
{
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
        if (strcmp(properties[i].name, name) == 0) {
            kvr_codepoints_add_categories(set, properties[i].categories);
            return true;
        }
    }
    const struct kvr_unicode_script *script = kvr_script_find(name);
    if (script) {
        for (size_t k = script->first; k < script->last; k++)
            kvr_codepoints_add_range(
                set, kvr_unicode_script_ranges[k].first, kvr_unicode_script_ranges[k].last);
        return true;
    }
    if (strcmp(name, "Rust_Word") != 0)
        return false;
    kvr_codepoints_add_word(set, KVR_WORD_RUST);
    return true;
}

const struct kvr_unicode_script *kvr_script_find(const char *name)
{
    for (size_t i = 0; i < kvr_unicode_script_count; i++)
        if (strcmp(kvr_unicode_scripts[i].name, name) == 0)
            return &kvr_unicode_scripts[i];
    return NULL;
}

bool kvr_script_has(const struct kvr_unicode_script *script, uint32_t character)
{
    size_t low = script->first, high = script->last;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (character > kvr_unicode_script_ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < script->last && kvr_unicode_script_ranges[low].first <= character;
}

/* All have letters, marks, decimal and letter numbers, connectors, and the letters in circles and
 * squares; Rust has the joiners as well, Oniguruma the superscripts and fractions of Latin-1. */
void kvr_codepoints_add_word(struct kvr_codepoints *set, enum kvr_word word)
{
    static const uint32_t circled[][2] = {
        {0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
    static const uint32_t latin[] = {0xb2, 0xb3, 0xb9, 0xbc, 0xbd, 0xbe};

    kvr_codepoints_add_categories(
        set, KVR_IS_LETTER | KVR_IS_MARK | BIT(KVR_ND) | BIT(KVR_NL) | BIT(KVR_PC));
    for (size_t i = 0; i < sizeof circled / sizeof *circled; i++)
        kvr_codepoints_add_range(set, circled[i][0], circled[i][1]);
    if (word == KVR_WORD_RUST)
        kvr_codepoints_add_range(set, 0x200c, 0x200d);
    for (size_t i = 0; word == KVR_WORD_ONIGURUMA && i < sizeof latin / sizeof *latin; i++)
        kvr_codepoints_add_range(set, latin[i], latin[i]);
}

static bool has(const struct kvr_codepoints *set, uint32_t c)
{
    return set->words[c / 64] >> c % 64 & 1;
}

void kvr_codepoints_append(const struct kvr_codepoints *set, struct kvr_buffer *out)
{
    for (uint32_t c = 0; c < 0x110000; c++) {
        uint32_t first = c;
        while (c < 0x110000 && has(set, c))
            c += c % 64 == 0 && set->words[c / 64] == UINT64_MAX ? 64 : 1;
        if (c == first && c % 64 == 0 && !set->words[c / 64])
            c += 63;
        else if (c > first)
            kvr_buffer_append_format(out, c - first > 1 ? "\\x{%x}-\\x{%x}" : "\\x{%x}",
                (unsigned)first, (unsigned)c - 1);
    }
}
