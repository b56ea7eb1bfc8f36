/* A smaller model that begins with a part of a larger one's weights: some of its layers, some of its tokens (Tang et al. 2024,
 * "Rethinking Optimization and Architecture for Tiny Language Models": inherited parameters, pruned vocabularies).
 *
 * Layers keep their order in the list. Tokens are named by the map that `athanor tok prune` writes: the old row of each new id. Rows of
 * the embedding and of the head follow it, so the logits of the tokens that stay are those of the larger model. */
#ifndef INTERCHANGE_INHERIT_H
#define INTERCHANGE_INHERIT_H

#include "io/model_source.h"

typedef struct inherit_options {
    const int64_t *layers; /* [n_layers] stored layers of the larger model; NULL: all */
    int n_layers;
    const char *map;       /* file {"rows": [...]}; NULL: all tokens stay */
    const char *tokenizer; /* of the tokens that stay: with map */
} inherit_options;

/* *out: a view of the larger source as the smaller model, for writing; it lives as long as `larger`, and is not closed. ST_USAGE: a
 * layer or row that the larger model has not got, or a tokenizer of another size than the map. */
status inherit_source(model_source *larger, const inherit_options *opt, model_source *out,
                      err *e) ATH_MUST_USE;

#endif
