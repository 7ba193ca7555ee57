/*
 * The steps around the model: what a kvr_step of each kind means. Texts are the step's `text` and
 * `other`; unnamed fields are zero.
 */
#ifndef KVR_TOKEN_PIPELINE_H
#define KVR_TOKEN_PIPELINE_H

enum kvr_normalizer {
    KVR_NORMALIZE_NFC = 1,
    KVR_NORMALIZE_NFD,
    KVR_NORMALIZE_NFKC,
    KVR_NORMALIZE_NFKD,
    KVR_NORMALIZE_REPLACE,       /* text by other; a: text is a regular expression */
    KVR_NORMALIZE_PREPEND,       /* text before a text that is not empty */
    KVR_NORMALIZE_STRIP,         /* white space: a at the start, b at the end */
    KVR_NORMALIZE_STRIP_ACCENTS, /* all marks (after NFD) */
    KVR_NORMALIZE_SPACES, /* fast form of [Prepend ▁,] Replace ' ' by ▁ in folded text; a: prepend
                           */
};

/* What becomes of the match of a split. */
enum kvr_behaviour {
    KVR_SPLIT_ISOLATED,
    KVR_SPLIT_REMOVED,
    KVR_SPLIT_WITH_PREVIOUS,
    KVR_SPLIT_WITH_NEXT,
    KVR_SPLIT_CONTIGUOUS,
};

enum kvr_pretokenizer {
    KVR_PRETOKENIZE_SCAN = 1,    /* a: enum kvr_scan */
    KVR_PRETOKENIZE_SPLIT,       /* text; a: enum kvr_behaviour; b: 1 inverted, 2 text is literal */
    KVR_PRETOKENIZE_PREFIX,      /* a space before each piece that does not start with one */
    KVR_PRETOKENIZE_METASPACE,   /* a: 0 never, 1 always, 2 first: prepend; b: split; text: the
                                    replacement of a space */
    KVR_PRETOKENIZE_TO_ALPHABET, /* bytes become the characters of the byte-level alphabet, */
    KVR_PRETOKENIZE_FROM_ALPHABET, /* and bytes again: round steps that follow ByteLevel */
};

enum kvr_decoder {
    KVR_DECODE_BYTES = 1,     /* ByteLevel: all tokens' bytes, one after another */
    KVR_DECODE_REPLACE,       /* text by other in each token; a: text is a regular expression */
    KVR_DECODE_BYTE_FALLBACK, /* <0xNN> is the byte NN */
    KVR_DECODE_FUSE,          /* what follows sees all tokens as one */
    KVR_DECODE_STRIP,         /* up to a times text at the start, b times at the end */
    KVR_DECODE_METASPACE, /* text (the replacement) is a space; a: those of the first token go */
    KVR_DECODE_SUFFIX,    /* text (the end-of-word suffix) is a space, in the last token nothing */
};

enum kvr_postprocessor {
    KVR_POST_TOKEN = 1, /* a: an id */
    KVR_POST_TEXT,      /* the encoded text stands here */
};

/* An added token: text its content, a its id. */
enum kvr_added_flag {
    KVR_ADDED_SPECIAL = 1,
    KVR_ADDED_SINGLE_WORD = 2,
    KVR_ADDED_LSTRIP = 4,
    KVR_ADDED_RSTRIP = 8,
    KVR_ADDED_NORMALIZED = 16,
};

#endif
