#include "infer/draft.h"

#include <string.h>

enum {
    LEAST_MATCH = 3, /* tokens that have to be the same; fewer are chance */
    MOST_MATCH = 16, /* more say nothing more */
    READ_AT_ONCE = 128,
    FIRST_LENGTH = 2,
    MOST_MISSES = 6 /* then it is tried every 64 passes */
};

/* Tokens before `end` that are the same as those before n. */
static int match_at(const int32_t *ids, int64_t n, int64_t end) {
    int len = 0;
    while (len < MOST_MATCH && len < end && ids[end - 1 - len] == ids[n - 1 - len]) len++;
    return len;
}

int draft_from_text(const int32_t *ids, int64_t n, int most, int32_t *out) {
    int longest = LEAST_MATCH - 1;
    int64_t at = -1;
    for (int64_t end = n - 1; end >= LEAST_MATCH && longest < MOST_MATCH; end--) {
        int len = match_at(ids, n, end);
        if (len <= longest) continue;
        longest = len;
        at = end;
    }
    if (at < 0) return 0;
    for (int i = 0; i < most; i++) out[i] = at + i < n ? ids[at + i] : out[at + i - n];
    return most;
}

int32_t draft_most_likely(const float *logits, int32_t n_ids) {
    int32_t best = 0;
    for (int32_t i = 1; i < n_ids; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* Tokens that the cache of g and ids have in common. */
static int64_t known(const generator *g, const int32_t *ids, int64_t n) {
    int64_t i = 0;
    while (i < n && i < g->cached.n && g->cached.id[i] == ids[i]) i++;
    return i;
}

int draft_from_model(generator *g, int32_t *ids, int64_t n, int most, int32_t below, int32_t *out) {
    int64_t same = known(g, ids, n), read = same + READ_AT_ONCE;
    if (n + most > g->Tmax) return 0;
    for (int64_t i = same; i < n; i++) /* its table may have fewer rows */
        if (ids[i] >= g->vocab) return 0;
    if (read < n) {
        generator_continue(g, ids, read, NULL, NULL);
        return 0;
    }
    for (int i = 0; i < most; i++) {
        float *logits = generator_continue(g, ids, n + i, NULL, NULL);
        int32_t id = draft_most_likely(logits, g->n_ids);
        if (id >= below) return i;
        ids[n + i] = out[i] = id;
    }
    return most;
}

status draft_check(const tok *t, const tok *draft, err *e) {
    if (t && draft && tok_hash(t) == tok_hash(draft)) return ST_OK;
    if (!t || !draft)
        err_at(e, ST_USAGE, "--draft",
               "the %s has no tokenizer, so nothing says that both have the same",
               t ? "draft model" : "model");
    else
        err_at(e, ST_USAGE, "--draft", "the draft model has another tokenizer");
    return err_hint(e, "give a smaller model of the same family");
}

/* ---- how many ---- */

int draft_next_length(draft_pace *p) {
    if (p->pause > 0) {
        p->pause--;
        return 0;
    }
    if (p->length == 0) p->length = FIRST_LENGTH;
    return p->length;
}

void draft_learn(draft_pace *p, int tried, int right) {
    if (tried == 0) return;
    if (right == tried && right >= p->length)
        p->length = 2 * right < DRAFT_MOST ? 2 * right : DRAFT_MOST;
    else if (right < tried)
        p->length = right + 1;
    if (right > 0)
        p->misses = 0;
    else if (p->misses < p->patience + MOST_MISSES)
        p->misses++;
    p->pause = p->misses > p->patience ? (1 << (p->misses - p->patience)) - 1 : 0;
}
