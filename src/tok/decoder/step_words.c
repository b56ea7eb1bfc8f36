/* Steps about whole tokens: none at all, Fuse, WordPiece, BPEDecoder, CTC. */
#include <string.h>

#include "tok/decoder/chain.h"

static const dec_string SPACE = {" ", 1}, NOTHING = {"", 0};

/* ---- no decoder, Fuse ---- */

static status join_take(dec_run *r, int i, const dec_part *p) {
    bool first = r->state[i].seen == 1;
    if (!first) TRY(dec_pass(r, i, SPACE.s, SPACE.n, false, false));
    return dec_pass(r, i, p->s, p->n, first, false);
}

static status fuse_take(dec_run *r, int i, const dec_part *p) {
    return dec_pass(r, i, p->s, p->n, p->begins && r->state[i].seen == 1, false);
}

/* No tokens make an empty one. */
static status fuse_end(dec_run *r, int i) {
    return r->middle ? ST_OK : dec_pass(r, i, "", 0, r->state[i].seen == 0, true);
}

const dec_class DEC_CLASS_JOIN = {false, join_take, NULL};
const dec_class DEC_CLASS_FUSE = {false, fuse_take, fuse_end};

/* ---- clean-up ---- */

/* Replaces in place; `put` is not longer than `find`. */
static void shrink(strbuf *b, const char *find, const char *put) {
    size_t n_find = strlen(find), n_put = strlen(put);
    char *from = b->data, *to = b->data, *end = b->data + b->len;
    for (char *at; (at = memmem(from, (size_t)(end - from), find, n_find)); from = at + n_find) {
        memmove(to, from, (size_t)(at - from));
        to += at - from;
        memcpy(to, put, n_put);
        to += n_put;
    }
    memmove(to, from, (size_t)(end - from));
    b->len = (size_t)(to - b->data) + (size_t)(end - from);
    b->data[b->len] = '\0';
}

/* Most tokens have no space, or a letter behind it. */
static bool may_be_unclean(const strbuf *b) {
    const char *s = strbuf_cstr(b), *end = s + b->len;
    while ((s = memchr(s, ' ', (size_t)(end - s)))) {
        s++;
        if (*s && strchr(".?!,'nd", *s)) return true;
    }
    return false;
}

static void clean_up(strbuf *b) {
    static const char *const PAIRS[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    if (!may_be_unclean(b)) return;
    for (int i = 0; i < ARRAY_LEN(PAIRS); i++) shrink(b, PAIRS[i][0], PAIRS[i][1]);
}

/* ---- WordPiece ---- */

static status wordpiece_take(dec_run *r, int i, const dec_part *p) {
    const dec_step *s = &r->step[i];
    dec_state *st = &r->state[i];
    size_t skip = 0;
    strbuf_clear(&st->work);
    if (st->seen > 1) {
        bool continues = p->n >= s->find.n && memcmp(p->s, s->find.s, s->find.n) == 0;
        if (continues) skip = s->find.n;
        if (!continues) strbuf_append(&st->work, SPACE.s, SPACE.n);
    }
    strbuf_append(&st->work, p->s + skip, p->n - skip);
    if (s->clean) clean_up(&st->work);
    return dec_pass_work(r, i, true, true);
}

const dec_class DEC_CLASS_WORDPIECE = {true, wordpiece_take, NULL};

/* ---- BPEDecoder: `kept` is the token from its first suffix on, which becomes a space or nothing
 * when the next token or the end comes; `flag` says that there is one ---- */

static status pass_suffix(dec_run *r, int i, dec_string put) {
    dec_state *st = &r->state[i];
    if (!st->flag) return ST_OK;
    st->flag = false;
    strbuf_clear(&st->work);
    dec_replace_all(&st->work, strbuf_cstr(&st->kept), st->kept.len, r->step[i].find, put);
    return dec_pass_work(r, i, false, true);
}

static status bpe_take(dec_run *r, int i, const dec_part *p) {
    const dec_string suffix = r->step[i].find;
    dec_state *st = &r->state[i];
    TRY(pass_suffix(r, i, SPACE));
    const char *at = suffix.n > 0 ? dec_find(p->s, p->n, suffix) : p->s;
    if (!at) return dec_pass(r, i, p->s, p->n, true, true);
    size_t before = (size_t)(at - p->s);
    strbuf_clear(&st->kept);
    strbuf_append(&st->kept, at, p->n - before);
    st->flag = true;
    return dec_pass(r, i, p->s, before, true, false);
}

static status bpe_end(dec_run *r, int i) {
    return pass_suffix(r, i, r->middle ? SPACE : NOTHING);
}

const dec_class DEC_CLASS_BPE = {true, bpe_take, bpe_end};

/* ---- CTC: `kept` is the last token, `flag` says that there is one ---- */

static status ctc_take(dec_run *r, int i, const dec_part *p) {
    const dec_step *s = &r->step[i];
    dec_state *st = &r->state[i];
    bool again = st->kept.len == p->n && memcmp(strbuf_cstr(&st->kept), p->s, p->n) == 0;
    if (st->flag && again) return ST_OK;
    st->flag = true;
    strbuf_clear(&st->kept);
    strbuf_append(&st->kept, p->s, p->n);
    strbuf_clear(&st->work);
    dec_replace_all(&st->work, p->s, p->n, s->find, NOTHING);
    if (s->clean) {
        clean_up(&st->work);
        strbuf words = {0};
        dec_replace_all(&words, strbuf_cstr(&st->work), st->work.len, s->put, SPACE);
        strbuf_free(&st->work);
        st->work = words;
    }
    return st->work.len > 0 ? dec_pass_work(r, i, true, true) : ST_OK;
}

const dec_class DEC_CLASS_CTC = {true, ctc_take, NULL};
