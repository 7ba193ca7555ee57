/*
 * What a worker's answer says of itself: when its first and last tokens came, how many there were,
 * how many tokens of the prompt it took from its cache.
 *
 * Read are OpenAI's chat completions, completions, responses and embeddings, streamed or whole, and
 * SGLang's /generate; cached tokens from usage.prompt_tokens_details (vLLM, SGLang, llama.cpp),
 * meta_info (SGLang), or timings.cache_n (llama.cpp). A chunk counts as content when it brings
 * text, reasoning or a piece of a tool call: the first chunk of a chat stream, which only names the
 * role, does not.
 *
 * The bytes are only looked at; an answer that is no JSON gives no numbers and is no failure.
 */
#ifndef KVR_NET_ANSWER_H
#define KVR_NET_ANSWER_H

#include "line/json.h"
#include "net/sse.h"

struct kvr_answer {
    bool keep_intervals; /* note the time between tokens in intervals */
    /* results; counts are -1 while unknown */
    double first_ms, last_ms; /* of content chunks, in the caller's clock; NaN: none came */
    int64_t prompt_tokens, output_tokens, cached_tokens;
    uint64_t chunks;             /* with content */
    double longest_gap_ms;       /* between two of them; NaN with fewer than two */
    bool ended;                  /* the stream said [DONE], or an event that ends it */
    bool failed;                 /* an error object came inside a stream */
    struct kvr_buffer intervals; /* of double */
    /* private */
    bool stream;
    double now_ms;
    struct kvr_sse sse;
    struct kvr_buffer body;
    struct kvr_structure *structure;
    struct kvr_members members;
};

enum kvr_status kvr_answer_init(struct kvr_answer *answer, struct kvr_error *error);
void kvr_answer_release(struct kvr_answer *answer);

/* For the next answer: a stream of server-sent events, or a body as a whole. */
void kvr_answer_begin(struct kvr_answer *answer, bool stream);

/* Bytes of the body that came at now_ms. */
void kvr_answer_feed(struct kvr_answer *answer, const char *bytes, size_t length, double now_ms);

/* The body has ended. A body that was no stream had all its tokens now. */
void kvr_answer_end(struct kvr_answer *answer, double now_ms);

/*
 * Appends `{"status":200,"ttft_ms":…,"e2e_ms":…,"output_length":…,"cached_tokens":…,"worker":"w0"`,
 * without the closing brace; what is not known is left out. start_ms: from when times count.
 */
void kvr_answer_write(const struct kvr_answer *answer, unsigned status, double start_ms,
    double end_ms, const char *worker, struct kvr_buffer *out);

#endif
