#include "token/pattern.h"
#include "token/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define MATCH_LIMIT 100000000 /* backtracking steps a match may take */

struct kvr_pattern {
    pcre2_code *code;
    pcre2_match_context *context;
};

struct property {
    const char *name;
    uint32_t categories;
};

#define BIT KVR_CATEGORY_BIT
static const struct property properties[] = {
    {"L", KVR_IS_LETTER},
    {"Letter", KVR_IS_LETTER},
    {"Lu", BIT(KVR_LU)},
    {"Ll", BIT(KVR_LL)},
    {"Lt", BIT(KVR_LT)},
    {"Lm", BIT(KVR_LM)},
    {"Lo", BIT(KVR_LO)},
    {"LC", KVR_IS_UPPER | KVR_IS_LOWER},
    {"M", KVR_IS_MARK},
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
    {"Sm", BIT(KVR_SM)},
    {"Sc", BIT(KVR_SC)},
    {"Sk", BIT(KVR_SK)},
    {"So", BIT(KVR_SO)},
    {"Z", BIT(KVR_ZS) | BIT(KVR_ZL) | BIT(KVR_ZP)},
    {"Zs", BIT(KVR_ZS)},
    {"Zl", BIT(KVR_ZL)},
    {"Zp", BIT(KVR_ZP)},
    {"Cc", BIT(KVR_CC) | BIT(KVR_CONTROL_SPACE)},
    {"Cf", BIT(KVR_CF)},
    {"Co", BIT(KVR_CO)},
    {"Cn", BIT(KVR_CN)},
    {"Cs", BIT(KVR_CS)},
    {"C", BIT(KVR_CC) | BIT(KVR_CONTROL_SPACE) | BIT(KVR_CF) | BIT(KVR_CO) | BIT(KVR_CN) |
              BIT(KVR_CS)},
};

/* \w: letters, marks, decimal and letter numbers, connectors, and the letters in circles and
 * squares (Alphabetic, M, Nd, Pc). A bit that no category uses stands for it. */
#define WORD_CLASS BIT(31)
#define IS_WORD (KVR_IS_LETTER | KVR_IS_MARK | BIT(KVR_ND) | BIT(KVR_NL) | BIT(KVR_PC))

static bool is_in(uint32_t character, uint32_t categories)
{
    if (categories != WORD_CLASS)
        return kvr_category_bit(character) & categories;
    return kvr_category_bit(character) & IS_WORD || (character >= 0x24b6 && character <= 0x24e9) ||
           (character >= 0x1f130 && character <= 0x1f149) ||
           (character >= 0x1f150 && character <= 0x1f169) ||
           (character >= 0x1f170 && character <= 0x1f189);
}

/* Appends the code points of these categories (or, negated, of all others) as class members. The
 * surrogates are left out: UTF-8 has none and PCRE2 refuses them. */
static void append_members(struct kvr_buffer *out, uint32_t categories, bool negated)
{
    uint32_t character = 0;

    while (character < 0x110000) {
        uint32_t first = character;
        while (character < 0x110000 && (character < 0xd800 || character > 0xdfff) &&
               is_in(character, categories) != negated)
            character++;
        if (character > first)
            kvr_buffer_append_format(out, character - first > 1 ? "\\x{%x}-\\x{%x}" : "\\x{%x}",
                (unsigned)first, (unsigned)character - 1);
        else
            character++;
    }
}

struct reader {
    const char *text;
    size_t length, at;
};

static bool looking_at(const struct reader *in, const char *what)
{
    size_t length = strlen(what);

    return in->length - in->at >= length && memcmp(in->text + in->at, what, length) == 0;
}

/* Reads \p{Name}, \p{^Name}, \pL after the letter p or P. */
static enum kvr_status read_property(
    struct reader *in, uint32_t *categories, bool *negated, struct kvr_error *error)
{
    char name[32];
    size_t length = 0;

    if (in->at < in->length && in->text[in->at] == '{') {
        in->at++;
        if (in->at < in->length && in->text[in->at] == '^') {
            *negated = !*negated;
            in->at++;
        }
        while (in->at < in->length && in->text[in->at] != '}' && length < sizeof name - 1)
            name[length++] = in->text[in->at++];
        if (in->at == in->length || in->text[in->at] != '}')
            return kvr_error_set(error, KVR_BAD_INPUT, "a property in a pattern is not closed");
        in->at++;
    } else if (in->at < in->length) {
        name[length++] = in->text[in->at++];
    }
    name[length] = '\0';
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
        if (strcmp(properties[i].name, name) == 0) {
            *categories = properties[i].categories;
            return KVR_OK;
        }
    }
    char shown[40];
    return kvr_error_set(error, KVR_UNSUPPORTED, "the character property '%s' in a split pattern",
        kvr_printable(shown, sizeof shown, name, length));
}

/* Copies or rewrites one escape; in->at is at the backslash. */
static enum kvr_status rewrite_escape(
    struct reader *in, bool in_class, struct kvr_buffer *out, struct kvr_error *error)
{
    uint32_t categories = 0;
    bool negated = false;

    if (in->at + 1 >= in->length)
        return kvr_error_set(error, KVR_BAD_INPUT, "a pattern ends in a backslash");
    char letter = in->text[in->at + 1];
    in->at += 2;
    switch (letter) {
    case 'p':
    case 'P': {
        negated = letter == 'P';
        enum kvr_status status = read_property(in, &categories, &negated, error);
        if (status)
            return status;
        break;
    }
    case 's':
    case 'S':
        categories = KVR_IS_SPACE;
        negated = letter == 'S';
        break;
    case 'd':
    case 'D':
        categories = BIT(KVR_ND);
        negated = letter == 'D';
        break;
    case 'w':
    case 'W':
        categories = WORD_CLASS;
        negated = letter == 'W';
        break;
    case 'A':
    case 'z':
    case 'b':
    case 'B':
    case 'r':
    case 'n':
    case 't':
    case 'v':
    case 'f':
    case 'x':
    case 'u':
    case '0':
        if (letter == 'v') {
            kvr_buffer_append_text(out, "\\x{b}");
        } else if (letter == 'u') {
            if (in->length - in->at < 4)
                return kvr_error_set(error, KVR_BAD_INPUT, "a short \\u escape in a pattern");
            if (in->text[in->at] == '{') {
                kvr_buffer_append_text(out, "\\x");
            } else {
                kvr_buffer_append_format(out, "\\x{%.4s}", in->text + in->at);
                in->at += 4;
            }
        } else {
            kvr_buffer_append(out, in->text + in->at - 2, 2);
        }
        return KVR_OK;
    default:
        if ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
            (letter >= '1' && letter <= '9'))
            return kvr_error_set(
                error, KVR_UNSUPPORTED, "the escape '\\%c' in a split pattern", letter);
        kvr_buffer_append(out, in->text + in->at - 2, 2);
        return KVR_OK;
    }
    if (!in_class)
        kvr_buffer_append_text(out, negated ? "[^" : "[");
    append_members(out, categories, in_class && negated);
    if (!in_class)
        kvr_buffer_append_byte(out, ']');
    return KVR_OK;
}

/* A class from its bracket to the closing one. Nested classes ([a[b]], &&) are refused. */
static enum kvr_status rewrite_class(
    struct reader *in, struct kvr_buffer *out, struct kvr_error *error)
{
    size_t start = in->at;

    kvr_buffer_append_byte(out, in->text[in->at++]);
    if (in->at < in->length && in->text[in->at] == '^')
        kvr_buffer_append_byte(out, in->text[in->at++]);
    for (bool first = true; in->at < in->length; first = false) {
        char c = in->text[in->at];
        if (c == ']' && !first) {
            kvr_buffer_append_byte(out, c);
            in->at++;
            return KVR_OK;
        }
        if (c == '\\') {
            enum kvr_status status = rewrite_escape(in, true, out, error);
            if (status)
                return status;
            continue;
        }
        if (looking_at(in, "[:") || looking_at(in, "&&"))
            return kvr_error_set(
                error, KVR_UNSUPPORTED, "'%.2s' in a class of a split pattern", in->text + in->at);
        if (c == '[' || (c == ']' && first))
            kvr_buffer_append_byte(out, '\\');
        kvr_buffer_append_byte(out, c);
        in->at++;
    }
    return kvr_error_set(
        error, KVR_BAD_INPUT, "the class at byte %zu of a pattern is not closed", start);
}

enum kvr_status kvr_pattern_rewrite(
    const char *text, size_t length, struct kvr_buffer *out, struct kvr_error *error)
{
    struct reader in = {text, length, 0};

    while (in.at < length) {
        enum kvr_status status = KVR_OK;
        if (text[in.at] == '\\')
            status = rewrite_escape(&in, false, out, error);
        else if (text[in.at] == '[')
            status = rewrite_class(&in, out, error);
        else
            kvr_buffer_append_byte(out, text[in.at++]);
        if (status)
            return status;
    }
    return out->failed ? kvr_error_memory(error) : KVR_OK;
}

enum kvr_status kvr_pattern_compile(
    struct kvr_pattern **pattern, const char *text, size_t length, struct kvr_error *error)
{
    struct kvr_buffer rewritten = {0};
    enum kvr_status status = kvr_pattern_rewrite(text, length, &rewritten, error);
    int number = 0;
    PCRE2_SIZE offset = 0;

    *pattern = NULL;
    if (!status) {
        *pattern = calloc(1, sizeof **pattern);
        if (!*pattern)
            status = kvr_error_memory(error);
    }
    if (!status) {
        (*pattern)->code = pcre2_compile((PCRE2_SPTR)rewritten.data, rewritten.length,
            PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_DOLLAR_ENDONLY, &number, &offset, NULL);
        (*pattern)->context = pcre2_match_context_create(NULL);
        if (!(*pattern)->code) {
            PCRE2_UCHAR why[128];
            pcre2_get_error_message(number, why, sizeof why);
            status = kvr_error_set(error, KVR_BAD_INPUT, "a split pattern: %s", (char *)why);
        } else if (!(*pattern)->context) {
            status = kvr_error_memory(error);
        } else {
            /* without a JIT for this machine, matching is slower and the same */
            pcre2_jit_compile((*pattern)->code, PCRE2_JIT_COMPLETE);
            pcre2_set_match_limit((*pattern)->context, MATCH_LIMIT);
        }
    }
    if (status) {
        kvr_pattern_release(*pattern);
        *pattern = NULL;
    }
    kvr_buffer_release(&rewritten);
    return status;
}

void kvr_pattern_release(struct kvr_pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_code_free(pattern->code);
    pcre2_match_context_free(pattern->context);
    free(pattern);
}

enum kvr_status kvr_pattern_find(const struct kvr_pattern *pattern, const char *text, size_t from,
    size_t length, bool *found, size_t *start, size_t *stop, struct kvr_error *error)
{
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);

    *found = false;
    if (!data)
        return kvr_error_memory(error);
    int result = pcre2_match(pattern->code, (PCRE2_SPTR)text, length, from,
        PCRE2_NOTEMPTY | PCRE2_NO_UTF_CHECK, data, pattern->context);
    if (result > 0) {
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(data);
        *start = range[0];
        *stop = range[1];
        *found = true;
    }
    pcre2_match_data_free(data);
    if (result < 0 && result != PCRE2_ERROR_NOMATCH) {
        PCRE2_UCHAR why[128];
        pcre2_get_error_message(result, why, sizeof why);
        return kvr_error_set(error, KVR_BAD_INPUT, "a split pattern gave up: %s", (char *)why);
    }
    return KVR_OK;
}
