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

#include "tok/train/train.h"

/* ---- pre-tokenizers ---- */

typedef struct named_pattern {
    const char *name;
    const char *const *regex; /* NULL: no step of its own */
} named_pattern;

static const named_pattern PATTERNS[] = {
    {"gpt2", NULL},
    {"llama3", &PRETOK_LLAMA3_REGEX},
    {"sentencepiece", NULL},
};

static const named_pattern *find_pattern(const char *name) {
    for (int i = 0; i < ARRAY_LEN(PATTERNS); i++) {
        if (strcmp(PATTERNS[i].name, name) == 0) return &PATTERNS[i];
    }
    return NULL;
}

bool tok_build_knows_pattern(const char *name) {
    return find_pattern(name) != NULL;
}

const char *tok_build_pattern_names(arena *a) {
    const char *list = PATTERNS[0].name;
    for (int i = 1; i < ARRAY_LEN(PATTERNS); i++) {
        list = arena_printf(a, "%s, %s", list, PATTERNS[i].name);
    }
    return list;
}

static json_t *byte_level(bool use_regex) {
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 1, "use_regex", use_regex);
}

static json_t *split_then_bytes(const char *regex) {
    return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}", "type", "Sequence", "pretokenizers",
                     "type", "Split", "pattern", "Regex", regex, "behavior", "Isolated", "invert",
                     0, byte_level(false));
}

static json_t *metaspace(void) {
    return json_pack("{s:s, s:s, s:s, s:b}", "type", "Metaspace", "replacement", "▁",
                     "prepend_scheme", "always", "split", 1);
}

static json_t *pre_tokenizer(const tok_train_options *o, train_form form) {
    switch (form) {
        case FORM_BYTE_BPE: {
            const named_pattern *p = find_pattern(o->pattern);
            return p->regex ? split_then_bytes(*p->regex) : byte_level(true);
        }
        case FORM_UNIGRAM: return metaspace();
        case FORM_WORDPIECE: return json_pack("{s:s}", "type", "BertPreTokenizer");
        case FORM_BYTE: return byte_level(false);
        case FORM_PIECE_BPE:
        case FORM_CHAR: break;
    }
    return json_null();
}

/* ---- normalizers, decoders, post-processors ---- */

static json_t *replace(const char *from, const char *to) {
    return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", from, "content",
                     to);
}

static json_t *normalizer(train_form form) {
    switch (form) {
        case FORM_PIECE_BPE:
            return json_pack("{s:s, s:[{s:s, s:s}, o]}", "type", "Sequence", "normalizers", "type",
                             "Prepend", "prepend", "▁", replace(" ", "▁"));
        case FORM_UNIGRAM: return json_pack("{s:s}", "type", "NFKC");
        case FORM_WORDPIECE:
            return json_pack("{s:s, s:b, s:b, s:n, s:b}", "type", "BertNormalizer", "clean_text", 1,
                             "handle_chinese_chars", 1, "strip_accents", "lowercase", 1);
        default: return json_null();
    }
}

static json_t *decoder(train_form form) {
    switch (form) {
        case FORM_PIECE_BPE:
            return json_pack("{s:s, s:[o, {s:s}, {s:s}, {s:s, s:s, s:i, s:i}]}", "type", "Sequence",
                             "decoders", replace("▁", " "), "type", "ByteFallback", "type", "Fuse",
                             "type", "Strip", "content", " ", "start", 1, "stop", 0);
        case FORM_UNIGRAM: return metaspace();
        case FORM_WORDPIECE:
            return json_pack("{s:s, s:s, s:b}", "type", "WordPiece", "prefix", "##", "cleanup", 1);
        case FORM_CHAR: return json_pack("{s:s}", "type", "Fuse");
        default: return byte_level(true);
    }
}

static int special_id(const tok_train_options *o, const char *token) {
    for (int i = 0; i < o->n_special; i++) {
        if (strcmp(o->special[i], token) == 0) return i;
    }
    return -1;
}

static void template_token(json_t *list, const char *token, int type) {
    json_array_append_new(list, json_pack("{s:{s:s, s:i}}", "SpecialToken", "id", token, "type_id",
                                          type));
}

/* `before` text and `after` each part, either may be NULL; the second part of a pair has type_b. */
static json_t *template_list(const char *before, const char *after, bool pair, int type_b,
                             bool before_b) {
    json_t *list = json_array();
    for (int i = 0; i <= pair; i++) {
        int type = i ? type_b : 0;
        if (before && (i == 0 || before_b)) template_token(list, before, type);
        json_array_append_new(
            list, json_pack("{s:{s:s, s:i}}", "Sequence", "id", i ? "B" : "A", "type_id", type));
        if (after) template_token(list, after, type);
    }
    return list;
}

/* A template that puts `before` before a text and `after` after it; null when one is no special
 * token of this vocabulary. */
static json_t *template(const tok_train_options *o, const char *before, const char *after,
                        int type_b, bool before_b) {
    const char *tokens[] = {before, after};
    json_t *specials = json_object();
    for (int i = 0; i < ARRAY_LEN(tokens); i++) {
        const char *t = tokens[i];
        int id = t ? special_id(o, t) : -1;
        if (t && id < 0) {
            json_decref(specials);
            return json_null();
        }
        if (t) {
            json_object_set_new(specials, t,
                                json_pack("{s:s, s:[i], s:[s]}", "id", t, "ids", id, "tokens", t));
        }
    }
    return json_pack("{s:s, s:o, s:o, s:o}", "type", "TemplateProcessing", "single",
                     template_list(before, after, false, type_b, before_b), "pair",
                     template_list(before, after, true, type_b, before_b), "special_tokens",
                     specials);
}

static json_t *post_processor(const tok_train_options *o, train_form form) {
    switch (form) {
        case FORM_PIECE_BPE: return template(o, "<s>", NULL, 1, true);
        case FORM_UNIGRAM: return template(o, NULL, "</s>", 0, false);
        case FORM_WORDPIECE: return template(o, "[CLS]", "[SEP]", 1, false);
        default: return json_null();
    }
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

static json_t *bpe_model(const tok_train_options *o, train_form form, const tok_draft *d) {
    bool pieces = form == FORM_PIECE_BPE;
    json_t *unk = special_id(o, "<unk>") >= 0 ? json_string("<unk>") : json_null();
    return json_pack("{s:s, s:n, s:o, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout",
                     "unk_token", unk, "continuing_subword_prefix", "end_of_word_suffix",
                     "fuse_unk", pieces, "byte_fallback", pieces, "ignore_merges", 0, "vocab",
                     vocabulary(d), "merges", merge_list(d));
}

static json_t *model(const tok_train_options *o, train_form form, const tok_draft *d) {
    if (form == FORM_UNIGRAM) {
        return json_pack("{s:s, s:i, s:o, s:b}", "type", "Unigram", "unk_id",
                         special_id(o, "<unk>"), "vocab", scored_vocabulary(d), "byte_fallback",
                         o->byte_fallback);
    }
    if (form == FORM_WORDPIECE) {
        return json_pack("{s:s, s:s, s:s, s:i, s:o}", "type", "WordPiece", "unk_token", "[UNK]",
                         "continuing_subword_prefix", "##", "max_input_chars_per_word", 100,
                         "vocab", vocabulary(d));
    }
    return bpe_model(o, form, d);
}

/* ---- the whole ---- */

static json_t *added_tokens(const tok_train_options *o) {
    json_t *list = json_array();
    for (int i = 0; i < o->n_special; i++) {
        json_array_append_new(list, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", i,
                                              "content", o->special[i], "single_word", 0, "lstrip",
                                              0, "rstrip", 0, "normalized", 0, "special", 1));
    }
    return list;
}

static char *dump(json_t *root) {
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    CHECK(text, "a trained vocabulary does not make JSON");
    json_decref(root);
    return text;
}

char *tok_build_json(const tok_train_options *o, train_form form, const tok_draft *d) {
    return dump(json_pack("{s:s, s:n, s:n, s:o, s:o, s:o, s:o, s:o, s:o}", "version", "1.0",
                          "truncation", "padding", "added_tokens", added_tokens(o), "normalizer",
                          normalizer(form), "pre_tokenizer", pre_tokenizer(o, form),
                          "post_processor", post_processor(o, form), "decoder", decoder(form),
                          "model", model(o, form, d)));
}

/* The stages before the model are all that matters here; the model is one character. */
char *tok_build_shell_json(const tok_train_options *o, train_form form) {
    return dump(json_pack("{s:s, s:[], s:o, s:o, s:n, s:o, s:{s:s, s:{s:i}, s:[]}}", "version",
                          "1.0", "added_tokens", "normalizer", normalizer(form), "pre_tokenizer",
                          pre_tokenizer(o, form), "post_processor", "decoder", decoder(form),
                          "model", "type", "BPE", "vocab", "a", 0, "merges"));
}
