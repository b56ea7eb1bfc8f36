/* A micro-batch on its way between the host and the programs that compute it.
 *
 * The loader writes token ids into batch_rows (host memory); batch_put copies them to the inputs of
 * a program; batch_take_nll copies the losses back. With several chunks of layers, batch_pass_on
 * and batch_pass_back move activations and their gradients between neighbouring chunks. */
#ifndef TRAIN_BATCH_H
#define TRAIN_BATCH_H

#include "data/order/loader.h"
#include "model/family.h"
#include "prog/prog.h"

/* One micro-batch on the host: B sequences of T tokens; each array is [B,T] unless it says otherwise. */
typedef struct batch_rows {
    int B, T;
    int S; /* tokens of a source, for an encoder; 0: there is none */
    int32_t *ids, *targets, *pos;
    /* [B,S] of sources: ids, positions, and which tokens of its row each sees: from start on, before end. */
    int32_t *source, *source_pos, *source_start, *source_end;
    int P; /* slots of soft experts, and [B,P] how many tokens of its source each mixes */
    int32_t *slots_end;
    int32_t *seen_start, *seen_end; /* which tokens of the source each token of the decoder sees */
    loader_row *info;               /* [B] label, and how long it is without padding */
    int32_t *start; /* first position that a token may attend to; NULL: no document mask */
    float *nll;     /* -log p of each target, after the forward pass */
    float *d_nll;   /* d loss / d nll, if the objective computes it (objective.h) */
    float *ref_nll; /* nll by the reference model, if that is in memory */
    /* [B] log p of each sequence's targets by the reference, if that was computed before training */
    double *ref_logp;
    /* [B,T,k] what a teacher has said of each token: tokens, and their log-probabilities; k 0: nothing (lessons.h) */
    int k;
    float *taught;
    int32_t *tokens;
    /* Of a model with a head of labels: */
    int labels; /* how many; 0: it has no such head */
    problem_kind problem;
    int64_t pad_token_id;
    int32_t *last;          /* [B] the row of the program that the head looks at */
    float *score, *d_score; /* [B,labels] what it says, and the gradient of that */
} batch_rows;

/* mc: of the model that computes them; for its head. */
batch_rows batch_rows_new(arena *a, int B, int T, bool start, const model_config *mc);
/* Room for sources of S tokens, with the rows of a decoder. */
void batch_rows_add_sources(arena *a, batch_rows *rows, int S);
/* Room for k tokens that a teacher has said of each. */
void batch_rows_add_lessons(arena *a, batch_rows *rows, int k);
/* Row b has one source of n tokens, which ids[b*S..] already holds, and its tokens all see it. */
void batch_rows_see_source(batch_rows *rows, int b, int n);
int64_t batch_rows_bytes(int B, int T, int S, int64_t labels);
/* Says at which token a head of labels looks, from ids and lengths: at the last one that is not pad_token_id, as in transformers. */
void batch_find_last(const batch_rows *rows);
/* Moves row k of every sample, of `sequences` rows each, to row k * samples + i, so that programs that
 * run the first ones of all samples find them together. What d_nll holds is lost. */
void batch_sort_rows(const batch_rows *rows, int sequences);
/* The rows from `first` on, as rows of their own. */
batch_rows batch_rows_from(const batch_rows *rows, int first);

/* The inputs and outputs of one program: a whole model, or one chunk of its layers. A port that the
 * program does not have has 0 bytes. */
typedef struct batch_ports {
    const prog *p; /* NULL: there is no such program, and there are no ports */
    prog_port ids, targets, pos, start, nll, d_nll;
    prog_port order, end, first[MODEL_MOST_MASKS]; /* where ranks share tokens (context.h) */
    prog_port source, source_pos, source_start, source_end, slots_end, seen_start, seen_end;
    prog_port ahead[MODEL_MOST_AHEAD]; /* nll of modules of multi-token prediction */
    prog_port last, score, d_score;    /* of a head of labels; score also of a teacher */
    prog_port teacher;                 /* of a student's head: its teacher's logits */
    prog_port tokens;                  /* those of these tokens */
    prog_port x, y, d_x, d_y;          /* activations between chunks, and their gradients */
} batch_ports;

batch_ports batch_ports_of(const prog *p); /* p may be NULL */

/* Copies the rows to the inputs of a program. */
void batch_put(const batch_ports *io, int frame, const batch_rows *rows);
/* Copies what a head of labels says to rows->score. */
void batch_take_scores(const batch_ports *io, int frame, const batch_rows *rows);
/* Copies rows->d_score to the program; rows->score is lost. */
void batch_put_score_grads(const batch_ports *io, int frame, const batch_rows *rows);
/* The sum of n losses, added in double from first to last. */
double batch_sum(const float *nll, int64_t n);
/* Copies the losses to rows->nll; returns their sum. */
double batch_take_nll(const batch_ports *io, int frame, const batch_rows *rows);
/* The sum of the losses of module `number`, from 0 on. rows->d_nll is the room. */
double batch_take_ahead(const batch_ports *io, int frame, int number, const batch_rows *rows);
/* log p of row b, from the nll [B,T] of its targets, added in double from first to last. */
double batch_row_logp(const batch_rows *rows, const float *nll, int b);
/* Forward: the activations of `chunk` become the input of `next`. Backward: the gradient of that
 * input goes back to `chunk`. */
void batch_pass_on(dev *d, const batch_ports *chunk, int frame, const batch_ports *next,
                   int next_frame);
void batch_pass_back(dev *d, const batch_ports *chunk, int frame, const batch_ports *next,
                     int next_frame);

#endif
