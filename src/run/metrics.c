/* The metrics file: writer, cut on resume, reader. See metrics.h for the promises.
 *
 * The reader maps the file and parses a line at a time; the cut scans backwards from the end to the
 * first `step` event that stays, so that both are cheap on files of millions of lines. */
#include "run/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_fault.h"
#include "base/json.h"
#include "base/log.h"

/* Every line that the writer makes of a step event starts with this. */
static const char STEP_PREFIX[] = "{\"event\": \"step\"";

struct metrics_log {
    int fd;
    int64_t len; /* of the whole lines */
    char *path;
    strbuf line;
};

double metrics_num(const json_t *event, const char *key) {
    const json_t *value = json_object_get(event, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

int64_t metrics_int(const json_t *event, const char *key, int64_t fallback) {
    const json_t *value = json_object_get(event, key);
    if (json_is_integer(value)) return json_integer_value(value);
    double number = metrics_num(event, key);
    return fabs(number) < 9e15 ? (int64_t)number : fallback;
}

const char *metrics_text(const json_t *event, const char *key) {
    const char *text = json_string_value(json_object_get(event, key));
    return text ? text : "";
}

bool metrics_is(const json_t *event, const char *name) {
    const char *kind = json_string_value(json_object_get(event, "event"));
    return kind && strcmp(kind, name) == 0;
}

/* The file of a run, mapped; a run without one has an empty map. */
typedef struct metrics_file {
    arena *a;
    char *path;
    file_map map;
} metrics_file;

static void close_file(metrics_file *f) {
    file_map_close(&f->map);
    arena_free(f->a);
}

static status open_file(metrics_file *f, const char *run_dir, err *e) {
    *f = (metrics_file){.a = arena_new("metrics")};
    f->path = path_join(f->a, run_dir, "metrics.jsonl");
    status st = file_exists(f->path) ? file_map_open(&f->map, f->path, e) : ST_OK;
    if (st != ST_OK) arena_free(f->a);
    return st;
}

/* Length of the file up to its last line feed, which counts. */
static size_t whole_lines(const file_map *m) {
    const uint8_t *last = m->len ? memrchr(m->data, '\n', m->len) : NULL;
    return last ? (size_t)(last - m->data) + 1 : 0;
}

/* ---- writing ---- */

static status cut(const char *path, size_t len, err *e) {
    if (truncate(path, (off_t)len) == 0) return ST_OK;
    return err_errno(e, path, "cannot shorten %s", path);
}

status metrics_open(metrics_log **out, const char *run_dir, err *e) {
    *out = NULL;
    metrics_file f;
    TRY(open_file(&f, run_dir, e));
    size_t len = whole_lines(&f.map);
    status st = len < f.map.len ? cut(f.path, len, e) : ST_OK;
    int fd = -1;
    if (st == ST_OK) {
        fd = open(f.path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (fd < 0) st = err_errno(e, f.path, "cannot open %s", f.path);
    }
    if (st == ST_OK) {
        *out = xmalloc(sizeof **out);
        **out = (metrics_log){.fd = fd, .len = (int64_t)len, .path = xstrdup(f.path)};
    }
    close_file(&f);
    return st;
}

status metrics_write(metrics_log *m, const json_t *event, err *e) {
    strbuf_clear(&m->line);
    json_format(&m->line, event, 0);
    strbuf_putc(&m->line, '\n');
    ssize_t put;
    do put = file_sys_write(m->fd, m->line.data, m->line.len);
    while (put < 0 && errno == EINTR);
    if (put == (ssize_t)m->line.len) {
        m->len += put;
        return ST_OK;
    }
    if (put >= 0) errno = ENOSPC; /* a short write to a regular file */
    status st = err_errno(e, m->path, "cannot append to %s", m->path);
    err_hint(e, "free some disk space; starting the run again resumes it");
    if (put > 0 && ftruncate(m->fd, (off_t)m->len) != 0)
        log_warn("the last line of %s is torn", m->path);
    return st;
}

void metrics_close(metrics_log *m) {
    if (!m) return;
    close(m->fd);
    strbuf_free(&m->line);
    free(m->path);
    free(m);
}

/* ---- cutting ---- */

typedef enum line_fate { LINE_STAYS, LINE_GOES, LINE_IS_BEFORE } line_fate;

/* What a cut after `step` does with a line. A line that is not JSON (a crash of the machine can
 * leave some) goes, too. */
static line_fate line_fate_of(const uint8_t *line, size_t n, int64_t step) {
    json_t *event = json_loadb((const char *)line, n, JSON_ALLOW_NUL, NULL);
    if (!event) return LINE_GOES;
    line_fate fate = LINE_STAYS;
    bool is_end = metrics_is(event, "end");
    if (metrics_int(event, is_end ? "steps" : "step", INT64_MIN) > step)
        fate = LINE_GOES;
    else if (metrics_is(event, "step"))
        fate = LINE_IS_BEFORE;
    json_decref(event);
    return fate;
}

typedef struct span {
    const uint8_t *start;
    size_t len;
} span;

/* Walks the lines backwards to the first `step` event that stays. `*keep` is how much of the file
 * stays from its start; `late` are lines that stay behind that, last one first. */
static void plan_cut(const file_map *m, int64_t step, size_t *keep, span **late, int *n_late) {
    int cap = 0, n = 0, n_at_keep = 0;
    size_t end = whole_lines(m);
    *keep = end;
    *late = NULL;
    while (end > 0) {
        const uint8_t *before = end > 1 ? memrchr(m->data, '\n', end - 1) : NULL;
        size_t start = before ? (size_t)(before - m->data) + 1 : 0;
        line_fate fate = line_fate_of(m->data + start, end - start, step);
        if (fate == LINE_IS_BEFORE) break;
        if (fate == LINE_GOES) {
            *keep = start;
            n_at_keep = n;
        } else {
            span s = {m->data + start, end - start};
            VEC_PUSH(*late, n, cap, s);
        }
        end = start;
    }
    *n_late = n_at_keep; /* those found afterwards lie in the part that stays anyway */
}

static status apply_cut(const char *path, const file_map *m, int64_t step, err *e) {
    size_t keep;
    span *late;
    int n_late;
    plan_cut(m, step, &keep, &late, &n_late);
    status st = ST_OK;
    if (n_late > 0) {
        strbuf text = {0};
        strbuf_append(&text, m->data, keep);
        for (int i = n_late - 1; i >= 0; i--) strbuf_append(&text, late[i].start, late[i].len);
        st = file_write_atomic(path, text.data, text.len, e);
        strbuf_free(&text);
    } else if (keep < m->len) {
        st = cut(path, keep, e);
    }
    free(late);
    return st;
}

status metrics_truncate_after(const char *run_dir, int64_t step, err *e) {
    metrics_file f;
    TRY(open_file(&f, run_dir, e));
    status st = apply_cut(f.path, &f.map, step, e);
    close_file(&f);
    return st;
}

/* ---- reading ---- */

static bool is_step_line(const uint8_t *line, size_t n) {
    size_t prefix = sizeof STEP_PREFIX - 1;
    return n > prefix && memcmp(line, STEP_PREFIX, prefix) == 0;
}

/* Start of the last line that is a step event, or the length of the text when there is none. */
static size_t last_step_line(const uint8_t *data, size_t len) {
    for (size_t end = len; end > 0;) {
        const uint8_t *before = end > 1 ? memrchr(data, '\n', end - 1) : NULL;
        size_t start = before ? (size_t)(before - data) + 1 : 0;
        if (is_step_line(data + start, end - start)) return start;
        end = start;
    }
    return len;
}

static status visit_line(const char *path, int64_t number, const uint8_t *line, size_t n,
                         metrics_visitor visit, void *user, err *e) {
    json_error_t why;
    json_t *event = json_loadb((const char *)line, n, JSON_ALLOW_NUL, &why);
    if (!json_is_object(event)) {
        json_decref(event);
        err_set(e, ST_FORMAT, "line %lld of %s is not a JSON object", (long long)number, path);
        err_where(e, "%s:%lld", path, (long long)number);
        return err_hint(e, "remove the line; the other lines are independent of it");
    }
    status st = visit(user, event, e);
    json_decref(event);
    return st;
}

static status visit_lines(const char *path, const file_map *m, metrics_extent extent,
                          metrics_visitor visit, void *user, err *e) {
    size_t len = whole_lines(m), pos = 0;
    size_t last_step = extent == METRICS_LAST_STEP ? last_step_line(m->data, len) : 0;
    for (int64_t number = 1; pos < len; number++) {
        const uint8_t *line = m->data + pos;
        size_t n = (size_t)((const uint8_t *)memchr(line, '\n', len - pos) - line);
        bool skip = pos < last_step && is_step_line(line, n);
        if (n > 0 && !skip) TRY(visit_line(path, number, line, n, visit, user, e));
        pos += n + 1;
    }
    return ST_OK;
}

status metrics_read(const char *run_dir, metrics_extent extent, metrics_visitor visit, void *user,
                    err *e) {
    metrics_file f;
    TRY(open_file(&f, run_dir, e));
    status st = visit_lines(f.path, &f.map, extent, visit, user, e);
    close_file(&f);
    return st;
}
