/* tiktoken's files of ranks: lines of base64(token) SPACE rank. Ranks are ids, and the order of
 * merging. The pattern and the special tokens come from --pattern and --special, from the
 * tokenizer_config.json beside the file, or from what is known of its name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tok/format/format.h"
#include "tok/format/shape.h"
#include "tok/format/tree.h"
#include "tok/model/bpe.h"
#include "tok/text/base64.h"

enum { MAX_RANK_TOKEN_BYTES = 4096 };

typedef struct rank_token {
    const char *bytes;
    uint32_t len;
    int32_t rank;
} rank_token;

/* Tokens by rank, lowest first. */
typedef struct rank_table {
    rank_token *token;
    int32_t n;
} rank_table;

/* ---- lines ---- */

/* The rank at the end of a line, -1 when it is not one; *n becomes the length before the space. */
static int64_t line_rank(const char *line, size_t *n) {
    const char *space = memchr(line, ' ', *n);
    int64_t rank = 0;
    if (!space || space == line || space + 1 == line + *n) return -1;
    for (const char *p = space + 1; p < line + *n; p++) {
        if (*p < '0' || *p > '9' || rank > INT32_MAX) return -1;
        rank = 10 * rank + (*p - '0');
    }
    *n = (size_t)(space - line);
    return rank < INT32_MAX ? rank : -1;
}

bool tiktoken_looks(const char *bytes, size_t len) {
    line_cursor c = {bytes, bytes + len, 0};
    const char *line;
    size_t n;
    uint8_t token[3 * (MAX_RANK_TOKEN_BYTES + 3) / 4 + 3];
    if (!format_line(&c, &line, &n) || line_rank(line, &n) < 0) return false;
    return n <= MAX_RANK_TOKEN_BYTES && base64_decode(line, n, token) > 0;
}

static status read_line(tok_input *in, const char *line, size_t n, int64_t number, rank_token *k) {
    int64_t rank = line_rank(line, &n);
    if (rank < 0) {
        return format_bad(in, "line %lld is not a token in base64, a space and a rank",
                          (long long)number);
    }
    if (n > 2 * MAX_RANK_TOKEN_BYTES) {
        return format_bad(in, "line %lld is longer than any token", (long long)number);
    }
    uint8_t *bytes = arena_alloc(in->mem, 3 * (n + 3) / 4);
    int64_t len = base64_decode(line, n, bytes);
    if (len <= 0) return format_bad(in, "line %lld is not base64", (long long)number);
    *k = (rank_token){(const char *)bytes, (uint32_t)len, (int32_t)rank};
    return ST_OK;
}

static int by_rank(const void *a, const void *b) {
    const rank_token *x = a, *y = b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static status check_tokens(const tok_input *in, const rank_table *t, str_map *seen) {
    for (int32_t i = 0; i < t->n; i++) {
        const rank_token *k = &t->token[i];
        if (i > 0 && k->rank == k[-1].rank) {
            return format_bad(in, "rank %d is there twice", (int)k->rank);
        }
        if (str_map_get(seen, k->bytes, k->len) >= 0) {
            return format_bad(in, "the token of rank %d is there twice", (int)k->rank);
        }
        str_map_add(seen, k->bytes, k->len, i);
    }
    return ST_OK;
}

static status read_ranks(tok_input *in, rank_table *t) {
    line_cursor c = {in->bytes, in->bytes + in->len, 0};
    const char *line;
    int32_t cap = 0;
    for (size_t n; format_line(&c, &line, &n);) {
        if (n == 0) continue;
        if (t->n == cap) t->token = arena_grow(in->mem, t->token, t->n, &cap, sizeof(*t->token));
        TRY(read_line(in, line, n, c.number, &t->token[t->n]));
        t->n++;
    }
    if (t->n == 0) return format_bad(in, "has no ranks");
    qsort(t->token, (size_t)t->n, sizeof(*t->token), by_rank);
    str_map seen = {0};
    str_map_reserve(&seen, (uint32_t)t->n);
    status st = check_tokens(in, t, &seen);
    str_map_free(&seen);
    return st;
}

/* ---- published files: pattern and special tokens, by file name ---- */

typedef struct known_special {
    const char *content; /* with %d: `count` of them, numbered from `first` */
    int32_t id;
    int first, count;
} known_special;

typedef struct known_ranks {
    const char *file;    /* the name begins with this */
    int32_t n_ranks;     /* 0: any; else the file must have so many */
    const char *pattern; /* of pretok_by_name */
    known_special special[8];
} known_ranks;

#define ONE(content, id)                                                                           \
    { content, id, 0, 1 }

static const known_ranks KNOWN[] = {
    {"r50k_base", 0, "gpt2", {ONE("<|endoftext|>", 50256)}},
    {"p50k_base", 0, "gpt2", {ONE("<|endoftext|>", 50256)}},
    {"p50k_edit",
     0,
     "gpt2",
     {ONE("<|endoftext|>", 50256), ONE("<|fim_prefix|>", 50281), ONE("<|fim_middle|>", 50282),
      ONE("<|fim_suffix|>", 50283)}},
    {"cl100k_base",
     0,
     "cl100k",
     {ONE("<|endoftext|>", 100257), ONE("<|fim_prefix|>", 100258), ONE("<|fim_middle|>", 100259),
      ONE("<|fim_suffix|>", 100260), ONE("<|endofprompt|>", 100276)}},
    {"o200k_base", 0, "o200k", {ONE("<|endoftext|>", 199999), ONE("<|endofprompt|>", 200018)}},
    {"qwen.tiktoken",
     151643,
     "qwen2",
     {ONE("<|endoftext|>", 151643),
      ONE("<|im_start|>", 151644),
      ONE("<|im_end|>", 151645),
      {"<|extra_%d|>", 151646, 0, 205}}},
    /* Kimi K2, Moonlight; the names of some of the reserved tokens stand in the config. */
    {"tiktoken.model", 163584, "kimi-k2", {ONE("[BOS]", 163584), ONE("[EOS]", 163585)}},
    /* Llama 3; 3.1 and later give names to some of the reserved ones, in the config. */
    {"tokenizer.model",
     128000,
     "llama3",
     {ONE("<|begin_of_text|>", 128000), ONE("<|end_of_text|>", 128001)}},
};

/* NULL: not known. */
static const known_ranks *known_ranks_find(const char *base, int32_t n_ranks) {
    for (int i = 0; i < ARRAY_LEN(KNOWN); i++) {
        if (strncmp(base, KNOWN[i].file, strlen(KNOWN[i].file)) != 0) continue;
        if (KNOWN[i].n_ranks == 0 || KNOWN[i].n_ranks == n_ranks) return &KNOWN[i];
    }
    return NULL;
}

/* ---- special tokens ---- */

/* In order: config, known names, --special after the last id. */
typedef struct special_list {
    tok_input *in;
    const rank_table *t;
    json_t *added, *contents; /* added_tokens; contents as keys */
    int64_t last;             /* highest id so far */
} special_list;

static bool is_rank(const rank_table *t, int64_t id) {
    int32_t low = 0, high = t->n;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (t->token[middle].rank < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < t->n && t->token[low].rank == id;
}

static status add_special(void *ctx, int64_t id, const char *content, size_t len, bool special) {
    special_list *l = ctx;
    char key[32];
    snprintf(key, sizeof(key), "%lld", (long long)id);
    if (json_object_get(l->contents, content)) return ST_OK;
    if (id < 0 || id >= INT32_MAX || is_rank(l->t, id)) {
        return format_bad(l->in, "the special token \"%.60s\" has id %lld, which is a rank",
                          content, (long long)id);
    }
    json_array_append_new(l->added, tree_added_token((int32_t)id, content, len, special));
    json_object_set_new(l->contents, content, json_true());
    if (id > l->last) l->last = id;
    return ST_OK;
}

/* The config may have named some of the ids already. */
static bool id_is_taken(const special_list *l, int64_t id) {
    const json_t *token;
    size_t i;
    json_array_foreach(l->added, i, token) {
        if (json_integer_value(json_object_get(token, "id")) == id) return true;
    }
    return false;
}

static status add_known(special_list *l, const known_ranks *known) {
    for (int i = 0; i < ARRAY_LEN(known->special) && known->special[i].content; i++) {
        const known_special *s = &known->special[i];
        for (int k = 0; k < s->count; k++) {
            char name[64];
            const char *number = strstr(s->content, "%d");
            int before = number ? (int)(number - s->content) : (int)strlen(s->content);
            int n = snprintf(name, sizeof(name), "%.*s", before, s->content);
            if (number) {
                n += snprintf(name + n, sizeof(name) - (size_t)n, "%d%s", s->first + k, number + 2);
            }
            if (id_is_taken(l, s->id + k)) continue;
            TRY(add_special(l, s->id + k, name, (size_t)n, true));
        }
    }
    return ST_OK;
}

static status add_specials(special_list *l, const known_ranks *known) {
    l->last = l->t->token[l->t->n - 1].rank;
    TRY(tok_config_added(l->in->config, add_special, l));
    if (known) TRY(add_known(l, known));
    for (int i = 0; i < l->in->opt.n_special; i++) {
        const char *content = l->in->opt.special[i];
        TRY(add_special(l, l->last + 1, content, strlen(content), true));
    }
    return ST_OK;
}

/* ---- merges from ranks ---- */

typedef struct deriver {
    const rank_table *t;
    int32_t byte[256]; /* index of the token of a byte */
    bpe_model model;   /* the merges so far */
    bpe_work work;
} deriver;

static status find_bytes(deriver *d, const char *origin, err *e) {
    memset(d->byte, 0xFF, sizeof(d->byte));
    for (int32_t i = 0; i < d->t->n; i++) {
        const rank_token *k = &d->t->token[i];
        if (k->len == 1) d->byte[(uint8_t)k->bytes[0]] = i;
    }
    for (int b = 0; b < 256; b++) {
        if (d->byte[b] >= 0) continue;
        return err_set(e, ST_FORMAT, "%s: byte 0x%02x has no rank", origin, (unsigned)b);
    }
    return ST_OK;
}

static void reserve(deriver *d) {
    uint32_t longest = 1;
    for (int32_t i = 0; i < d->t->n; i++) {
        if (d->t->token[i].len > longest) longest = d->t->token[i].len;
    }
    bpe_reserve_merges(&d->model, (size_t)d->t->n);
    d->work.cap_symbols = longest;
    d->work.symbol = xmalloc(longest * sizeof(*d->work.symbol));
}

/* How many parts lower ranks leave of a token. */
static int32_t parts_of(deriver *d, const rank_token *k) {
    for (uint32_t i = 0; i < k->len; i++) {
        int32_t id = d->byte[(uint8_t)k->bytes[i]];
        d->work.symbol[i] = (bpe_symbol){id, (int32_t)i, (int32_t)i + 1};
    }
    return bpe_merge_all(&d->model, &d->work, (int32_t)k->len, NULL);
}

/* The merge of each token that tiktoken makes by merging: the two parts that lower ranks leave of
 * it. There is only one way to each: what happens inside a stretch of text that becomes a token
 * does not depend on what stands around it. Tokens that are in more parts then are only ever taken
 * whole, as a piece that the pattern cuts; *n_whole counts them (single bytes left out). In order
 * of rank, on the heap; ids are indices into `t`. ST_FORMAT: a byte has no token. */
static status rank_merges(const rank_table *t, shape_merge **merge, int32_t *n, int32_t *n_whole,
                          const char *origin, err *e) {
    deriver d = {.t = t};
    *n = *n_whole = 0;
    TRY(find_bytes(&d, origin, e));
    reserve(&d);
    *merge = xmalloc(sizeof(**merge) * ((size_t)t->n + 1));
    for (int32_t i = 0; i < t->n; i++) {
        if (t->token[i].len == 1) continue;
        if (parts_of(&d, &t->token[i]) != 2) {
            ++*n_whole;
            continue;
        }
        shape_merge m = {d.work.symbol[0].id, d.work.symbol[1].id, i};
        bpe_put_merge(&d.model, m.left, m.right, m.id);
        (*merge)[(*n)++] = m;
    }
    free(d.model.slot);
    bpe_work_free(&d.work);
    return ST_OK;
}

/* ---- the tree ---- */

static json_t *alphabet_string(const rank_token *k) {
    strbuf text = {0};
    byte_alphabet_append(&text, k->bytes, k->len);
    json_t *j = json_stringn(strbuf_cstr(&text), text.len);
    strbuf_free(&text);
    return j;
}

static json_t *vocabulary(const rank_table *t, json_t **contents) {
    json_t *vocab = json_object();
    *contents = json_array();
    for (int32_t i = 0; i < t->n; i++) {
        json_t *text = alphabet_string(&t->token[i]);
        json_object_set_new(vocab, json_string_value(text), json_integer(t->token[i].rank));
        json_array_append_new(*contents, text);
    }
    return vocab;
}

static status model(const rank_table *t, const char *origin, json_t **out, err *e) {
    shape_merge *merge;
    int32_t n, n_whole;
    TRY(rank_merges(t, &merge, &n, &n_whole, origin, e));
    json_t *contents, *vocab = vocabulary(t, &contents), *merges = json_array();
    for (int32_t i = 0; i < n; i++) {
        json_array_append_new(merges,
                              json_pack("[O, O]", json_array_get(contents, (size_t)merge[i].left),
                                        json_array_get(contents, (size_t)merge[i].right)));
    }
    free(merge);
    json_decref(contents);
    tree_bpe_options o = {.ignore_merges = n_whole > 0};
    *out = tree_bpe(&o, vocab, merges);
    return ST_OK;
}

static status find_pattern(tok_input *in, const known_ranks *known, const pretok_named **named) {
    const char *name = in->opt.pattern ? in->opt.pattern : known ? known->pattern : NULL;
    if (!name) {
        format_bad(in, "tiktoken ranks do not say how text is cut, and the file has no known name");
        return err_hint(
            in->e,
            "add --pattern NAME, such as cl100k or o200k, and --special A,B; for commands "
            "without these, put the tokenizer.json beside it that `athanor tok convert` makes so");
    }
    *named = pretok_by_name(name);
    if (*named) return ST_OK;
    return err_at(in->e, ST_USAGE, "--pattern", "pattern \"%.60s\" is not known", name);
}

status tiktoken_load(tok_input *in, tok **out) {
    rank_table t = {0};
    const pretok_named *named;
    json_t *m;
    TRY(read_ranks(in, &t));
    const known_ranks *known = known_ranks_find(in->base, t.n);
    TRY(find_pattern(in, known, &named));
    TRY(model(&t, in->path, &m, in->e));
    special_list l = {.in = in, .t = &t, .added = json_array(), .contents = json_object()};
    status st = add_specials(&l, known);
    json_decref(l.contents);
    if (st != ST_OK) {
        json_decref(l.added);
        json_decref(m);
        return st;
    }
    return tree_to_tok(out,
                       tree_new((tree_parts){.added = l.added,
                                             .pre_tokenizer = shape_cut_tree(named),
                                             .decoder = tree_byte_level(true, true),
                                             .model = m}),
                       in->path, in->e);
}

/* ---- writing ---- */

static rank_table ranks_of(const tok *t, arena *mem) {
    rank_table r = {.token = ARENA_ARRAY(mem, rank_token, t->n_token)};
    for (int32_t id = 0; id < t->n_token; id++) {
        const tok_token *k = &t->token[id];
        if (!k->text || k->added) continue;
        r.token[r.n++] = (rank_token){k->bytes, k->n_bytes, id};
    }
    return r;
}

static status refuse_token(const tok *t, int32_t id, const char *why, err *e) {
    err_set(e, ST_USAGE, "tiktoken ranks cannot express the token \"%.60s\" (id %d): %s",
            t->token[id].text, (int)id, why);
    return err_hint(e, "use --to json");
}

/* Ranks stand for merges in the order of ids, each pair that makes a token counting; so every merge
 * that the ranks imply must be there, and merges must make tokens in the order of their ids. */
static status check_order(const tok *t, const rank_table *r, err *e) {
    shape_merge *implied, *listed;
    int32_t n, n_listed, n_whole;
    TRY(rank_merges(r, &implied, &n, &n_whole, "the vocabulary", e));
    listed = shape_merges(t, &n_listed);
    const bpe_model *m = t->model;
    status st = ST_OK;
    for (int32_t i = 1; st == ST_OK && i < n_listed; i++) {
        if (listed[i].id < listed[i - 1].id) {
            st = refuse_token(t, listed[i].id, "merges are not in the order of ids", e);
        }
    }
    for (int32_t i = 0; st == ST_OK && i < n; i++) {
        int32_t left = r->token[implied[i].left].rank, right = r->token[implied[i].right].rank;
        const bpe_merge *there = bpe_find(m, left, right);
        int32_t id = r->token[implied[i].id].rank;
        if (!there || there->id != id) st = refuse_token(t, id, "it has another merge", e);
    }
    if (st == ST_OK && n_whole > 0 && !m->ignore_merges) {
        err_set(e, ST_USAGE,
                "tiktoken ranks cannot express the tokenizer: %d tokens are never made "
                "by merges, but would be found whole there (ignore_merges is off)",
                (int)n_whole);
        st = err_hint(e, "use --to json");
    }
    free(implied);
    free(listed);
    return st;
}

static status check(const tok *t, const json_t *root, const rank_table *r, err *e) {
    shape_cut cut;
    TRY(shape_check_byte_bpe(t, root, "tiktoken ranks", e));
    if (!shape_read_cut(json_object_get(root, "pre_tokenizer"), &cut) || cut.n_parts != 1 ||
        cut.part[0].kind != PRETOK_PART_REGEX || cut.add_prefix_space) {
        err_set(e, ST_USAGE,
                "tiktoken ranks cannot express the tokenizer: its pre_tokenizer is "
                "not one pattern");
        return err_hint(e, "use --to json");
    }
    if (!shape_is_around(t, -1, -1)) {
        err_set(e, ST_USAGE,
                "tiktoken ranks cannot express the tokenizer: its post_processor adds "
                "tokens");
        return err_hint(e, "use --to json");
    }
    for (int32_t id = 0; id < t->n_token; id++) {
        if (t->token[id].text && t->token[id].added && !t->token[id].special) {
            return refuse_token(t, id, "it is an added token, but not a special one", e);
        }
    }
    return check_order(t, r, e);
}

status tiktoken_write(const tok *t, const char *path, err *e) {
    arena *mem = arena_new("tiktoken ranks");
    json_t *root = shape_root(t);
    rank_table r = ranks_of(t, mem);
    status st = check(t, root, &r, e);
    strbuf text = {0};
    for (int32_t i = 0; st == ST_OK && i < r.n; i++) {
        base64_append(&text, r.token[i].bytes, r.token[i].len);
        strbuf_printf(&text, " %d\n", (int)r.token[i].rank);
    }
    if (st == ST_OK) st = file_write_atomic(path, strbuf_cstr(&text), text.len, e);
    strbuf_free(&text);
    json_decref(root);
    arena_free(mem);
    return st;
}
