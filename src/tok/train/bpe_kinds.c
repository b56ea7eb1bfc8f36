/* BPE over bytes, over characters, and WordPiece: how words are spelled, and in which order the
 * tokens stand in the end. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/train/bpe.h"

enum { N_CODE_POINTS = 0x110000 };
static const char *const WORDPIECE_PREFIX = "##";

/* Lays out the words as symbols, after which the trainer needs them no more, and merges. */
static status merge_words(tok_trainer *tr, const word_ref *words, int64_t n, bpe_spell_fn *spell,
                          const void *ctx, bpe_job job) {
    bpe_text text;
    bpe_text_build(&text, words, n, spell, ctx);
    gather_drop_words(tr->gather);
    job.min_frequency = tr->opt.min_frequency;
    job.ram_bytes = tok_trainer_room(tr);
    job.opt = &tr->opt;
    bpe_merge(&text, &job);
    return ST_OK;
}

/* ---- bytes ---- */

static int32_t spell_bytes(const void *ctx, const char *word, uint32_t len, int32_t *out) {
    const int32_t *id_of_byte = ctx;
    for (uint32_t i = 0; i < len; i++) out[i] = id_of_byte[(uint8_t)word[i]];
    return (int32_t)len;
}

/* The alphabet in order of its characters. */
static void add_byte_alphabet(tok_draft *d, int32_t id_of_byte[256]) {
    for (uint32_t cp = 0; cp <= 0x143; cp++) {
        int byte = byte_alphabet_byte(cp);
        if (byte < 0) continue;
        id_of_byte[byte] = d->n_token;
        tok_draft_add_char(d, cp);
    }
}

/* The characters of the alphabet have at most two bytes. */
static status train_bytes(tok_trainer *tr, const word_ref *words, int64_t n, tok_draft *d) {
    int32_t id_of_byte[256];
    tok_draft_add_special(d, &tr->opt);
    add_byte_alphabet(d, id_of_byte);
    bpe_job job = {.draft = d, .n_tokens = tr->opt.vocab_size, .longest = TOK_MAX_TOKEN_BYTES / 2};
    return merge_words(tr, words, n, spell_bytes, id_of_byte, job);
}

/* ---- characters ---- */

/* The symbol of each character, -1: none. */
static int32_t *character_table(void) {
    int32_t *id = xmalloc(N_CODE_POINTS * sizeof(*id));
    memset(id, 0xFF, N_CODE_POINTS * sizeof(*id));
    return id;
}

/* Merges stop at a character that has no symbol. */
static int32_t spell_characters(const void *ctx, const char *word, uint32_t len, int32_t *out) {
    const int32_t *id = ctx;
    int32_t n = 0;
    for (uint32_t at = 0; at < len;) {
        uint32_t cp;
        at += (uint32_t)utf8_decode(word + at, len - at, &cp);
        out[n++] = id[cp] >= 0 ? id[cp] : SYM_END;
    }
    return n;
}

/* In the engine characters come first, in the vocabulary last: specials, bytes, merged tokens,
 * characters, as in Llama 2. */
static void reorder(const tok_trainer *tr, const tok_draft *from, int32_t n_chars, tok_draft *to) {
    tok_draft_add_special(to, &tr->opt);
    tok_draft_add_bytes(to);
    int32_t first = to->n_token, n_merged = from->n_token - n_chars;
    for (int32_t i = n_chars; i < from->n_token; i++) tok_draft_add(to, from->token[i]);
    for (int32_t i = 0; i < n_chars; i++) tok_draft_add(to, from->token[i]);
    to->merge = from->merge;
    to->n_merges = from->n_merges;
    for (int32_t i = 0; i < to->n_merges; i++) {
        int32_t *id[] = {&to->merge[i].left, &to->merge[i].right, &to->merge[i].id};
        for (int k = 0; k < ARRAY_LEN(id); k++) {
            *id[k] += *id[k] < n_chars ? first + n_merged : first - n_chars;
        }
    }
}

/* A newline has no piece, as in Llama 2: it becomes the token of its byte. */
static status train_pieces(tok_trainer *tr, const word_ref *words, int64_t n, tok_draft *d,
                           err *e) {
    int32_t n_chars, reserved = tr->opt.n_special + 256;
    char_count *chars = alphabet_of_words(words, n, tr->opt.coverage, &n_chars);
    int32_t *id = character_table();
    tok_draft inner = {.mem = d->mem};
    for (int32_t i = 0; i < n_chars; i++) {
        if (chars[i].cp == '\n') continue;
        id[chars[i].cp] = inner.n_token;
        tok_draft_add_char(&inner, chars[i].cp);
    }
    n_chars = inner.n_token;
    bpe_job job = {.draft = &inner,
                   .n_tokens = tr->opt.vocab_size - reserved,
                   .longest = TOK_MAX_TOKEN_BYTES / 4};
    status st = job.n_tokens < n_chars
                    ? tok_train_too_small(&tr->opt, reserved + n_chars, "characters", e)
                    : merge_words(tr, words, n, spell_characters, id, job);
    if (st == ST_OK) reorder(tr, &inner, n_chars, d);
    free(inner.token);
    free(chars);
    free(id);
    return st;
}

/* ---- WordPiece ---- */

typedef struct wordpiece_alphabet {
    int32_t *first, *inside; /* symbols of characters that begin a word, or do not */
} wordpiece_alphabet;

/* Characters without a symbol vanish, as in WordPieceTrainer. */
static int32_t spell_wordpiece(const void *ctx, const char *word, uint32_t len, int32_t *out) {
    const wordpiece_alphabet *a = ctx;
    int32_t n = 0;
    for (uint32_t at = 0; at < len;) {
        uint32_t cp;
        int32_t symbol = at > 0 ? 1 : 0;
        at += (uint32_t)utf8_decode(word + at, len - at, &cp);
        symbol = symbol ? a->inside[cp] : a->first[cp];
        if (symbol >= 0) out[n++] = symbol;
    }
    return n;
}

/* The characters that stand anywhere but at the start of a word, those of most words first. */
static char_count *find_inside(const word_ref *words, int64_t n, int32_t *n_inside) {
    int64_t *count = xcalloc(N_CODE_POINTS, sizeof(*count));
    for (int64_t i = 0; i < n; i++) {
        for (uint32_t at = 0; at < words[i].len;) {
            uint32_t cp, start = at;
            at += (uint32_t)utf8_decode(words[i].s + at, words[i].len - at, &cp);
            count[cp] += start > 0;
        }
    }
    return alphabet_by_count(count, n_inside);
}

/* All characters in order of code points, then those with "##". The order of these decides between
 * pairs that are equally frequent; in WordPieceTrainer it is that of their first words in a hash
 * map, which differs from run to run but has common characters early. */
static void add_wordpiece_alphabet(tok_draft *d, const word_ref *words, int64_t n, double coverage,
                                   wordpiece_alphabet *a) {
    int32_t n_chars, n_inside;
    char_count *chars = alphabet_of_words(words, n, coverage, &n_chars);
    char_count *inside = find_inside(words, n, &n_inside);
    a->first = character_table();
    a->inside = character_table();
    for (int32_t i = 0; i < n_chars; i++) a->first[chars[i].cp] = 0;
    for (uint32_t cp = 0; cp < N_CODE_POINTS; cp++) {
        if (a->first[cp] < 0) continue;
        a->first[cp] = d->n_token;
        tok_draft_add_char(d, cp);
    }
    for (int32_t i = 0; i < n_inside; i++) {
        char c[5] = {0};
        if (a->first[inside[i].cp] < 0) continue;
        utf8_encode(inside[i].cp, c);
        a->inside[inside[i].cp] = d->n_token;
        tok_draft_add(d, arena_printf(d->mem, "%s%s", WORDPIECE_PREFIX, c));
    }
    free(inside);
    free(chars);
}

static status train_wordpiece(tok_trainer *tr, const word_ref *words, int64_t n, tok_draft *d,
                              err *e) {
    wordpiece_alphabet a;
    tok_draft_add_special(d, &tr->opt);
    add_wordpiece_alphabet(d, words, n, tr->opt.coverage, &a);
    bpe_job job = {.draft = d,
                   .n_tokens = tr->opt.vocab_size,
                   .longest = WORDPIECE_MAX_CHARS,
                   .prefix = WORDPIECE_PREFIX};
    status st = d->n_token > tr->opt.vocab_size
                    ? tok_train_too_small(&tr->opt, d->n_token, "characters", e)
                    : merge_words(tr, words, n, spell_wordpiece, &a, job);
    free(a.first);
    free(a.inside);
    return st;
}

/* ---- all ---- */

status bpe_train(tok_trainer *tr, tok_draft *d, err *e) {
    word_ref *words;
    int64_t n;
    TRY(tok_trainer_words(tr, &words, &n, e));
    status st = tr->form == FORM_BYTE_BPE    ? train_bytes(tr, words, n, d)
                : tr->form == FORM_WORDPIECE ? train_wordpiece(tr, words, n, d, e)
                                             : train_pieces(tr, words, n, d, e);
    free(words);
    return st;
}
