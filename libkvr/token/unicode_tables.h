/*
 * The arrays that make_unicode.py writes; unicode.h and normalize.h are how to use them.
 */
#ifndef KVR_TOKEN_UNICODE_TABLES_H
#define KVR_TOKEN_UNICODE_TABLES_H

#include <stddef.h>
#include <stdint.h>

/* record of c: kvr_unicode_record[kvr_unicode_block[c >> 8]][c & 255] */
extern const uint16_t kvr_unicode_block[4352];
extern const uint8_t kvr_unicode_record[][256];

/* Full decompositions: where in kvr_unicode_decomposition_text, and how long (0: none). */
struct kvr_unicode_decomposition {
    uint32_t character;
    uint16_t canonical, compatibility;
    uint8_t canonical_length, compatibility_length;
};
extern const uint32_t kvr_unicode_decomposition_text[];
extern const struct kvr_unicode_decomposition kvr_unicode_decompositions[];
extern const size_t kvr_unicode_decomposition_count;

/* Runs of characters with the same non-zero canonical combining class. */
struct kvr_unicode_class_run {
    uint32_t first, last, combining_class;
};
extern const struct kvr_unicode_class_run kvr_unicode_class_runs[];
extern const size_t kvr_unicode_class_run_count;

/* first + second compose to composed (Hangul is computed instead). */
struct kvr_unicode_pair {
    uint32_t first, second, composed;
};
extern const struct kvr_unicode_pair kvr_unicode_pairs[];
extern const size_t kvr_unicode_pair_count;

/* Scripts by name: ranges [first, last) of kvr_unicode_script_ranges. By make_scripts.py. */
struct kvr_unicode_range {
    uint32_t first, last;
};
struct kvr_unicode_script {
    const char *name;
    uint16_t first, last;
};
extern const struct kvr_unicode_range kvr_unicode_script_ranges[];
extern const struct kvr_unicode_script kvr_unicode_scripts[];
extern const size_t kvr_unicode_script_count;

#endif
