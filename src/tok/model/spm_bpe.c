/* Encoding with sentencepiece's BPE; see spm_bpe.h. spm_bpe_table.c builds the model. */
#include <stdlib.h>
#include <string.h>

#include "tok/model/spm_bpe.h"

/* ---- models with unused pieces, or with characters that are pieces only together ---- */

typedef struct piece_place {
    int32_t id;
    size_t at, end;
} piece_place;

/* An unknown character: its bytes, or the unknown piece, one for a run of them. */
static void push_unknown(tok_enc *enc, const tok_piece *word, size_t at, size_t end,
                         size_t *unknown_end) {
    const tok *t = enc->t;
    const spm_bpe *m = t->model;
    if (m->bpe.byte_fallback) {
        for (size_t i = at; i < end; i++) {
            enc_push(enc, t->byte_id[(uint8_t)word->s[i]], word, i, i + 1);
        }
        return;
    }
    if (*unknown_end != at || at == 0) {
        enc_push(enc, t->unk, word, at, end);
    } else if (enc->spans) {
        enc->spans->span[enc->spans->n - 1].end = word->from[end - 1].end;
    }
    *unknown_end = end;
}

/* Pushes a piece, or the two it was made from if it is unused, and so on: never deeper than its
 * length, which is what the stack holds. */
static void push_piece(tok_enc *enc, const tok_piece *word, piece_place whole,
                       size_t *unknown_end) {
    const tok *t = enc->t;
    const spm_bpe *m = t->model;
    piece_place stack[SPM_BPE_MAX_DEPTH];
    int n = 0;
    stack[n++] = whole;
    while (n > 0) {
        piece_place p = stack[--n];
        const spm_bpe_split *h = p.id < t->n_token ? &m->halves[p.id] : NULL;
        if (!h || p.id == t->unk || h->left == SPM_BPE_UNKNOWN) {
            push_unknown(enc, word, p.at, p.end, unknown_end);
        } else if (h->left == SPM_BPE_STAYS || n + 2 > SPM_BPE_MAX_DEPTH) {
            enc_push(enc, p.id, word, p.at, p.end);
        } else {
            size_t middle = p.at + h->left_bytes;
            stack[n++] = (piece_place){h->right, middle, p.end};
            stack[n++] = (piece_place){h->left, p.at, middle};
        }
    }
}

static status encode_apart(tok_enc *enc, const tok_piece *word) {
    const bpe_model *m = enc->t->model;
    bpe_work *w = enc->model;
    int32_t n;
    size_t unknown_end = 0;
    TRY(bpe_first_symbols(enc, word, w, &n));
    n = bpe_merge_all(m, w, n, NULL);
    for (int32_t i = 0; i < n; i++) {
        const bpe_symbol *s = &w->symbol[i];
        piece_place p = {s->id, (size_t)s->at, (size_t)s->end};
        push_piece(enc, word, p, &unknown_end);
    }
    return ST_OK;
}

/* ---- words ---- */

static status encode_words(tok_enc *enc, const tok_piece *text, size_t from, size_t to) {
    const spm_bpe *m = enc->t->model;
    tok_piece part = piece_slice(text, from, to);
    if (from == to) return ST_OK;
    if (!m->halves) return MODEL_BPE.encode(enc, &part);
    for (size_t end; from < to; from = end) {
        end = m->bpe.cut.possible ? bpe_cut_end(&m->bpe.cut, text->s, to, from) : to;
        part = piece_slice(text, from, end);
        TRY(encode_apart(enc, &part));
    }
    return ST_OK;
}

static status spm_bpe_encode(tok_enc *enc, const tok_piece *text) {
    const spm_bpe *m = enc->t->model;
    size_t from = 0;
    for (size_t i = 0, len = 0; m->has_user && i < text->len;) {
        int32_t id =
            m->user_first[(uint8_t)text->s[i]]
                ? trie_longest(&m->user, m->user.unit[0], 0, text->s + i, text->len - i, &len)
                : -1;
        if (id < 0) {
            i++;
            continue;
        }
        TRY(encode_words(enc, text, from, i));
        enc_push(enc, id, text, i, i + len);
        i += len;
        from = i;
    }
    return encode_words(enc, text, from, text->len);
}

/* ---- the classes ---- */

static void *work_new(const tok *t) {
    (void)t;
    return xcalloc(1, sizeof(bpe_work));
}

static void work_free(void *state) {
    bpe_work_free(state);
    free(state);
}

static void *words_new(const tok *t) {
    return MODEL_BPE.state_new(t);
}

static void words_free(void *state) {
    MODEL_BPE.state_free(state);
}

const model_class MODEL_SPM_BPE = {
    .type = "BPE",
    .free = spm_bpe_free,
    .hash = spm_bpe_hash,
    .state_new = words_new,
    .state_free = words_free,
    .encode = spm_bpe_encode,
};

const model_class MODEL_SPM_BPE_APART = {
    .type = "BPE",
    .free = spm_bpe_free,
    .hash = spm_bpe_hash,
    .state_new = work_new,
    .state_free = work_free,
    .encode = spm_bpe_encode,
};
