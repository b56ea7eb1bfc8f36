/* Samples of a set of token shards, token by token: `data show` of conversations, and of any set with
 * --render or --html. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/data/data_view.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

/* Tokens of a document that are shown at most; a text may be a whole library. */
enum { MOST_TOK = 32768 };

typedef struct set_view {
    const shards *s;
    const data_look *look;
    inspection *x;
    json_t *documents; /* NULL: not wanted */
    int sequences;     /* documents of a sample */
    uint64_t n_samples;
} set_view;

const char *data_title(arena *a, const shard_place *p, const char *file) {
    const char *name = inspect_visible(a, p->source[0] ? p->source : file);
    return p->line ? arena_printf(a, "%s:%u", name, (unsigned)p->line) : name;
}

status data_write_page(const inspection *x, const data_look *look, err *e) {
    strbuf page = {0};
    inspect_page(&page, x);
    status st = file_write_atomic(look->html, page.data, page.len, e);
    strbuf_free(&page);
    if (st == ST_OK && !look->json) printf("%s: %d sample%s\n", look->html, x->n, text_s(x->n));
    return st;
}

/* ---- a document ---- */

inspect_label data_label(const shards *s, int which, const uint8_t *marks, int64_t n) {
    bool rejected = false;
    for (int64_t i = 0; i < n && s->chat.marks; i++) rejected |= (marks[i] & MARK_REJECTED) != 0;
    if (!s->chat.marks || s->chat.sequences < 2) return LABEL_NONE;
    if (!s->chat.labels) return which == 0 ? LABEL_CHOSEN : LABEL_REJECTED;
    if (which == 1) return LABEL_MISMATCHED;
    return rejected ? LABEL_UNDESIRABLE : LABEL_DESIRABLE;
}

/* The first token of a document is never a target. In a set of texts all others may be. */
static status read_row(const set_view *v, const shard_place *p, int which, inspect_row *r, err *e) {
    arena *a = v->x->a;
    uint64_t n = p->end_tok - p->first_tok;
    *r = (inspect_row){.title = data_title(a, p, v->s->shard[p->shard].file)};
    r->n = n < MOST_TOK ? (int)n : MOST_TOK;
    r->more = n - (uint64_t)r->n;
    r->ids = ARENA_ARRAY(a, int32_t, r->n);
    r->marks = ARENA_ARRAY(a, uint8_t, r->n);
    TRY(shards_copy(v->s, p->first_tok, r->n, r->ids, NULL, e));
    memset(r->marks, mark_of((mark_role)INSPECT_TEXT, true), (size_t)r->n);
    if (v->s->chat.marks) TRY(shards_copy_marks(v->s, p->first_tok, r->n, r->marks, e));
    if (v->s->chat.marks && r->n) r->marks[0] &= (uint8_t)~MARK_TRAINED;
    r->label = data_label(v->s, which, r->marks, r->n);
    return ST_OK;
}

static status add_document(const set_view *v, const shard_place *p, const inspect_row *r, err *e) {
    json_t *o;
    TRY(data_document_json(v->s, v->x->t, p, &o, e));
    json_object_update_new(o, inspect_row_json(v->x, r));
    json_array_append_new(v->documents, o);
    return ST_OK;
}

/* ---- samples ---- */

status data_find_document(const shards *s, arena *a, uint64_t number, uint64_t *at, err *e) {
    *at = 0;
    if (s->has_index && number > 0) return shards_bounds(s, number - 1, 1, at, NULL, e);
    for (uint64_t i = 0; i < number && *at < s->totals.tokens; i++) {
        shard_place p;
        TRY(shards_locate(s, *at, a, &p, e));
        *at = p.end_tok;
    }
    return ST_OK;
}

static status read_sample(const set_view *v, uint64_t *at, inspect_sample *sample, err *e) {
    for (int k = 0; k < v->sequences && *at < v->s->totals.tokens; k++) {
        shard_place p;
        inspect_row *r = &sample->row[k];
        TRY(shards_locate(v->s, *at, v->x->a, &p, e));
        TRY(read_row(v, &p, k, r, e));
        if (v->documents) TRY(add_document(v, &p, r, e));
        sample->n_rows++;
        *at = p.end_tok;
    }
    return ST_OK;
}

static status add_sample(set_view *v, uint64_t number, const inspect_stop *stop, uint64_t *at,
                         err *e) {
    inspection *x = v->x;
    inspect_sample sample = {.number = number, .stop = stop};
    TRY(read_sample(v, at, &sample, e));
    x->sample = arena_grow(x->a, x->sample, x->n, &x->cap, sizeof sample);
    x->sample[x->n++] = sample;
    return ST_OK;
}

/* Those with a hard stop come first. */
static status read_stopped(set_view *v, err *e) {
    for (int i = 0; i < v->x->n_stops; i++) {
        const inspect_stop *s = &v->x->stop[i];
        uint64_t number = (uint64_t)s->document / (uint64_t)v->sequences, at;
        if (s->document < 0) continue;
        TRY(data_find_document(v->s, v->x->a, number * (uint64_t)v->sequences, &at, e));
        TRY(add_sample(v, number, s, &at, e));
    }
    return ST_OK;
}

static status read_samples(set_view *v, err *e) {
    uint64_t number = (uint64_t)v->look->from, at;
    if (v->s->has_index && number > 0 && number >= v->n_samples) {
        err_at(e, ST_USAGE, "--from", "there is no sample %" PRIu64, number);
        return err_hint(e, "the last is %" PRIu64 ", counted from 0", v->n_samples - 1);
    }
    TRY(read_stopped(v, e));
    TRY(data_find_document(v->s, v->x->a, number * (uint64_t)v->sequences, &at, e));
    for (int64_t i = 0; i < v->look->limit && at < v->s->totals.tokens; i++, number++)
        TRY(add_sample(v, number, NULL, &at, e));
    if (v->n_samples > number) v->x->left_out = v->n_samples - number;
    return ST_OK;
}

/* ---- the audit ---- */

/* The first conversations with hard stops, by their places. */
static void find_stops(const set_view *v, uint64_t document, const char *title) {
    for (int i = 0; i < v->x->n_stops; i++) {
        inspect_stop *s = &v->x->stop[i];
        if (s->document < 0 && strcmp(s->place, title) == 0) s->document = (int64_t)document;
    }
}

static status count_document(const set_view *v, uint64_t number, uint64_t first, uint64_t end,
                             arena *tmp, err *e) {
    shard_place p;
    int64_t n = (int64_t)(end - first);
    uint8_t *marks = ARENA_ARRAY(tmp, uint8_t, n);
    TRY(shards_copy_marks(v->s, first, n, marks, e));
    TRY(shards_locate(v->s, first, tmp, &p, e));
    if (n) marks[0] &= (uint8_t)~MARK_TRAINED;
    inspect_count(inspect_source_of(v->x, p.source), marks, n);
    find_stops(v, number, data_title(tmp, &p, v->s->shard[p.shard].file));
    return ST_OK;
}

/* Every document of a set with marks. */
static status count_set(const set_view *v, err *e) {
    arena *tmp = arena_new("audit");
    uint64_t first = 0, end = 0;
    status st = ST_OK;
    for (uint64_t i = 0; i < v->s->totals.documents && st == ST_OK; i++, first = end) {
        st = shards_bounds(v->s, i, 1, &end, NULL, e);
        if (st == ST_OK && end > first) st = count_document(v, i, first, end, tmp, e);
        arena_reset(tmp);
    }
    arena_free(tmp);
    return st;
}

/* ---- output ---- */

static const char *about(const set_view *v) {
    const shard_totals *t = &v->s->totals;
    arena *a = v->x->a;
    if (!v->s->chat.marks)
        return arena_printf(a, "%" PRIu64 " token%s, %" PRIu64 " document%s", t->tokens,
                            text_s(t->tokens), t->documents, text_s(t->documents));
    uint64_t trained = 0;
    for (int i = 0; i < v->x->n_sources; i++) trained += v->x->source[i].c.trained;
    return arena_printf(a, "%s: %" PRIu64 "; tokens: %" PRIu64 ", %.1f %% of them trained",
                        v->sequences == 1   ? "conversations"
                        : v->s->chat.labels ? "answers with a label"
                                            : "pairs of a chosen and a rejected conversation",
                        v->n_samples, t->tokens,
                        t->tokens ? 100 * (double)trained / (double)t->tokens : 0);
}

static void print_json(set_view *v) {
    json_t *o = data_set_json(v->s, v->documents), *roles = json_array();
    v->documents = NULL;
    for (int k = 0; k < INSPECT_ROLES; k++)
        json_array_append_new(roles, json_string(inspect_role_name(k)));
    json_object_set_new(o, "sequences", json_integer(v->sequences));
    json_object_set_new(o, "role_names", roles);
    json_object_set_new(o, "audit", inspect_audit_json(v->x));
    json_object_set_new(o, "stops", inspect_stops_json(v->x));
    cli_print_json(o);
}

static void print_text(const set_view *v) {
    strbuf out = {0};
    inspect_text_head(&out, v->x, &v->look->style);
    inspect_text_audit(&out, v->x);
    for (int i = 0; i < v->x->n; i++)
        inspect_text_sample(&out, v->x, &v->x->sample[i], &v->look->style);
    if (v->x->left_out)
        strbuf_printf(&out, "\n... and %" PRIu64 " more (--from N, --limit N)\n", v->x->left_out);
    fwrite(out.data, 1, out.len, stdout);
    strbuf_free(&out);
}

static status show(set_view *v, err *e) {
    inspection *x = v->x;
    if (v->s->chat.marks) TRY(inspect_read_stops(x, v->s->dir, e));
    if (v->s->chat.marks) TRY(count_set(v, e));
    TRY(read_samples(v, e));
    x->about = about(v);
    if (v->look->html) TRY(data_write_page(x, v->look, e));
    if (v->look->json)
        print_json(v);
    else if (!v->look->html)
        print_text(v);
    return ST_OK;
}

status data_show_set(const shards *s, const tok *t, const data_look *look, err *e) {
    inspection x = {.a = arena_new("inspector"),
                    .t = t,
                    .title = look->title ? look->title : s->dir,
                    .marks = s->chat.marks,
                    .built = !look->title};
    set_view v = {.s = s, .look = look, .x = &x, .sequences = 1};
    if (s->chat.marks && s->chat.sequences > 1) v.sequences = s->chat.sequences;
    v.n_samples = s->totals.documents / (uint64_t)v.sequences;
    if (look->json) v.documents = json_array();
    status st = show(&v, e);
    json_decref(v.documents);
    arena_free(x.a);
    return st;
}
