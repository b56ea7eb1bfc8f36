/* What spm_bpe.c and spm_bpe_table.c share. */
#ifndef TOK_MODEL_SPM_BPE_INT_H
#define TOK_MODEL_SPM_BPE_INT_H

#include "tok/model/spm_bpe.h"

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
