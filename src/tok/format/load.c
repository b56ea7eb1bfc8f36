/* Loading a tokenizer from whatever is at a path: a file of any format, or a folder.
 *
 * A file is recognised by its content; names decide only where two formats look alike. In a folder
 * the first of NAMES is taken: tokenizer.json says most. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/gguf.h"
#include "base/text.h"
#include "tok/format/format.h"

status format_bad(const tok_input *in, const char *fmt, ...) {
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return err_at(in->e, ST_FORMAT, in->path, "%s: %s", in->path, what);
}

bool format_line(line_cursor *c, const char **line, size_t *len) {
    if (c->at == c->end) return false;
    const char *end = memchr(c->at, '\n', (size_t)(c->end - c->at));
    *line = c->at;
    *len = (size_t)((end ? end : c->end) - c->at);
    if (*len > 0 && (*line)[*len - 1] == '\r') --*len;
    c->at = end ? end + 1 : c->end;
    c->number++;
    return true;
}

/* ---- recognising ---- */

/* Files that stand for a folder, and to which the tokenizer_config.json beside them belongs. */
static const char *const NAMES[] = {
    "tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model",
    "tiktoken.model", "qwen.tiktoken",   "vocab.json",   "merges.txt",
    "vocab.txt",      "tokenizer.bin"};

static bool is_main_name(const char *base) {
    for (int i = 0; i < ARRAY_LEN(NAMES); i++) {
        if (strcmp(base, NAMES[i]) == 0) return true;
    }
    return false;
}

static bool has_line(const char *bytes, size_t len, const char *wanted) {
    line_cursor c = {bytes, bytes + len, 0};
    const char *line;
    for (size_t n; format_line(&c, &line, &n);) {
        if (n == strlen(wanted) && memcmp(line, wanted, n) == 0) return true;
    }
    return false;
}

static bool is_json(const char *bytes, size_t len) {
    size_t i = 0;
    while (i < len && strchr(" \t\r\n", bytes[i]) && bytes[i]) i++;
    return i < len && bytes[i] == '{';
}

static status recognise(const tok_input *in, tok_format *f) {
    const char *s = in->bytes, *base = in->base;
    if (is_json(s, in->len)) {
        bool vocab = text_ends_with(base, "vocab.json") || text_ends_with(base, "encoder.json");
        *f = vocab ? TOK_FORMAT_GPT2 : TOK_FORMAT_JSON;
    } else if (in->len >= 8 && memcmp(s, "#version", 8) == 0) {
        *f = TOK_FORMAT_GPT2;
    } else if (gguf_looks(s, in->len)) {
        *f = TOK_FORMAT_GGUF;
    } else if (sentencepiece_looks(s, in->len)) {
        *f = TOK_FORMAT_SENTENCEPIECE;
    } else if (llama2c_looks(s, in->len)) {
        *f = TOK_FORMAT_LLAMA2C;
    } else if (tiktoken_looks(s, in->len)) {
        *f = TOK_FORMAT_TIKTOKEN;
    } else if (text_ends_with(base, "merges.txt")) {
        *f = TOK_FORMAT_GPT2;
    } else if (text_ends_with(base, "vocab.txt") || has_line(s, in->len, "[UNK]")) {
        *f = TOK_FORMAT_BERT;
    } else if (text_ends_with(base, ".json")) {
        *f = TOK_FORMAT_JSON; /* whose reader says what is wrong with it */
    } else {
        format_bad(in, "is not a tokenizer in a format that is known");
        return err_hint(in->e,
                        "known: tokenizer.json, SentencePiece .model, tiktoken ranks, "
                        "vocab.json with merges.txt, vocab.txt, llama2.c tokenizer.bin, GGUF");
    }
    return ST_OK;
}

/* ---- reading ---- */

static status read_as(tok_input *in, tok_format f, tok **out) {
    switch (f) {
        case TOK_FORMAT_SENTENCEPIECE: return sentencepiece_load(in, out);
        case TOK_FORMAT_TIKTOKEN: return tiktoken_load(in, out);
        case TOK_FORMAT_GPT2: return gpt2_load(in, out);
        case TOK_FORMAT_BERT: return bert_load(in, out);
        case TOK_FORMAT_LLAMA2C: return llama2c_load(in, out);
        case TOK_FORMAT_GGUF: return gguf_load(in, out);
        case TOK_FORMAT_JSON:
        case TOK_FORMATS: break;
    }
    return tok_parse(out, in->bytes, in->len, in->path, in->e);
}

/* --pattern and --special say what some formats leave open; the others have said it. */
static status check_options(const tok_input *in, tok_format f) {
    if (in->opt.pattern && f != TOK_FORMAT_TIKTOKEN) {
        return err_at(in->e, ST_USAGE, "--pattern",
                      "a pattern is given, but %s is not a file of tiktoken ranks", in->path);
    }
    if (in->opt.n_special > 0 && f != TOK_FORMAT_TIKTOKEN && f != TOK_FORMAT_GPT2) {
        return err_at(in->e, ST_USAGE, "--special",
                      "special tokens are given, but %s says what they are", in->path);
    }
    return ST_OK;
}

static status read_file(tok_input *in, tok **out) {
    tok_format f = TOK_FORMAT_JSON;
    TRY(recognise(in, &f));
    TRY(check_options(in, f));
    if (in->of_folder) TRY(tok_config_read(in));
    TRY(read_as(in, f, out));
    return tok_config_apply(in, f, *out);
}

bool tok_hint_run(const char *path, err *e) {
    char checkpoints[4096];
    int n = snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", path);
    if (n >= (int)sizeof checkpoints || !file_is_dir(checkpoints)) return false;
    (void)err_hint(e, "it is a run: give one of its checkpoints, %s/step-N", checkpoints);
    return true;
}

/* NULL: there is none. */
static const char *main_file_of(arena *mem, const char *dir) {
    for (int i = 0; i < ARRAY_LEN(NAMES); i++) {
        const char *path = path_join(mem, dir, NAMES[i]);
        if (file_exists(path)) return path;
    }
    return NULL;
}

bool tok_is_in_folder(const char *dir) {
    arena *mem = arena_new("tokenizer");
    bool is = main_file_of(mem, dir) != NULL;
    arena_free(mem);
    return is;
}

static status find_in_folder(arena *mem, const char *dir, const char **path, err *e) {
    *path = main_file_of(mem, dir);
    if (*path) return ST_OK;
    err_at(e, ST_FORMAT, dir, "%s: the folder holds no tokenizer", dir);
    if (tok_hint_run(dir, e)) return ST_FORMAT;
    return err_hint(
        e, "known names are tokenizer.json, tokenizer.model, spiece.model, tiktoken.model, "
           "vocab.json with merges.txt, vocab.txt, tokenizer.bin");
}

/* Model files are large and only their beginning is looked at, so they are mapped. */
static status read_bytes(tok_input *in, file_map *map, char **bytes) {
    if (file_map_open(map, in->path, NULL) == ST_OK) {
        in->bytes = (const char *)map->data;
        in->len = map->len;
        if (gguf_looks(in->bytes, in->len)) return ST_OK;
    }
    if (in->of_folder)
        TRY(file_read_part(in->path, FILE_PART_MAX_BYTES, bytes, &in->len, in->e));
    else
        TRY(file_read_input(in->path, FILE_PART_MAX_BYTES, bytes, &in->len, in->e));
    in->bytes = *bytes;
    return ST_OK;
}

static status load(arena *mem, tok **out, const char *path, const tok_load_options *opt, err *e) {
    file_map map = {0};
    char *bytes = NULL;
    tok_input in = {.path = path, .mem = mem, .e = e};
    if (opt) in.opt = *opt;
    if (file_is_dir(path)) TRY(find_in_folder(mem, path, &in.path, e));
    in.base = path_base(in.path);
    in.of_folder = is_main_name(in.base);
    in.dir = arena_strndup(mem, in.path, (size_t)(in.base - in.path));
    status st = read_bytes(&in, &map, &bytes);
    if (st == ST_OK) st = read_file(&in, out);
    json_decref((json_t *)in.config);
    file_map_close(&map);
    free(bytes);
    return st;
}

status tok_load_with(tok **out, const char *path, const tok_load_options *opt, err *e) {
    *out = NULL;
    arena *mem = arena_new("tokenizer files");
    status st = load(mem, out, path, opt, e);
    arena_free(mem);
    if (st == ST_FORMAT && e && !e->hint[0])
        err_hint(e, "the tokenizer is damaged, or of a kind that is not read; fetch it again");
    if (st != ST_OK) {
        tok_free(*out);
        *out = NULL;
    }
    return st;
}

status tok_load(tok **out, const char *path, err *e) {
    return tok_load_with(out, path, NULL, e);
}

tok_format tok_format_of(const tok *t) {
    return t->source ? t->source->format : TOK_FORMAT_JSON;
}
