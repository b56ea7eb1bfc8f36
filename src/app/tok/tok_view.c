/* The figures of `tok report`, and how they stand in JSON. */
#include "app/tok/tok_view.h"

#include <math.h>
#include <string.h>

#include "app/frame/cli_ids.h"
#include "base/json.h"

static double ratio(int64_t a, int64_t b) {
    return b ? (double)a / (double)b : NAN;
}

double view_value(const tok_view *v, view_figure f, int tok_index, int row) {
    const tok_tally *s = view_tally(v, tok_index, row);
    int32_t vocab = v->tok[tok_index].vocab.size;
    switch (f) {
        case VIEW_VOCAB: return (double)vocab;
        case VIEW_TOKENS: return (double)s->tokens;
        case VIEW_FERTILITY: return ratio(s->word_tokens, s->words);
        case VIEW_PCW: return ratio(s->split_words, s->words);
        case VIEW_BYTES_PER_TOKEN: return ratio(s->bytes, s->tokens);
        case VIEW_TOKENS_PER_CHAR: return ratio(s->tokens, s->chars);
        case VIEW_COVERAGE: return ratio(s->bytes - s->unk_bytes, s->bytes);
        case VIEW_UNKNOWN: return ratio(s->unk_bytes, s->bytes);
        case VIEW_USED: return ratio(s->used_tokens, vocab);
        case VIEW_EXACT: break;
    }
    return ratio(s->exact_documents, s->documents + s->refused_documents);
}

bool view_comparable(const tok_tally *s) {
    return s->refused_documents == 0 && 1000 * s->unk_bytes <= s->bytes;
}

int view_count_rows(const tok_view *v, view_kind kind) {
    int n = 0;
    for (int k = 0; k < v->n_rows; k++) n += v->row[k].kind == kind;
    return n;
}

/* ---- JSON ---- */

static json_t *row_json(const tok_view *v, int tok_index, int row_index) {
    static const struct {
        const char *key;
        view_figure figure;
    } SHARES[] = {{"fertility", VIEW_FERTILITY},
                  {"pcw", VIEW_PCW},
                  {"bytes_per_token", VIEW_BYTES_PER_TOKEN},
                  {"tokens_per_char", VIEW_TOKENS_PER_CHAR},
                  {"coverage", VIEW_COVERAGE},
                  {"vocab_used", VIEW_USED}};
    const view_tok *t = &v->tok[tok_index];
    const view_row *row = &v->row[row_index];
    const tok_tally *s = view_tally(v, tok_index, row_index);
    json_t *o = json_pack("{s:o, s:s}", "tokenizer", json_cstr(t->name), "by",
                          row->kind == VIEW_FILE  ? "file"
                          : row->kind == VIEW_ALL ? "all"
                                                  : v->group);
    const struct {
        const char *key;
        int64_t value;
    } counts[] = {{"documents", s->documents},
                  {"bytes", s->bytes},
                  {"chars", s->chars},
                  {"words", s->words},
                  {"tokens", s->tokens},
                  {"exact_documents", s->exact_documents},
                  {"refused_documents", s->refused_documents},
                  {"used_tokens", s->used_tokens}};
    json_object_set_new(o, "name", json_cstr(row->name));
    for (int i = 0; i < ARRAY_LEN(counts); i++)
        json_object_set_new(o, counts[i].key, json_integer(counts[i].value));
    for (int i = 0; i < ARRAY_LEN(SHARES); i++) {
        double value = view_value(v, SHARES[i].figure, tok_index, row_index);
        json_object_set_new(o, SHARES[i].key, json_f64(value));
    }
    return o;
}

static json_t *token_text(const tok *t, int32_t id) {
    size_t len;
    const char *bytes = tok_bytes(t, id, &len);
    return json_text(bytes, len);
}

static json_t *token_list(const tok *t, const tok_ids *ids) {
    json_t *list = json_array();
    for (int64_t i = 0; i < ids->n; i++) {
        size_t len;
        tok_bytes(t, ids->id[i], &len);
        json_array_append_new(list, json_pack("{s:i, s:i, s:o}", "id", ids->id[i], "bytes",
                                              (int)len, "text", token_text(t, ids->id[i])));
    }
    return list;
}

static json_t *digits_json(const view_tok *t) {
    json_t *pieces = json_array();
    for (int64_t i = 0; i < t->digits.n; i++)
        json_array_append_new(pieces, token_text(t->t, t->digits.id[i]));
    return json_pack("{s:s, s:I, s:o}", "text", VIEW_DIGITS, "tokens", (json_int_t)t->digits.n,
                     "pieces", pieces);
}

static json_t *tok_json(const view_tok *t, bool lists) {
    const tok_vocab_report *w = &t->vocab;
    json_t *o = json_pack("{s:o, s:o, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:o, s:o}", "name",
                          json_cstr(t->name), "path", json_cstr(t->path), "vocab_size",
                          (int)tok_vocab_size(t->t), "tokens", w->size, "special", w->special,
                          "used", w->used, "unused", (json_int_t)w->unused.n, "unreachable",
                          (json_int_t)w->unreachable.n, "partial_utf8", (json_int_t)w->partial.n,
                          "longest", token_list(t->t, &w->longest), "digits", digits_json(t));
    if (!lists) return o;
    json_object_set_new(o, "unused_ids", cli_id_list(w->unused.id, w->unused.n));
    json_object_set_new(o, "unreachable_ids", cli_id_list(w->unreachable.id, w->unreachable.n));
    json_object_set_new(o, "partial_utf8_ids", cli_id_list(w->partial.id, w->partial.n));
    return o;
}

json_t *tok_view_json(const tok_view *v, bool lists) {
    json_t *rows = json_array(), *toks = json_array();
    for (int k = 0; k < v->n_rows; k++)
        for (int i = 0; i < v->n_toks; i++) json_array_append_new(rows, row_json(v, i, k));
    for (int i = 0; i < v->n_toks; i++) json_array_append_new(toks, tok_json(&v->tok[i], lists));
    return json_pack("{s:o, s:o, s:o}", "rows", rows, "tokenizers", toks, "seconds",
                     json_f64(v->seconds));
}
