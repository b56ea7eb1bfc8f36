/* A tok from a SentencePiece model: that of its tokenizer.json, with the stages replaced by
 * such as do exactly what the sentencepiece library does. */
#include <stdlib.h>
#include <string.h>

#include "tok/format/format.h"
#include "tok/format/tree.h"
#include "tok/model/spm_bpe.h"
#include "tok/model/unigram.h"

/* ---- stages ---- */

/* Added tokens are not looked for: the model finds user-defined pieces, and control symbols in the
 * text are text. */
static void clear_stages(tok *t) {
    for (int i = 0; i < t->n_norm; i++) norm_step_free(&t->norm[i]);
    for (int i = 0; i < t->n_steps; i++) pretok_step_free(&t->step[i]);
    t->n_norm = t->n_steps = 0;
    tok_added_free(&t->raw);
    tok_added_free(&t->normal);
}

static status use_normalizer(tok *t, const spm_model *m, arena *scratch, err *e) {
    norm_spiece_spec spec = {.charsmap = m->charsmap,
                             .n_charsmap = m->n_charsmap,
                             .add_dummy_prefix = m->add_dummy_prefix,
                             .remove_extra_whitespaces = m->remove_extra_whitespaces};
    const char **symbol = ARENA_ARRAY(scratch, const char *, m->n);
    size_t *n_symbol = ARENA_ARRAY(scratch, size_t, m->n);
    for (int32_t i = 0; i < m->n; i++) {
        if (m->piece[i].type != SPM_USER_DEFINED) continue;
        symbol[spec.n_symbols] = m->piece[i].text;
        n_symbol[spec.n_symbols++] = m->piece[i].len;
    }
    spec.symbol = symbol;
    spec.n_symbol = n_symbol;
    TRY(norm_step_sentencepiece(&t->norm[0], t->mem, &spec, e));
    t->n_norm = 1;
    return ST_OK;
}

static status use_model(tok *t, const spm_model *m, arena *scratch, err *e) {
    uint8_t *type = arena_alloc(t->mem, (size_t)t->n_token);
    float *score = ARENA_ARRAY(scratch, float, t->n_token);
    for (int32_t i = 0; i < m->n; i++) {
        type[i] = (uint8_t)m->piece[i].type;
        score[i] = m->piece[i].score;
    }
    if (m->kind == SPM_UNIGRAM) return unigram_use_sentencepiece(t, type, e);
    spm_bpe_options o = {.type = type, .score = score, .no_merges = m->kind == SPM_CHAR};
    return spm_bpe_use(t, &o, e);
}

/* What the decoder sees: nothing of control symbols, the unknown piece as its surface. tok_bytes
 * still names control symbols. */
static status use_decoder(tok *t, const spm_model *m, err *e) {
    for (int i = 0; i < t->n_dec; i++) dec_step_free(&t->dec[i]);
    t->n_dec = 1;
    t->dec[0] = (dec_step){.kind = DEC_SENTENCEPIECE,
                           .drop_first = m->add_dummy_prefix || m->remove_extra_whitespaces,
                           .clean = m->remove_extra_whitespaces,
                           .bytes = m->byte_fallback};
    const char *surface = arena_strdup(t->mem, m->surface ? m->surface : SPM_SURFACE);
    for (int32_t i = 0; i < m->n; i++) {
        tok_token *k = &t->token[i];
        if (m->piece[i].type != SPM_CONTROL && m->piece[i].type != SPM_UNKNOWN) continue;
        k->shown = m->piece[i].type == SPM_CONTROL ? "" : surface;
        k->n_shown = (uint32_t)strlen(k->shown);
    }
    TRY(dec_fill_tokens(t, e));
    for (int32_t i = 0; i < m->n; i++) {
        tok_token *k = &t->token[i];
        if (m->piece[i].type != SPM_CONTROL) continue;
        k->bytes = k->text;
        k->n_bytes = k->n_text;
    }
    return ST_OK;
}

/* ---- the model is kept ---- */

static spm_model *keep(tok *t, const spm_model *m) {
    spm_model *copy = ARENA_NEW(t->mem, spm_model);
    *copy = *m;
    copy->piece = arena_memdup(t->mem, m->piece, sizeof(*m->piece) * (size_t)m->n);
    for (int32_t i = 0; i < m->n; i++) copy->piece[i].text = t->token[i].text;
    copy->normalizer = arena_strdup(t->mem, m->normalizer);
    if (m->surface) copy->surface = arena_strdup(t->mem, m->surface);
    copy->charsmap = arena_memdup(t->mem, m->charsmap, m->n_charsmap);
    return copy;
}

static status use_sentencepiece(tok *t, const spm_model *m, err *e) {
    arena *scratch = arena_new("sentencepiece model");
    clear_stages(t);
    status st = use_normalizer(t, m, scratch, e);
    if (st == ST_OK) st = use_model(t, m, scratch, e);
    if (st == ST_OK) st = use_decoder(t, m, e);
    arena_free(scratch);
    if (st != ST_OK) return st;
    t->bos = m->bos;
    t->eos = m->eos;
    t->source = ARENA_NEW(t->mem, struct tok_source);
    t->source->spm = keep(t, m);
    return ST_OK;
}

status spm_to_tok(tok **out, const spm_model *m, const char *origin, err *e) {
    TRY(tree_to_tok(out, spm_tree(m), origin, e));
    if (use_sentencepiece(*out, m, e) == ST_OK) return ST_OK;
    tok_free(*out);
    *out = NULL;
    return err_context(e, "%s", origin);
}
