/* The normal forms NFC, NFD, NFKC, NFKD with the places of what composes and decomposes.
 *
 * Decompositions and combining classes come from utf8proc, but only for characters that the table
 * of props.h knows to change, so a newer or older library gives the same text. Text is taken in
 * stretches: one character, and those after it that may change or change it; between stretches
 * nothing combines, and all else is copied. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "tok/normalize/job.h"

enum { HANGUL_S = 0xAC00, HANGUL_L = 0x1100, HANGUL_V = 0x1161, HANGUL_T = 0x11A7 };
enum { HANGUL_NS = 11172, HANGUL_NL = 19, HANGUL_NV = 21, HANGUL_NT = 28 };
enum { MAX_DECOMPOSED = 32 }; /* characters that come of one; 18 is the most there is */

static unsigned changes(norm_kind form) {
    switch (form) {
        case NORM_NFC: return PROP_NFC;
        case NORM_NFD: return PROP_NFD;
        case NORM_NFKC: return PROP_NFKC;
        default: return PROP_NFKD;
    }
}

size_t form_keep(const norm_step *s, const tok_piece *in) {
    return plain_end(in->s, in->len, 0, changes(s->kind));
}

/* ---- decomposition ---- */

static uint8_t combining_class(uint32_t cp) {
    if (!(norm_props(cp) & PROP_NFD)) return 0;
    return (uint8_t)utf8proc_get_property((utf8proc_int32_t)cp)->combining_class;
}

static norm_char *grow(norm_char **items, size_t n, size_t *cap) {
    if (n > *cap) {
        *cap = 2 * n;
        *items = xrealloc(*items, *cap * sizeof(**items));
    }
    return *items;
}

/* Appends what cp decomposes into at chars[n]; returns the new n. */
static size_t decompose(norm_work *w, size_t n, uint32_t cp, norm_kind form) {
    norm_char *to = grow(&w->chars, n + MAX_DECOMPOSED, &w->cap_chars) + n;
    bool compatible = form == NORM_NFKC || form == NORM_NFKD;
    utf8proc_int32_t parts[MAX_DECOMPOSED] = {(utf8proc_int32_t)cp};
    utf8proc_ssize_t n_parts = 1;
    if (norm_props(cp) & (compatible ? PROP_NFKD : PROP_NFD)) {
        int options = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0), last = 0;
        n_parts = utf8proc_decompose_char((utf8proc_int32_t)cp, parts, MAX_DECOMPOSED,
                                          (utf8proc_option_t)options, &last);
        CHECK(n_parts > 0 && n_parts <= MAX_DECOMPOSED, "U+%04X decomposes into %d", (unsigned)cp,
              (int)n_parts);
    }
    for (int i = 0; i < n_parts; i++) {
        to[i] = (norm_char){(uint32_t)parts[i], i > 0, combining_class((uint32_t)parts[i])};
    }
    return n + (size_t)n_parts;
}

static bool is_sorted(const norm_char *c, size_t n) {
    for (size_t i = 1; i < n; i++) {
        if (c[i].ccc < c[i - 1].ccc) return false;
    }
    return true;
}

/* Sorts chars[start, end), all combining, by class; equals stay in order. */
static void sort_by_class(norm_work *w, size_t start, size_t end) {
    size_t n = end - start;
    if (is_sorted(w->chars + start, n)) return;
    size_t at[257] = {0};
    norm_char *from = w->chars + start, *to = grow(&w->sorted, n, &w->cap_sorted);
    for (size_t i = 0; i < n; i++) at[from[i].ccc + 1]++;
    for (int c = 1; c < 257; c++) at[c] += at[c - 1];
    for (size_t i = 0; i < n; i++) to[at[from[i].ccc]++] = from[i];
    memcpy(from, to, n * sizeof(*to));
}

static void sort_marks(norm_work *w, size_t n) {
    size_t start = 0;
    for (size_t i = 0; i < n; i++) {
        if (w->chars[i].ccc != 0) continue;
        sort_by_class(w, start, i);
        start = i + 1;
    }
    sort_by_class(w, start, n);
}

/* ---- composition ---- */

/* The character that a and b make, 0 for none. */
static uint32_t compose(uint32_t a, uint32_t b) {
    if (a - HANGUL_L < HANGUL_NL && b - HANGUL_V < HANGUL_NV) {
        return HANGUL_S + ((a - HANGUL_L) * HANGUL_NV + (b - HANGUL_V)) * HANGUL_NT;
    }
    if (a - HANGUL_S < HANGUL_NS && (a - HANGUL_S) % HANGUL_NT == 0 &&
        b - (HANGUL_T + 1) < HANGUL_NT - 1) {
        return a + (b - HANGUL_T);
    }
    if (!(norm_props(b) & PROP_NFC)) return 0;
    utf8proc_int32_t pair[3] = {(utf8proc_int32_t)a, (utf8proc_int32_t)b, 0};
    utf8proc_ssize_t n =
        utf8proc_normalize_utf32(pair, 2, (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    /* A composite that the table does not know is newer than it. */
    return n == 1 && norm_props((uint32_t)pair[0]) & PROP_NFD ? (uint32_t)pair[0] : 0;
}

/* Composes chars[0, n) in place; returns the new n. A mark composes with the last starter unless
 * one of the same or a higher class stands between. */
static size_t compose_all(norm_char *c, size_t n) {
    size_t done = 0, starter = SIZE_MAX;
    int last_ccc = -1; /* of the mark before, -1: the starter itself */
    for (size_t i = 0; i < n; i++) {
        if (starter != SIZE_MAX && (last_ccc < 0 || last_ccc < c[i].ccc)) {
            uint32_t made = compose(c[starter].cp, c[i].cp);
            if (made) {
                c[starter].cp = made;
                c[starter].change = (int16_t)(c[starter].change + c[i].change - 1);
                continue;
            }
        }
        if (c[i].ccc == 0) {
            starter = done;
            last_ccc = -1;
        } else if (starter != SIZE_MAX) {
            last_ccc = c[i].ccc;
        }
        c[done++] = c[i];
    }
    return done;
}

/* ---- the text ---- */

/* Writes the form of in[start, end), which begins where nothing combines. */
static void write_stretch(norm_job *j, size_t start, size_t end) {
    norm_kind form = j->step->kind;
    size_t n = 0;
    for (size_t i = start; i < end;) n = decompose(j->work, n, take_char(j->in->s, &i), form);
    sort_marks(j->work, n);
    norm_char *chars = j->work->chars;
    if (form == NORM_NFC || form == NORM_NFKC) n = compose_all(chars, n);
    if (j->in->from) {
        for (size_t i = 0; i < n; i++) job_write_cp(j, chars[i].cp, chars[i].change);
        return;
    }
    size_t done = j->out->s.len;
    char *to = strbuf_extend(&j->out->s, 4 * n);
    for (size_t i = 0; i < n; i++) {
        int size = utf8_encode(chars[i].cp, to);
        to += size;
        done += (size_t)size;
    }
    strbuf_truncate(&j->out->s, done);
}

static size_t changing_end(const tok_piece *in, size_t i, unsigned props) {
    while (i < in->len && (uint8_t)in->s[i] >= 0x80) {
        size_t next = i;
        if (!(norm_props(take_char(in->s, &next)) & props)) break;
        i = next;
    }
    return i;
}

status form_run(norm_job *j) {
    const tok_piece *in = j->in;
    unsigned props = changes(j->step->kind);
    size_t plain = j->keep;
    for (size_t i = 0; i < in->len;) {
        size_t start = plain > i && plain < in->len ? utf8_before(in->s, plain) : plain;
        text_copy(j->out, in, i, start);
        j->at = start;
        i = changing_end(in, plain, props);
        if (i > start) write_stretch(j, start, i);
        plain = plain_end(in->s, in->len, i, props);
    }
    return ST_OK;
}
