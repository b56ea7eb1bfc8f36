/* Prepend and Replace. What is put in place of a match stands for the match's last character. */
#include <string.h>

#include "tok/normalize/job.h"
#include "tok/pretok/pretok.h"

status prepend_run(norm_job *j) {
    TRY(job_grow(j, j->step->n_content + j->in->len));
    text_add(j->out, j->step->content, j->step->n_content, piece_from(j->in, 0));
    text_copy(j->out, j->in, 0, j->in->len);
    return ST_OK;
}

/* ---- a fixed string ---- */

/* The next occurrence at or after `from`; in->len when there is none. */
static size_t find_literal(const norm_step *s, const tok_piece *in, size_t from) {
    const char *hit = s->n_pattern == 1
                          ? memchr(in->s + from, s->pattern[0], in->len - from)
                          : memmem(in->s + from, in->len - from, s->pattern, s->n_pattern);
    return hit ? (size_t)(hit - in->s) : in->len;
}

size_t replace_literal_keep(const norm_step *s, const tok_piece *in) {
    return find_literal(s, in, 0);
}

/* Puts the content in place of a match that ends there. */
static status put_content(norm_job *j, size_t end) {
    const norm_step *s = j->step;
    tok_span nowhere = {j->origin, j->origin};
    TRY(job_grow(j, s->n_content));
    text_add(j->out, s->content, s->n_content, end > 0 ? piece_from(j->in, end - 1) : nowhere);
    return ST_OK;
}

/* One byte by up to eight, without places: every byte of the text is written as if it were replaced
 * and the next one overwrites what is too much, so that the loop has no branches to guess. */
static status replace_byte(norm_job *j) {
    const norm_step *s = j->step;
    const char *from = j->in->s, *end = from + j->in->len, byte = s->pattern[0];
    size_t hits = 0, more = s->n_content - 1; /* wraps for 0, and back where it is added */
    for (const char *p = from; p < end; p++) hits += *p == byte;
    size_t len = j->in->len + hits * more;
    TRY(job_grow(j, len));
    char content[8] = {0};
    uint64_t eight;
    memcpy(content, s->content, s->n_content);
    memcpy(&eight, content, sizeof(eight));
    char *to = strbuf_extend(&j->out->s, len + sizeof(eight)), first = content[0];
    for (; from < end; from++) {
        bool hit = *from == byte;
        memcpy(to, &eight, sizeof(eight));
        *to = hit ? first : *from;
        to += 1 + (more & -(size_t)hit);
    }
    strbuf_truncate(&j->out->s, len);
    return ST_OK;
}

status replace_literal_run(norm_job *j) {
    const norm_step *s = j->step;
    const tok_piece *in = j->in;
    if (!in->from && s->n_pattern == 1 && s->n_content <= 8) return replace_byte(j);
    for (size_t i = 0, hit = j->keep; i < in->len; hit = find_literal(s, in, i)) {
        text_copy(j->out, in, i, hit);
        i = hit;
        if (hit == in->len) break;
        i += s->n_pattern;
        TRY(put_content(j, i));
    }
    return ST_OK;
}

/* ---- a pattern ---- */

/* An empty match counts unless it stands right behind the match before it. */
status replace_regex_run(norm_job *j) {
    const tok_piece *in = j->in;
    size_t done = 0, search = 0, last_end = SIZE_MAX;
    while (search <= in->len) {
        size_t start, end;
        status st = pretok_regex_find(j->step->regex, in->s, in->len, search, &start, &end,
                                      &j->work->match_data, j->e);
        if (st != ST_OK) return err_context(j->e, "normalizer");
        if (end > in->len) break; /* no match */
        if (start == end && end == last_end) {
            search += search < in->len ? utf8_size(in->s[search]) : 1;
            continue;
        }
        text_copy(j->out, in, done, start);
        TRY(put_content(j, end));
        done = search = last_end = end;
    }
    text_copy(j->out, in, done, in->len);
    return ST_OK;
}
