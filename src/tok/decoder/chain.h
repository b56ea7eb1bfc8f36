/* What the steps of a decoder share.
 *
 * Tokens travel from step to step in parts: a token that Fuse makes is as long as the text, and must
 * not be kept until the text ends. A step that needs its tokens whole says so (`whole`) and gets them
 * whole. */
#ifndef TOK_DECODER_CHAIN_H
#define TOK_DECODER_CHAIN_H

#include "tok/decoder/decoder.h"

/* A part of a token, in whole characters; may be empty. */
typedef struct dec_part {
    const char *s;
    size_t n;
    bool begins, ends; /* its token */
} dec_part;

typedef struct dec_state {
    int64_t seen;  /* tokens begun, with the one at hand */
    strbuf token;  /* of the token at hand, for steps that take it whole */
    strbuf kept;   /* what the step keeps; the step says what that is */
    strbuf work;   /* what it is about to pass on */
    size_t count;  /* the step says of what */
    size_t left;   /* Strip */
    bool flag;     /* the step says what for */
    size_t passed; /* bytes passed on */
} dec_state;

struct dec_run {
    const dec_step *step;
    int n;
    bool behind, middle; /* of dec_place; what is in the middle is behind another text, too */
    size_t taken;        /* bytes and tokens that came in */
    void *match_data;    /* of patterns, made on first use */
    strbuf *out;         /* of the call at hand */
    err *e;
    dec_state state[];
};

typedef struct dec_class {
    bool whole; /* takes tokens whole */
    status (*take)(dec_run *r, int i, const dec_part *p);
    /* The text ends, or goes on elsewhere (`middle`): passes on what is kept. NULL: nothing is. */
    status (*end)(dec_run *r, int i);
} dec_class;
extern const dec_class DEC_CLASS_JOIN, DEC_CLASS_FUSE, DEC_CLASS_BYTE_LEVEL,
    DEC_CLASS_BYTE_FALLBACK, DEC_CLASS_METASPACE, DEC_CLASS_REPLACE, DEC_CLASS_REGEX,
    DEC_CLASS_STRIP, DEC_CLASS_WORDPIECE, DEC_CLASS_BPE, DEC_CLASS_CTC, DEC_CLASS_SENTENCEPIECE;

/* Hands text on to the step after i. */
status dec_pass(dec_run *r, int i, const char *s, size_t n, bool begins, bool ends) ATH_MUST_USE;
/* The state's `work`, as a part with these edges. */
status dec_pass_work(dec_run *r, int i, bool begins, bool ends) ATH_MUST_USE;
/* What a step builds stays within a multiple of what came in: ST_FORMAT otherwise. */
status dec_check_room(const dec_run *r, size_t n) ATH_MUST_USE;

/* The byte that "<0xNN>" names, -1 for other tokens. */
int dec_fallback_byte(const char *s, size_t n);
/* The first `find` (not empty) in s[0, n), NULL if there is none. */
const char *dec_find(const char *s, size_t n, dec_string find);
/* Appends s with every `find` replaced; an empty one stands around every character. */
void dec_replace_all(strbuf *out, const char *s, size_t n, dec_string find, dec_string put);

#endif
