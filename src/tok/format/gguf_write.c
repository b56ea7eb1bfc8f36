/* GGUF's tokenizer keys from a tok; see gguf_keys.h. */
#include <stdlib.h>
#include <string.h>

#include "tok/format/format.h"
#include "tok/format/gguf_keys.h"
#include "tok/format/shape.h"
#include "tok/model/bpe.h"

typedef struct gguf_writer {
    gguf_tokenizer *g;
    arena *mem;
    const tok *t;
    json_t *root;
    err *e;
} gguf_writer;

static status refuse(const gguf_writer *w, const char *why, const char *name) {
    char text[512];
    snprintf(text, sizeof(text), why, name);
    return err_set(w->e, ST_USAGE, "llama.cpp cannot express the tokenizer: %s", text);
}

static tok_string string(const char *text, size_t len) {
    return (tok_string){text, len};
}

/* Contents and types of all ids; an id without a token becomes an unused entry. */
static void put_tokens(gguf_writer *w) {
    const tok *t = w->t;
    tok_string *token = ARENA_ARRAY(w->mem, tok_string, t->n_token);
    int32_t *type = ARENA_ARRAY(w->mem, int32_t, t->n_token);
    for (int32_t id = 0; id < t->n_token; id++) {
        const tok_token *k = &t->token[id];
        const char *text = k->text ? k->text : arena_printf(w->mem, "[PAD%d]", (int)id);
        token[id] = string(text, strlen(text));
        type[id] = !k->text     ? GGUF_TOKEN_UNUSED
                   : k->special ? GGUF_TOKEN_CONTROL
                   : k->added   ? GGUF_TOKEN_USER_DEFINED
                                : GGUF_TOKEN_NORMAL;
    }
    w->g->n_tokens = t->n_token;
    w->g->token = token;
    w->g->type = type;
}

static status put_around(gguf_writer *w) {
    const tok_post *p = &w->t->post;
    bool bos = p->n_prefix == 1 && p->prefix[0] == w->t->bos;
    bool eos = p->n_suffix == 1 && p->suffix[0] == w->t->eos;
    if ((p->n_prefix > 0 && !bos) || (p->n_suffix > 0 && !eos)) {
        return refuse(w, "its %s adds other tokens than bos and eos", "post_processor");
    }
    w->g->add_bos = bos ? GGUF_TRUE : GGUF_FALSE;
    w->g->add_eos = eos ? GGUF_TRUE : GGUF_FALSE;
    return ST_OK;
}

static status check_added(const gguf_writer *w) {
    static const char *const FLAGS[] = {"single_word", "lstrip", "rstrip"};
    const json_t *token;
    size_t i;
    json_array_foreach(json_object_get(w->root, "added_tokens"), i, token) {
        for (int f = 0; f < ARRAY_LEN(FLAGS); f++) {
            if (!json_is_true(json_object_get(token, FLAGS[f]))) continue;
            return refuse(w, "an added token has %s", FLAGS[f]);
        }
    }
    return ST_OK;
}

/* ---- byte-level BPE ---- */

static void put_merges(gguf_writer *w) {
    int32_t n;
    shape_merge *merge = shape_merges(w->t, &n);
    tok_string *text = ARENA_ARRAY(w->mem, tok_string, n);
    for (int32_t i = 0; i < n; i++) {
        const char *s = arena_printf(w->mem, "%s %s", w->t->token[merge[i].left].text,
                                     w->t->token[merge[i].right].text);
        text[i] = string(s, strlen(s));
    }
    free(merge);
    w->g->merge = text;
    w->g->n_merges = n;
}

/* A token that merges never make: there it matters whether whole pre-tokens are looked up. */
static const tok_token *never_made(const tok *t) {
    const bpe_model *m = t->model;
    bpe_work work = {0};
    const tok_token *found = NULL;
    for (int32_t id = 0; id < t->n_token && !found; id++) {
        const tok_token *k = &t->token[id];
        if (!k->text || k->added || k->n_bytes < 2) continue;
        work.symbol = xrealloc(work.symbol, k->n_bytes * sizeof(*work.symbol));
        for (uint32_t i = 0; i < k->n_bytes; i++) {
            int32_t byte = t->byte_id[(uint8_t)k->bytes[i]];
            work.symbol[i] = (bpe_symbol){byte, (int32_t)i, (int32_t)i + 1};
        }
        if (bpe_merge_all(m, &work, (int32_t)k->n_bytes, NULL) != 1) found = k;
    }
    bpe_work_free(&work);
    return found;
}

static status put_pre(gguf_writer *w) {
    shape_cut cut;
    const bpe_model *m = w->t->model;
    bool read = shape_read_cut(json_object_get(w->root, "pre_tokenizer"), &cut);
    const char *ours = read && cut.named ? shape_first_name(w->mem, cut.named) : NULL;
    w->g->pre = ours ? gguf_pre_of(ours) : NULL;
    if (!w->g->pre) {
        return refuse(w, "it has no name for the pattern of the pre_tokenizer (%s)",
                      ours ? ours : "not a published one");
    }
    if (cut.add_prefix_space) return refuse(w, "ByteLevel has %s", "add_prefix_space");
    if (gguf_pre_ignores_merges(w->g->pre) == m->ignore_merges) return ST_OK;
    const tok_token *k = never_made(w->t);
    if (!k) return ST_OK;
    return refuse(w,
                  m->ignore_merges
                      ? "merges never make \"%.60s\", which is found whole here (ignore_merges)"
                      : "merges never make \"%.60s\", which it would find whole",
                  k->text);
}

static bool is_nfc(const json_t *normalizer) {
    return !normalizer || json_is_null(normalizer) || shape_is_type(normalizer, "NFC");
}

static status byte_bpe_to(gguf_writer *w) {
    const bpe_model *m = w->t->model;
    w->g->model = "gpt2";
    if (!is_nfc(json_object_get(w->root, "normalizer"))) {
        return refuse(w, "byte-level BPE has no %s there", "normalizer");
    }
    if (m->prefix || m->suffix || m->dropout > 0) {
        return refuse(w, "the model has %s", m->dropout > 0 ? "dropout" : "affixes");
    }
    TRY(check_added(w));
    TRY(put_pre(w));
    TRY(put_around(w));
    put_tokens(w);
    put_merges(w);
    return ST_OK;
}

/* ---- SentencePiece ---- */

static status sentencepiece_to(gguf_writer *w) {
    spm_model m;
    gguf_tokenizer *g = w->g;
    TRY(spm_from_tok(&m, w->mem, w->t, w->e));
    if (m.kind == SPM_CHAR) return refuse(w, "it has no models of %s", "single characters");
    put_tokens(w);
    int32_t *type = (int32_t *)g->type;
    float *score = ARENA_ARRAY(w->mem, float, m.n);
    for (int32_t id = 0; id < m.n; id++) {
        type[id] = (int32_t)m.piece[id].type;
        score[id] = m.piece[id].score;
    }
    g->model = m.kind == SPM_UNIGRAM ? "t5" : "llama";
    g->pre = "default";
    g->score = score;
    g->add_space_prefix = m.add_dummy_prefix ? GGUF_TRUE : GGUF_FALSE;
    g->remove_extra_whitespaces = m.remove_extra_whitespaces ? GGUF_TRUE : GGUF_FALSE;
    bool llama = m.kind == SPM_BPE;
    if (llama && m.n_charsmap > 0)
        return refuse(w, "SentencePiece BPE has no %s there", "charsmap");
    if (llama && m.remove_extra_whitespaces) {
        return refuse(w, "SentencePiece BPE does not %s there", "remove extra white space");
    }
    g->charsmap = m.charsmap;
    g->n_charsmap = m.n_charsmap;
    return put_around(w);
}

/* ---- WordPiece ---- */

static status wordpiece_to(gguf_writer *w) {
    const tok *t = w->t;
    gguf_tokenizer *g = w->g;
    TRY(bert_check(t, w->root, w->e));
    put_tokens(w);
    tok_string *token = (tok_string *)g->token;
    int32_t *type = (int32_t *)g->type;
    for (int32_t id = 0; id < t->n_token; id++) {
        const char *s = token[id].text;
        if (id == t->unk) type[id] = GGUF_TOKEN_UNKNOWN;
        if (type[id] != GGUF_TOKEN_NORMAL) continue;
        s = strncmp(s, "##", 2) == 0 && s[2] ? s + 2 : arena_printf(w->mem, SPM_SPACE "%s", s);
        token[id] = string(s, strlen(s));
    }
    const json_t *norm = json_object_get(w->root, "normalizer");
    const json_t *accents = json_object_get(norm, "strip_accents");
    if (!json_is_true(json_object_get(norm, "handle_chinese_chars"))) {
        return refuse(w, "it always has %s in BERT's normalizer", "handle_chinese_chars");
    }
    g->model = "bert";
    g->pre = "default";
    g->lowercase = json_is_true(json_object_get(norm, "lowercase")) ? GGUF_TRUE : GGUF_FALSE;
    if (json_is_boolean(accents)) g->strip_accents = json_is_true(accents) ? GGUF_TRUE : GGUF_FALSE;
    g->cls = tok_id(t, "[CLS]");
    g->sep = tok_id(t, "[SEP]");
    g->mask = tok_id(t, "[MASK]");
    g->pad = tok_id(t, "[PAD]");
    g->add_bos = g->add_sep = GGUF_TRUE;
    return ST_OK;
}

/* ---- the whole ---- */

static status write_model(gguf_writer *w) {
    const tok *t = w->t;
    if (t->source && t->source->spm) return sentencepiece_to(w);
    if (t->class == &MODEL_BPE && t->byte_level) return byte_bpe_to(w);
    if (t->class == &MODEL_WORDPIECE) return wordpiece_to(w);
    return sentencepiece_to(w);
}

status tok_to_gguf(const tok *t, arena *mem, gguf_tokenizer *g, err *e) {
    *g = gguf_tokenizer_empty();
    gguf_writer w = {g, mem, t, shape_root(t), e};
    status st = write_model(&w);
    json_decref(w.root);
    if (st != ST_OK) return st;
    g->bos = t->bos;
    g->eos = t->eos;
    g->unk = t->unk;
    const char *pad = t->source && t->source->pad ? t->source->pad : "<pad>";
    if (g->pad < 0 && tok_id(t, pad) >= 0) g->pad = tok_id(t, pad);
    g->chat_template = t->source ? t->source->chat_template : NULL;
    return ST_OK;
}
