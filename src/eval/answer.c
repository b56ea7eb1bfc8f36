/* Answers: filters and exact match (see answer.h). They do what those of lm-evaluation-harness 0.4
 * do. */
#include "eval/answer.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "jinja/jinja.h"
#include "tok/pretok/pretok.h"

/* ---- reasoning ---- */

static const struct {
    const char *open, *close;
} marks[] = {{"<think>", "</think>"},
             {"<thinking>", "</thinking>"},
             {"<reasoning>", "</reasoning>"},
             {"[THINK]", "[/THINK]"}};

static const char *find_last(eval_text s, const char *word) {
    size_t n = strlen(word);
    for (size_t at = s.len + 1; at-- > 0;)
        if (s.len - at >= n && memcmp(s.s + at, word, n) == 0) return s.s + at;
    return NULL;
}

static bool begins(eval_text s, const char *word) {
    return s.len >= strlen(word) && memcmp(s.s, word, strlen(word)) == 0;
}

static bool ends(eval_text s, const char *word) {
    size_t n = strlen(word);
    return s.len >= n && memcmp(s.s + s.len - n, word, n) == 0;
}

static eval_text left_stripped(eval_text s) {
    jinja_strip(&s.s, &s.len, true, false);
    return s;
}

bool eval_is_blank(eval_text s) {
    return left_stripped(s).len == 0;
}

eval_thought eval_split_thought(eval_text prompt, eval_text written) {
    eval_text trimmed = prompt, whole = left_stripped(written);
    jinja_strip(&trimmed.s, &trimmed.len, false, true);
    for (int i = 0; i < ARRAY_LEN(marks); i++) {
        const char *close = find_last(whole, marks[i].close);
        bool opened = begins(whole, marks[i].open);
        if (!close && !opened && !ends(trimmed, marks[i].open)) continue;
        const char *end = close ? close : whole.s + whole.len;
        size_t skip = opened ? strlen(marks[i].open) : 0;
        eval_thought t = {.reasoning = {whole.s + skip, (size_t)(end - whole.s) - skip},
                          .answer = {end, 0},
                          .has_marks = true};
        if (!close) return t;
        const char *after = close + strlen(marks[i].close);
        t.answer = left_stripped((eval_text){after, (size_t)(whole.s + whole.len - after)});
        return t;
    }
    return (eval_thought){.reasoning = {written.s, 0}, .answer = written};
}

/* ---- patterns ---- */

typedef struct found_text {
    size_t start, end, next; /* next: where the search goes on */
} found_text;

/* What Python's findall gives of a match: its only group, or the first of several that is not
 * empty, or all of it. false: there are groups, and none took part. */
static bool part_of_match(void *code, const void *data, found_text *f) {
    int n = pretok_regex_groups(code);
    if (n == 0) return true;
    for (int i = 0; i < n; i++) {
        size_t start, end;
        if (!pretok_regex_group(data, i, &start, &end) || (n > 1 && start == end)) continue;
        f->start = start, f->end = end;
        return true;
    }
    f->end = f->start;
    return n == 1;
}

/* The matches in order; each is given to `take` with its whole extent and its part, until it says
 * no. */
typedef bool (*take_match)(void *ctx, const found_text *whole, const found_text *part, bool has);
static status each_match(const char *pattern, eval_text s, take_match take, void *ctx, err *e) {
    void *code, *data = NULL;
    TRY(pretok_regex_compile_python(&code, pattern, e));
    status st = ST_OK;
    for (size_t at = 0; st == ST_OK && at <= s.len;) {
        found_text whole;
        bool found;
        st = pretok_regex_search(code, s.s, s.len, at, &whole.start, &whole.end, &found, &data, e);
        if (st != ST_OK || !found) break;
        found_text part = whole;
        bool has = part_of_match(code, data, &part);
        if (!take(ctx, &whole, &part, has)) break;
        at = whole.end > whole.start ? whole.end : whole.end + 1;
        while (at < s.len && ((uint8_t)s.s[at] & 0xC0) == 0x80) at++;
    }
    pretok_match_data_free(data);
    pretok_regex_free(code);
    return st;
}

typedef struct plain_take {
    eval_take_match take;
    void *ctx;
} plain_take;

static bool take_plain(void *ctx, const found_text *whole, const found_text *part, bool has) {
    const plain_take *p = ctx;
    (void)part, (void)has;
    return p->take(p->ctx, whole->start, whole->end);
}

status eval_each_match(const char *pattern, eval_text s, eval_take_match take, void *ctx, err *e) {
    plain_take p = {take, ctx};
    return each_match(pattern, s, take_plain, &p, e);
}

static bool count_one(void *ctx, size_t start, size_t end) {
    (void)start, (void)end;
    ++*(int64_t *)ctx;
    return true;
}

status eval_count_matches(const char *pattern, eval_text s, int64_t *n, err *e) {
    *n = 0;
    return eval_each_match(pattern, s, count_one, n, e);
}

/* ---- filters ---- */

typedef struct pick {
    int wanted, n; /* wanted -1: the last one */
    bool found, has;
    found_text part;
} pick;

static bool pick_match(void *ctx, const found_text *whole, const found_text *part, bool has) {
    pick *p = ctx;
    (void)whole;
    if (p->wanted >= 0 && p->n++ < p->wanted) return true;
    p->found = true;
    p->has = has;
    p->part = *part;
    return p->wanted < 0;
}

static eval_text stripped(eval_text s) {
    jinja_strip(&s.s, &s.len, true, true);
    return s;
}

static status apply_regex(eval_task *t, const eval_step *step, eval_text *s, err *e) {
    pick p = {.wanted = step->group};
    TRY(each_match(step->pattern, *s, pick_match, &p, e));
    if (p.found && p.has)
        *s = stripped((eval_text){s->s + p.part.start, p.part.end - p.part.start});
    else
        *s = eval_keep(t, step->fallback, strlen(step->fallback));
    return ST_OK;
}

/* Letters of ASCII only. */
static eval_text with_case(eval_task *t, eval_text s, bool lower) {
    char *to = arena_strndup(t->a, s.s, s.len);
    for (size_t i = 0; i < s.len; i++)
        to[i] = (char)(lower ? tolower((uint8_t)to[i]) : toupper((uint8_t)to[i]));
    return (eval_text){to, s.len};
}

static status apply(eval_task *t, const eval_step *step, eval_text *s, err *e) {
    switch (step->kind) {
        case STEP_TAKE_FIRST: return ST_OK;
        case STEP_REGEX: return apply_regex(t, step, s, e);
        case STEP_STRIP: *s = stripped(*s); return ST_OK;
        case STEP_LOWERCASE:
        case STEP_UPPERCASE: *s = with_case(t, *s, step->kind == STEP_LOWERCASE); return ST_OK;
    }
    return ST_OK;
}

status eval_find_answers(eval_task *t, const eval_doc *d, eval_attempt *a, err *e) {
    eval_text found = a->written;
    if (!t->keep_reasoning) found = eval_split_thought(d->seen, a->written).answer;
    a->answer = ARENA_ARRAY(t->a, eval_text, t->n_filters);
    for (int f = 0; f < t->n_filters; f++) {
        a->answer[f] = found;
        for (int i = 0; i < t->filter[f].n_steps; i++)
            TRY(apply(t, &t->filter[f].step[i], &a->answer[f], e));
    }
    return ST_OK;
}

/* ---- exact match ---- */

typedef struct removal {
    eval_text from;
    strbuf left;
    size_t done;
} removal;

static bool leave_out(void *ctx, const found_text *whole, const found_text *part, bool has) {
    removal *r = ctx;
    (void)part, (void)has;
    strbuf_append(&r->left, r->from.s + r->done, whole->start - r->done);
    r->done = whole->end;
    return true;
}

/* Patterns were checked when the task was opened; one that runs away leaves the text as it is from
 * there on. */
static void remove_matches(const char *pattern, strbuf *s) {
    removal r = {.from = {strbuf_cstr(s), s->len}};
    if (each_match(pattern, r.from, leave_out, &r, NULL) == ST_OK || r.done > 0)
        strbuf_append(&r.left, r.from.s + r.done, r.from.len - r.done);
    else
        strbuf_append(&r.left, r.from.s, r.from.len);
    strbuf_free(s);
    *s = r.left;
}

static void simplify(const eval_match *m, eval_text from, strbuf *s) {
    strbuf_append(s, from.s, from.len);
    for (int i = 0; i < m->n_ignore; i++) remove_matches(m->ignore[i], s);
    size_t n = 0;
    for (size_t i = 0; i < s->len; i++) {
        uint8_t c = (uint8_t)s->data[i];
        if (m->ignore_punctuation && c < 0x80 && ispunct(c)) continue;
        if (m->ignore_numbers && c >= '0' && c <= '9') continue;
        s->data[n++] = (char)(m->ignore_case ? tolower(c) : c);
    }
    if (s->data) strbuf_truncate(s, n);
}

bool eval_match_exactly(const eval_match *m, eval_text answer, eval_text target) {
    strbuf a = {0}, b = {0};
    simplify(m, answer, &a);
    simplify(m, target, &b);
    bool same = a.len == b.len && memcmp(strbuf_cstr(&a), strbuf_cstr(&b), a.len) == 0;
    strbuf_free(&a);
    strbuf_free(&b);
    return same;
}
