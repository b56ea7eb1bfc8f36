/* Writing a tokenizer in any format; tok_format.h. */
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "tok/format/format.h"
#include "tok/format/shape.h"

static const char *const NAMES[TOK_FORMATS] = {
    [TOK_FORMAT_JSON] = "json",         [TOK_FORMAT_SENTENCEPIECE] = "sentencepiece",
    [TOK_FORMAT_TIKTOKEN] = "tiktoken", [TOK_FORMAT_GPT2] = "gpt2",
    [TOK_FORMAT_BERT] = "bert",         [TOK_FORMAT_LLAMA2C] = "llama2c",
    [TOK_FORMAT_GGUF] = "gguf"};

const char *tok_format_name(tok_format f) {
    return NAMES[f];
}

status tok_format_parse(const char *name, tok_format *f, err *e) {
    for (int i = 0; i < TOK_FORMATS; i++) {
        if (strcmp(name, NAMES[i]) != 0) continue;
        *f = (tok_format)i;
        return ST_OK;
    }
    err_set(e, ST_USAGE, "\"%.60s\" is not a format of tokenizers", name);
    int near = text_nearest(name, NAMES, TOK_FORMATS);
    if (near >= 0) return err_hint(e, "did you mean %s?", NAMES[near]);
    return err_hint(e, "use json, sentencepiece, tiktoken, gpt2, bert or llama2c");
}

tok_format tok_format_of_path(const char *path) {
    static const struct {
        const char *end;
        tok_format f;
    } ENDS[] = {{".model", TOK_FORMAT_SENTENCEPIECE},
                {".tiktoken", TOK_FORMAT_TIKTOKEN},
                {"merges.txt", TOK_FORMAT_GPT2},
                {"vocab.json", TOK_FORMAT_GPT2},
                {".txt", TOK_FORMAT_BERT},
                {".bin", TOK_FORMAT_LLAMA2C},
                {".gguf", TOK_FORMAT_GGUF}};
    size_t n = strlen(path);
    for (int i = 0; i < ARRAY_LEN(ENDS); i++) {
        size_t m = strlen(ENDS[i].end);
        if (n >= m && strcmp(path + n - m, ENDS[i].end) == 0) return ENDS[i].f;
    }
    return TOK_FORMAT_JSON;
}

static status write_json(const tok *t, const char *path, err *e) {
    return shape_is_folder(path) ? tok_save_dir(t, path, 0, e) : tok_save_file(t, path, e);
}

status tok_export(const tok *t, const char *path, tok_format f, err *e) {
    switch (f) {
        case TOK_FORMAT_SENTENCEPIECE: return sentencepiece_write(t, path, e);
        case TOK_FORMAT_TIKTOKEN: return tiktoken_write(t, path, e);
        case TOK_FORMAT_GPT2: return gpt2_write(t, path, e);
        case TOK_FORMAT_BERT: return bert_write(t, path, e);
        case TOK_FORMAT_LLAMA2C: return llama2c_write(t, path, e);
        case TOK_FORMAT_GGUF:
            err_set(e, ST_USAGE,
                    "a GGUF file is written with its model, not for a tokenizer alone");
            return err_hint(e, "convert to json, sentencepiece, tiktoken, gpt2, bert or llama2c");
        case TOK_FORMAT_JSON:
        case TOK_FORMATS: break;
    }
    return write_json(t, path, e);
}

/* ---- notes ---- */

static void note_specials(const tok *t, strbuf *out) {
    const char *before = "; special tokens ";
    for (int32_t id = 0; id < t->n_token; id++) {
        if (!t->token[id].text || !t->token[id].special) continue;
        strbuf_printf(out, "%s%s = %d", before, t->token[id].text, (int)id);
        before = ", ";
    }
}

const char *tok_special(const tok *t, int32_t id) {
    bool there = id >= 0 && id < t->n_token;
    return there && t->token[id].special ? t->token[id].text : NULL;
}

const char *tok_pattern_name(const tok *t, arena *mem) {
    json_t *root = shape_root(t);
    shape_cut cut;
    bool known = shape_read_cut(json_object_get(root, "pre_tokenizer"), &cut) && cut.named;
    json_decref(root);
    return known ? shape_first_name(mem, cut.named) : NULL;
}

bool tok_cuts_as_qwen2(const tok *t) {
    arena *mem = arena_new("cut");
    const char *name = tok_pattern_name(t, mem);
    json_t *root = shape_root(t);
    bool same = name && strcmp(name, "qwen2") == 0 &&
                shape_is_type(json_object_get(root, "normalizer"), "NFC");
    json_decref(root);
    arena_free(mem);
    return same;
}

static void note_ranks(const tok *t, strbuf *out) {
    arena *mem = arena_new("note");
    const char *name = tok_pattern_name(t, mem);
    strbuf_printf(out, "ranks do not say how text is cut and what is special: pattern %s",
                  name ? name : "without a name");
    arena_free(mem);
    note_specials(t, out);
}

/* What is nearly the same in a SentencePiece model (spm.h). */
static void note_sentencepiece(const tok *t, strbuf *out) {
    if (t->source && t->source->spm) return;
    json_t *root = shape_root(t);
    const json_t *norm = json_object_get(root, "normalizer");
    const json_t *pre = json_object_get(root, "pre_tokenizer");
    bool nfkc = shape_is_type(norm, "NFKC");
    bool first = shape_is_type(pre, "Metaspace") && (nfkc || json_is_null(norm)) &&
                 !shape_is_string(pre, "prepend_scheme", "never");
    if (nfkc) strbuf_puts(out, "NFKC became rules, which do not put marks in order");
    if (first) strbuf_puts(out, nfkc ? "; " : "");
    if (first) strbuf_puts(out, "a text that begins with a space gets one mark more there");
    json_decref(root);
}

void tok_export_notes(const tok *t, tok_format f, strbuf *out) {
    if (f == TOK_FORMAT_TIKTOKEN) note_ranks(t, out);
    if (f == TOK_FORMAT_SENTENCEPIECE) note_sentencepiece(t, out);
}

/* ---- tokenizer.json, kept as it was read and written back byte for byte ---- */

status tok_save_file(const tok *t, const char *path, err *e) {
    return file_write_atomic(path, t->json, t->json_len, e);
}

status tok_save_chat(const tok *t, const char *dir, int64_t model_max_length, const char *template,
                     int32_t stop, err *e) {
    TRY(file_make_dirs(dir, e));
    arena *a = arena_new("tokenizer paths");
    status st = tok_save_file(t, path_join(a, dir, "tokenizer.json"), e);
    arena_free(a);
    if (st != ST_OK) return st;
    json_t *chat = json_object();
    if (template) json_object_set_new(chat, "chat_template", json_string(template));
    if (stop >= 0) json_object_set_new(chat, "eos_token", json_string(t->token[stop].text));
    return tok_config_write(t, dir, model_max_length, chat, e);
}

status tok_save_dir(const tok *t, const char *dir, int64_t model_max_length, err *e) {
    return tok_save_chat(t, dir, model_max_length, NULL, -1, e);
}
