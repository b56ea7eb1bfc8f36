/* GPT-2's vocab.json and merges.txt (also encoder.json and vocab.bpe): byte-level BPE with GPT-2's
 * pattern.
 *
 * Tokens that are not made by merges and are written like <this> or [this] are special tokens, and
 * so are those that --special, the config or added_tokens.json names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "tok/format/format.h"
#include "tok/format/shape.h"
#include "tok/format/tree.h"

/* ---- reading ---- */

typedef struct gpt2_reader {
    tok_input *in;
    json_t *vocab, *merges;
    json_t *made;    /* contents that a merge makes, as keys */
    json_t *special; /* contents to id */
    int64_t next_id; /* after all that are known */
} gpt2_reader;

/* The other file of the two: same folder, the usual names. */
static status read_beside(const tok_input *in, const char *const *names, char **text, size_t *len) {
    for (int i = 0; names[i]; i++) {
        const char *path = path_join(in->mem, in->dir, names[i]);
        if (file_exists(path)) return file_read_part(path, FILE_PART_MAX_BYTES, text, len, in->e);
    }
    format_bad(in, "needs %s beside it", names[0]);
    return err_hint(in->e, "a GPT-2 tokenizer is vocab.json and merges.txt in one folder");
}

static status read_vocab(gpt2_reader *r, const char *text, size_t len) {
    json_error_t je;
    const char *token;
    json_t *id;
    r->vocab = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    if (!json_is_object(r->vocab)) return format_bad(r->in, "vocab.json: %s", je.text);
    json_object_foreach(r->vocab, token, id) {
        int64_t v = json_is_integer(id) ? json_integer_value(id) : -1;
        if (v < 0 || v >= INT32_MAX) return format_bad(r->in, "\"%.60s\" has no id", token);
        if (v >= r->next_id) r->next_id = v + 1;
    }
    return ST_OK;
}

static status read_merge(gpt2_reader *r, const char *line, size_t n, int64_t number) {
    const char *space = memchr(line, ' ', n);
    size_t left = space ? (size_t)(space - line) : 0, right = space ? n - left - 1 : 0;
    if (left == 0 || right == 0 || memchr(space + 1, ' ', right) ||
        utf8_valid_prefix(line, n) != n || memchr(line, 0, n)) {
        return format_bad(r->in, "merges.txt: line %lld is not two tokens", (long long)number);
    }
    json_array_append_new(r->merges, json_pack("[s%, s%]", line, left, space + 1, right));
    char *whole = strndup(line, n);
    memmove(whole + left, whole + left + 1, right + 1);
    json_object_set_new(r->made, whole, json_true());
    free(whole);
    return ST_OK;
}

static status read_merges(gpt2_reader *r, const char *text, size_t len) {
    line_cursor c = {text, text + len, 0};
    const char *line;
    for (size_t n; format_line(&c, &line, &n);) {
        bool version = c.number == 1 && n >= 8 && memcmp(line, "#version", 8) == 0;
        if (n > 0 && !version) TRY(read_merge(r, line, n, c.number));
    }
    return ST_OK;
}

static status add_special(gpt2_reader *r, const char *content, int64_t id) {
    const json_t *known = json_object_get(r->vocab, content);
    if (known && id >= 0 && json_integer_value(known) != id) {
        return format_bad(r->in, "\"%.60s\" has two ids", content);
    }
    if (json_object_get(r->special, content)) return ST_OK;
    if (known) id = json_integer_value(known);
    if (id < 0) id = r->next_id;
    if (id >= INT32_MAX) return format_bad(r->in, "\"%.60s\" has no proper id", content);
    if (id >= r->next_id) r->next_id = id + 1;
    json_object_set_new(r->special, content, json_integer(id));
    return ST_OK;
}

static status add_from_config(void *ctx, int64_t id, const char *content, size_t len,
                              bool special) {
    (void)len;
    (void)special;
    return add_special(ctx, content, id);
}

static status add_from_file(gpt2_reader *r) {
    const char *path = path_join(r->in->mem, r->in->dir, "added_tokens.json");
    const char *content;
    json_t *id;
    if (!file_exists(path)) return ST_OK;
    json_t *table;
    status st = json_read_file(&table, path, JSON_FILE_MAX_BYTES, r->in->e);
    json_object_foreach(table, content, id) {
        if (st == ST_OK) {
            st = add_special(r, content, json_is_integer(id) ? json_integer_value(id) : -1);
        }
    }
    json_decref(table);
    return st;
}

static bool looks_special(const char *s) {
    size_t n = strlen(s);
    return n > 2 && ((s[0] == '<' && s[n - 1] == '>') || (s[0] == '[' && s[n - 1] == ']'));
}

static status find_special(gpt2_reader *r) {
    const char *token;
    json_t *id;
    json_object_foreach(r->vocab, token, id) {
        if (!looks_special(token) || json_object_get(r->made, token)) continue;
        TRY(add_special(r, token, json_integer_value(id)));
    }
    TRY(tok_config_added(r->in->config, add_from_config, r));
    TRY(add_from_file(r));
    for (int i = 0; i < r->in->opt.n_special; i++) {
        TRY(add_special(r, r->in->opt.special[i], -1));
    }
    return ST_OK;
}

static json_t *tree(const gpt2_reader *r) {
    json_t *added = json_array(), *id;
    const char *content;
    json_object_foreach(r->special, content, id) {
        json_array_append_new(added, tree_added_token((int32_t)json_integer_value(id), content,
                                                      strlen(content), true));
    }
    const json_t *config = r->in->config;
    const char *bos = json_is_true(json_object_get(config, "add_bos_token"))
                          ? tok_config_token(config, "bos_token")
                          : NULL;
    const json_t *bos_id = bos ? json_object_get(r->special, bos) : NULL;
    json_t *around = bos_id ? tree_template(bos, (int32_t)json_integer_value(bos_id), NULL, -1)
                            : tree_byte_level(true, true);
    if (!bos_id) json_object_set_new(around, "trim_offsets", json_false());
    bool prefix = json_is_true(json_object_get(config, "add_prefix_space"));
    tree_bpe_options o = {0};
    return tree_new((tree_parts){
        .added = added,
        .pre_tokenizer = tree_byte_level(prefix, true),
        .post_processor = around,
        .decoder = tree_byte_level(true, true),
        .model = tree_bpe(&o, json_incref(r->vocab), json_incref(r->merges)),
    });
}

static status read_texts(gpt2_reader *r, const gpt2_texts *f) {
    TRY(read_vocab(r, f->vocab, f->n_vocab));
    TRY(read_merges(r, f->merges, f->n_merges));
    return find_special(r);
}

status gpt2_from_texts(tok_input *in, const gpt2_texts *f, tok **out) {
    gpt2_reader r = {
        .in = in, .merges = json_array(), .made = json_object(), .special = json_object()};
    status st = read_texts(&r, f);
    if (st == ST_OK) st = tree_to_tok(out, tree(&r), in->path, in->e);
    json_decref(r.vocab);
    json_decref(r.merges);
    json_decref(r.made);
    json_decref(r.special);
    return st;
}

status gpt2_load(tok_input *in, tok **out) {
    static const char *const VOCAB[] = {"vocab.json", "encoder.json", NULL};
    static const char *const MERGES[] = {"merges.txt", "vocab.bpe", NULL};
    bool is_vocab = in->len > 0 && (in->bytes[0] == '{' || strstr(in->base, ".json"));
    char *text;
    size_t len;
    TRY(read_beside(in, is_vocab ? MERGES : VOCAB, &text, &len));
    gpt2_texts f = is_vocab ? (gpt2_texts){in->bytes, in->len, text, len}
                            : (gpt2_texts){text, len, in->bytes, in->len};
    status st = gpt2_from_texts(in, &f, out);
    free(text);
    return st;
}

/* ---- writing ---- */

static status refuse(err *e, const char *why) {
    err_set(e, ST_USAGE, "vocab.json and merges.txt cannot express the tokenizer: %s", why);
    return err_hint(e, "use --to json");
}

static status check(const tok *t, const json_t *root, shape_cut *cut, err *e) {
    TRY(shape_check_byte_bpe(t, root, "vocab.json and merges.txt", e));
    if (!shape_read_cut(json_object_get(root, "pre_tokenizer"), cut) || !cut->named ||
        cut->named != pretok_by_name("gpt2")) {
        return refuse(e, "they stand for GPT-2's pattern, and the pre_tokenizer is another");
    }
    if (json_is_true(json_object_get(json_object_get(root, "model"), "ignore_merges"))) {
        return refuse(e, "the model ignores merges for whole words (ignore_merges)");
    }
    bool bos = t->post.n_prefix == 1 && t->post.prefix[0] == t->bos && t->post.n_suffix == 0;
    if (!bos && !shape_is_around(t, -1, -1)) return refuse(e, "the post_processor adds tokens");
    for (int32_t id = 0; id < t->n_token; id++) {
        const tok_token *k = &t->token[id];
        if (k->text && k->added && !k->special) {
            return err_set(e, ST_USAGE,
                           "vocab.json and merges.txt cannot express the added token \"%.60s\", "
                           "which is not a special one",
                           k->text);
        }
    }
    return ST_OK;
}

static status write_vocab(const tok *t, const char *path, err *e) {
    json_t *vocab = json_object();
    for (int32_t id = 0; id < t->n_token; id++) {
        const tok_token *k = &t->token[id];
        if (k->text) json_object_setn_new(vocab, k->text, k->n_text, json_integer(id));
    }
    char *text = json_dumps(vocab, JSON_COMPACT);
    json_decref(vocab);
    CHECK(text, "a vocabulary does not make JSON");
    status st = file_write_atomic(path, text, strlen(text), e);
    free(text);
    return st;
}

static status write_merges(const tok *t, const char *path, err *e) {
    int32_t n;
    shape_merge *merge = shape_merges(t, &n);
    strbuf text = {0};
    strbuf_puts(&text, "#version: 0.2\n");
    for (int32_t i = 0; i < n; i++) {
        strbuf_printf(&text, "%s %s\n", t->token[merge[i].left].text,
                      t->token[merge[i].right].text);
    }
    free(merge);
    status st = file_write_atomic(path, text.data, text.len, e);
    strbuf_free(&text);
    return st;
}

static status write_folder(arena *mem, const tok *t, const json_t *root, const char *dir, err *e) {
    shape_cut cut;
    TRY(check(t, root, &cut, e));
    TRY(file_make_dirs(dir, e));
    TRY(write_vocab(t, path_join(mem, dir, "vocab.json"), e));
    TRY(write_merges(t, path_join(mem, dir, "merges.txt"), e));
    json_t *keys = json_pack("{s:s, s:b}", "tokenizer_class", "GPT2Tokenizer", "add_prefix_space",
                             cut.add_prefix_space);
    return tok_config_write(t, dir, 0, keys, e);
}

status gpt2_write(const tok *t, const char *path, err *e) {
    arena *mem = arena_new("vocab.json");
    const char *base = path_base(path);
    bool file = strcmp(base, "vocab.json") == 0 || strcmp(base, "merges.txt") == 0;
    const char *dir = file ? arena_strndup(mem, path, (size_t)(base - path)) : path;
    json_t *root = shape_root(t);
    status st = write_folder(mem, t, root, *dir ? dir : ".", e);
    json_decref(root);
    arena_free(mem);
    return st;
}
