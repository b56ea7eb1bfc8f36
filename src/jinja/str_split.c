/* Cutting a text into parts. */
#include "jinja/lex.h"
#include "jinja/str.h"
#include "base/utf8.h"

/* ---- at white space ---- */

/* The length of the space at a byte, 0 when there is none. */
static size_t space_at(jv s, size_t at) {
    size_t n;
    return at < s.n && jtext_is_space(utf8_next(s.u.s + at, &n)) ? n : 0;
}

/* From the left, or from the right: then the parts come out last first. */
static void split_blanks(jrun *r, jv s, int64_t max, bool right, jseq *parts) {
    for (;;) {
        s = jv_trimmed(s, !right, right);
        if (s.n == 0) return;
        if (max-- == 0) break;
        size_t end = right ? s.n : 0, n;
        if (right)
            while (end > 0 && !space_at(s, utf8_before(s.u.s, end))) end = utf8_before(s.u.s, end);
        else
            for (; end < s.n && !space_at(s, end); end += n) n = utf8_size(s.u.s[end]);
        jv before = jv_part(s, 0, end), behind = jv_part(s, end, s.n);
        jseq_push(r, parts, right ? behind : before);
        s = right ? before : behind;
    }
    jseq_push(r, parts, s);
}

/* ---- at a separator ---- */

static status split_at(jrun *r, jv s, jv sep, int64_t max, bool right, jseq *parts) {
    for (; max != 0; max--) {
        int64_t at;
        TRY(jtext_find(r, s, sep, right, &at));
        if (at < 0) break;
        jv before = jv_part(s, 0, (size_t)at), behind = jv_part(s, (size_t)at + sep.n, s.n);
        jseq_push(r, parts, right ? behind : before);
        s = right ? before : behind;
    }
    jseq_push(r, parts, s);
    return ST_OK;
}

static void turn(jseq *s) {
    for (int32_t i = 0, k = s->n - 1; i < k; i++, k--) {
        jv tmp = s->item[i];
        s->item[i] = s->item[k];
        s->item[k] = tmp;
    }
}

static status split(jrun *r, const jcall *c, bool right, jv *out) {
    jseq *parts = jseq_new(r, JSEQ_LIST);
    int64_t max;
    jv sep;
    TRY(jarg_int(r, c, 1, -1, &max));
    if (max < 0) max = INT64_MAX;
    if (c->p[0].kind == JV_ABSENT || c->p[0].kind == JV_NONE) {
        TRY(jrun_spend(r, jcost_walk(c->self.n)));
        split_blanks(r, c->self, max, right, parts);
    } else {
        TRY(jarg_str(r, c, 0, jv_none(), &sep));
        if (sep.n == 0) return jrun_fail(r, "empty separator");
        TRY(split_at(r, c->self, sep, max, right, parts));
    }
    if (right) turn(parts);
    *out = jv_seq(parts);
    return jrun_spend(r, parts->n);
}

/* split, rsplit */
status jstr_split(jrun *r, const jcall *c, jv *out) {
    return split(r, c, c->name[0] == 'r', out);
}

/* ---- in three, and at line ends ---- */

/* partition, rpartition */
status jstr_partition(jrun *r, const jcall *c, jv *out) {
    bool right = c->name[0] == 'r';
    jcall once = *c;
    jv parts, sep;
    TRY(jarg_str(r, c, 0, JV_WORD(""), &sep)); /* a None would split at blanks */
    once.p[1] = jv_int(1);
    TRY(split(r, &once, right, &parts));
    const jseq *p = parts.u.seq;
    jv s = c->self, nothing = jv_part(s, 0, 0);
    jseq *three = jseq_new(r, JSEQ_TUPLE);
    bool found = p->n == 2;
    jseq_push(r, three, found ? p->item[0] : right ? nothing : s);
    jseq_push(r, three, found ? sep : nothing);
    jseq_push(r, three, found ? p->item[1] : right ? s : nothing);
    *out = jv_seq(three);
    return ST_OK;
}

static bool ends_line(uint32_t cp) {
    return (cp >= '\n' && cp <= '\r') || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

status jstr_lines(jrun *r, jv s, bool keep_ends, jseq **out) {
    jseq *lines = *out = jseq_new(r, JSEQ_LIST);
    size_t start = 0;
    TRY(jrun_spend(r, jcost_walk(s.n)));
    for (size_t at = 0, n; at < s.n; at += n) {
        uint32_t cp = utf8_next(s.u.s + at, &n);
        if (!ends_line(cp)) continue;
        if (cp == '\r' && at + 1 < s.n && s.u.s[at + 1] == '\n') n = 2;
        jseq_push(r, lines, jv_part(s, start, keep_ends ? at + n : at));
        start = at + n;
    }
    if (start < s.n) jseq_push(r, lines, jv_part(s, start, s.n));
    return jrun_spend(r, lines->n);
}

status jstr_splitlines(jrun *r, const jcall *c, jv *out) {
    jseq *lines;
    TRY(jstr_lines(r, c->self, jarg_truth(c, 0), &lines));
    *out = jv_seq(lines);
    return ST_OK;
}
