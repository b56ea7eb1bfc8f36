/* BERT's vocab.txt: one WordPiece token a line, its number the id.
 *
 * What is done to a text before is fixed (BertNormalizer, BertPreTokenizer, [CLS] and [SEP] around
 * it) but for lower case: do_lower_case in the tokenizer_config.json beside it, otherwise text is
 * lower-cased when no token but the special ones has a capital letter, as in the uncased models. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"
#include "tok/format/format.h"
#include "tok/format/shape.h"
#include "tok/format/tree.h"

static const char *const SPECIAL[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

static bool is_special(const char *text) {
    for (int i = 0; i < ARRAY_LEN(SPECIAL); i++) {
        if (strcmp(text, SPECIAL[i]) == 0) return true;
    }
    return false;
}

/* [unused1] and the like are written by hand, too. */
static bool has_capital(const char *text) {
    if (text[0] == '[' && text[strlen(text) - 1] == ']') return false;
    for (; *text; text++) {
        if (*text >= 'A' && *text <= 'Z') return true;
    }
    return false;
}

/* ---- reading ---- */

/* A token that stands there twice has the later id, as in the original. */
static status read_vocab(tok_input *in, json_t *vocab) {
    line_cursor c = {in->bytes, in->bytes + in->len, 0};
    const char *line;
    for (size_t n; format_line(&c, &line, &n);) {
        if (utf8_valid_prefix(line, n) != n || memchr(line, 0, n)) {
            return format_bad(in, "line %lld is not UTF-8, or holds NUL", (long long)c.number);
        }
        if (n > TOK_MAX_TOKEN_BYTES) {
            return format_bad(in, "line %lld is longer than any token", (long long)c.number);
        }
        if (n == 0 && c.at == c.end) break;
        json_object_setn_new(vocab, line, n, json_integer(c.number - 1));
    }
    if (!json_object_get(vocab, "[UNK]")) return format_bad(in, "has no token [UNK]");
    return ST_OK;
}

static bool lower_case(const tok_input *in, json_t *vocab) {
    const json_t *j = json_object_get(in->config, "do_lower_case");
    const char *token;
    json_t *id;
    if (json_is_boolean(j)) return json_is_true(j);
    json_object_foreach(vocab, token, id) {
        if (has_capital(token)) return false;
    }
    return true;
}

static json_t *normalizer(const tok_input *in, json_t *vocab) {
    const json_t *accents = json_object_get(in->config, "strip_accents");
    const json_t *chinese = json_object_get(in->config, "tokenize_chinese_chars");
    return json_pack("{s:s, s:b, s:b, s:o, s:b}", "type", "BertNormalizer", "clean_text", 1,
                     "handle_chinese_chars", !json_is_false(chinese), "strip_accents",
                     json_is_boolean(accents) ? json_copy((json_t *)accents) : json_null(),
                     "lowercase", lower_case(in, vocab));
}

static json_t *added_tokens(json_t *vocab) {
    json_t *list = json_array();
    const char *token;
    json_t *id;
    json_object_foreach(vocab, token, id) {
        if (!is_special(token)) continue;
        int32_t i = (int32_t)json_integer_value(id);
        json_array_append_new(list, tree_added_token(i, token, strlen(token), true));
    }
    return list;
}

static json_t *around(const json_t *vocab) {
    const json_t *cls = json_object_get(vocab, "[CLS]"), *sep = json_object_get(vocab, "[SEP]");
    return tree_template(cls ? "[CLS]" : NULL, (int32_t)json_integer_value(cls),
                         sep ? "[SEP]" : NULL, (int32_t)json_integer_value(sep));
}

static json_t *decoder(void) {
    return json_pack("{s:s, s:s, s:b}", "type", "WordPiece", "prefix", "##", "cleanup", 1);
}

static json_t *model(json_t *vocab) {
    return json_pack("{s:s, s:s, s:s, s:i, s:o}", "type", "WordPiece", "unk_token", "[UNK]",
                     "continuing_subword_prefix", "##", "max_input_chars_per_word", 100, "vocab",
                     vocab);
}

json_t *bert_tree(json_t *vocab, json_t *normalizer_json) {
    return tree_new((tree_parts){.added = added_tokens(vocab),
                                 .normalizer = normalizer_json,
                                 .pre_tokenizer = tree_type("BertPreTokenizer"),
                                 .post_processor = around(vocab),
                                 .decoder = decoder(),
                                 .model = model(vocab)});
}

status bert_load(tok_input *in, tok **out) {
    json_t *vocab = json_object();
    status st = read_vocab(in, vocab);
    if (st != ST_OK) {
        json_decref(vocab);
        return st;
    }
    return tree_to_tok(out, bert_tree(vocab, normalizer(in, vocab)), in->path, in->e);
}

/* ---- writing ---- */

static status refuse(err *e, const char *part) {
    err_set(e, ST_USAGE, "a BERT vocabulary cannot express the tokenizer: %s", part);
    return err_hint(e, "use --to json");
}

status bert_check(const tok *t, const json_t *root, err *e) {
    const json_t *norm = json_object_get(root, "normalizer"), *m = json_object_get(root, "model");
    if (!shape_is_type(m, "WordPiece")) return refuse(e, "the model is not WordPiece");
    if (!shape_is_string(m, "unk_token", "[UNK]") ||
        !shape_is_string(m, "continuing_subword_prefix", "##") ||
        json_integer_value(json_object_get(m, "max_input_chars_per_word")) != 100) {
        return refuse(e, "the options of the model are not [UNK], ## and 100");
    }
    if (!shape_is_type(norm, "BertNormalizer") ||
        !json_is_true(json_object_get(norm, "clean_text"))) {
        return refuse(e, "the normalizer is not a BertNormalizer that cleans the text");
    }
    if (!shape_is_type(json_object_get(root, "pre_tokenizer"), "BertPreTokenizer")) {
        return refuse(e, "the pre_tokenizer is not BertPreTokenizer");
    }
    json_t *dec = decoder();
    bool same = shape_is_around(t, tok_id(t, "[CLS]"), tok_id(t, "[SEP]")) &&
                json_equal(json_object_get(root, "decoder"), dec);
    json_decref(dec);
    if (!same) return refuse(e, "the post_processor or decoder is not BERT's");
    return ST_OK;
}

/* Without a folder for the config, options must be what a reader takes for granted. */
static status check_alone(const json_t *root, err *e) {
    tok_input none = {0};
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    json_t *granted = normalizer(&none, vocab);
    bool same = json_equal(json_object_get(root, "normalizer"), granted);
    json_decref(granted);
    if (same) return ST_OK;
    err_set(e, ST_USAGE,
            "vocab.txt cannot express the options of the normalizer, which stand in "
            "tokenizer_config.json");
    return err_hint(e, "give a folder as the result");
}

static status put_lines(const tok *t, strbuf *out, err *e) {
    for (int32_t id = 0; id < t->n_token; id++) {
        const tok_token *k = &t->token[id];
        if (!k->text || !k->in_model || strpbrk(k->text, "\r\n") ||
            (k->added && !is_special(k->text))) {
            return err_set(e, ST_USAGE,
                           "vocab.txt cannot express id %d, \"%.60s\": an id without token, a line "
                           "break in a token, or an added token",
                           (int)id, k->text ? k->text : "");
        }
        strbuf_append(out, k->text, k->n_text);
        strbuf_putc(out, '\n');
    }
    return ST_OK;
}

static json_t *config_keys(const json_t *root) {
    const json_t *norm = json_object_get(root, "normalizer");
    return json_pack("{s:s, s:O, s:O, s:O}", "tokenizer_class", "BertTokenizer", "do_lower_case",
                     json_object_get(norm, "lowercase"), "strip_accents",
                     json_object_get(norm, "strip_accents"), "tokenize_chinese_chars",
                     json_object_get(norm, "handle_chinese_chars"));
}

static status write_files(arena *mem, const tok *t, const json_t *root, const char *path, err *e) {
    strbuf text = {0};
    bool folder = shape_is_folder(path);
    TRY(bert_check(t, root, e));
    if (!folder) TRY(check_alone(root, e));
    status st = put_lines(t, &text, e);
    if (st == ST_OK && folder) st = file_make_dirs(path, e);
    const char *file = folder ? path_join(mem, path, "vocab.txt") : path;
    if (st == ST_OK) st = file_write_atomic(file, text.data, text.len, e);
    strbuf_free(&text);
    if (st == ST_OK && folder) st = tok_config_write(t, path, 0, config_keys(root), e);
    return st;
}

status bert_write(const tok *t, const char *path, err *e) {
    arena *mem = arena_new("vocab.txt");
    json_t *root = shape_root(t);
    status st = write_files(mem, t, root, path, e);
    json_decref(root);
    arena_free(mem);
    return st;
}
