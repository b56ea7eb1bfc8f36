/* sentencepiece's own normalizer: user-defined symbols and rules by longest prefix, white space
 * escaped to U+2581, joined and trimmed.
 *
 * Places are those of its norm_to_orig: a byte begins where the prefix that it comes of begins, and
 * ends where the byte after it begins. */
#include <stdlib.h>
#include <string.h>

#include "tok/normalize/charsmap.h"
#include "tok/normalize/job.h"

static const char SPACE[] = "\xE2\x96\x81"; /* U+2581, which a space becomes */
enum { SPACE_BYTES = sizeof(SPACE) - 1 };

typedef struct symbol {
    const char *s;
    size_t n;
} symbol;

typedef struct norm_spiece {
    bool dummy_prefix, trim, suffix; /* as in norm_spiece_spec */
    symbol *symbol;                  /* sorted by bytes */
    int32_t n_symbols;
    /* Neither a symbol nor a rule begins with this byte. Inside a character: always. */
    bool plain[256];
    /* The same for a byte followed by an ASCII character or the end. */
    bool plain_before_ascii[256];
} norm_spiece;

/* ---- making ---- */

static int by_bytes(const void *a, const void *b) {
    const symbol *x = a, *y = b;
    size_t n = x->n < y->n ? x->n : y->n;
    int order = memcmp(x->s, y->s, n);
    return order != 0 ? order : (x->n > y->n) - (x->n < y->n);
}

static status copy_symbols(norm_spiece *p, arena *mem, const norm_spiece_spec *spec, err *e) {
    p->symbol = ARENA_ARRAY(mem, symbol, spec->n_symbols);
    for (int32_t i = 0; i < spec->n_symbols; i++) {
        if (spec->n_symbol[i] == 0) continue;
        if (utf8_valid_prefix(spec->symbol[i], spec->n_symbol[i]) < spec->n_symbol[i]) {
            return err_set(e, ST_FORMAT, "user-defined symbol %d is not UTF-8", (int)i);
        }
        p->symbol[p->n_symbols++] =
            (symbol){arena_strndup(mem, spec->symbol[i], spec->n_symbol[i]), spec->n_symbol[i]};
    }
    qsort(p->symbol, (size_t)p->n_symbols, sizeof(symbol), by_bytes);
    return ST_OK;
}

static void find_plain(norm_spiece *p, const norm_charsmap *map) {
    for (int b = 0; b < 256; b++) {
        p->plain[b] = !(map && map->begins[b]);
        p->plain_before_ascii[b] = p->plain[b] || (b < 128 && map->plain[b]);
    }
    for (int32_t i = 0; i < p->n_symbols; i++) {
        uint8_t first = (uint8_t)p->symbol[i].s[0];
        p->plain[first] = p->plain_before_ascii[first] = false;
    }
    for (int b = 0x80; b < 0xC0; b++) p->plain[b] = p->plain_before_ascii[b] = true;
}

status norm_step_sentencepiece(norm_step *s, arena *mem, const norm_spiece_spec *spec, err *e) {
    norm_charsmap *map = NULL;
    if (spec->n_charsmap > 0) {
        TRY(charsmap_read(&map, mem, spec->charsmap, spec->n_charsmap, e));
    }
    norm_spiece *p = ARENA_NEW(mem, norm_spiece);
    p->dummy_prefix = spec->add_dummy_prefix;
    p->trim = spec->remove_extra_whitespaces;
    p->suffix = spec->treat_whitespace_as_suffix;
    TRY(copy_symbols(p, mem, spec, e));
    find_plain(p, map);
    *s = (norm_step){.kind = NORM_SENTENCEPIECE, .map = map, .spiece = p};
    return ST_OK;
}

/* ---- prefixes ---- */

/* First symbol in [lo, hi) whose byte at `at` is >= b; all agree in the bytes before and have it.
 */
static int32_t lower_bound(const norm_spiece *p, int32_t lo, int32_t hi, size_t at, int b) {
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        int have = at < p->symbol[mid].n ? (uint8_t)p->symbol[mid].s[at] : -1;
        if (have < b) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

/* Length of the longest symbol that s[0, n) begins with, 0 for none. */
static size_t longest_symbol(const norm_spiece *p, const char *s, size_t n) {
    size_t best = 0;
    int32_t lo = 0, hi = p->n_symbols;
    for (size_t at = 0; at < n && lo < hi; at++) {
        int b = (uint8_t)s[at];
        lo = lower_bound(p, lo, hi, at, b);
        hi = lower_bound(p, lo, hi, at, b + 1);
        if (lo < hi && p->symbol[lo].n == at + 1) best = at + 1;
    }
    return best;
}

/* What the text at i begins with: a symbol, what a rule makes of it, or one character. */
static status next_prefix(norm_job *j, size_t i, norm_rule *r) {
    const char *s = j->in->s + i;
    size_t n = j->in->len - i;
    const norm_spiece *p = j->step->spiece;
    size_t symbol_len = p->n_symbols > 0 ? longest_symbol(p, s, n) : 0;
    *r = (norm_rule){symbol_len, s, symbol_len};
    if (symbol_len > 0) return ST_OK;
    if (j->step->map) TRY(charsmap_find(j->step->map, s, n, true, r, j->e));
    if (r->len == 0) *r = (norm_rule){utf8_size(*s), s, utf8_size(*s)};
    return ST_OK;
}

/* ---- the text ---- */

/* Until ends are known, a place is where the byte begins. */
static tok_span start_at(const norm_job *j, size_t i) {
    if (!j->in->from) return (tok_span){0, 0};
    int32_t at = i < j->in->len ? j->in->from[i].start : j->in->from[j->in->len - 1].end;
    return (tok_span){at, at};
}

static void put_space(norm_job *j, tok_span from) {
    text_add(j->out, SPACE, SPACE_BYTES, from);
}

static void put_text(norm_job *j, const char *s, size_t n, size_t i) {
    while (n > 0) {
        const char *space = memchr(s, ' ', n);
        size_t before = space ? (size_t)(space - s) : n;
        text_add(j->out, s, before, start_at(j, i));
        if (!space) return;
        put_space(j, start_at(j, i));
        s += before + 1;
        n -= before + 1;
    }
}

/* Writes the stretch from i in which no symbol or rule begins; returns its end. Only without
 * places. Every byte is written as if it were a space and the next one overwrites what is too much,
 * so that the loop has no branches to guess. */
static size_t write_plain(norm_job *j, size_t i, bool *after_space) {
    const norm_spiece *p = j->step->spiece;
    const uint8_t *s = (const uint8_t *)j->in->s;
    size_t n = j->in->len, done = j->out->s.len;
    char *to = strbuf_extend(&j->out->s, SPACE_BYTES * (n - i) + sizeof(SPACE)), *start = to;
    bool after = *after_space, trim = p->trim;
    for (; i < n; i++) {
        uint8_t b = s[i];
        bool space = b == ' ';
        if (!p->plain[b] && !(p->plain_before_ascii[b] && (i + 1 == n || s[i + 1] < 0x80))) break;
        memcpy(to, SPACE, sizeof(SPACE));
        *to = space ? SPACE[0] : (char)b;
        to += space ? (after ? 0 : SPACE_BYTES) : 1;
        after = trim & space;
    }
    *after_space = after;
    strbuf_truncate(&j->out->s, done + (size_t)(to - start));
    return i;
}

/* The spaces at the front, which are left out. */
static status skip_spaces(norm_job *j, size_t *i) {
    while (*i < j->in->len) {
        norm_rule r;
        TRY(next_prefix(j, *i, &r));
        if (r.n_to != 1 || r.to[0] != ' ') break;
        *i += r.len;
    }
    return ST_OK;
}

static status write_body(norm_job *j, size_t i) {
    const norm_spiece *p = j->step->spiece;
    bool after_space = p->trim;
    while (i < j->in->len) {
        if (!j->in->from) i = write_plain(j, i, &after_space);
        if (i == j->in->len) break;
        norm_rule r;
        TRY(next_prefix(j, i, &r));
        TRY(job_grow(j, 3 * r.n_to));
        while (after_space && r.n_to > 0 && r.to[0] == ' ') {
            r.to++;
            r.n_to--;
        }
        put_text(j, r.to, r.n_to, i);
        if (r.n_to > 0) after_space = p->trim && r.to[r.n_to - 1] == ' ';
        i += r.len;
    }
    return ST_OK;
}

/* Cuts the spaces at the end; returns where the result ends in the caller's text. */
static int32_t trim_end(norm_job *j, int32_t end) {
    tok_text *out = j->out;
    while (out->s.len >= SPACE_BYTES &&
           memcmp(out->s.data + out->s.len - SPACE_BYTES, SPACE, SPACE_BYTES) == 0) {
        strbuf_truncate(&out->s, out->s.len - SPACE_BYTES);
        if (out->tracked) end = out->from[out->s.len].start;
    }
    return end;
}

static void set_ends(tok_text *out, int32_t end) {
    for (size_t i = out->s.len; out->tracked && i > 0; i--) {
        out->from[i - 1].end = end;
        end = out->from[i - 1].start;
    }
}

status sentencepiece_run(norm_job *j) {
    const norm_spiece *p = j->step->spiece;
    size_t i = 0;
    if (p->trim) TRY(skip_spaces(j, &i));
    if (i == j->in->len) return ST_OK;
    if (p->dummy_prefix && !p->suffix) put_space(j, start_at(j, i));
    TRY(write_body(j, i));
    int32_t end = start_at(j, j->in->len).start;
    if (p->trim) end = trim_end(j, end);
    if (p->dummy_prefix && p->suffix) put_space(j, (tok_span){end, end});
    set_ends(j->out, end);
    return ST_OK;
}
