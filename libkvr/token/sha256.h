/* SHA-256 (FIPS 180-4), for chains that engines hash with it. */
#ifndef KVR_TOKEN_SHA256_H
#define KVR_TOKEN_SHA256_H

#include <stddef.h>
#include <stdint.h>

void kvr_sha256(const void *bytes, size_t length, uint8_t digest[32]);

#endif
