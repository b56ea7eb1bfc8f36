/* Packed pages (see column.h): Compression.md of apache/parquet-format. */
#include <snappy-c.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "data/parquet/column.h"

enum { UNCOMPRESSED, SNAPPY, GZIP, LZO, BROTLI, LZ4, ZSTD, LZ4_RAW };
enum { ANY_WINDOW_BITS = 15 + 32 }; /* gzip, or zlib, as some write it */

const char *unpack_refused(int codec) {
    static const char *const REFUSED[] = {
        [LZO] = "lzo", [BROTLI] = "brotli", [LZ4] = "lz4", [ZSTD] = NULL, [LZ4_RAW] = "lz4"};
    if (codec < 0 || codec >= ARRAY_LEN(REFUSED)) return "an unknown program";
    return REFUSED[codec];
}

static const char DAMAGED[] = "a packed page is damaged";

/* All members, one after the other. */
static const char *unpack_gzip(const uint8_t *from, size_t len, uint8_t *to, size_t n) {
    z_stream z = {
        .next_in = (Bytef *)from, .avail_in = (uInt)len, .next_out = to, .avail_out = (uInt)n};
    int rc = inflateInit2(&z, ANY_WINDOW_BITS);
    CHECK(rc == Z_OK, "no memory to inflate");
    do {
        rc = inflate(&z, Z_FINISH);
    } while (rc == Z_STREAM_END && z.avail_in > 0 && inflateReset(&z) == Z_OK);
    bool whole = rc == Z_STREAM_END && z.avail_out == 0;
    inflateEnd(&z);
    return whole ? NULL : DAMAGED;
}

static const char *unpack_snappy(const uint8_t *from, size_t len, uint8_t *to, size_t n) {
    size_t got;
    if (snappy_uncompressed_length((const char *)from, len, &got) != SNAPPY_OK || got != n)
        return DAMAGED;
    return snappy_uncompress((const char *)from, len, (char *)to, &got) == SNAPPY_OK ? NULL
                                                                                     : DAMAGED;
}

static const char *unpack_zstd(parquet *p, const uint8_t *from, size_t len, uint8_t *to, size_t n) {
    if (!p->zstd) p->zstd = ZSTD_createDCtx();
    CHECK(p->zstd, "no memory for zstd");
    return ZSTD_decompressDCtx(p->zstd, to, n, from, len) == n ? NULL : DAMAGED;
}

const char *unpack_page(parquet *p, int codec, const uint8_t *from, size_t len, uint8_t *to,
                        size_t n) {
    if (n == 0) return NULL; /* whatever stands there */
    switch (codec) {
        case SNAPPY: return unpack_snappy(from, len, to, n);
        case GZIP: return unpack_gzip(from, len, to, n);
        case ZSTD: return unpack_zstd(p, from, len, to, n);
        default:
            if (len != n) return "a page has another size than it says";
            memcpy(to, from, n);
            return NULL;
    }
}

void unpack_end(parquet *p) {
    ZSTD_freeDCtx(p->zstd);
}
