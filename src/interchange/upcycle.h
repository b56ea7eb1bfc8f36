/* A dense model as one of experts (Komatsuzaki et al. 2022, "Sparse Upcycling"): each feed-forward part becomes E experts that begin
 * as copies of it, and a router that is drawn anew. With weights that sum to 1 the result computes what the dense model computes,
 * whatever the router says; training then makes the experts differ, for which noise may be added to the copies.
 *
 * Llama and Mistral become Mixtral, Qwen 3 becomes Qwen3-MoE; any other family stays itself, with the options of experts, which
 * only this program reads. */
#ifndef INTERCHANGE_UPCYCLE_H
#define INTERCHANGE_UPCYCLE_H

#include "io/model_source.h"

typedef struct upcycle_options {
    int64_t experts, per_token; /* E and k */
    double
        noise; /* standard deviation of what is added to all copies but the first, as a share of the matrix's own */
    uint64_t seed; /* of router and noise */
} upcycle_options;

/* *out: a view of the dense source as the larger model, for writing; it lives as long as `dense`, and is not closed. ST_USAGE: the
 * model has experts already, or parts of which there are no experts (biases, fused products, widths that differ). */
status upcycle_source(model_source *dense, const upcycle_options *opt, model_source *out,
                      err *e) ATH_MUST_USE;

#endif
