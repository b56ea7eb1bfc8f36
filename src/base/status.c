#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

status err_set(err *e, status code, const char *fmt, ...) {
    if (!e) return code;
    e->code = code;
    e->hint[0] = e->where[0] = '\0';
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    return code;
}

status err_at(err *e, status code, const char *where, const char *fmt, ...) {
    if (!e) return code;
    e->code = code;
    e->hint[0] = '\0';
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    return err_where(e, "%s", where);
}

status err_hint(err *e, const char *fmt, ...) {
    if (!e) return ST_FAILED;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->hint, sizeof e->hint, fmt, ap);
    va_end(ap);
    return e->code;
}

status err_where(err *e, const char *fmt, ...) {
    if (!e) return ST_FAILED;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->where, sizeof e->where, fmt, ap);
    va_end(ap);
    return e->code;
}

status err_context(err *e, const char *fmt, ...) {
    if (!e) return ST_FAILED;
    char context[512], old[sizeof e->message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(context, sizeof context, fmt, ap);
    va_end(ap);
    memcpy(old, e->message, sizeof old);
    snprintf(e->message, sizeof e->message, "%s: %.*s", context,
             (int)(sizeof e->message - sizeof context - 3), old);
    return e->code;
}

/* Replaces all `from` in a text that has room for `size` bytes. */
static void replace_all(char *text, size_t size, const char *from, const char *to) {
    char old[sizeof((err *)0)->message];
    size_t n = 0;
    snprintf(old, sizeof old, "%s", text);
    for (const char *p = old, *next; n < size; p = next + strlen(from)) {
        next = strstr(p, from);
        int before = next ? (int)(next - p) : (int)strlen(p);
        n += (size_t)snprintf(text + n, size - n, "%.*s%s", before, p, next ? to : "");
        if (!next) break;
    }
}

status err_rename(err *e, const char *temp, const char *name) {
    if (!e) return ST_FAILED;
    replace_all(e->message, sizeof e->message, temp, name);
    replace_all(e->hint, sizeof e->hint, temp, name);
    replace_all(e->where, sizeof e->where, temp, name);
    return e->code;
}

status err_errno(err *e, const char *path, const char *fmt, ...) {
    int saved = errno;
    if (!e) return ST_FAILED;
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    err_set(e, ST_FAILED, "%s: %s", what, strerror(saved));
    if (saved == ENOENT) err_hint(e, "check the path; relative paths start at the working folder");
    if (saved == ENOSPC || saved == EDQUOT)
        err_hint(e, "free some space, or choose a folder on another disk");
    if (saved == EROFS) err_hint(e, "choose another folder: nothing can be written to this one");
    if (saved == EFBIG) err_hint(e, "ulimit -f says how large a file may become");
    if (saved == EMFILE) err_hint(e, "ulimit -n says how many files may be open");
    if (saved == EACCES) err_hint(e, "check who may read and write %s", path);
    return err_where(e, "%s", path);
}

status err_unreadable(err *e, const char *verb, const char *path) {
    err_errno(e, path, "cannot %s %s", verb, path);
    if (e) e->code = ST_FORMAT;
    return ST_FORMAT;
}

const char *status_kind(status s) {
    switch (s) {
        case ST_OK: return "ok";
        case ST_FAILED: return "failed";
        case ST_USAGE: return "usage";
        case ST_FORMAT: return "format";
        case ST_MEMORY: return "memory";
        case ST_NONFINITE: return "nonfinite";
        case ST_RANK: return "rank";
        case ST_STOPPED: return "stopped";
    }
    return "failed";
}

void check_failed(const char *file, int line, const char *expr, const char *fmt, ...) {
    fprintf(stderr, "athanor: internal error at %s:%d: %s is false: ", file, line, expr);
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    abort();
}
