/*
 * Vocabulary files: the first byte tells what the file is called, the rest is the file. What loads
 * encodes and decodes a few texts; nothing may crash, hang or read out of bounds.
 */
#include "token/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"a.json", "tekken.json", "a.tiktoken", "a.json.gz"};
    static const char text[] = "Hello  w\u00f6rld 123 <s>\u2581\u4e16\u754c\n\xff the";
    struct kvr_tokenizer *tokenizer;
    struct kvr_encoder *encoder;
    struct kvr_error error;

    if (!size ||
        kvr_tokenizer_parse(&tokenizer, data + 1, size - 1, names[data[0] % 4], &error) != KVR_OK)
        return 0;
    if (kvr_encoder_new(&encoder, tokenizer, &error) == KVR_OK) {
        for (unsigned flags = 0; flags < 8; flags++) {
            struct kvr_ids ids = {0};
            struct kvr_buffer out = {0};
            if (kvr_encode(encoder, text, sizeof text - 1, flags, &ids, &error) == KVR_OK)
                (void)kvr_decode(tokenizer, ids.data, ids.count, flags & 1, &out, &error);
            kvr_ids_release(&ids);
            kvr_buffer_release(&out);
        }
        kvr_encoder_release(encoder);
    }
    kvr_tokenizer_release(tokenizer);
    return 0;
}
