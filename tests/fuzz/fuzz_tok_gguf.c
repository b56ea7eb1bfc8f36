/* libFuzzer target: a table of GGUF's tokenizer keys from outside bytes. The input is
 *   model | pre | 8 ids | 7 flags | charsmap length   (a byte each) | charsmap
 * then tokens, each type, score, length, bytes; a zero length ends them and merges of the same form
 * without type and score follow. A tok that can be written as a table reads back from it. */
#include "tok_load.h"
#include "tok/format/gguf_keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_STRINGS = 4096 };

typedef struct fuzz_cursor {
    const uint8_t *at, *end;
} fuzz_cursor;

static uint8_t take(fuzz_cursor *c) {
    return c->at < c->end ? *c->at++ : 0;
}

static const char *take_bytes(fuzz_cursor *c, size_t *n) {
    const char *s = (const char *)c->at;
    size_t left = (size_t)(c->end - c->at);
    *n = take(c);
    if (left > 0) left--, s++;
    if (*n > left) *n = left;
    c->at += *n;
    return s;
}

static void take_head(fuzz_cursor *c, gguf_tokenizer *g) {
    static const char *const MODELS[] = {"gpt2", "llama", "t5", "bert", "rwkv"};
    static const char *const PRES[] = {"gpt-2", "llama-bpe", "qwen2", "smollm", "deepseek-v3", "?"};
    int32_t *ids[] = {&g->bos, &g->eos, &g->unk, &g->sep, &g->pad, &g->cls, &g->mask, &g->eot};
    gguf_flag *flags[] = {&g->add_bos,
                          &g->add_eos,
                          &g->add_sep,
                          &g->add_space_prefix,
                          &g->lowercase,
                          &g->strip_accents,
                          &g->remove_extra_whitespaces};
    g->model = MODELS[take(c) % ARRAY_LEN(MODELS)];
    g->pre = PRES[take(c) % ARRAY_LEN(PRES)];
    for (int i = 0; i < ARRAY_LEN(ids); i++) *ids[i] = (int8_t)take(c);
    for (int i = 0; i < ARRAY_LEN(flags); i++) *flags[i] = (gguf_flag)(take(c) % 3);
    g->charsmap = take_bytes(c, &g->n_charsmap);
}

static void take_strings(fuzz_cursor *c, gguf_tokenizer *g, arena *mem) {
    tok_string *token = ARENA_ARRAY(mem, tok_string, MAX_STRINGS);
    tok_string *merge = ARENA_ARRAY(mem, tok_string, MAX_STRINGS);
    float *score = ARENA_ARRAY(mem, float, MAX_STRINGS);
    int32_t *type = ARENA_ARRAY(mem, int32_t, MAX_STRINGS);
    for (bool more = true; more && g->n_tokens < MAX_STRINGS; g->n_tokens += more) {
        int32_t i = g->n_tokens;
        type[i] = take(c);
        score[i] = (float)(int8_t)take(c);
        token[i].text = take_bytes(c, &token[i].len);
        more = token[i].len > 0;
    }
    for (bool more = true; more && g->n_merges < MAX_STRINGS; g->n_merges += more) {
        merge[g->n_merges].text = take_bytes(c, &merge[g->n_merges].len);
        more = merge[g->n_merges].len > 0;
    }
    g->token = token;
    g->merge = merge;
    g->score = score;
    g->type = type;
}

static void write_and_read(const tok *t, arena *mem) {
    err e = {0};
    gguf_tokenizer g;
    tok *back;
    if (tok_to_gguf(t, mem, &g, &e) != ST_OK) {
        CHECK(e.code == ST_USAGE && e.message[0], "an error without words");
        return;
    }
    status st = tok_from_gguf(&back, &g, "written", &e);
    CHECK(st == ST_OK, "%s", e.message);
    tok_free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    err e = {0};
    fuzz_cursor c = {data, data + size};
    gguf_tokenizer g = gguf_tokenizer_empty();
    arena *mem = arena_new("fuzz");
    tok *t;
    take_head(&c, &g);
    take_strings(&c, &g, mem);
    if (tok_from_gguf(&t, &g, "fuzz", &e) == ST_OK) {
        use_tok(t, FUZZ_TEXT, sizeof(FUZZ_TEXT) - 1);
        write_and_read(t, mem);
    } else {
        CHECK(e.code == ST_FORMAT && e.message[0], "an error without words");
    }
    tok_free(t);
    arena_free(mem);
    return 0;
}
