/* SHA-256 (FIPS 180-4), for files whose digest others have published. Our own files are checked
 * with XXH3, which is faster. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct sha256 {
    uint32_t state[8];
    uint64_t n_bytes;
    uint8_t block[64];
} sha256;

void sha256_init(sha256 *s);
void sha256_update(sha256 *s, const void *data, size_t len);
void sha256_final(sha256 *s, uint8_t digest[32]);
/* The digest of a byte string as 64 lower-case hex digits. */
void sha256_hex(const void *data, size_t len, char out[65]);

#endif
