/* Runs the steps of a normalizer. */
#include "tok/normalize/normalize.h"

#include <stdlib.h>
#include <string.h>

#include "tok/normalize/job.h"
#include "tok/pretok/pretok.h"

/* No published normalizer makes a text more than 20 times as long. */
enum { GROWTH = 100, GROWTH_FREE_BYTES = 1 << 20 };

static size_t keep_none(const norm_step *s, const tok_piece *in) {
    (void)s, (void)in;
    return 0;
}

static const struct {
    size_t (*keep)(const norm_step *s, const tok_piece *in);
    status (*run)(norm_job *j);
} KINDS[] = {
    [NORM_NFC] = {form_keep, form_run},
    [NORM_NFD] = {form_keep, form_run},
    [NORM_NFKC] = {form_keep, form_run},
    [NORM_NFKD] = {form_keep, form_run},
    [NORM_NMT] = {filter_keep, filter_run},
    [NORM_STRIP_ACCENTS] = {filter_keep, filter_run},
    [NORM_STRIP_NONSPACING] = {filter_keep, filter_run},
    [NORM_CLEAN] = {filter_keep, filter_run},
    [NORM_CHINESE] = {chinese_keep, chinese_run},
    [NORM_LOWERCASE] = {lowercase_keep, lowercase_run},
    [NORM_BYTE_LEVEL] = {keep_none, byte_level_run},
    [NORM_PREPEND] = {keep_none, prepend_run},
    [NORM_REPLACE_LITERAL] = {replace_literal_keep, replace_literal_run},
    [NORM_REPLACE_REGEX] = {keep_none, replace_regex_run},
    [NORM_PRECOMPILED] = {precompiled_keep, precompiled_run},
    [NORM_SENTENCEPIECE] = {keep_none, sentencepiece_run},
};

/* ---- what steps share ---- */

/* The place of a byte that is written at the cursor. */
static tok_span place_of(const norm_job *j, int change) {
    const tok_piece *in = j->in;
    if (change <= 0) return in->from[j->at < in->len ? j->at : in->len - 1];
    return j->at > 0 ? in->from[j->at - 1] : (tok_span){j->origin, j->origin};
}

void job_write(norm_job *j, const char *s, size_t n, int change) {
    const tok_piece *in = j->in;
    if (!in->from) {
        strbuf_append(&j->out->s, s, n);
        return;
    }
    text_add(j->out, s, n, place_of(j, change));
    for (; change <= 0 && j->at < in->len; change++) j->at += utf8_size(in->s[j->at]);
}

void job_write_cp(norm_job *j, uint32_t cp, int change) {
    char bytes[4];
    job_write(j, bytes, (size_t)utf8_encode(cp, bytes), change);
}

status job_grow(norm_job *j, size_t n) {
    if (n <= j->limit && j->out->s.len <= j->limit - n) return ST_OK;
    return err_set(j->e, ST_FORMAT,
                   "the normalizer makes a text of %zu bytes more than %d times as long",
                   j->in->len, GROWTH);
}

size_t ascii_end(const char *s, size_t n, size_t i) {
    uint64_t eight;
    while (n - i >= 8 && (memcpy(&eight, s + i, 8), (eight & 0x8080808080808080u) == 0)) i += 8;
    while (i < n && (uint8_t)s[i] < 0x80) i++;
    return i;
}

size_t plain_end(const char *s, size_t n, size_t i, unsigned props) {
    while (i < n) {
        if ((uint8_t)s[i] < 0x80) {
            i = ascii_end(s, n, i);
            continue;
        }
        size_t next = i;
        if (norm_props(take_char(s, &next)) & props) return i;
        i = next;
    }
    return n;
}

/* ---- steps ---- */

/* A part of the text is not copied. */
static void strip(const norm_step *s, tok_piece *text) {
    size_t start = 0, end = text->len;
    while (s->left && start < end) {
        size_t next = start;
        if (!(norm_props(take_char(text->s, &next)) & PROP_SPACE)) break;
        start = next;
    }
    while (s->right && end > start) {
        size_t before = utf8_before(text->s, end), i = before;
        if (!(norm_props(take_char(text->s, &i)) & PROP_SPACE)) break;
        end = before;
    }
    *text = piece_slice(text, start, end);
}

status norm_run(const norm_step *steps, int n, const tok_piece *in, norm_work *w, tok_piece *out,
                err *e) {
    int to = 0;
    *out = *in;
    for (int i = 0; i < n && out->len > 0; i++) {
        if (steps[i].kind == NORM_STRIP) {
            strip(&steps[i], out);
            continue;
        }
        norm_job j = {.step = &steps[i], .in = out, .out = &w->text[to], .work = w, .e = e};
        j.keep = KINDS[steps[i].kind].keep(&steps[i], out);
        if (j.keep == out->len) continue;
        j.limit = GROWTH_FREE_BYTES + GROWTH * in->len;
        j.origin = piece_from(in, 0).start;
        text_reset(j.out, in->from != NULL);
        TRY(KINDS[steps[i].kind].run(&j));
        *out = text_piece(j.out, in->first);
        if (out->from && out->len > 0) out->first &= out->from[0].start == j.origin;
        to = 1 - to;
    }
    return ST_OK;
}

bool norm_moves_front(const norm_step *s) {
    switch (s->kind) {
        case NORM_NMT:
        case NORM_STRIP_ACCENTS:
        case NORM_STRIP_NONSPACING:
        case NORM_CLEAN:
        case NORM_REPLACE_LITERAL:
        case NORM_REPLACE_REGEX:
        case NORM_PRECOMPILED:
        case NORM_SENTENCEPIECE: return true;
        default: return false;
    }
}

/* ---- lives ---- */

void norm_work_free(norm_work *w) {
    text_free(&w->text[0]);
    text_free(&w->text[1]);
    free(w->chars);
    free(w->sorted);
    pretok_match_data_free(w->match_data);
}

void norm_step_free(norm_step *s) {
    pretok_regex_free(s->regex);
    s->regex = NULL;
}
