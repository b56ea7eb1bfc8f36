/* Rotary positions (Su et al. 2021): frequencies under every published scaling, the table of
 * cosines and sines that the rope op reads, and their keys in config.json.
 *
 * Sources: linear, Chen et al. 2023; dynamic NTK, as in transformers, but a function of the length
 * of the pass alone; doubling, the same of Qwen 1, whose base grows in steps; llama3, Dubey et al. 2024; YaRN, Peng et al. 2023; longrope, Ding et al. 2024.
 */
#ifndef MODEL_ROPE_H
#define MODEL_ROPE_H

#include <jansson.h>

#include "base/arena.h"
#include "prog/graph.h"

typedef enum rope_kind {
    ROPE_PLAIN,
    ROPE_LINEAR,
    ROPE_DYNAMIC,
    ROPE_DOUBLING,
    ROPE_LLAMA3,
    ROPE_YARN,
    ROPE_LONGROPE,
} rope_kind;

/* Fields of rope_scaling / rope_parameters. 0 or NULL: not given. */
typedef struct rope_scaling {
    rope_kind kind;
    double factor, low_freq_factor, high_freq_factor, beta_fast, beta_slow;
    double mscale, mscale_all_dim, attention_factor;
    bool keep_fractions; /* YaRN: correction dims are not rounded ("truncate": false) */
    int64_t original_max_position_embeddings;
    const double *short_factor, *long_factor; /* [n_factors] each, rotary_dim/2 */
    int n_factors;
} rope_scaling;

/* All that the frequencies of one kind of layer depend on. */
typedef struct rope_spec {
    double theta;          /* the base: frequency i is theta^(-2i / rotary_dim) before scaling */
    int rotary_dim;        /* elements of a head that are rotated, two for each frequency */
    int64_t max_positions; /* of the config: beyond this length dynamic and longrope scale */
    int64_t logn_length;   /* of queries; 0: none */
    rope_scaling scaling;
} rope_spec;

/* The factor of all cosines and sines: 1, except with YaRN and longrope. */
double rope_amplitude(const rope_spec *s);
/* What scores of latent attention are multiplied by, twice: 1, except with YaRN and mscale_all_dim. */
double rope_score_factor(const rope_spec *s);
/* The frequencies, in radians per position, for sequences of `length` tokens: out[rotary_dim / 2].
 * Returns the amplitude. */
double rope_frequencies(const rope_spec *s, int64_t length, double *out);

/* A constant [rows, rotary_dim]: cosines, then sines, of positions 0..rows-1; f64 in f64 programs.
 * queries: with their factor (logn_length). */
val rope_table(graph *g, const char *name, const rope_spec *s, int64_t rows, bool queries);

/* Reads rope_scaling {type|rope_type, factor, ...} of transformers 4 or rope_parameters of 5, with
 * one object for all layers. Lists go to the arena. *theta and *partial (partial_rotary_factor)
 * change where the object has them. key: for messages. Unknown fields stop. ST_USAGE. */
status rope_read(arena *a, const json_t *o, const char *key, rope_scaling *s, double *theta,
                 double *partial, err *e) ATH_MUST_USE;
/* Checks what rope_read could not: that factors are positive, and lists as long as rotary_dim / 2.
 */
status rope_check(const rope_spec *s, err *e) ATH_MUST_USE;
/* As rope_parameters of transformers 5; without theta as rope_scaling of 4 (null when plain). */
json_t *rope_json(const rope_spec *s, bool with_theta);

#endif
