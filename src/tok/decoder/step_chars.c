/* Steps that change characters: Metaspace, Replace, Strip. */
#include <string.h>

#include "base/utf8.h"
#include "tok/decoder/chain.h"
#include "tok/pretok/pretok.h"

/* ---- Metaspace: one character, which no part cuts ---- */

static status metaspace_take(dec_run *r, int i, const dec_part *p) {
    static const dec_string SPACE = {" ", 1}, NOTHING = {"", 0};
    const dec_step *s = &r->step[i];
    dec_state *st = &r->state[i];
    if (!dec_find(p->s, p->n, s->find)) return dec_pass(r, i, p->s, p->n, p->begins, p->ends);
    strbuf_clear(&st->work);
    bool drop = s->drop_first && st->seen == 1;
    dec_replace_all(&st->work, p->s, p->n, s->find, drop ? NOTHING : SPACE);
    return dec_pass_work(r, i, p->begins, p->ends);
}

const dec_class DEC_CLASS_METASPACE = {false, metaspace_take, NULL};

/* ---- Replace: `kept` is the end of the text so far that may begin a match ---- */

static size_t open_match(const char *s, size_t n, dec_string find) {
    for (size_t k = n < find.n ? n : find.n - 1; k > 0; k--) {
        if (memcmp(s + n - k, find.s, k) == 0) return k;
    }
    return 0;
}

static status replace_in(dec_run *r, int i, const char *s, size_t n, const dec_part *p) {
    const dec_step *step = &r->step[i];
    dec_state *st = &r->state[i];
    strbuf_clear(&st->work);
    for (const char *at; (at = dec_find(s, n, step->find));) {
        strbuf_append(&st->work, s, (size_t)(at - s));
        strbuf_append(&st->work, step->put.s, step->put.n);
        TRY(dec_check_room(r, st->work.len));
        n -= (size_t)(at - s) + step->find.n;
        s = at + step->find.n;
    }
    size_t open = p->ends ? 0 : open_match(s, n, step->find);
    strbuf_append(&st->work, s, n - open);
    char tail[DEC_MAX_STRING]; /* s may point into `kept` */
    memcpy(tail, s + n - open, open);
    strbuf_clear(&st->kept);
    strbuf_append(&st->kept, tail, open);
    return dec_pass_work(r, i, p->begins, p->ends);
}

static status replace_take(dec_run *r, int i, const dec_part *p) {
    strbuf *kept = &r->state[i].kept;
    bool whole = p->begins && p->ends;
    if (whole && !dec_find(p->s, p->n, r->step[i].find))
        return dec_pass(r, i, p->s, p->n, true, true);
    if (kept->len == 0) return replace_in(r, i, p->s, p->n, p);
    strbuf_append(kept, p->s, p->n);
    return replace_in(r, i, kept->data, kept->len, p);
}

static status replace_end(dec_run *r, int i) {
    const strbuf *kept = &r->state[i].kept;
    return dec_pass(r, i, strbuf_cstr(kept), kept->len, false, false);
}

const dec_class DEC_CLASS_REPLACE = {false, replace_take, replace_end};

/* ---- Replace by a regular expression ---- */

/* The next match from *search on that is not an empty one right behind the last match, which is how
 * Oniguruma's iterator goes. */
static status next_match(dec_run *r, int i, const dec_part *p, size_t last, size_t *search,
                         size_t *start, size_t *end, bool *found) {
    for (*found = false; *search <= p->n && !*found;) {
        TRY(pretok_regex_search(r->step[i].regex, p->s, p->n, *search, start, end, found,
                                &r->match_data, r->e));
        if (!*found) return ST_OK;
        *found = *end > *start || *end != last;
        *search = *found ? *end : *end + (*end < p->n ? utf8_size(p->s[*end]) : 1);
    }
    return ST_OK;
}

static status regex_take(dec_run *r, int i, const dec_part *p) {
    dec_state *st = &r->state[i];
    size_t done = 0, search = 0, start, end;
    bool found = p->n > 0;
    strbuf_clear(&st->work);
    for (size_t last = SIZE_MAX; found; done = last = end) {
        TRY(next_match(r, i, p, last, &search, &start, &end, &found));
        if (!found) break;
        strbuf_append(&st->work, p->s + done, start - done);
        strbuf_append(&st->work, r->step[i].put.s, r->step[i].put.n);
        TRY(dec_check_room(r, st->work.len));
    }
    strbuf_append(&st->work, p->s + done, p->n - done);
    return dec_pass_work(r, i, true, true);
}

const dec_class DEC_CLASS_REGEX = {true, regex_take, NULL};

/* ---- Strip: `left` characters may still go at the start of the token; `count` are kept because it
 * may end with them ---- */

static bool begins_with(const char *s, size_t n, dec_string c) {
    return n >= c.n && memcmp(s, c.s, c.n) == 0;
}

static size_t strip_start(const dec_step *step, dec_state *st, const dec_part *p) {
    size_t at = 0;
    if (p->begins) {
        st->left = step->start;
        st->count = 0;
    }
    while (st->left > 0 && at < p->n) {
        bool strip = begins_with(p->s + at, p->n - at, step->find);
        st->left = strip ? st->left - 1 : 0;
        at += strip ? step->find.n : 0;
    }
    return at;
}

static void append_kept(dec_state *st, dec_string c, size_t n) {
    st->count -= n;
    for (; n > 0; n--) strbuf_append(&st->work, c.s, c.n);
}

static status strip_take(dec_run *r, int i, const dec_part *p) {
    const dec_step *step = &r->step[i];
    dec_string c = step->find;
    dec_state *st = &r->state[i];
    size_t at = strip_start(step, st, p), end = p->n, run = 0;
    if (at == 0 && step->stop == 0) return dec_pass(r, i, p->s, p->n, p->begins, p->ends);
    while (step->stop > 0 && end >= at + c.n && begins_with(p->s + end - c.n, c.n, c)) {
        end -= c.n;
        run++;
    }
    strbuf_clear(&st->work);
    if (end > at) append_kept(st, c, st->count);
    strbuf_append(&st->work, p->s + at, end - at);
    st->count += run;
    if (st->count > step->stop) append_kept(st, c, st->count - step->stop);
    return dec_pass_work(r, i, p->begins, p->ends);
}

static status strip_end(dec_run *r, int i) {
    dec_state *st = &r->state[i];
    strbuf_clear(&st->work);
    if (r->middle) append_kept(st, r->step[i].find, st->count);
    return dec_pass_work(r, i, false, false);
}

const dec_class DEC_CLASS_STRIP = {false, strip_take, strip_end};
