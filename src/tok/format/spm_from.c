/* A SentencePiece model from a tok, if its tokenizer.json means one.
 *
 * The model's options are read off the normalizer and pre-tokenizer; then the tokenizer.json that
 * such a model would give must have the same parts, so that nothing is lost unseen. BPE needs a
 * proof more: sentencepiece merges any neighbours that are a piece together, so the one way in
 * which it makes each piece must be among the merges. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/format/charsmap_make.h"
#include "tok/format/format.h"
#include "tok/format/shape.h"
#include "tok/model/bpe.h"
#include "tok/model/spm_bpe.h"
#include "tok/model/unigram.h"
#include "tok/text/base64.h"

typedef struct spm_maker {
    spm_model *m;
    arena *mem;
    const tok *t;
    json_t *root;
    err *e;
} spm_maker;

static status refuse(const spm_maker *k, const char *why) {
    err_set(k->e, ST_USAGE, "a SentencePiece model cannot express the tokenizer: %s", why);
    return err_hint(k->e, "use --to json");
}

/* ---- options ---- */

/* Calls `see` on the members of a sequence, or on the one there is. */
typedef void member_fn(spm_maker *k, const json_t *member);
static void each_member(spm_maker *k, const char *part, const char *list_key, member_fn *see) {
    const json_t *j = json_object_get(k->root, part), *list = json_object_get(j, list_key), *member;
    size_t i;
    if (!list) see(k, j);
    json_array_foreach((json_t *)list, i, member) see(k, member);
}

static void use_charsmap(spm_maker *k, const strbuf *bytes, const char *name) {
    k->m->charsmap = arena_memdup(k->mem, bytes->data, bytes->len);
    k->m->n_charsmap = bytes->len;
    k->m->normalizer = name;
}

/* The normal form is written as rules, and counts as if it stood there as such. */
static void see_nfkc(spm_maker *k) {
    strbuf bytes = {0}, text = {0};
    charsmap_nfkc(&bytes);
    use_charsmap(k, &bytes, "nfkc");
    base64_append(&text, bytes.data, bytes.len);
    json_object_set_new(
        k->root, "normalizer",
        json_pack("{s:s, s:s}", "type", "Precompiled", "precompiled_charsmap", strbuf_cstr(&text)));
    strbuf_free(&bytes);
    strbuf_free(&text);
}

static void see_normalizer(spm_maker *k, const json_t *j) {
    spm_model *m = k->m;
    if (shape_is_type(j, "NFKC") && j == json_object_get(k->root, "normalizer")) {
        see_nfkc(k);
        return;
    }
    const json_t *map = json_object_get(j, "precompiled_charsmap");
    if (shape_is_type(j, "Prepend")) m->add_dummy_prefix = true;
    if (shape_is_type(j, "Strip")) m->remove_extra_whitespaces = true;
    if (!json_is_string(map)) return;
    uint8_t *bytes = arena_alloc(k->mem, json_string_length(map) + 3);
    int64_t n = base64_decode(json_string_value(map), json_string_length(map), bytes);
    m->charsmap = (const char *)bytes;
    m->n_charsmap = n > 0 ? (size_t)n : 0;
    m->normalizer = "user_defined";
}

static void see_pre_tokenizer(spm_maker *k, const json_t *j) {
    if (!shape_is_type(j, "Metaspace")) return;
    k->m->add_dummy_prefix = !shape_is_string(j, "prepend_scheme", "never");
}

static status read_kind(spm_maker *k) {
    const tok *t = k->t;
    if (t->byte_level) return refuse(k, "it works on bytes (ByteLevel)");
    if (t->class == &MODEL_UNIGRAM) {
        k->m->kind = SPM_UNIGRAM;
    } else if (t->class == &MODEL_BPE) {
        const bpe_model *b = t->model;
        k->m->kind = SPM_BPE;
        if (b->prefix || b->suffix) return refuse(k, "its subwords have affixes");
        if (b->dropout > 0) return refuse(k, "it has dropout");
        if (b->ignore_merges) return refuse(k, "it ignores merges for whole words");
        if (!b->fuse_unk) return refuse(k, "it does not fuse unknown characters (fuse_unk)");
    } else {
        return refuse(k, "the model is neither BPE nor Unigram");
    }
    if (t->unk < 0) return refuse(k, "it has no unknown token");
    k->m->byte_fallback =
        json_is_true(json_object_get(json_object_get(k->root, "model"), "byte_fallback"));
    return ST_OK;
}

/* ---- pieces ---- */

static status check_added(const spm_maker *k) {
    static const char *const FLAGS[] = {"single_word", "lstrip", "rstrip"};
    const json_t *token;
    size_t i;
    json_array_foreach(json_object_get(k->root, "added_tokens"), i, token) {
        for (int f = 0; f < ARRAY_LEN(FLAGS); f++) {
            if (!json_is_true(json_object_get(token, FLAGS[f]))) continue;
            err_set(k->e, ST_USAGE,
                    "a SentencePiece model cannot express the added token \"%.60s\": it has %s",
                    json_string_value(json_object_get(token, "content")), FLAGS[f]);
            return err_hint(k->e, "use --to json");
        }
    }
    return ST_OK;
}

static spm_type type_of(const spm_maker *k, int32_t id) {
    const tok_token *token = &k->t->token[id];
    if (id == k->t->unk) return SPM_UNKNOWN;
    if (token->special) return SPM_CONTROL;
    if (token->added) return SPM_USER_DEFINED;
    bool byte = k->m->byte_fallback && spm_byte(token->text, token->n_text) >= 0;
    return byte ? SPM_BYTE : SPM_NORMAL;
}

static status make_pieces(spm_maker *k) {
    const tok *t = k->t;
    spm_model *m = k->m;
    m->n = t->n_token;
    m->piece = ARENA_ARRAY(k->mem, spm_piece, m->n);
    for (int32_t id = 0; id < m->n; id++) {
        const tok_token *token = &t->token[id];
        if (!token->text || token->n_text == 0 || token->n_text > SPM_MAX_PIECE_BYTES) {
            err_set(k->e, ST_USAGE,
                    "a SentencePiece model cannot express id %d: it has no token, or one that is "
                    "empty or longer than %d bytes",
                    (int)id, SPM_MAX_PIECE_BYTES);
            return err_hint(k->e, "use --to json");
        }
        m->piece[id] = (spm_piece){token->text, token->n_text, 0, type_of(k, id)};
    }
    return ST_OK;
}

static void take_unigram_scores(spm_maker *k) {
    const json_t *vocab = json_object_get(json_object_get(k->root, "model"), "vocab"), *pair;
    size_t i;
    json_array_foreach((json_t *)vocab, i, pair) {
        k->m->piece[i].score = (float)json_number_value(json_array_get(pair, 1));
    }
}

/* Pieces in the order in which merges make them, then single characters, then those that no merge
 * makes, as sentencepiece's trainer numbers them: 0, -1, -2, ... The last are unused: sentencepiece
 * would make them after all others, and takes them apart again. */
static void take_merge_scores(spm_maker *k) {
    const tok *t = k->t;
    int32_t n, rank = 0;
    shape_merge *merge = shape_merges(t, &n);
    bool *scored = ARENA_ARRAY(k->mem, bool, t->n_token);
    for (int32_t i = 0; i < n; i++) {
        if (scored[merge[i].id]) continue;
        scored[merge[i].id] = true;
        k->m->piece[merge[i].id].score = -(float)rank++;
    }
    free(merge);
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t id = 0; id < t->n_token; id++) {
            spm_piece *p = &k->m->piece[id];
            size_t first = utf8_size(p->text[0]);
            if (scored[id] || p->type != SPM_NORMAL || (p->len == first) != (pass == 0)) continue;
            scored[id] = true;
            p->score = -(float)rank++;
            if (pass == 1) p->type = SPM_UNUSED;
        }
    }
}

/* ---- proofs ---- */

static bool same_part(const spm_maker *k, const json_t *tree, const char *part) {
    return json_equal(json_object_get(k->root, part), json_object_get(tree, part));
}

static status check_parts(const spm_maker *k) {
    static const char *const PARTS[] = {"normalizer", "pre_tokenizer", "decoder"};
    json_t *tree = spm_tree(k->m);
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < ARRAY_LEN(PARTS); i++) {
        if (same_part(k, tree, PARTS[i])) continue;
        err_set(k->e, ST_USAGE,
                "a SentencePiece model cannot express the tokenizer: its %s is not that of "
                "Llama 2 or T5",
                PARTS[i]);
        st = err_hint(k->e, "use --to json");
    }
    json_decref(tree);
    const spm_model *m = k->m;
    bool bos = m->bos >= 0 && shape_is_around(k->t, m->bos, -1);
    bool eos = m->eos >= 0 && shape_is_around(k->t, -1, m->eos);
    if (st != ST_OK || bos || eos || shape_is_around(k->t, -1, -1)) return st;
    return refuse(k, "the post_processor adds other tokens than bos or eos");
}

/* Merges must make pieces one after the other: all ways to a piece before the next one. */
static status check_order(const spm_maker *k) {
    int32_t n;
    shape_merge *merge = shape_merges(k->t, &n);
    status st = ST_OK;
    for (int32_t i = 1; st == ST_OK && i < n; i++) {
        bool again = merge[i].id != merge[i - 1].id &&
                     k->m->piece[merge[i].id].score >= k->m->piece[merge[i - 1].id].score;
        if (!again) continue;
        err_set(k->e, ST_USAGE,
                "a SentencePiece model cannot express the merges: those of \"%.60s\" do not follow "
                "each other",
                k->t->token[merge[i].id].text);
        st = err_hint(k->e, "use --to json");
    }
    free(merge);
    return st;
}

static status check_merges(const spm_maker *k) {
    const bpe_model *listed = k->t->model;
    tok *exact;
    TRY(check_order(k));
    TRY(spm_to_tok(&exact, k->m, "the tokenizer as a SentencePiece model", k->e));
    status st = ST_OK;
    for (int32_t id = 0; st == ST_OK && id < k->m->n; id++) {
        spm_bpe_split s;
        if (k->m->piece[id].type != SPM_NORMAL || !spm_bpe_made_of(exact, id, &s)) continue;
        const bpe_merge *there = bpe_find(listed, s.left, s.right);
        if (there && there->id == id) continue;
        err_set(k->e, ST_USAGE,
                "a SentencePiece model cannot express the merges: it would make \"%.60s\" of its "
                "first %d bytes and the rest, which no merge does",
                k->t->token[id].text, (int)s.left_bytes);
        st = err_hint(k->e, "use --to json");
    }
    tok_free(exact);
    return st;
}

/* ---- the whole ---- */

static status make(spm_maker *k) {
    spm_model *m = k->m;
    *m = (spm_model){.pad = -1, .normalizer = "identity"};
    TRY(read_kind(k));
    TRY(check_added(k));
    each_member(k, "normalizer", "normalizers", see_normalizer);
    each_member(k, "pre_tokenizer", "pretokenizers", see_pre_tokenizer);
    TRY(make_pieces(k));
    if (m->kind == SPM_UNIGRAM) {
        take_unigram_scores(k);
    } else {
        take_merge_scores(k);
    }
    bool bos = k->t->bos >= 0 && m->piece[k->t->bos].type == SPM_CONTROL;
    bool eos = k->t->eos >= 0 && m->piece[k->t->eos].type == SPM_CONTROL;
    m->bos = bos ? k->t->bos : -1;
    m->eos = eos ? k->t->eos : -1;
    int32_t pad = tok_id(k->t, "<pad>");
    m->pad = pad >= 0 && m->piece[pad].type == SPM_CONTROL ? pad : -1;
    TRY(check_parts(k));
    TRY(spm_check(m, "the tokenizer as a SentencePiece model", k->e));
    return m->kind == SPM_BPE ? check_merges(k) : ST_OK;
}

status spm_from_tok(spm_model *m, arena *mem, const tok *t, err *e) {
    if (t->source && t->source->spm) {
        *m = *t->source->spm;
        return ST_OK;
    }
    spm_maker k = {m, mem, t, shape_root(t), e};
    status st = make(&k);
    json_decref(k.root);
    return st;
}
