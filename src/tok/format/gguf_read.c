/* A tok from GGUF's tokenizer keys; see gguf_keys.h. */
#include <string.h>

#include "base/utf8.h"
#include "tok/format/format.h"
#include "tok/format/gguf_keys.h"
#include "tok/format/shape.h"
#include "tok/format/tree.h"

typedef struct gguf_reader {
    const gguf_tokenizer *g;
    const char *origin;
    arena *mem;
    err *e;
} gguf_reader;

static status bad(const gguf_reader *r, const char *fmt, const char *what) {
    char text[256];
    snprintf(text, sizeof(text), fmt, what);
    return err_set(r->e, ST_FORMAT, "%s: %s", r->origin, text);
}

static bool flag(gguf_flag f, bool otherwise) {
    return f == GGUF_ABSENT ? otherwise : f == GGUF_TRUE;
}

static int32_t type_of(const gguf_tokenizer *g, int32_t id) {
    return g->type ? g->type[id] : GGUF_TOKEN_NORMAL;
}

static status check_string(const gguf_reader *r, const tok_string *s, size_t most_bytes,
                           const char *what) {
    if (s->len > 0 && s->len <= most_bytes && !memchr(s->text, 0, s->len) &&
        utf8_valid_prefix(s->text, s->len) == s->len) {
        return ST_OK;
    }
    return bad(r, "%s is empty, too long, not UTF-8, or holds NUL", what);
}

static status check_table(const gguf_reader *r) {
    const gguf_tokenizer *g = r->g;
    const int32_t ids[] = {g->bos, g->eos, g->unk, g->sep, g->pad, g->cls, g->mask, g->eot};
    if (g->n_tokens <= 0) return bad(r, "%s has no tokens", "tokenizer.ggml.tokens");
    for (int32_t i = 0; i < g->n_tokens; i++)
        TRY(check_string(r, &g->token[i], TOK_MAX_ADDED_BYTES, "a token"));
    for (int i = 0; i < ARRAY_LEN(ids); i++) {
        if (ids[i] >= g->n_tokens || ids[i] < -1)
            return bad(r,
                       "the id of %s is outside the "
                       "vocabulary",
                       "a special token");
    }
    return ST_OK;
}

static const char *content(const gguf_reader *r, int32_t id) {
    return arena_strndup(r->mem, r->g->token[id].text, r->g->token[id].len);
}

/* What stands around a text by the flags. */
static json_t *around(const gguf_reader *r, bool bos, bool eos) {
    const gguf_tokenizer *g = r->g;
    bos = flag(g->add_bos, bos) && g->bos >= 0;
    eos = flag(g->add_eos, eos) && g->eos >= 0;
    return tree_template(bos ? content(r, g->bos) : NULL, g->bos, eos ? content(r, g->eos) : NULL,
                         g->eos);
}

/* ---- SentencePiece ---- */

/* A conversation names its marks ("<start_of_turn>") in its text, so control tokens are found there
 * as llama.cpp finds them, and as in the other kinds of tokenizers here. A .model file has them as
 * plain text. Runs of spaces that a user defined (Gemma) are written as such, not as U+2581, so
 * they are found before spaces become that. */
static status find_in_text(const gguf_reader *r, tok *t, const spm_model *m) {
    for (int32_t i = 0; i < m->n; i++) {
        const spm_piece *p = &m->piece[i];
        bool spaced = p->type == SPM_USER_DEFINED && memchr(p->text, ' ', p->len);
        if (p->type == SPM_CONTROL || spaced)
            tok_added_add(&t->raw, arena_strndup(t->mem, p->text, p->len), p->len,
                          (tok_added){.id = i});
    }
    return tok_added_build(&t->raw) ? ST_OK : bad(r, "%s " PIECE_TRIE_LIMITS, "the vocabulary");
}

static status sentencepiece_from(const gguf_reader *r, spm_kind kind, tok **out) {
    const gguf_tokenizer *g = r->g;
    spm_model m = {.kind = kind,
                   .n = g->n_tokens,
                   .piece = ARENA_ARRAY(r->mem, spm_piece, g->n_tokens),
                   .bos = g->bos,
                   .eos = g->eos,
                   .pad = g->pad,
                   .normalizer = "",
                   .charsmap = g->charsmap,
                   .n_charsmap = g->n_charsmap,
                   .add_dummy_prefix = flag(g->add_space_prefix, true),
                   .remove_extra_whitespaces = flag(g->remove_extra_whitespaces, false)};
    bool unknown = false;
    if (!g->score) return bad(r, "%s are missing", "tokenizer.ggml.scores");
    for (int32_t i = 0; i < m.n; i++) {
        m.piece[i] = (spm_piece){content(r, i), (uint32_t)g->token[i].len, g->score[i],
                                 (spm_type)type_of(g, i)};
        m.byte_fallback |= m.piece[i].type == SPM_BYTE;
        unknown |= m.piece[i].type == SPM_UNKNOWN;
    }
    /* some converters give it the type of a control token (Gemma) and say its id alone */
    if (!unknown && g->unk >= 0) m.piece[g->unk].type = SPM_UNKNOWN;
    TRY(spm_check(&m, r->origin, r->e));
    TRY(spm_to_tok(out, &m, r->origin, r->e));
    status st = find_in_text(r, *out, &m);
    if (st != ST_OK) {
        tok_free(*out);
        *out = NULL;
    }
    return st;
}

/* ---- byte-level BPE ---- */

static status read_merges(const gguf_reader *r, json_t *merges) {
    for (int64_t i = 0; i < r->g->n_merges; i++) {
        const tok_string *s = &r->g->merge[i];
        TRY(check_string(r, s, TOK_MAX_ADDED_BYTES + 1, "a merge"));
        const char *space = s->len > 1 ? memchr(s->text + 1, ' ', s->len - 1) : NULL;
        if (!space || space + 1 == s->text + s->len) {
            return bad(r, "%s is not two tokens", "a merge");
        }
        size_t left = (size_t)(space - s->text);
        json_array_append_new(merges,
                              json_pack("[s%, s%]", s->text, left, space + 1, s->len - left - 1));
    }
    return ST_OK;
}

static bool is_added(const gguf_reader *r, int32_t i) {
    int32_t type = type_of(r->g, i);
    return type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_USER_DEFINED;
}

static int32_t last_normal(const gguf_reader *r) {
    int32_t i = r->g->n_tokens - 1;
    while (i >= 0 && (is_added(r, i) || type_of(r->g, i) == GGUF_TOKEN_UNUSED)) i--;
    return i;
}

/* Hugging Face tokenizers numbers added tokens from the end of the vocabulary on, unless they are
 * in it: those before a normal token have to be. Padding entries, which llama.cpp's converter makes
 * for ids without a token, are left out. */
static status split_tokens(const gguf_reader *r, json_t *vocab, json_t *added) {
    const gguf_tokenizer *g = r->g;
    int32_t last = last_normal(r);
    for (int32_t i = 0; i < g->n_tokens; i++) {
        const tok_string *s = &g->token[i];
        bool special = type_of(g, i) == GGUF_TOKEN_CONTROL;
        if (is_added(r, i)) {
            json_array_append_new(added, tree_added_token(i, s->text, s->len, special));
        }
        if (i > last || type_of(g, i) == GGUF_TOKEN_UNUSED) continue;
        const char *text = content(r, i);
        if (json_object_get(vocab, text)) return bad(r, "\"%.60s\" is there twice", text);
        json_object_set_new(vocab, text, json_integer(i));
    }
    return ST_OK;
}

static status byte_bpe_from(const gguf_reader *r, tok **out) {
    const gguf_tokenizer *g = r->g;
    const pretok_named *named = g->pre ? pretok_by_name(g->pre) : NULL;
    if (!named) return bad(r, "tokenizer.ggml.pre \"%.60s\" is not known", g->pre ? g->pre : "");
    json_t *vocab = json_object(), *added = json_array(), *merges = json_array();
    status st = split_tokens(r, vocab, added);
    if (st == ST_OK) st = read_merges(r, merges);
    if (st != ST_OK) {
        json_decref(vocab);
        json_decref(added);
        json_decref(merges);
        return st;
    }
    tree_bpe_options o = {.ignore_merges = gguf_pre_ignores_merges(g->pre)};
    return tree_to_tok(
        out,
        tree_new((tree_parts){.added = added,
                              .pre_tokenizer = shape_cut_tree(named),
                              .post_processor = around(r, gguf_pre_adds_bos(g->pre), false),
                              .decoder = tree_byte_level(true, true),
                              .model = tree_bpe(&o, vocab, merges)}),
        r->origin, r->e);
}

/* ---- WordPiece ---- */

/* "▁word" begins a word, "ing" goes on in one. */
static status wordpiece_vocab(const gguf_reader *r, json_t *vocab) {
    const gguf_tokenizer *g = r->g;
    for (int32_t i = 0; i < g->n_tokens; i++) {
        const char *text = content(r, i);
        bool begins = strncmp(text, SPM_SPACE, 3) == 0;
        bool plain = type_of(g, i) == GGUF_TOKEN_CONTROL || type_of(g, i) == GGUF_TOKEN_UNKNOWN;
        if (begins && !plain) text += 3;
        if (!begins && !plain) text = arena_printf(r->mem, "##%s", text);
        if (json_object_get(vocab, text)) return bad(r, "\"%.60s\" is there twice", text);
        json_object_set_new(vocab, text, json_integer(i));
    }
    if (!json_object_get(vocab, "[UNK]")) return bad(r, "there is no token %s", "[UNK]");
    return ST_OK;
}

static status wordpiece_from(const gguf_reader *r, tok **out) {
    const gguf_tokenizer *g = r->g;
    json_t *vocab = json_object();
    status st = wordpiece_vocab(r, vocab);
    if (st != ST_OK) {
        json_decref(vocab);
        return st;
    }
    json_t *accents =
        g->strip_accents == GGUF_ABSENT ? json_null() : json_boolean(g->strip_accents == GGUF_TRUE);
    json_t *norm = json_pack("{s:s, s:b, s:b, s:o, s:b}", "type", "BertNormalizer", "clean_text", 1,
                             "handle_chinese_chars", 1, "strip_accents", accents, "lowercase",
                             flag(g->lowercase, true));
    return tree_to_tok(out, bert_tree(vocab, norm), r->origin, r->e);
}

/* ---- the whole ---- */

static status read_model(const gguf_reader *r, tok **out) {
    const char *model = r->g->model ? r->g->model : "";
    TRY(check_table(r));
    if (strcmp(model, "gpt2") == 0) return byte_bpe_from(r, out);
    if (strcmp(model, "llama") == 0) return sentencepiece_from(r, SPM_BPE, out);
    if (strcmp(model, "t5") == 0) return sentencepiece_from(r, SPM_UNIGRAM, out);
    if (strcmp(model, "bert") == 0) return wordpiece_from(r, out);
    return bad(r, "tokenizer.ggml.model \"%.60s\" is not supported (gpt2, llama, t5, bert)", model);
}

/* Ids of unused entries have none. */
static bool has_token(const tok *t, int32_t id) {
    return id >= 0 && id < t->n_token && t->token[id].text;
}

status tok_from_gguf(tok **out, const gguf_tokenizer *g, const char *origin, err *e) {
    gguf_reader r = {g, origin, arena_new("gguf tokenizer"), e};
    *out = NULL;
    status st = read_model(&r, out);
    arena_free(r.mem);
    if (st != ST_OK) return st;
    tok *t = *out;
    if (has_token(t, g->bos)) t->bos = g->bos;
    if (has_token(t, g->eos)) t->eos = g->eos;
    if (!t->source) t->source = ARENA_NEW(t->mem, struct tok_source);
    if (has_token(t, g->pad)) t->source->pad = t->token[g->pad].text;
    if (g->chat_template) t->source->chat_template = arena_strdup(t->mem, g->chat_template);
    return ST_OK;
}
