/*
 * Texts: with cl100k_base decoding gives every byte back, with and without special tokens, and a
 * second encoding of the same text, now from the cache of pieces, gives the same ids.
 */
#include "token/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct kvr_encoder *encoder;
static struct kvr_tokenizer *tokenizer;

static void load(void)
{
    static const char *const places[] = {
        "data/cl100k_base.tiktoken.gz", "../../../data/cl100k_base.tiktoken.gz"};
    struct kvr_error error;

    for (int i = 0; i < 2 && !tokenizer; i++)
        kvr_tokenizer_load(&tokenizer, places[i], NULL, &error);
    if (!tokenizer || kvr_encoder_new(&encoder, tokenizer, &error)) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kvr_ids ids = {0}, again = {0};
    struct kvr_buffer text = {0};
    struct kvr_error error;

    if (!tokenizer)
        load();
    for (unsigned flags = 0; flags < 2; flags++) {
        ids.count = again.count = 0;
        kvr_buffer_clear(&text);
        if (kvr_encode(encoder, (const char *)data, size, flags, &ids, &error) ||
            kvr_encode(encoder, (const char *)data, size, flags, &again, &error) ||
            kvr_decode(tokenizer, ids.data, ids.count, false, &text, &error))
            abort();
        if (text.length != size || (size && memcmp(text.data, data, size) != 0))
            abort();
        if (ids.count != again.count ||
            (ids.count && memcmp(ids.data, again.data, ids.count * sizeof *ids.data) != 0))
            abort();
    }
    kvr_ids_release(&ids);
    kvr_ids_release(&again);
    kvr_buffer_release(&text);
    return 0;
}
