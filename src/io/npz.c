/* .npz: a ZIP archive of .npy files, which numpy.savez stores as they are. Read is the central directory at the end
 * (APPNOTE.TXT of PKWARE, sections 4.3.7, 4.3.12, 4.3.16); archives beyond 4 GiB and compressed members are refused. */
#include <string.h>

#include "base/file.h"
#include "io/npy_int.h"

enum { END_BYTES = 22, ENTRY_BYTES = 46, LOCAL_BYTES = 30, COMMENT_MOST = 65535 };

static uint32_t u16_at(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}
static uint32_t u32_at(const uint8_t *p) {
    return u16_at(p) | u16_at(p + 2) << 16;
}

/* The end of the central directory; NULL: the file is no archive. */
static const uint8_t *find_end(const file_map *m) {
    for (size_t back = END_BYTES; back <= m->len && back <= END_BYTES + COMMENT_MOST; back++)
        if (u32_at(m->data + m->len - back) == 0x06054b50) return m->data + m->len - back;
    return NULL;
}

/* A member of the archive as it lies there. */
static status member_bytes(const file_map *m, const uint8_t *entry, const uint8_t **data,
                           size_t *len, err *e) {
    size_t at = u32_at(entry + 42), room = m->len;
    *len = u32_at(entry + 20);
    if (u16_at(entry + 10) != 0)
        return err_set(e, ST_FORMAT,
                       "it is compressed (numpy.savez_compressed), which is not read");
    if (at > room || room - at < LOCAL_BYTES || u32_at(m->data + at) != 0x04034b50)
        return err_set(e, ST_FORMAT, "it is damaged: a member does not begin where it should");
    at += LOCAL_BYTES + u16_at(m->data + at + 26) + u16_at(m->data + at + 28);
    if (at > room || room - at < *len)
        return err_set(e, ST_FORMAT, "it is damaged: a member ends behind the file");
    *data = m->data + at;
    return ST_OK;
}

static status find_member(const file_map *m, const char *name, const uint8_t **data, size_t *len,
                          err *e) {
    const uint8_t *end = find_end(m);
    if (!end) return err_set(e, ST_FORMAT, "it is no .npz file");
    size_t at = u32_at(end + 16), n = strlen(name);
    for (uint32_t i = 0, entries = u16_at(end + 10); i < entries; i++) {
        if (at > m->len || m->len - at < ENTRY_BYTES || u32_at(m->data + at) != 0x02014b50)
            return err_set(e, ST_FORMAT, "it is damaged: its directory is not understood");
        const uint8_t *entry = m->data + at;
        size_t bytes = u16_at(entry + 28);
        at += ENTRY_BYTES + bytes + u16_at(entry + 30) + u16_at(entry + 32);
        if (at > m->len) return err_set(e, ST_FORMAT, "it is damaged: its directory is cut off");
        bool found = bytes == n + 4 && memcmp(entry + ENTRY_BYTES, name, n) == 0 &&
                     memcmp(entry + ENTRY_BYTES + n, ".npy", 4) == 0;
        if (found) return member_bytes(m, entry, data, len, e);
    }
    return err_set(e, ST_FORMAT, "it has no array '%s'", name);
}

status npz_read_i32(npy_i32 *out, const char *path, const char *name, err *e) {
    *out = (npy_i32){0};
    file_map m;
    TRY(file_map_open(&m, path, e));
    const uint8_t *data = NULL;
    size_t len = 0;
    status st = find_member(&m, name, &data, &len, e);
    if (st == ST_OK) st = npy_parse_i32(out, data, len, e);
    file_map_close(&m);
    if (st == ST_OK) return st;
    npy_i32_free(out);
    err_context(e, "%s", path);
    err_where(e, "%s", path);
    err_hint(e, "make it with numpy.savez(F, %s=array.astype('int32'), ...)", name);
    return st;
}
