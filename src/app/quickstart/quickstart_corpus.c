/* Which text to learn from: the user's, else tinyshakespeare, else the King James Bible.
 *
 * Downloads are the work of curl, as a child process with short time-outs; what it brings is used
 * only if its SHA-256 is the known one. The Bible comes from Debian's `bible` program. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/quickstart/quickstart.h"
#include "base/file.h"
#include "base/sha256.h"
#include "data/text/reader.h"

#define SHAKESPEARE_URL                                                                            \
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
#define SHAKESPEARE_SHA256 "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
enum { SHAKESPEARE_BYTES = 1115394, BIBLE_LEAST_BYTES = 3000000 };

/* ---- other programs ---- */

/* Runs a shell command, its standard output into `out`; true when it ends well. Its standard error
 * goes nowhere: the caller has another way to go. */
static bool run_program(const char *command, strbuf *out) {
    char piece[65536];
    FILE *from = popen(command, "re");
    if (!from) return false;
    for (size_t n; (n = fread(piece, 1, sizeof piece, from)) > 0;) strbuf_append(out, piece, n);
    bool whole = !ferror(from);
    return pclose(from) == 0 && whole;
}

/* ---- tinyshakespeare ---- */

/* $XDG_CACHE_HOME/athanor, ~/.cache/athanor, or the folder that holds the run. */
static char *cache_path(arena *a, const char *run) {
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const char *dir;
    if (xdg && xdg[0] == '/')
        dir = path_join(a, xdg, "athanor");
    else if (home && home[0] == '/')
        dir = path_join(a, home, ".cache/athanor");
    else
        dir = path_join(a, run, "..");
    return path_join(a, dir, "tinyshakespeare.txt");
}

static bool is_shakespeare(const void *data, size_t len) {
    char hex[65];
    if (len != SHAKESPEARE_BYTES) return false;
    sha256_hex(data, len, hex);
    return strcmp(hex, SHAKESPEARE_SHA256) == 0;
}

static bool cached_is_good(const char *path) {
    char *data;
    size_t len;
    if (!file_exists(path) || file_read_part(path, SHAKESPEARE_BYTES, &data, &len, NULL) != ST_OK)
        return false;
    bool good = is_shakespeare(data, len);
    free(data);
    return good;
}

static status store(arena *a, const char *path, const strbuf *text, err *e) {
    char *dir = arena_strndup(a, path, (size_t)(path_base(path) - path));
    TRY(file_make_dirs(dir, e));
    return file_write_atomic(path, text->data, text->len, e);
}

/* NULL when all is well, else the reason in a few words. */
static const char *fetch_shakespeare(arena *a, const char *path) {
    static const char CURL[] =
        "exec curl -fsSL --connect-timeout 5 --max-time 20 " SHAKESPEARE_URL " 2>/dev/null";
    strbuf text = {0};
    err e = {0};
    const char *problem = NULL;
    if (!run_program(CURL, &text))
        problem = "tinyshakespeare could not be fetched";
    else if (!is_shakespeare(text.data, text.len))
        problem = "what came as tinyshakespeare has another SHA-256";
    else if (store(a, path, &text, &e) != ST_OK)
        problem = arena_strdup(a, e.message);
    strbuf_free(&text);
    return problem;
}

static const char *get_shakespeare(arena *a, const char *run, quick_corpus *c) {
    c->path = cache_path(a, run);
    c->what = "tinyshakespeare (1.1 MB of plays)";
    if (cached_is_good(c->path)) {
        c->why = "no text was given; it was fetched before";
        return NULL;
    }
    c->why = "no text was given; fetched, SHA-256 checked";
    return fetch_shakespeare(a, c->path);
}

/* ---- the Bible ---- */

/* Appends one line "Ge1:1 In the beginning ..." without its reference; a blank line goes before
 * each chapter. False when there is no reference. */
static bool put_verse(strbuf *out, const char *line, size_t len) {
    size_t at = 0;
    while (at < len && isalnum((unsigned char)line[at])) at++;
    if (at == 0 || at == len || line[at] != ':') return false;
    char *end;
    long verse = strtol(line + at + 1, &end, 10);
    if (*end != ' ') return false;
    if (verse == 1 && out->len > 0) strbuf_putc(out, '\n');
    strbuf_append(out, end + 1, (size_t)(line + len - end - 1));
    strbuf_putc(out, '\n');
    return true;
}

static status get_bible(arena *a, const char *run, quick_corpus *c, err *e) {
    static const char BIBLE[] = "exec bible -f -l9999 gen1:1-rev22:21 2>/dev/null";
    strbuf printed = {0}, text = {0};
    bool ok = run_program(BIBLE, &printed);
    const char *p = strbuf_cstr(&printed);
    while (ok && *p) {
        size_t len = strcspn(p, "\n");
        if (len > 0) ok = put_verse(&text, p, len);
        p += len + (p[len] == '\n');
    }
    status st = ST_OK;
    c->path = path_join(a, run, "corpus.txt");
    c->what = "the King James Bible, as `bible` prints it";
    if (!ok || text.len < BIBLE_LEAST_BYTES) {
        err_set(e, ST_FAILED,
                "there is no text to learn from: %s, and Debian's bible-kjv is not "
                "installed",
                c->why);
        st = err_hint(e, "name a text file or folder: athanor quickstart my.txt");
    } else {
        st = store(a, c->path, &text, e);
    }
    strbuf_free(&printed);
    strbuf_free(&text);
    return st;
}

/* ---- the user's ---- */

/* The first word or two of a line at about `share` of the text: something it has seen. */
static const char *prompt_from(arena *a, const char *text, size_t len, double share) {
    const char *p = text + (size_t)((double)len * share), *end = text + len;
    while (p < end && *p != '\n') p++;
    while (p < end && isspace((unsigned char)*p)) p++;
    const char *from = p;
    for (int words = 0; words < 2 && p < end && *p != '\n'; words++) {
        while (p < end && *p == ' ') p++;
        while (p < end && !isspace((unsigned char)*p) && p - from < 40) p++;
    }
    for (const char *c = from; c < p; c++)
        if (!isprint((unsigned char)*c)) return "The";
    return p > from ? arena_strndup(a, from, (size_t)(p - from)) : "The";
}

/* Reads all of it once: unreadable, binary and empty texts are found here. */
static status look_at_text(arena *a, const char *path, quick_corpus *c, err *e) {
    reader *r;
    document doc;
    bool more;
    TRY(reader_open(&r, &path, 1, NULL, e));
    status st = reader_next(r, &doc, &more, e);
    for (int i = 0; st == ST_OK && more && i < QUICK_PROMPTS; i++)
        c->prompts[i] = prompt_from(a, doc.text, doc.len, 0.25 * (i + 1));
    while (st == ST_OK && more) {
        c->bytes += doc.len;
        st = reader_next(r, &doc, &more, e);
    }
    reader_close(r);
    return st;
}

/* Standard input can be read once, the stages read twice. */
static status keep_input(arena *a, const char *run, const char **path, err *e) {
    strbuf text = {0};
    TRY(file_read_all("-", &text.data, &text.len, e));
    *path = path_join(a, run, "corpus.txt");
    status st = store(a, *path, &text, e);
    strbuf_free(&text);
    return st;
}

status quick_find_corpus(arena *a, const char *text, const char *run, quick_corpus *out, err *e) {
    static const char *const SHAKESPEARE[] = {"ROMEO:\n", "JULIET:\nO ", "KING RICHARD III:\n"};
    static const char *const BIBLE[] = {"In the beginning", "And the LORD said unto",
                                        "Blessed are"};
    *out = (quick_corpus){.path = text, .what = text, .why = ""};
    if (text && strcmp(text, "-") == 0) TRY(keep_input(a, run, &out->path, e));
    if (text) return look_at_text(a, out->path, out, e);
    const char *problem = get_shakespeare(a, run, out);
    if (problem) {
        out->why = problem;
        TRY(get_bible(a, run, out, e));
    }
    TRY(look_at_text(a, out->path, out, e));
    memcpy(out->prompts, problem ? BIBLE : SHAKESPEARE, sizeof out->prompts);
    return ST_OK;
}
