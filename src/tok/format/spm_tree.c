/* A SentencePiece model as a tokenizer.json: BPE in the form of Llama 2, Unigram in that of T5, as
 * Hugging Face's converters write them, plus what the model's normaliser asks for. Where the two
 * libraries differ is said in spm.h. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/format/spm.h"
#include "tok/format/tree.h"
#include "tok/text/base64.h"

/* ---- normaliser ---- */

static void add_charsmap(json_t *list, const spm_model *m) {
    if (m->n_charsmap == 0) return;
    strbuf text = {0};
    base64_append(&text, m->charsmap, m->n_charsmap);
    json_array_append_new(list, json_pack("{s:s, s:s}", "type", "Precompiled",
                                          "precompiled_charsmap", strbuf_cstr(&text)));
    strbuf_free(&text);
}

static void add_strip(json_t *list, bool left) {
    json_array_append_new(
        list, json_pack("{s:s, s:b, s:b}", "type", "Strip", "strip_left", left, "strip_right", 1));
}

static json_t *bpe_normalizer(const spm_model *m) {
    json_t *list = json_array();
    add_charsmap(list, m);
    if (m->remove_extra_whitespaces) {
        add_strip(list, true);
        json_array_append_new(list, tree_replace("Regex", " {2,}", " "));
    }
    if (m->add_dummy_prefix) {
        json_array_append_new(list,
                              json_pack("{s:s, s:s}", "type", "Prepend", "prepend", SPM_SPACE));
    }
    json_array_append_new(list, tree_replace("String", " ", SPM_SPACE));
    return tree_sequence("normalizers", list);
}

/* Metaspace replaces the spaces that are left. */
static json_t *unigram_normalizer(const spm_model *m) {
    json_t *list = json_array();
    add_charsmap(list, m);
    if (m->remove_extra_whitespaces) {
        add_strip(list, !m->add_dummy_prefix);
        json_array_append_new(list, tree_replace("Regex", " {2,}", SPM_SPACE));
    }
    return tree_sequence("normalizers", list);
}

/* ---- around the model ---- */

/* Metaspace cuts before every mark, and its decoder drops all of the first token. */
static bool marks_begin_pieces(const spm_model *m) {
    for (int32_t i = 0; i < m->n; i++) {
        if (m->piece[i].type == SPM_NORMAL && strstr(m->piece[i].text + 1, SPM_SPACE)) return false;
    }
    return true;
}

static json_t *metaspace(const spm_model *m) {
    return json_pack("{s:s, s:s, s:s, s:b}", "type", "Metaspace", "replacement", SPM_SPACE,
                     "prepend_scheme", m->add_dummy_prefix ? "always" : "never", "split",
                     marks_begin_pieces(m));
}

static json_t *fallback_decoder(const spm_model *m) {
    json_t *list = json_pack("[o, o, o]", tree_replace("String", SPM_SPACE, " "),
                             tree_type("ByteFallback"), tree_type("Fuse"));
    if (m->add_dummy_prefix || m->remove_extra_whitespaces) {
        json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content",
                                              " ", "start", 1, "stop", 0));
    }
    return tree_sequence("decoders", list);
}

static json_t *added_tokens(const spm_model *m) {
    json_t *list = json_array();
    for (int32_t i = 0; i < m->n; i++) {
        const spm_piece *p = &m->piece[i];
        bool special = p->type == SPM_CONTROL || p->type == SPM_UNKNOWN;
        if (!special && p->type != SPM_USER_DEFINED) continue;
        json_array_append_new(list, tree_added_token(i, p->text, p->len, special));
    }
    return list;
}

/* ---- models ---- */

static json_t *unigram_model(const spm_model *m) {
    json_t *vocab = json_array();
    for (int32_t i = 0; i < m->n; i++) {
        const spm_piece *p = &m->piece[i];
        json_array_append_new(vocab, json_pack("[s, f]", p->text, (double)p->score));
    }
    return json_pack("{s:s, s:i, s:o, s:b}", "type", "Unigram", "unk_id", (int)m->unk, "vocab",
                     vocab, "byte_fallback", m->byte_fallback);
}

/* Every way to put a piece together from two others is a merge, the best pieces first. Only one of
 * them is ever used for each piece: what happens inside a stretch of text that becomes a piece does
 * not depend on what stands around it. */
typedef struct merge_order {
    float score;
    int32_t id;
} merge_order;

static int by_score(const void *a, const void *b) {
    const merge_order *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void add_merges_of(json_t *merges, const spm_piece *p, const str_map *by_text) {
    for (size_t at = p->len; at > 0;) {
        at--;
        if (at == 0 || utf8_continues(p->text[at])) continue;
        if (str_map_get(by_text, p->text, at) < 0) continue;
        if (str_map_get(by_text, p->text + at, p->len - at) < 0) continue;
        json_array_append_new(merges, json_pack("[s%, s]", p->text, at, p->text + at));
    }
}

static json_t *merge_list(const spm_model *m) {
    json_t *merges = json_array();
    if (m->kind != SPM_BPE) return merges;
    str_map by_text = {0};
    merge_order *order = xmalloc(sizeof(*order) * (size_t)m->n);
    int32_t n = 0;
    for (int32_t i = 0; i < m->n; i++) {
        const spm_piece *p = &m->piece[i];
        if (!spm_is_text(p)) continue;
        str_map_add(&by_text, p->text, p->len, i);
        order[n++] = (merge_order){p->score, i};
    }
    qsort(order, (size_t)n, sizeof(*order), by_score);
    for (int32_t i = 0; i < n; i++) add_merges_of(merges, &m->piece[order[i].id], &by_text);
    str_map_free(&by_text);
    free(order);
    return merges;
}

static json_t *bpe_model_json(const spm_model *m) {
    json_t *vocab = json_object();
    for (int32_t i = 0; i < m->n; i++) {
        json_object_set_new(vocab, m->piece[i].text, json_integer(i));
    }
    tree_bpe_options o = {
        .unk = m->piece[m->unk].text, .fuse_unk = true, .byte_fallback = m->byte_fallback};
    return tree_bpe(&o, vocab, merge_list(m));
}

json_t *spm_tree(const spm_model *m) {
    bool unigram = m->kind == SPM_UNIGRAM;
    bool like_t5 = unigram && !m->byte_fallback && marks_begin_pieces(m);
    const char *bos = !unigram && m->bos >= 0 ? m->piece[m->bos].text : NULL;
    const char *eos = unigram && m->eos >= 0 ? m->piece[m->eos].text : NULL;
    return tree_new((tree_parts){
        .added = added_tokens(m),
        .normalizer = unigram ? unigram_normalizer(m) : bpe_normalizer(m),
        .pre_tokenizer = unigram ? metaspace(m) : NULL,
        .post_processor = tree_template(bos, m->bos, eos, m->eos),
        .decoder = like_t5 ? metaspace(m) : fallback_decoder(m),
        .model = unigram ? unigram_model(m) : bpe_model_json(m),
    });
}
