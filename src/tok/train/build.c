/* The tokenizer.json of a freshly trained vocabulary.
 *
 *   byte-level BPE   byte alphabet and merges, ByteLevel around it     as GPT-2, Llama 3
 *   piece BPE        characters, ▁ for spaces, <0x..> for the rest     as Llama 2
 *   unigram          pieces with scores, Metaspace around it           as T5
 *   wordpiece        ## inside words, BERT's normalizer and words      as BERT
 *   byte             byte alphabet without merges, ByteLevel without a pattern
 *   char             characters without merges, nothing around them: BPE cuts a text into them */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "tok/format/shape.h"
#include "tok/format/tree.h"
#include "tok/train/train.h"

static const char *const SPACE_MARK = "▁";

/* ---- stages before the model ---- */

bool tok_build_knows_pattern(const char *name) {
    return strcmp(name, "sentencepiece") == 0 || pretok_by_name(name) != NULL;
}

const char *tok_build_pattern_names(arena *a) {
    const char *list = "sentencepiece";
    for (int i = 0; i < PRETOK_NAMED_N; i++) {
        list = arena_printf(a, "%s, %s", shape_first_name(a, &PRETOK_NAMED[i]), list);
    }
    return list;
}

static json_t *metaspace(void) {
    return json_pack("{s:s, s:s, s:s, s:b}", "type", "Metaspace", "replacement", SPACE_MARK,
                     "prepend_scheme", "always", "split", 1);
}

static json_t *pre_tokenizer(const tok_train_options *o, train_form form) {
    switch (form) {
        case FORM_BYTE_BPE: return shape_cut_tree(pretok_by_name(o->pattern));
        case FORM_UNIGRAM: return metaspace();
        case FORM_WORDPIECE: return tree_type("BertPreTokenizer");
        case FORM_BYTE: return tree_byte_level(false, false);
        case FORM_PIECE_BPE:
        case FORM_CHAR: break;
    }
    return NULL;
}

static json_t *normalizer(train_form form) {
    switch (form) {
        case FORM_PIECE_BPE:
            return json_pack("{s:s, s:[{s:s, s:s}, o]}", "type", "Sequence", "normalizers", "type",
                             "Prepend", "prepend", SPACE_MARK,
                             tree_replace("String", " ", SPACE_MARK));
        case FORM_UNIGRAM: return tree_type("NFKC");
        case FORM_WORDPIECE:
            return json_pack("{s:s, s:b, s:b, s:n, s:b}", "type", "BertNormalizer", "clean_text", 1,
                             "handle_chinese_chars", 1, "strip_accents", "lowercase", 1);
        case FORM_BYTE_BPE:
        case FORM_CHAR:
        case FORM_BYTE: break;
    }
    return NULL;
}

/* ---- decoders and post-processors ---- */

static json_t *fallback_decoder(void) {
    return json_pack("{s:s, s:[o, o, o, {s:s, s:s, s:i, s:i}]}", "type", "Sequence", "decoders",
                     tree_replace("String", SPACE_MARK, " "), tree_type("ByteFallback"),
                     tree_type("Fuse"), "type", "Strip", "content", " ", "start", 1, "stop", 0);
}

static json_t *decoder(const tok_train_options *o, train_form form) {
    switch (form) {
        case FORM_PIECE_BPE: return fallback_decoder();
        case FORM_UNIGRAM: return o->byte_fallback ? fallback_decoder() : metaspace();
        case FORM_WORDPIECE:
            return json_pack("{s:s, s:s, s:b}", "type", "WordPiece", "prefix", "##", "cleanup", 1);
        case FORM_CHAR: return tree_type("Fuse");
        case FORM_BYTE_BPE:
        case FORM_BYTE: break;
    }
    return tree_byte_level(false, true);
}

static int special_id(const tok_train_options *o, const char *token) {
    for (int i = 0; i < o->n_special; i++) {
        if (strcmp(o->special[i], token) == 0) return i;
    }
    return -1;
}

/* Tokens around a text, where the vocabulary has those usual for the kind. */
static json_t *post_processor(const tok_train_options *o, train_form form) {
    int bos = special_id(o, "<s>"), eos = special_id(o, "</s>");
    int cls = special_id(o, "[CLS]"), sep = special_id(o, "[SEP]");
    if (form == FORM_PIECE_BPE && bos >= 0) return tree_template("<s>", bos, NULL, -1);
    if (form == FORM_UNIGRAM && eos >= 0) return tree_template(NULL, -1, "</s>", eos);
    if (form == FORM_WORDPIECE && cls >= 0 && sep >= 0) {
        return json_pack("{s:s, s:[s, i], s:[s, i]}", "type", "BertProcessing", "sep", "[SEP]", sep,
                         "cls", "[CLS]", cls);
    }
    return NULL;
}

/* ---- models ---- */

static json_t *vocabulary(const tok_draft *d) {
    json_t *vocab = json_object();
    for (int32_t i = 0; i < d->n_token; i++) {
        json_object_set_new(vocab, d->token[i], json_integer(i));
    }
    return vocab;
}

static json_t *scored_vocabulary(const tok_draft *d) {
    json_t *vocab = json_array();
    for (int32_t i = 0; i < d->n_token; i++) {
        json_array_append_new(vocab, json_pack("[s, f]", d->token[i], d->score[i]));
    }
    return vocab;
}

static json_t *merge_list(const tok_draft *d) {
    json_t *list = json_array();
    for (int32_t i = 0; i < d->n_merges; i++) {
        json_array_append_new(
            list, json_pack("[s, s]", d->token[d->merge[i].left], d->token[d->merge[i].right]));
    }
    return list;
}

static json_t *model(const tok_train_options *o, train_form form, const tok_draft *d) {
    if (form == FORM_UNIGRAM) {
        return json_pack("{s:s, s:i, s:o, s:b}", "type", "Unigram", "unk_id",
                         special_id(o, "<unk>"), "vocab", scored_vocabulary(d), "byte_fallback",
                         o->byte_fallback);
    }
    if (form == FORM_WORDPIECE) {
        return json_pack("{s:s, s:s, s:s, s:i, s:o}", "type", "WordPiece", "unk_token", "[UNK]",
                         "continuing_subword_prefix", "##", "max_input_chars_per_word",
                         WORDPIECE_MAX_CHARS, "vocab", vocabulary(d));
    }
    bool pieces = form == FORM_PIECE_BPE;
    tree_bpe_options bpe = {.unk = special_id(o, "<unk>") >= 0 ? "<unk>" : NULL,
                            .fuse_unk = pieces,
                            .byte_fallback = pieces};
    return tree_bpe(&bpe, vocabulary(d), merge_list(d));
}

/* ---- the whole ---- */

static json_t *added_tokens(const tok_train_options *o) {
    json_t *list = json_array();
    for (int i = 0; i < o->n_special; i++) {
        json_array_append_new(list,
                              tree_added_token(i, o->special[i], strlen(o->special[i]), true));
    }
    return list;
}

static char *dump(tree_parts parts) {
    json_t *root = tree_new(parts);
    strbuf text = {0};
    CHECK(root, "a trained vocabulary does not make JSON");
    json_format(&text, root, 2);
    json_decref(root);
    return text.data;
}

char *tok_build_json(const tok_train_options *o, train_form form, const tok_draft *d) {
    return dump((tree_parts){.added = added_tokens(o),
                             .normalizer = normalizer(form),
                             .pre_tokenizer = pre_tokenizer(o, form),
                             .post_processor = post_processor(o, form),
                             .decoder = decoder(o, form),
                             .model = model(o, form, d)});
}

/* The stages before the model are all that matters here; the model is one character. */
char *tok_build_shell_json(const tok_train_options *o, train_form form) {
    json_t *bpe = tree_bpe(&(tree_bpe_options){0}, json_pack("{s:i}", "a", 0), json_array());
    return dump((tree_parts){.normalizer = normalizer(form),
                             .pre_tokenizer = pre_tokenizer(o, form),
                             .decoder = decoder(o, form),
                             .model = bpe});
}
