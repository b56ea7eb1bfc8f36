/* safetensors files that several processes fill.
 *
 * Reading order: st_create, st_locate, st_hash. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file_fault.h"
#include "io/safetensors/safetensors_int.h"

enum { HASH_BYTES = 1 << 20 }; /* hashed twice while it is in the cache */

static status write_header(int fd, const char *path, const strbuf *header, uint64_t total, err *e) {
    for (size_t done = 0; done < header->len;) {
        ssize_t put = file_sys_write(fd, header->data + done, header->len - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return err_errno(e, path, "cannot write %s", path);
        done += (size_t)put;
    }
    if (file_sys_ftruncate(fd, (off_t)total) == 0) return ST_OK;
    return err_errno(e, path, "cannot give %s its length", path);
}

status st_create(const char *path, const st_tensor *tensors, int64_t n, err *e) {
    strbuf header = {0};
    uint64_t data_bytes = st_build_header(&header, tensors, n);
    int fd = file_sys_create(path);
    status st = ST_OK;
    if (fd < 0)
        st = err_errno(e, path, "cannot create %s", path);
    else
        st = write_header(fd, path, &header, header.len + data_bytes, e);
    if (fd >= 0 && close(fd) != 0 && st == ST_OK) st = err_errno(e, path, "cannot close %s", path);
    strbuf_free(&header);
    return st;
}

void st_locate(const st_tensor *tensors, int64_t n, uint64_t *first_byte) {
    strbuf header = {0};
    st_build_header(&header, tensors, n);
    uint64_t at = header.len;
    strbuf_free(&header);
    for (int64_t i = 0; i < n; i++) {
        first_byte[i] = at;
        at += st_tensor_bytes(&tensors[i]);
    }
}

static void update(XXH3_state_t *all, XXH3_state_t *one, const uint8_t *p, uint64_t n) {
    for (uint64_t done = 0; done < n;) {
        size_t now = n - done < HASH_BYTES ? (size_t)(n - done) : HASH_BYTES;
        XXH3_64bits_update(all, p + done, now);
        if (one) XXH3_64bits_update(one, p + done, now);
        done += now;
    }
}

static void hash_map(const file_map *m, const uint64_t *first_byte, int64_t n, uint64_t *hash,
                     uint64_t *tensor_hashes) {
    XXH3_state_t *all = XXH3_createState(), *one = XXH3_createState();
    CHECK(all && one, "no memory for hash states");
    XXH3_64bits_reset(all);
    update(all, NULL, m->data, n > 0 ? first_byte[0] : m->len);
    for (int64_t i = 0; i < n; i++) {
        uint64_t end = i + 1 < n ? first_byte[i + 1] : m->len;
        XXH3_64bits_reset(one);
        update(all, one, m->data + first_byte[i], end - first_byte[i]);
        tensor_hashes[i] = XXH3_64bits_digest(one);
    }
    *hash = XXH3_64bits_digest(all);
    XXH3_freeState(all);
    XXH3_freeState(one);
}

status st_hash(const char *path, const st_tensor *tensors, int64_t n, uint64_t *hash,
               uint64_t *tensor_hashes, err *e) {
    file_map m;
    TRY(file_map_open(&m, path, e));
    status st = ST_OK;
    if (m.len != st_file_bytes(tensors, n)) {
        st = err_set(e, ST_FAILED, "%s has changed its length while it was written", path);
        err_where(e, "%s", path);
    } else {
        uint64_t *first_byte = xmalloc(sizeof *first_byte * (size_t)(n + 1));
        st_locate(tensors, n, first_byte);
        hash_map(&m, first_byte, n, hash, tensor_hashes);
        free(first_byte);
    }
    file_map_close(&m);
    return st;
}
