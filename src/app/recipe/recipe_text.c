/* The recipe's text: divided into what is learned and what is held out, and cut into pieces. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "app/quickstart/quickstart.h"
#include "app/recipe/recipe.h"
#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "data/text/reader.h"

enum {
    MOST_BYTES = 4 << 20, /* of text: more would not be seen even once */
    LEAST_BYTES = 200000,
    MANY_DOCUMENTS = 20,
    MOST_PIECE_BYTES = 110,
    CONTEXT_BYTES = 160
};

/* ---- dividing ---- */

typedef struct parts {
    strbuf all, train, heldout;
    size_t *end; /* of each document in `all` */
    int64_t n, cap;
} parts;

/* The bytes of the characters that end within the first `most`. */
static size_t whole_until(const char *text, size_t len, size_t most) {
    return most < len ? utf8_cut(text, most) : len;
}

static status read_documents(const char *path, parts *p, err *e) {
    reader *r;
    document doc;
    bool more = true;
    TRY(reader_open(&r, &path, 1, NULL, e));
    status st = ST_OK;
    while (st == ST_OK && more && p->all.len < MOST_BYTES) {
        st = reader_next(r, &doc, &more, e);
        if (st != ST_OK || !more) break;
        strbuf_append(&p->all, doc.text, whole_until(doc.text, doc.len, MOST_BYTES - p->all.len));
        VEC_PUSH(p->end, p->n, p->cap, p->all.len);
    }
    reader_close(r);
    return st;
}

static void add_document(strbuf *to, const char *text, size_t len) {
    strbuf_append(to, text, len);
    strbuf_puts(to, len && text[len - 1] == '\n' ? "\n" : "\n\n");
}

/* Of many documents each tenth is held out; of few the last tenth of each, from a line on. */
static void divide(parts *p) {
    for (int64_t i = 0; i < p->n; i++) {
        size_t first = i ? p->end[i - 1] : 0, len = p->end[i] - first, cut = len;
        const char *text = p->all.data + first;
        if (p->n >= MANY_DOCUMENTS) {
            add_document(i % 10 == 9 ? &p->heldout : &p->train, text, len);
            continue;
        }
        for (cut = len - len / 10; cut > 0 && text[cut - 1] != '\n';) cut--;
        if (cut == 0) cut = whole_until(text, len, len - len / 10);
        add_document(&p->train, text, cut);
        add_document(&p->heldout, text + cut, len - cut);
    }
}

static status too_little(const char *path, size_t bytes, err *e) {
    err_at(e, ST_USAGE, path, "%s has %zu bytes of text, too few for this recipe", path, bytes);
    return err_hint(e, "give %d kB at least; a megabyte is better", LEAST_BYTES / 1000);
}

static status write_parts(recipe *r, const quick_corpus *c, parts *p, json_t *result, err *e) {
    char digest[65];
    TRY(read_documents(c->path, p, e));
    if (p->all.len < LEAST_BYTES) return too_little(c->path, p->all.len, e);
    divide(p);
    TRY(file_make_dirs(recipe_path(r, "text"), e));
    TRY(file_write_atomic(recipe_path(r, "text/train.txt"), p->train.data, p->train.len, e));
    TRY(file_write_atomic(recipe_path(r, "text/heldout.txt"), p->heldout.data, p->heldout.len, e));
    sha256_hex(p->all.data, p->all.len, digest);
    json_object_set_new(result, "what", json_cstr(c->what));
    json_object_set_new(result, "path", json_cstr(c->path));
    json_object_set_new(result, "sha256", json_string(digest));
    json_object_set_new(result, "documents", json_integer(p->n));
    json_object_set_new(result, "train_bytes", json_integer((json_int_t)p->train.len));
    json_object_set_new(result, "heldout_bytes", json_integer((json_int_t)p->heldout.len));
    return ST_OK;
}

status recipe_split_text(recipe *r, json_t *result, err *e) {
    quick_corpus c;
    parts p = {0};
    TRY(quick_find_corpus(r->a, r->text, r->run, &c, e));
    status st = write_parts(r, &c, &p, result, e);
    strbuf_free(&p.all);
    strbuf_free(&p.train);
    strbuf_free(&p.heldout);
    free(p.end);
    return st;
}

/* ---- pieces ---- */

static bool ends_sentence(const char *s, int i, int len) {
    return strchr(".!?;:", s[i]) && (i + 1 == len || s[i + 1] == ' ');
}

/* Plain text of one line with single spaces: what can be asked for and answered in one line. */
static bool is_plain(const char *s, int len, int *words, int *cut) {
    *words = 1;
    for (int i = 0; i < len; i++) {
        if (!isprint((unsigned char)s[i]) && !((unsigned char)s[i] & 0x80)) return false;
        if (s[i] == ' ' && (i == 0 || s[i - 1] == ' ')) return false;
        *words += s[i] == ' ';
    }
    int half = *words / 2, seen = 0;
    for (*cut = 0; *cut < len; (*cut)++)
        if (s[*cut] == ' ' && ++seen == half) break;
    return *words >= RECIPE_LEAST_WORDS && *words <= RECIPE_MOST_WORDS && len <= MOST_PIECE_BYTES;
}

static void add_piece(recipe_pieces *p, const char *s, int len, const char *text) {
    recipe_piece piece = {.s = s, .len = len};
    if (len == 0 || !is_plain(s, len, &piece.words, &piece.cut)) return;
    const char *from = s - text > CONTEXT_BYTES ? s - CONTEXT_BYTES : text;
    while (from > text && from < s && from[-1] != '\n') from++;
    piece.before = (int)(s - from);
    VEC_PUSH(p->piece, p->n, p->cap, piece);
}

/* The sentences of a line, or the line where it has no end of one. */
static void add_line(recipe_pieces *p, const char *line, int len, const char *text) {
    int first = 0;
    for (int i = 0; i < len; i++) {
        if (!ends_sentence(line, i, len)) continue;
        add_piece(p, line + first, i + 1 - first, text);
        first = i + 2;
    }
    if (first < len) add_piece(p, line + first, len - first, text);
}

status recipe_read_pieces(const recipe *r, const char *name, recipe_pieces *out, err *e) {
    size_t len;
    *out = (recipe_pieces){0};
    TRY(file_read_part(recipe_path(r, name), 2 * MOST_BYTES, &out->text, &len, e));
    for (const char *line = out->text; *line;) {
        size_t n = strcspn(line, "\n");
        add_line(out, line, (int)n, out->text);
        line += n + (line[n] == '\n');
    }
    return ST_OK;
}

void recipe_pieces_free(recipe_pieces *p) {
    free(p->piece);
    free(p->text);
    *p = (recipe_pieces){0};
}
