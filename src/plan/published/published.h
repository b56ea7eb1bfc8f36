/* Memory and bubbles by formulas that others have published, beside the exact plan: the closed formulas of the Ultra-Scale
 * Playbook, the widget on its page, and nanotron's predictor. They know nothing of this program. Each is as published, with
 * what it leaves out, so that its figures can be compared with theirs.
 *
 *   formula     Korthikanti et al. 2022 (arXiv:2205.05198), as the playbook generalises it (formula.c)
 *   widget      the page's calculator (widget.c)
 *   predictor   what a rank of nanotron's first stage holds at each moment of its first two steps (predictor.c)
 *
 * Notation: s tokens, b micro-batch, h width, a heads, f feed-forward, v vocabulary, L layers; t, p, c, d ranks of tensor, pipeline,
 * context and data parallelism. Bytes are of one rank, and not rounded. */
#ifndef PLAN_PUBLISHED_H
#define PLAN_PUBLISHED_H

#include "prog/graph.h"
#include "step/schedule.h"

/* A dense decoder with alike layers. */
typedef struct published_model {
    double layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    bool tied;
    bool gated; /* feed-forward part of three products; else of two */
    bool relu;  /* else GELU, where it is not gated */
} published_model;

typedef struct published_run {
    published_model m;
    double seq, micro_batch, micro_batches;
    double dp, tp, cp, pp, chunks; /* chunks: of a stage, v */
    int zero;
    bool sequence_parallel;
    recompute_policy recompute;
    bool
        mixed; /* activations and weights of 2 bytes, else 4; the formula has conventions instead */
    int states; /* of the optimizer, 4 bytes each; 2: AdamW */
    schedule_kind schedule;
} published_run;

enum { PUBLISHED_PARTS = 16 };
typedef struct published_part {
    const char *name;
    double bytes;
} published_part;
typedef struct published_memory {
    published_part part[PUBLISHED_PARTS];
    int n;
    double total; /* of the parts; of the predictor, the peak */
} published_memory;
void published_add(published_memory *to, const char *name, double bytes);

/* How the formula counts. The playbook's figures do not agree on it. */
typedef enum published_count {
    COUNT_ALL,      /* the model's parameters */
    COUNT_MATRICES, /* without the norms */
    COUNT_CLOSED,   /* h (v + s) + L (12 h^2 + 13 h) + 2 h */
    COUNT_BLOCKS    /* 12 L h^2 */
} published_count;

typedef struct published_convention {
    const char *name, *of; /* of: where it is used */
    published_count count;
    double weight, gradient, optimizer; /* bytes of a parameter */
    bool flash;                         /* scores are never stored */
    bool dropout;                       /* of the embedding: its mask is kept, s b h bytes */
    bool own_width; /* activations have the model's feed-forward width; else 4 h, as printed */
} published_convention;

/* NULL: there is none of that name. The names with commas between them are for messages. */
const published_convention *published_convention_find(const char *name);
extern const char published_convention_names[];

/* parameters, gradients, optimizer, activations */
published_memory published_formula(const published_run *r, const published_convention *c);
/* Parameters of a rank of the first stage; of the whole model where r->pp is 1 and r->tp is 1. */
double published_params(const published_run *r, published_count count);
/* Time that a stage waits, as a share of its work: (p - 1) / m, over v where chunks are interleaved; of the zero-bubble schedules by
 * forward, input and weights of one length. */
double published_bubble(const published_run *r);
/* FLOPs of a step of all ranks: (6 N + 12 L h s) for each token, attention counted in full. */
double published_flops(const published_run *r);

/* Communication over the computation that hides it, with bytes of 2 (gradients of 4): above 1 it shows. The printed formulas count
 * an element as a byte, and in that of data parallelism N cancels; these do neither. Gradients are summed over cp, too. */
typedef struct published_overlap {
    double dp, zero3, tp, pp; /* 0: there is no such axis */
} published_overlap;
/* Bytes per second that a rank sends to the others of an axis; data: dp and cp together. */
typedef struct published_links {
    double data, dp, tp, pp;
} published_links;
/* flops_per_s of a device. */
published_overlap published_overlap_of(const published_run *r, double flops_per_s,
                                       const published_links *by);

/* The widget's parts. What it does not do is in widget.c. */
published_memory published_widget(const published_run *r);
/* One of its own examples: "Tiny", "8B", "70B", "405B"; false: there is none. */
bool published_widget_preset(const char *name, published_run *out);

/* Bytes at each of the predictor's moments: "model init", "gradient accumulator init", "forward and backward", "optimizer step", "second
 * forward and backward", "second optimizer step". total: the greatest. */
published_memory published_predictor(const published_run *r);
/* What it holds at the greatest of them, part by part; 0: it has no such part. */
published_memory published_predictor_components(const published_run *r);
/* What a rank's allocator and kernels take beside it: 72 + 32 b MiB. */
double published_predictor_overhead(const published_run *r);

#endif
