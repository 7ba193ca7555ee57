/*
 * Splitting text into pieces, by hand: one scanner for each split pattern that vocabularies use.
 * Each gives exactly the pieces of its regular expression (tests compare them with PCRE2 over the
 * same Unicode tables), at a small part of the cost.
 */
#ifndef KVR_TOKEN_SCAN_H
#define KVR_TOKEN_SCAN_H

#include <stddef.h>
#include <stdint.h>

/* Writes the end offsets of the pieces from *at on, at most `capacity` of them, and moves *at to
 * the last end written. Returns how many; 0 only at the end of text. Pieces lie one after another
 * and cover all of the text; length is below 2^32. */
typedef size_t kvr_scanner(
    const uint8_t *text, size_t length, size_t *at, uint32_t *ends, size_t capacity);

enum kvr_scan {
    KVR_SCAN_NONE,      /* no pattern: the text is one piece */
    KVR_SCAN_GPT2,      /* r50k, p50k, GPT-2 */
    KVR_SCAN_CL100K,    /* tiktoken's cl100k_base: trailing white space is one piece */
    KVR_SCAN_LLAMA3,    /* the same pattern as first published, digits by three */
    KVR_SCAN_QWEN2,     /* Qwen 2 and 3: digits one by one */
    KVR_SCAN_QWEN3_5,   /* as QWEN2, marks belong to words */
    KVR_SCAN_O200K,     /* o200k_base, o200k_harmony */
    KVR_SCAN_TEKKEN,    /* as O200K, no contractions, digits one by one */
    KVR_SCAN_DEEPSEEK3, /* DeepSeek V3 and R1: numbers, then CJK, then the rest */
    KVR_SCAN_COUNT,
};

/* A scanner's name, the pattern that it stands for (the splits of a sequence one under another,
 * each after "\n" but the first), and the function. */
struct kvr_scan_kind {
    const char *name, *pattern;
    kvr_scanner *scan;
};
extern const struct kvr_scan_kind kvr_scan_kinds[KVR_SCAN_COUNT];

/* The scanner for a pattern (`length` bytes, splits joined by "\n"), or KVR_SCAN_NONE. */
enum kvr_scan kvr_scan_find(const char *pattern, size_t length);

kvr_scanner kvr_scan_gpt2, kvr_scan_cl100k, kvr_scan_llama3, kvr_scan_qwen2, kvr_scan_qwen3_5,
    kvr_scan_o200k, kvr_scan_tekken, kvr_scan_deepseek3;

#endif
