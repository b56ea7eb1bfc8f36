/* Decoders: tokens to text, as Hugging Face tokenizers does it.
 *
 * A decoder is a chain of steps. Each takes a list of tokens and gives another list; the text is
 * the last list, joined. The chain runs as a stream: tokens go in one by one, every step passes on
 * what later tokens cannot change any more and keeps the rest. Decoding at once and decoding token
 * by token are therefore the same code and give the same text.
 *
 * Text between steps is valid UTF-8 in whole characters.
 *
 * Reading order: chain.h (what steps are made of), chain.c, the step_*.c, decoder_json.c,
 * tokens.c. */
#ifndef TOK_DECODER_DECODER_H
#define TOK_DECODER_DECODER_H

#include <stddef.h>

#include "base/status.h"
#include "base/strbuf.h"

/* Of every string in a decoder; published ones have a few characters. */
enum { DEC_MAX_STRING = 256 };

typedef enum dec_kind {
    DEC_JOIN,          /* a space between tokens: what no decoder at all means */
    DEC_FUSE,          /* all tokens become one */
    DEC_BYTE_LEVEL,    /* the byte alphabet back to bytes, fused */
    DEC_BYTE_FALLBACK, /* runs of <0xNN> to characters; U+FFFD each where they are none */
    DEC_METASPACE,     /* `find` to a space, in the first token to nothing (if drop_first) */
    DEC_REPLACE,       /* `find` (not empty) to `put` */
    DEC_REGEX,         /* matches to `put` */
    DEC_STRIP,         /* up to `start` and `stop` characters `find` at the ends of a token */
    DEC_WORDPIECE,     /* a space before each token but the first and those with prefix `find` */
    DEC_BPE,           /* suffix `find` to a space, in the last token to nothing */
    DEC_SENTENCEPIECE, /* as the sentencepiece library, see step_sentencepiece.c */
    DEC_CTC,           /* repeated tokens once, `find` to nothing; if clean, `put` to a space */
} dec_kind;

typedef struct dec_string {
    const char *s;
    size_t n;
} dec_string;

typedef struct dec_step {
    dec_kind kind;
    dec_string find, put;
    size_t start, stop;
    bool drop_first, clean; /* clean: no space before punctuation and English contractions */
    bool bytes;             /* SENTENCEPIECE: <0xNN> are bytes */
    void *regex;            /* of pretok_regex_compile */
} dec_step;
void dec_step_free(dec_step *s);

/* What stands around a text. */
typedef enum dec_place {
    DEC_ALONE,
    DEC_BEHIND, /* it goes on one that was decoded before */
    DEC_MIDDLE, /* others on both sides, which tells what a token stands for; bytes that are no
                   character stay bytes */
} dec_place;

/* The state of one chain; `step` must outlive it. */
typedef struct dec_run dec_run;
dec_run *dec_run_new(const dec_step *step, int n, dec_place place);
void dec_run_free(dec_run *r); /* NULL is fine */
/* Takes one token, appends the text that is settled. ST_FORMAT: a pattern gave up or text grows
 * beyond measure; the run is then as new. */
status dec_run_token(dec_run *r, const char *s, size_t n, strbuf *out, err *e) ATH_MUST_USE;
/* Ends the text: appends what was kept. The run is as new. */
status dec_run_end(dec_run *r, strbuf *out, err *e) ATH_MUST_USE;

#endif
