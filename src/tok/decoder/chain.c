/* The chain of a decoder: hands parts of tokens from step to step, see chain.h. */
#include "tok/decoder/chain.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/utf8.h"
#include "tok/pretok/pretok.h"

/* How far text may grow on its way: a chain of replacements could double it at every step. */
enum { GROWTH = 64, GROWTH_FREE_BYTES = 1024 };

static const dec_class *const CLASSES[] = {
    [DEC_JOIN] = &DEC_CLASS_JOIN,
    [DEC_FUSE] = &DEC_CLASS_FUSE,
    [DEC_BYTE_LEVEL] = &DEC_CLASS_BYTE_LEVEL,
    [DEC_BYTE_FALLBACK] = &DEC_CLASS_BYTE_FALLBACK,
    [DEC_METASPACE] = &DEC_CLASS_METASPACE,
    [DEC_REPLACE] = &DEC_CLASS_REPLACE,
    [DEC_REGEX] = &DEC_CLASS_REGEX,
    [DEC_STRIP] = &DEC_CLASS_STRIP,
    [DEC_WORDPIECE] = &DEC_CLASS_WORDPIECE,
    [DEC_BPE] = &DEC_CLASS_BPE,
    [DEC_SENTENCEPIECE] = &DEC_CLASS_SENTENCEPIECE,
    [DEC_CTC] = &DEC_CLASS_CTC,
};

/* ---- from step to step ---- */

static status take_collected(dec_run *r, int i) {
    strbuf *token = &r->state[i].token;
    dec_part whole = {strbuf_cstr(token), token->len, true, true};
    status st = CLASSES[r->step[i].kind]->take(r, i, &whole);
    strbuf_clear(token);
    return st;
}

static status give(dec_run *r, int i, const dec_part *p) {
    if (i == r->n) {
        strbuf_append(r->out, p->s, p->n);
        return ST_OK;
    }
    const dec_class *c = CLASSES[r->step[i].kind];
    dec_state *st = &r->state[i];
    if (p->begins) st->seen++;
    if (!c->whole || (p->begins && p->ends)) return c->take(r, i, p);
    strbuf_append(&st->token, p->s, p->n);
    return p->ends ? take_collected(r, i) : ST_OK;
}

status dec_check_room(const dec_run *r, size_t n) {
    if (n <= GROWTH_FREE_BYTES + GROWTH * r->taken) return ST_OK;
    return err_at(r->e, ST_FORMAT, "decoder", "the decoder makes text grow more than %d times",
                  GROWTH);
}

status dec_pass(dec_run *r, int i, const char *s, size_t n, bool begins, bool ends) {
    dec_part p = {s, n, begins, ends};
    r->state[i].passed += n;
    TRY(dec_check_room(r, r->state[i].passed));
    return give(r, i + 1, &p);
}

status dec_pass_work(dec_run *r, int i, bool begins, bool ends) {
    const strbuf *work = &r->state[i].work;
    return dec_pass(r, i, strbuf_cstr(work), work->len, begins, ends);
}

/* ---- a run ---- */

static void renew(dec_run *r) {
    r->taken = 0;
    for (int i = 0; i < r->n; i++) {
        dec_state *st = &r->state[i];
        strbuf_clear(&st->token);
        strbuf_clear(&st->kept);
        strbuf_clear(&st->work);
        st->seen = r->behind; /* a token went before */
        st->count = st->left = st->passed = 0;
        st->flag = false;
    }
}

dec_run *dec_run_new(const dec_step *step, int n, dec_place place) {
    dec_run *r = xcalloc(1, sizeof(*r) + (size_t)n * sizeof(r->state[0]));
    r->step = step;
    r->n = n;
    r->behind = place != DEC_ALONE;
    r->middle = place == DEC_MIDDLE;
    renew(r);
    return r;
}

void dec_run_free(dec_run *r) {
    if (!r) return;
    for (int i = 0; i < r->n; i++) {
        strbuf_free(&r->state[i].token);
        strbuf_free(&r->state[i].kept);
        strbuf_free(&r->state[i].work);
    }
    pretok_match_data_free(r->match_data);
    free(r);
}

status dec_run_token(dec_run *r, const char *s, size_t n, strbuf *out, err *e) {
    dec_part p = {s, n, true, true};
    r->out = out;
    r->e = e;
    r->taken += n + 1;
    status st = give(r, 0, &p);
    if (st != ST_OK) renew(r);
    return st;
}

/* Only a text that goes on elsewhere has a token that has not ended. */
static status end_step(dec_run *r, int i) {
    const dec_class *c = CLASSES[r->step[i].kind];
    if (r->state[i].token.len > 0) TRY(take_collected(r, i));
    return c->end ? c->end(r, i) : ST_OK;
}

status dec_run_end(dec_run *r, strbuf *out, err *e) {
    status st = ST_OK;
    r->out = out;
    r->e = e;
    for (int i = 0; st == ST_OK && i < r->n; i++) st = end_step(r, i);
    renew(r);
    return st;
}

void dec_step_free(dec_step *s) {
    pretok_regex_free(s->regex);
}

/* ---- strings ---- */

/* memmem costs more than a token has bytes. */
const char *dec_find(const char *s, size_t n, dec_string find) {
    if (n < find.n) return NULL;
    for (const char *last = s + n - find.n; s <= last; s++) {
        s = memchr(s, find.s[0], (size_t)(last - s) + 1);
        if (!s || memcmp(s, find.s, find.n) == 0) return s;
    }
    return NULL;
}

static void replace_nothing(strbuf *out, const char *s, size_t n, dec_string put) {
    for (size_t i = 0, size; i < n; i += size) {
        size = utf8_size(s[i]);
        strbuf_append(out, put.s, put.n);
        strbuf_append(out, s + i, size);
    }
    strbuf_append(out, put.s, put.n);
}

void dec_replace_all(strbuf *out, const char *s, size_t n, dec_string find, dec_string put) {
    if (find.n == 0) {
        replace_nothing(out, s, n, put);
        return;
    }
    const char *end = s + n;
    for (const char *at; (at = dec_find(s, (size_t)(end - s), find)); s = at + find.n) {
        strbuf_append(out, s, (size_t)(at - s));
        strbuf_append(out, put.s, put.n);
    }
    strbuf_append(out, s, (size_t)(end - s));
}
