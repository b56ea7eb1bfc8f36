/* Training: options, documents, and the kinds whose vocabulary is just a list. See train.h. */
#include "tok/train/train.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/utf8.h"

/* What the program takes beside the structures of training: code, buffers, the batch of text. */
static const int64_t BASE_BYTES = (int64_t)128 << 20;
static const int64_t DEFAULT_RAM_BYTES = (int64_t)2 << 30, LEAST_RAM_BYTES = (int64_t)192 << 20;

/* ---- options ---- */

typedef struct form_defaults {
    const char *special[6];
    const char *pattern, *unk;
    double coverage;
} form_defaults;

static const form_defaults DEFAULTS[] = {
    [FORM_BYTE_BPE] = {{"<|endoftext|>"}, "llama3", NULL, 1},
    [FORM_PIECE_BPE] = {{"<unk>", "<s>", "</s>"}, "sentencepiece", "<unk>", 0.9995},
    [FORM_UNIGRAM] = {{"<pad>", "</s>", "<unk>"}, "sentencepiece", "<unk>", 0.9995},
    [FORM_WORDPIECE] = {{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}, "bert", "[UNK]", 1},
    [FORM_CHAR] = {{"<|endoftext|>"}, "llama3", NULL, 1},
    [FORM_BYTE] = {{"<|endoftext|>"}, "llama3", NULL, 1},
};

static train_form form_of(const tok_train_options *o) {
    switch (o->kind) {
        case TOK_BPE:
            return o->pattern && strcmp(o->pattern, "sentencepiece") == 0 ? FORM_PIECE_BPE
                                                                          : FORM_BYTE_BPE;
        case TOK_UNIGRAM: return FORM_UNIGRAM;
        case TOK_WORDPIECE: return FORM_WORDPIECE;
        case TOK_CHAR: return FORM_CHAR;
        case TOK_BYTE: break;
    }
    return FORM_BYTE;
}

static status bad_option(err *e, const char *key, const char *message, const char *hint) {
    err_at(e, ST_USAGE, key, "%s", message);
    return err_hint(e, "%s", hint);
}

static status check_special(const char *const *special, int n, err *e) {
    for (int i = 0; i < n; i++) {
        size_t len = strlen(special[i]);
        uint32_t cp;
        if (utf8_valid_prefix(special[i], len) != len || len > TOK_MAX_ADDED_BYTES || len == 0 ||
            (size_t)utf8_decode(special[i], len, &cp) == len) {
            return bad_option(e, "special",
                              "a special token must be UTF-8 text of two or more "
                              "characters",
                              "write it like <|endoftext|>");
        }
        for (int j = 0; j < i; j++) {
            if (strcmp(special[i], special[j]) == 0) {
                return bad_option(e, "special", "a special token is given twice", "drop one");
            }
        }
    }
    return ST_OK;
}

static bool is_special(const tok_train_options *o, const char *token) {
    for (int i = 0; i < o->n_special; i++) {
        if (strcmp(o->special[i], token) == 0) return true;
    }
    return false;
}

static status check_pattern(const tok_trainer *tr, err *e) {
    const char *pattern = tr->opt.pattern, *own = DEFAULTS[tr->form].pattern;
    bool fixed = tr->form == FORM_UNIGRAM || tr->form == FORM_WORDPIECE;
    if (fixed ? strcmp(pattern, own) == 0 : tok_build_knows_pattern(pattern)) return ST_OK;
    if (fixed) {
        err_set(e, ST_USAGE, "this kind is always trained with pattern %s, not \"%.60s\"", own,
                pattern);
        err_hint(e, "leave the pattern out, or use kind bpe");
    } else {
        err_set(e, ST_USAGE, "pre-tokenizer pattern \"%.60s\" is not known", pattern);
        err_hint(e, "use %s", tok_build_pattern_names(tr->mem));
    }
    return err_where(e, "pattern");
}

status tok_train_too_small(const tok_train_options *opt, int64_t needed, const char *what, err *e) {
    err_at(e, ST_USAGE, "vocab_size", "a vocabulary of %d cannot hold %lld %s and special tokens",
           (int)opt->vocab_size, (long long)needed, what);
    return err_hint(e, "ask for more than %lld, or for a lower coverage", (long long)needed);
}

static status check_options(const tok_trainer *tr, err *e) {
    const tok_train_options *o = &tr->opt;
    const char *unk = DEFAULTS[tr->form].unk;
    TRY(check_special(o->special, o->n_special, e));
    TRY(check_pattern(tr, e));
    if (unk && !is_special(o, unk)) {
        err_at(e, ST_USAGE, "special", "the special tokens of this kind must have %s", unk);
        return err_hint(e, "add %s to them", unk);
    }
    if (!(o->coverage > 0 && o->coverage <= 1)) {
        return bad_option(e, "coverage", "the coverage must be above 0 and at most 1",
                          "0.9995 leaves the rarest characters out");
    }
    if (o->ram_bytes < LEAST_RAM_BYTES) {
        return bad_option(e, "ram", "training needs 192 MiB of memory at least", "give more");
    }
    bool bytes = tr->form == FORM_BYTE_BPE || tr->form == FORM_PIECE_BPE || o->byte_fallback;
    if (tr->form < FORM_CHAR && o->vocab_size < 256 * bytes + o->n_special) {
        err_at(e, ST_USAGE, "vocab_size", "a vocabulary of %d cannot hold %s%d special tokens",
               (int)o->vocab_size, bytes ? "256 bytes and " : "", o->n_special);
        return err_hint(e, "ask for %d or more, or use kind byte", 256 * bytes + o->n_special);
    }
    return ST_OK;
}

/* A quarter of the machine's memory, at most 2 GiB. */
static int64_t default_ram_bytes(void) {
    int64_t all = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    int64_t quarter = all / 4 > LEAST_RAM_BYTES ? all / 4 : LEAST_RAM_BYTES;
    return quarter < DEFAULT_RAM_BYTES ? quarter : DEFAULT_RAM_BYTES;
}

static void copy_options(tok_trainer *tr, const tok_train_options *opt) {
    tok_train_options *o = &tr->opt;
    *o = *opt;
    tr->form = form_of(opt);
    const form_defaults *d = &DEFAULTS[tr->form];
    const char *const *special = opt->special ? opt->special : d->special;
    if (!opt->special) {
        for (o->n_special = 0; d->special[o->n_special];) o->n_special++;
    }
    const char **copy = ARENA_ARRAY(tr->mem, const char *, o->n_special);
    for (int i = 0; i < o->n_special; i++) copy[i] = arena_strdup(tr->mem, special[i]);
    o->special = copy;
    o->pattern = arena_strdup(tr->mem, opt->pattern ? opt->pattern : d->pattern);
    if (o->min_frequency == 0) o->min_frequency = 2;
    if (o->coverage == 0) o->coverage = d->coverage;
    if (o->ram_bytes == 0) o->ram_bytes = default_ram_bytes();
}

int64_t tok_trainer_room(const tok_trainer *tr) {
    int64_t room = tr->opt.ram_bytes - BASE_BYTES;
    return room - room / 16; /* the allocator's own part */
}

void tok_train_report(const tok_train_options *opt, double fraction, const char *what) {
    if (opt->progress) opt->progress(opt->progress_ctx, fraction, what);
}

/* ---- lifecycle ---- */

static status make_gather(tok_trainer *tr, err *e) {
    char *json = tok_build_shell_json(&tr->opt, tr->form);
    status st = tok_parse(&tr->shell, json, strlen(json), "stages of training", e);
    free(json);
    TRY(st);
    gather_cut cut = tr->form == FORM_PIECE_BPE ? CUT_DIGITS
                     : tr->form == FORM_UNIGRAM ? CUT_PIECES
                                                : CUT_NONE;
    tr->gather = gather_new(tr->shell, cut, tok_trainer_room(tr), &tr->opt);
    return ST_OK;
}

status tok_trainer_new(tok_trainer **out, const tok_train_options *opt, err *e) {
    *out = NULL;
    tok_trainer *tr = xcalloc(1, sizeof(*tr));
    tr->mem = arena_new("tokenizer training");
    copy_options(tr, opt);
    status st = check_options(tr, e);
    if (st == ST_OK && tr->form < FORM_CHAR) st = make_gather(tr, e);
    if (st != ST_OK) {
        tok_trainer_free(tr);
        return st;
    }
    if (tr->form == FORM_CHAR) tr->seen = arena_alloc(tr->mem, 0x110000 / 8);
    *out = tr;
    return ST_OK;
}

void tok_trainer_free(tok_trainer *tr) {
    if (!tr) return;
    gather_free(tr->gather);
    tok_free(tr->shell);
    free(tr->json);
    arena_free(tr->mem);
    free(tr);
}

/* ---- documents ---- */

static status see_characters(tok_trainer *tr, const char *text, size_t len, err *e) {
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        int n = utf8_decode(text + i, len - i, &cp);
        if (n == 0 || cp == 0) {
            err_set(e, ST_FORMAT, "byte %zu of the text (0x%02x) is %s", i, (uint8_t)text[i],
                    n == 0 ? "not UTF-8" : "a NUL, which a character vocabulary cannot hold");
            return err_hint(e, "clean the text, or use kind bpe or byte, which take any bytes");
        }
        tr->seen[cp >> 3] |= (uint8_t)(1u << (cp & 7));
        i += (size_t)n;
    }
    return ST_OK;
}

status tok_trainer_add(tok_trainer *tr, const char *text, size_t len, err *e) {
    CHECK(!tr->json, "text after the end of training");
    if (tr->form == FORM_CHAR) TRY(see_characters(tr, text, len, e));
    if (tr->gather) TRY(gather_add(tr->gather, text, len, e));
    tr->n_bytes += (int64_t)len;
    return ST_OK;
}

status tok_trainer_words(tok_trainer *tr, word_ref **list, int64_t *n, err *e) {
    word_set *words;
    int64_t most;
    TRY(gather_words(tr->gather, &words, e));
    int64_t dropped = gather_dropped(tr->gather, &most);
    if (dropped > 0) {
        log_warn("memory ran short: %lld words seen %lld times or less do not count; "
                 "more memory for training (ram) keeps them",
                 (long long)dropped, (long long)most);
    }
    tok_train_report(&tr->opt, 0, "sorting words");
    *list = words_sorted(words, n);
    return ST_OK;
}

/* ---- drafts ---- */

void tok_draft_add(tok_draft *d, const char *token) {
    VEC_PUSH(d->token, d->n_token, d->cap_token, token);
}

void tok_draft_add_char(tok_draft *d, uint32_t cp) {
    char c[4];
    int n = utf8_encode(cp, c);
    tok_draft_add(d, arena_strndup(d->mem, c, (size_t)n));
}

void tok_draft_add_special(tok_draft *d, const tok_train_options *opt) {
    for (int i = 0; i < opt->n_special; i++) tok_draft_add(d, opt->special[i]);
}

void tok_draft_add_bytes(tok_draft *d) {
    for (int b = 0; b < 256; b++) tok_draft_add(d, arena_printf(d->mem, "<0x%02X>", b));
}

static void draft_characters(const tok_trainer *tr, tok_draft *d) {
    tok_draft_add_special(d, &tr->opt);
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        if (tr->seen[cp >> 3] >> (cp & 7) & 1) tok_draft_add_char(d, cp);
    }
}

/* Bytes in their own order: id = number of special tokens + byte. */
static void draft_bytes(const tok_trainer *tr, tok_draft *d) {
    tok_draft_add_special(d, &tr->opt);
    for (int b = 0; b < 256; b++) tok_draft_add_char(d, byte_alphabet_char((uint8_t)b));
}

static status make_draft(tok_trainer *tr, tok_draft *d, err *e) {
    switch (tr->form) {
        case FORM_BYTE_BPE:
        case FORM_PIECE_BPE:
        case FORM_WORDPIECE: return bpe_train(tr, d, e);
        case FORM_UNIGRAM: return unigram_train(tr, d, e);
        case FORM_CHAR: draft_characters(tr, d); break;
        case FORM_BYTE: draft_bytes(tr, d); break;
    }
    return ST_OK;
}

/* A piece of the text with the content of a special token would have two ids, or none of its own.
 * In byte-level BPE and WordPiece merges end in the special token, as Hugging Face's do: only a
 * character of WordPiece's, such as ##e, can be such a piece. */
static status check_pieces(const tok_trainer *tr, const tok_draft *d, err *e) {
    for (int32_t i = tr->opt.n_special; i < d->n_token; i++) {
        if (!is_special(&tr->opt, d->token[i])) continue;
        err_at(e, ST_USAGE, "special", "special token %s is also a piece of the text", d->token[i]);
        return err_hint(e, "write it so that text does not have it, like <|%s|>", d->token[i]);
    }
    return ST_OK;
}

static status train(tok_trainer *tr, err *e) {
    if (tr->n_bytes == 0) {
        err_set(e, ST_USAGE, "the corpus is empty: there is no text to train a tokenizer on");
        return err_hint(e, "give files that hold text");
    }
    tok_draft d = {.mem = tr->mem};
    status st = make_draft(tr, &d, e);
    if (st == ST_OK) st = check_pieces(tr, &d, e);
    if (st == ST_OK) tr->json = tok_build_json(&tr->opt, tr->form, &d);
    free(d.token);
    free(d.merge);
    free(d.score);
    return st;
}

/* The file is written, then read like any other, so a trained tokenizer and a loaded one cannot
 * differ. */
status tok_trainer_finish(tok_trainer *tr, tok **out, err *e) {
    *out = NULL;
    if (!tr->json) TRY(train(tr, e));
    return tok_parse(out, tr->json, strlen(tr->json), "trained tokenizer", e);
}
