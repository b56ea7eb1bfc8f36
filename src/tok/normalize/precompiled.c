/* The rules of a sentencepiece model as Hugging Face tokenizers applies them: to each grapheme
 * cluster of less than six bytes as a whole, by the rule of its shortest prefix, else to each
 * character alone. Places follow its way of counting changes, too. */
#include <string.h>

#include "base/utf8.h"
#include "tok/normalize/charsmap.h"
#include "tok/normalize/job.h"

enum { WHOLE_CLUSTER_BYTES = 6 }; /* clusters below this are looked up as a whole */

/* The character written last is held back: one that is removed after it changes its `change`. */
typedef struct writer {
    norm_job *j;
    char held[4];
    size_t n_held; /* 0: none yet */
    int change;
} writer;

static void flush(writer *w) {
    if (w->n_held > 0) job_write(w->j, w->held, w->n_held, w->change);
    w->n_held = 0;
}

static void put(writer *w, const char *s, size_t n, int change) {
    flush(w);
    memcpy(w->held, s, n);
    w->n_held = n;
    w->change = change;
}

static int count_chars(const char *s, size_t n) {
    int count = 0;
    for (size_t i = 0; i < n; i++) count += !utf8_continues(s[i]);
    return count;
}

/* Writes the replacement of n_old characters. What is removed at the very beginning is not counted
 * at all, which shifts all places behind it. */
static status put_rule(writer *w, const norm_rule *rule, int n_old) {
    int n_new = count_chars(rule->to, rule->n_to), k = 0;
    TRY(job_grow(w->j, rule->n_to));
    for (size_t i = 0; i < rule->n_to; k++) {
        size_t size = utf8_size(rule->to[i]);
        put(w, rule->to + i, size, k >= n_old);
        i += size;
    }
    if (n_new < n_old && w->n_held > 0) w->change += n_new - n_old;
    return ST_OK;
}

/* Looks s[i, end) up; *done tells whether it had a rule. */
static status try_rule(writer *w, size_t i, size_t end, bool *done) {
    norm_rule rule;
    const char *s = w->j->in->s;
    TRY(charsmap_find(w->j->step->map, s + i, end - i, false, &rule, w->j->e));
    *done = rule.len > 0;
    return *done ? put_rule(w, &rule, count_chars(s + i, end - i)) : ST_OK;
}

static status put_cluster(writer *w, size_t i, size_t end) {
    const char *s = w->j->in->s;
    bool done = false;
    if (end - i < WHOLE_CLUSTER_BYTES) TRY(try_rule(w, i, end, &done));
    for (size_t next; !done && i < end; i = next) {
        bool ruled;
        next = i + utf8_size(s[i]);
        TRY(try_rule(w, i, next, &ruled));
        if (!ruled) put(w, s + i, next - i, 0);
    }
    return ST_OK;
}

/* End of the ASCII from i that is surely not changed. The last character before other text may be
 * part of a cluster with it. */
static size_t unchanged_end(const norm_charsmap *m, const tok_piece *in, size_t i) {
    size_t end = i;
    while (end < in->len && (uint8_t)in->s[end] < 0x80 && m->plain[(uint8_t)in->s[end]] &&
           in->s[end] != '\r') {
        end++;
    }
    return end < in->len && end > i && (uint8_t)in->s[end] >= 0x80 ? end - 1 : end;
}

size_t precompiled_keep(const norm_step *s, const tok_piece *in) {
    return unchanged_end(s->map, in, 0);
}

/* The cursor follows only what is written, so with places all is written one by one. */
status precompiled_run(norm_job *j) {
    const tok_piece *in = j->in;
    const norm_charsmap *m = j->step->map;
    writer w = {.j = j};
    for (size_t i = 0; i < in->len;) {
        size_t end = in->from ? i : unchanged_end(m, in, i);
        if (end > i) {
            flush(&w);
            text_copy(j->out, in, i, end);
        } else {
            end = cluster_end(in->s, in->len, i);
            TRY(put_cluster(&w, i, end));
        }
        i = end;
    }
    flush(&w);
    return ST_OK;
}

status norm_step_precompiled(norm_step *s, arena *mem, const void *charsmap, size_t n, err *e) {
    norm_charsmap *map;
    TRY(charsmap_read(&map, mem, charsmap, n, e));
    *s = (norm_step){.kind = NORM_PRECOMPILED, .map = map};
    return ST_OK;
}
