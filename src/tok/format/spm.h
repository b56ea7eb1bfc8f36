/* What a SentencePiece model says, whatever file it came from: a .model (protocol buffers), a
 * llama2.c tokenizer.bin, or the tokenizer keys of a GGUF file.
 *
 *   spm_read.c, sentencepiece.c  the .model file
 *   llama2c.c                tokenizer.bin
 *   spm_tree.c               as a tokenizer.json, in the form that Hugging Face's converters give
 *   spm_tok.c                as a tok that encodes as the sentencepiece library does
 *   spm_from.c               from a tok, where that is possible
 *
 * A tok made from a model has the ids of sentencepiece for every text. Its tokenizer.json has them
 * too but for what tokenizer.json cannot say:
 *   - control symbols written in the text ("<s>") become those tokens there, plain text here;
 *   - a user-defined symbol there begins a new text, which gets its own "▁"; here it does not;
 *   - Unigram: the two libraries choose differently among segmentations of nearly equal score, and
 *     Metaspace puts no "▁" before a text that begins with a space which is not removed;
 *   - BPE: different pieces of equal score (as in vocabularies that were joined by hand) go by
 *     their ids there, by their place in the text here; pieces marked unused are taken there.
 * Decoding is sentencepiece's; that of the tokenizer.json differs for unknown pieces, control
 * symbols, bytes that are no character, and texts that begin with the character U+2581 itself.
 * A tokenizer.json whose normalizer is NFKC can be written as a model, with NFKC as rules on
 * characters (charsmap_make.h).
 * Not read, with the reason: models of kind "word", treat_whitespace_as_suffix, denormalizers,
 * spaces that are not escaped. */
#ifndef TOK_FORMAT_SPM_H
#define TOK_FORMAT_SPM_H

#include <jansson.h>

#include "tok/internal.h"

/* Numbers as in sentencepiece_model.proto. */
typedef enum spm_type {
    SPM_NORMAL = 1,
    SPM_UNKNOWN = 2,
    SPM_CONTROL = 3,
    SPM_USER_DEFINED = 4,
    SPM_UNUSED = 5,
    SPM_BYTE = 6,
} spm_type;
typedef enum spm_kind { SPM_UNIGRAM = 1, SPM_BPE = 2, SPM_WORD = 3, SPM_CHAR = 4 } spm_kind;

typedef struct spm_piece {
    const char *text; /* NUL-terminated, valid UTF-8 without NUL, not empty */
    uint32_t len;
    float score; /* finite */
    spm_type type;
} spm_piece;

enum { SPM_MAX_PIECE_BYTES = 1024 };

typedef struct spm_model {
    spm_kind kind;
    spm_piece *piece; /* by id */
    int32_t n;
    int32_t unk, bos, eos, pad; /* -1: none; unk is always there */
    bool byte_fallback;
    const char *surface;    /* what an unknown piece is decoded to; NULL: SPM_SURFACE */
    const char *normalizer; /* its name; what it does is in charsmap */
    const char *charsmap;
    size_t n_charsmap; /* 0: identity */
    bool add_dummy_prefix, remove_extra_whitespaces;
    bool whitespace_suffix, has_denormalizer, keeps_spaces; /* refused by spm_check */
} spm_model;

#define SPM_SURFACE " \xE2\x81\x87 "
#define SPM_SPACE "\xE2\x96\x81" /* U+2581, which stands for a space */

/* Found by their text among the pieces that can stand in a segmentation (normal, user-defined and
 * unused ones). */
static inline bool spm_is_text(const spm_piece *p) {
    return p->type == SPM_NORMAL || p->type == SPM_USER_DEFINED || p->type == SPM_UNUSED;
}
/* The byte of a piece "<0xNN>", -1 for any other text. */
int spm_byte(const char *text, size_t len);

/* Pieces and strings in the arena. ST_FORMAT: names what is wrong. `origin` names the file. */
status spm_read(spm_model *m, arena *mem, const char *bytes, size_t len, const char *origin,
                err *e) ATH_MUST_USE;
/* What every source of models must fulfil: one text per piece, one unknown piece, all bytes when
 * there is a fallback, nothing that is not supported. Sets m->unk. */
status spm_check(spm_model *m, const char *origin, err *e) ATH_MUST_USE;
void spm_write(const spm_model *m, strbuf *out);

/* A whole tokenizer.json. */
json_t *spm_tree(const spm_model *m);
status spm_to_tok(tok **out, const spm_model *m, const char *origin, err *e) ATH_MUST_USE;
/* ST_USAGE: names the part of the tokenizer that a SentencePiece model cannot express. */
status spm_from_tok(spm_model *m, arena *mem, const tok *t, err *e) ATH_MUST_USE;

#endif
