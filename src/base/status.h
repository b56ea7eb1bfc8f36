/* Errors of the world: files, configs, networks, users.
 *
 * A function that can fail returns `status` and takes an `err *` as its last argument. On failure
 * it fills the err and returns its code; callers add context on the way up. The code doubles as the
 * exit status of the program, so a status is never translated.
 *
 * Programmer errors are not statuses: CHECK prints what broke and aborts. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum status {
    ST_OK = 0,
    ST_FAILED = 1,    /* failed, or a promise broken in `verify` */
    ST_USAGE = 2,     /* wrong usage or config */
    ST_FORMAT = 3,    /* unreadable, corrupt or hostile file */
    ST_MEMORY = 4,    /* does not fit in memory */
    ST_NONFINITE = 5, /* NaN, Inf or divergence */
    ST_RANK = 6,      /* a rank or device failed or hung */
    ST_STOPPED = 75,  /* stopped on a signal, state saved */
} status;

/* One error. `message` is a sentence that names the thing, `hint` the nearest fix, `where` the
 * file, line or key ("config.yaml:12", "model.hidden_size"). All are NUL-terminated and may be
 * truncated, never overrun. */
typedef struct err {
    status code;
    char message[1024];
    char hint[512];
    char where[512];
} err;

#if defined(__GNUC__)
#define ATH_PRINTF(a, b) __attribute__((format(printf, a, b)))
#define ATH_MUST_USE __attribute__((warn_unused_result))
#else
#define ATH_PRINTF(a, b)
#define ATH_MUST_USE
#endif

/* Each returns e->code, so that `return err_set(...)` reads naturally.
 *
 * `e` may be NULL: the details are dropped, and what is returned only says that there was an error.
 * err_hint, err_where, err_context and err_rename add to an error that they cannot see then, so
 * they return ST_FAILED. Who wants to know the kind of an error passes an err. */
status err_set(err *e, status code, const char *fmt, ...) ATH_PRINTF(3, 4);
status err_hint(err *e, const char *fmt, ...) ATH_PRINTF(2, 3);
status err_where(err *e, const char *fmt, ...) ATH_PRINTF(2, 3);
/* err_set with a `where`: err_at(e, code, path, "...") then err_hint(e, "...") is a whole error. */
status err_at(err *e, status code, const char *where, const char *fmt, ...) ATH_PRINTF(4, 5);
/* Prepends "context: " to the message. */
status err_context(err *e, const char *fmt, ...) ATH_PRINTF(2, 3);
/* Says `name` wherever the three texts say `temp`: who writes under a temporary name reports the
 * name that was asked for. */
status err_rename(err *e, const char *temp, const char *name);
/* err_set with ": strerror(errno)" appended; code ST_FAILED, where = path. */
status err_errno(err *e, const char *path, const char *fmt, ...) ATH_PRINTF(3, 4);
/* The same for an input that cannot be read: "cannot VERB PATH: ...", code ST_FORMAT. */
status err_unreadable(err *e, const char *verb, const char *path);
/* One word per status for error.kind: failed, usage, format, memory, nonfinite, rank, stopped. */
const char *status_kind(status s);

#define TRY(expr)                                                                                  \
    do {                                                                                           \
        status try_status_ = (expr);                                                               \
        if (try_status_ != ST_OK) return try_status_;                                              \
    } while (0)

/* For functions with a single exit: `status st = ST_OK; ... TRY_GOTO(st, f(), out); ... out: free;
 * return st;` */
#define TRY_GOTO(st, expr, label)                                                                  \
    do {                                                                                           \
        (st) = (expr);                                                                             \
        if ((st) != ST_OK) goto label;                                                             \
    } while (0)

/* Programmer errors: always on. Prints file, line, expression and message, then aborts. */
#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) check_failed(__FILE__, __LINE__, #cond, __VA_ARGS__);                         \
    } while (0)
_Noreturn void check_failed(const char *file, int line, const char *expr, const char *fmt, ...)
    ATH_PRINTF(4, 5);

#define ARRAY_LEN(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* An enum with words is one list: LIST(W) has a W(ENUMERATOR, "word") for each. With these as W it
 * becomes the enum's body, and the words in the same order. */
#define LIST_ENUMERATOR(name, word) name,
#define LIST_WORD(name, word) word,

#endif
