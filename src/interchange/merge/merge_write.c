/* See merge_write.h. Reading order: merge_output_open, take_up, merge_output_put, merge_output_commit. */
#include "interchange/merge/merge_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file_fault.h"
#include "base/json.h"

enum { JOURNAL_MOST_BYTES = 64 << 20 };

static int file_of(const merge_output *o, int i) {
    int k = 0;
    while (o->cut.first[k + 1] <= i) k++;
    return k;
}

static char *path_of(const merge_output *o, int k) {
    return path_join(o->a, o->to.temp, o->cut.name[k]);
}

/* ---- the journal ---- */

static status lock_journal(merge_output *o, err *e) {
    o->journal_fd = open(o->journal, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (o->journal_fd < 0) return err_errno(e, o->journal, "cannot open %s", o->journal);
    if (flock(o->journal_fd, LOCK_EX | LOCK_NB) == 0) return ST_OK;
    err_set(e, ST_FAILED, "another merge writes %s", o->to.path);
    return err_where(e, "%s", o->journal);
}

static status append_line(const merge_output *o, const json_t *line, err *e) {
    strbuf text = {0};
    json_format(&text, line, 0);
    strbuf_putc(&text, '\n');
    ssize_t put = file_sys_write(o->journal_fd, text.data, text.len);
    bool whole = put == (ssize_t)text.len;
    strbuf_free(&text);
    if (whole) return ST_OK;
    if (put >= 0) errno = ENOSPC;
    return err_errno(e, o->journal, "cannot write %s", o->journal);
}

static int find_tensor(const merge_output *o, const char *name) {
    for (int i = 0; name && i < o->n; i++)
        if (strcmp(o->tensors[i].name, name) == 0) return i;
    return -1;
}

/* Whether the bytes of tensor i are in their file. */
static bool is_there(const merge_output *o, int i, const file_map *maps, const char *hex) {
    uint64_t want, bytes = st_tensor_bytes(&o->tensors[i]);
    const file_map *m = &maps[file_of(o, i)];
    return m->data && o->at[i] + bytes <= m->len && hash_parse(hex, &want) &&
           hash_bytes(m->data + o->at[i], bytes) == want;
}

static void take_line(merge_output *o, const char *line, size_t len, const file_map *maps) {
    json_t *v = json_loadb(line, len, 0, NULL);
    int i = find_tensor(o, json_string_value(json_object_get(v, "tensor")));
    json_t *part = json_object_get(v, "part");
    if (i >= 0 && part && is_there(o, i, maps, json_string_value(json_object_get(v, "xxh3")))) {
        json_decref(o->part[i]);
        o->part[i] = json_incref(part);
    }
    json_decref(v);
}

/* What an earlier start wrote; false: nothing, or of another plan. */
static bool take_up(merge_output *o, const char *plan) {
    char *text = NULL;
    size_t len = 0;
    if (file_read_part(o->journal, JOURNAL_MOST_BYTES, &text, &len, NULL) != ST_OK) return false;
    const char *end = text + len, *p = memchr(text, '\n', len);
    json_t *first = p ? json_loadb(text, (size_t)(p - text), 0, NULL) : NULL;
    const char *was = json_string_value(json_object_get(first, "plan"));
    bool same = was && strcmp(was, plan) == 0;
    file_map *maps = xcalloc((size_t)o->cut.n, sizeof *maps);
    for (int k = 0; same && k < o->cut.n; k++)
        if (file_map_open(&maps[k], path_of(o, k), NULL) != ST_OK) maps[k] = (file_map){0};
    while (same && ++p < end) {
        const char *next = memchr(p, '\n', (size_t)(end - p));
        if (!next) break;
        take_line(o, p, (size_t)(next - p), maps);
        p = next;
    }
    for (int k = 0; k < o->cut.n; k++)
        if (maps[k].data) file_map_close(&maps[k]);
    free(maps);
    json_decref(first);
    free(text);
    return same;
}

/* ---- files ---- */

static status begin(merge_output *o, const char *plan, err *e) {
    TRY(file_remove_tree(o->to.temp, e));
    TRY(file_make_dirs(o->to.temp, e));
    if (file_sys_ftruncate(o->journal_fd, 0) != 0)
        return err_errno(e, o->journal, "cannot empty %s", o->journal);
    for (int k = 0; k < o->cut.n; k++) {
        int64_t first = o->cut.first[k];
        TRY(st_create(path_of(o, k), o->tensors + first, o->cut.first[k + 1] - first, e));
    }
    json_t *line = json_pack("{s:s}", "plan", plan);
    status st = append_line(o, line, e);
    json_decref(line);
    return st;
}

/* A torn last line would swallow the next one. */
static status end_line(const merge_output *o, err *e) {
    off_t end = lseek(o->journal_fd, 0, SEEK_END);
    char last = '\n';
    if (end <= 0 || pread(o->journal_fd, &last, 1, end - 1) != 1 || last == '\n') return ST_OK;
    if (file_sys_write(o->journal_fd, "\n", 1) == 1) return ST_OK;
    return err_errno(e, o->journal, "cannot write %s", o->journal);
}

status merge_output_open(merge_output *o, arena *a, const char *path, bool force, const char *plan,
                         const st_tensor *tensors, int n, uint64_t max_bytes, err *e) {
    *o = (merge_output){.a = a, .journal_fd = -1, .tensors = tensors, .n = n};
    TRY(staged_resume(&o->to, a, path, force, e));
    o->journal = arena_printf(a, "%s.journal", o->to.temp);
    o->cut = shards_plan(a, tensors, n, max_bytes);
    o->at = ARENA_ARRAY(a, uint64_t, n);
    o->part = ARENA_ARRAY(a, json_t *, n);
    for (int k = 0; k < o->cut.n; k++) {
        int64_t first = o->cut.first[k];
        st_locate(tensors + first, o->cut.first[k + 1] - first, o->at + first);
    }
    TRY(lock_journal(o, e));
    return take_up(o, plan) ? end_line(o, e) : begin(o, plan, e);
}

/* Without a sync, which would cost more than the merge: see merge_write.h. */
static status write_at(const char *path, uint64_t at, const char *bytes, size_t len, err *e) {
    int fd = file_sys_update(path);
    if (fd < 0) return err_errno(e, path, "cannot write %s", path);
    while (len > 0) {
        ssize_t put = file_sys_pwrite(fd, bytes, len, (off_t)at);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) break;
        bytes += put, at += (uint64_t)put, len -= (size_t)put;
    }
    status st = len ? err_errno(e, path, "cannot write %s", path) : ST_OK;
    if (close(fd) != 0 && st == ST_OK) st = err_errno(e, path, "cannot close %s", path);
    return st;
}

status merge_output_put(merge_output *o, int i, const void *bytes, json_t *part, err *e) {
    size_t len = st_tensor_bytes(&o->tensors[i]);
    o->part[i] = part;
    TRY(write_at(path_of(o, file_of(o, i)), o->at[i], bytes, len, e));
    json_t *line = json_pack("{s:s, s:o, s:O}", "tensor", o->tensors[i].name, "xxh3",
                             json_hash(hash_bytes(bytes, len)), "part", part);
    status st = append_line(o, line, e);
    json_decref(line);
    return st;
}

status merge_output_commit(merge_output *o, err *e) {
    TRY(staged_commit(&o->to, e));
    if (file_sys_unlinkat(AT_FDCWD, o->journal, 0) == 0) return ST_OK;
    return err_errno(e, o->journal, "cannot remove %s", o->journal);
}

void merge_output_tidy(arena *a, const char *path) {
    const char *plain = path_plain(a, path), *name = path_base(plain);
    const char *journal = arena_printf(a, "%.*s.part-%s.journal", (int)(name - plain), plain, name);
    file_sys_unlinkat(AT_FDCWD, journal, 0);
}

status merge_output_discard(merge_output *o, err *e) {
    TRY(file_remove_tree(o->to.temp, e));
    if (file_sys_unlinkat(AT_FDCWD, o->journal, 0) == 0) return ST_OK;
    return err_errno(e, o->journal, "cannot remove %s", o->journal);
}

void merge_output_close(merge_output *o) {
    for (int i = 0; o->part && i < o->n; i++) json_decref(o->part[i]);
    if (o->journal_fd >= 0) close(o->journal_fd);
    *o = (merge_output){.journal_fd = -1};
}
