/* See stream.h. A buffer of raw bytes, and one of three ways to take from it: copy, inflate,
 * ZSTD_decompressStream. */
#include "data/text/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/arena.h"
#include "base/file_fault.h"

enum { RAW_BYTES = 256 << 10, GZIP_WINDOW_BITS = 15 + 16 };
/* zstd's own limit, and what `zstd --long=31` needs, as large corpora are often packed. */
enum { ZSTD_WINDOW_LOG = 27, ZSTD_LONG_WINDOW_LOG = 31 };

typedef enum packing { PLAIN, GZIP, ZSTD } packing;

struct stream {
    const char *path;
    int fd;
    packing packing;
    bool end; /* of the file on disk */
    uint64_t disk_bytes;
    uint64_t unpacked; /* bytes given, of a packed file */
    z_stream inflate;
    ZSTD_DStream *zstd;
    bool inside; /* a member or frame has begun and not ended */
    size_t at, n;
    uint8_t raw[RAW_BYTES];
};

static status read_some(stream *s, void *p, size_t n, size_t *got, err *e) {
    ssize_t k;
    do k = file_sys_read(s->fd, p, n);
    while (k < 0 && errno == EINTR);
    if (k < 0) return err_unreadable(e, "read", s->path);
    s->end = k == 0;
    s->disk_bytes += (uint64_t)k;
    *got = (size_t)k;
    return ST_OK;
}

static status fill(stream *s, err *e) {
    if (s->at < s->n || s->end) return ST_OK;
    s->at = 0;
    return read_some(s, s->raw, sizeof s->raw, &s->n, e);
}

static bool is_zstd(const uint8_t *p, size_t n) {
    static const uint8_t FRAME[] = {0x28, 0xb5, 0x2f, 0xfd}, SKIPPED[] = {0x2a, 0x4d, 0x18};
    if (n < 4) return false;
    return memcmp(p, FRAME, 4) == 0 || ((p[0] & 0xf0) == 0x50 && memcmp(p + 1, SKIPPED, 3) == 0);
}

/* A file that is smaller than the usual window has no use for a larger one. */
static int zstd_window_log(const stream *s) {
    struct stat sb;
    bool large = fstat(s->fd, &sb) == 0 && S_ISREG(sb.st_mode) && sb.st_size >> ZSTD_WINDOW_LOG > 0;
    return large ? ZSTD_LONG_WINDOW_LOG : ZSTD_WINDOW_LOG;
}

static status detect(stream *s, err *e) {
    while (s->n < 4 && !s->end) { /* a pipe may give single bytes */
        size_t got = 0;
        TRY(read_some(s, s->raw + s->n, sizeof s->raw - s->n, &got, e));
        s->n += got;
    }
    if (s->n >= 3 && s->raw[0] == 0x1f && s->raw[1] == 0x8b && s->raw[2] == 8) {
        s->packing = GZIP;
        CHECK(inflateInit2(&s->inflate, GZIP_WINDOW_BITS) == Z_OK, "no memory to inflate");
    } else if (is_zstd(s->raw, s->n)) {
        s->packing = ZSTD;
        s->zstd = ZSTD_createDStream();
        CHECK(s->zstd, "no memory for zstd");
        ZSTD_DCtx_setParameter(s->zstd, ZSTD_d_windowLogMax, zstd_window_log(s));
    }
    return ST_OK;
}

status stream_open(stream **out, const char *path, err *e) {
    *out = NULL;
    stream *s = xcalloc(1, sizeof *s);
    s->path = path;
    if (strcmp(path, "-") == 0)
        s->fd = STDIN_FILENO;
    else
        do s->fd = open(path, O_RDONLY | O_CLOEXEC);
        while (s->fd < 0 && errno == EINTR);
    status st = s->fd < 0 ? err_unreadable(e, "open", path) : detect(s, e);
    if (st == ST_OK)
        *out = s;
    else
        stream_close(s);
    return st;
}

void stream_close(stream *s) {
    if (!s) return;
    if (s->packing == GZIP) inflateEnd(&s->inflate);
    ZSTD_freeDStream(s->zstd);
    if (s->fd > STDIN_FILENO) close(s->fd);
    free(s);
}

/* ---- the three ways: take from raw, give at most n bytes; *got may be 0 before the end ---- */

static status broken(const stream *s, err *e, const char *kind, const char *why) {
    err_at(e, ST_FORMAT, s->path, "%s is a broken %s file: %s", s->path, kind, why);
    return err_hint(e, "fetch or pack it anew; `%s -t` tests a file", kind);
}

static status large_window(const stream *s, err *e) {
    err_at(e, ST_FORMAT, s->path, "%s asks for more than %d MiB of memory to be unpacked", s->path,
           1 << (ZSTD_WINDOW_LOG - 20));
    return err_hint(e, "unpack it first, with `zstd -d --long=31`");
}

static status check_ratio(const stream *s, err *e) {
    uint64_t packed = stream_disk_bytes(s);
    if (s->unpacked <= STREAM_FREE_BYTES || s->unpacked / STREAM_MAX_RATIO <= packed) return ST_OK;
    err_at(e, ST_FORMAT, s->path,
           "%s unpacks to more than %d times its size: %" PRIu64 " KiB gave %" PRIu64 " MiB so far",
           s->path, STREAM_MAX_RATIO, packed >> 10, s->unpacked >> 20);
    return err_hint(e, "if it is meant to be so, unpack it first: a plain file is taken as it is");
}

static status take_plain(stream *s, void *p, size_t n, size_t *got) {
    *got = n < s->n - s->at ? n : s->n - s->at;
    memcpy(p, s->raw + s->at, *got);
    s->at += *got;
    return ST_OK;
}

static bool only_zeros(const stream *s) {
    for (size_t i = s->at; i < s->n; i++)
        if (s->raw[i]) return false;
    return true;
}

static status take_gzip(stream *s, void *p, size_t n, size_t *got, err *e) {
    if (!s->inside) {
        if (only_zeros(s)) { /* tapes and some tools pad */
            s->at = s->n;
            return ST_OK;
        }
        inflateReset(&s->inflate);
        s->inside = true;
    }
    z_stream *z = &s->inflate;
    z->next_in = s->raw + s->at;
    z->avail_in = (uInt)(s->n - s->at);
    z->next_out = p;
    z->avail_out = (uInt)(n < RAW_BYTES ? n : RAW_BYTES);
    size_t room = z->avail_out;
    int rc = inflate(z, Z_NO_FLUSH);
    s->at = s->n - z->avail_in;
    *got = room - z->avail_out;
    if (rc == Z_STREAM_END) s->inside = false;
    if (rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR) return ST_OK;
    return broken(s, e, "gzip", z->msg ? z->msg : "its data is damaged");
}

static status take_zstd(stream *s, void *p, size_t n, size_t *got, err *e) {
    ZSTD_inBuffer in = {s->raw, s->n, s->at};
    ZSTD_outBuffer out = {p, n, 0};
    size_t rc = ZSTD_decompressStream(s->zstd, &out, &in);
    s->at = in.pos;
    *got = out.pos;
    if (ZSTD_getErrorCode(rc) == ZSTD_error_frameParameter_windowTooLarge)
        return large_window(s, e);
    if (ZSTD_isError(rc)) return broken(s, e, "zstd", ZSTD_getErrorName(rc));
    s->inside = rc != 0;
    return ST_OK;
}

status stream_read(stream *s, void *p, size_t n, size_t *got, err *e) {
    *got = 0;
    if (n == 0) return ST_OK;
    if (s->packing == PLAIN && s->at == s->n && !s->end) return read_some(s, p, n, got, e);
    if (s->packing == PLAIN) return take_plain(s, p, n, got);
    while (*got == 0) {
        TRY(fill(s, e));
        bool dry = s->at == s->n; /* and s->end */
        if (dry && !s->inside) return ST_OK;
        TRY(s->packing == GZIP ? take_gzip(s, p, n, got, e) : take_zstd(s, p, n, got, e));
        /* A packer may hold back bytes after its input has ended, but not for ever. */
        if (dry && *got == 0)
            return s->inside
                       ? broken(s, e, s->packing == GZIP ? "gzip" : "zstd", "it ends too early")
                       : ST_OK;
    }
    s->unpacked += *got;
    return check_ratio(s, e);
}

/* A plain file that can be sought in: moves on without reading. */
static uint64_t seek_ahead(stream *s, uint64_t n) {
    struct stat sb;
    off_t at = lseek(s->fd, 0, SEEK_CUR);
    if (s->packing != PLAIN || at < 0 || fstat(s->fd, &sb) != 0 || sb.st_size < at) return 0;
    uint64_t left = (uint64_t)(sb.st_size - at);
    off_t step = (off_t)(n < left ? n : left);
    if (lseek(s->fd, step, SEEK_CUR) < 0) return 0;
    s->disk_bytes += (uint64_t)step;
    return (uint64_t)step;
}

status stream_skip(stream *s, uint64_t n, uint64_t *passed, err *e) {
    char *bytes = xmalloc(RAW_BYTES);
    status st = ST_OK;
    size_t got = 1;
    *passed = 0;
    while (st == ST_OK && *passed < n && got > 0) {
        if (s->at == s->n) *passed += seek_ahead(s, n - *passed);
        uint64_t left = n - *passed;
        st = stream_read(s, bytes, left < RAW_BYTES ? (size_t)left : RAW_BYTES, &got, e);
        *passed += st == ST_OK ? got : 0;
    }
    free(bytes);
    return st;
}

bool stream_is_packed(const stream *s) {
    return s->packing != PLAIN;
}

uint64_t stream_disk_bytes(const stream *s) {
    return s->disk_bytes - (s->n - s->at);
}
