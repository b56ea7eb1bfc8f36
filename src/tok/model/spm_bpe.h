/* BPE as the sentencepiece library does it, for toks that were read from its models.
 *
 * It differs from the BPE of tokenizer.json in four things. Merges are not listed: any two
 * neighbours whose texts together are a piece can merge, best score first and leftmost among equal
 * scores, which different pieces may have. User-defined pieces are found first, and never merge.
 * Only normal and unused pieces are made; those marked unused fall apart again at the end. There
 * are no words: it is the vocabulary that keeps merges from crossing spaces.
 *
 * Inside, it is the merge table of bpe.h with these ranks; words are cut where no piece crosses,
 * so that the cache of words works. */
#ifndef TOK_MODEL_SPM_BPE_H
#define TOK_MODEL_SPM_BPE_H

#include "tok/model/bpe.h"
#include "tok/model/piece_trie.h"

/* What tokenizer.json does not say of a model; both by id, for every id of the tok. */
typedef struct spm_bpe_options {
    const uint8_t *type; /* with the numbers of sentencepiece_model.proto */
    const float *score;
    bool no_merges; /* a model of kind "char" */
} spm_bpe_options;

/* Makes a loaded tok whose model is BPE give the ids of the sentencepiece library. Changes the
 * hash. ST_FORMAT: work without end in a hostile model. */
status spm_bpe_use(tok *t, const spm_bpe_options *opt, err *e) ATH_MUST_USE;

/* The last merge of the characters of a piece; false when they do not come to be that piece. */
typedef struct spm_bpe_split {
    int32_t left, right; /* ids; those of characters that are no piece are beyond the vocabulary */
    uint32_t left_bytes;
} spm_bpe_split;
bool spm_bpe_made_of(const tok *t, int32_t id, spm_bpe_split *s);

/* ---- what spm_bpe.c (encoding) and spm_bpe_table.c (the table of merges) share ---- */

enum { SPM_BPE_MAX_DEPTH = 1024 };
/* For `left` of a piece that does not fall into two. */
enum { SPM_BPE_STAYS = -1, SPM_BPE_UNKNOWN = -2 };

/* Characters that are no piece, but part of one, have ids from n_token on. */
typedef struct spm_bpe {
    bpe_model bpe;         /* first: MODEL_BPE encodes its words */
    spm_bpe_split *halves; /* by id: what an unused piece falls into. NULL: every symbol is a
                              piece, and none is unused */
    piece_trie user;       /* user-defined pieces */
    bool has_user, user_first[256];
    uint64_t hash;
} spm_bpe;

extern const model_class MODEL_SPM_BPE, MODEL_SPM_BPE_APART;

void spm_bpe_free(void *model);
void spm_bpe_hash(const tok *t, XXH3_state_t *x);

#endif
