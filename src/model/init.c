/* Published initial weights (see init.h). Writers are the matrices whose product goes to the
 * residual stream.
 *
 * - normal: N(0, s), s = initializer_range: what transformers draws for most families.
 * - gpt2: writers smaller by the square root of how often that happens (Radford et al. 2019).
 * - small_wang: GPT-NeoX: sqrt(2 / 5C) (Nguyen & Salazar 2019), writers 2 / (L sqrt C).
 * - mitchell: OLMo 1 (Groeneveld et al. 2024): fan-in, writers smaller with depth, cut at 3 sigma.
 * - truncated: OLMo 2: N(0, s), cut at 3 s.
 * - fan_in: OpenELM: columns^-1/2, writers (2 L C)^-1/2.
 * - t5: the columns decide, queries also the width of a head, since scores are not scaled; the embedding has deviation 1 (Raffel et al.
 *   2020; transformers). s is a factor of all.
 * - width: nanotron as SmolLM2 was trained with it: gpt2 with s = C^-1/2. */
#include "model/init.h"

#include <math.h>

static param_init drawn(double variance, double cut) {
    return (param_init){.kind = INIT_NORMAL, .std = sqrt(variance), .cut = cut};
}

static double t5_variance(const model_config *mc, init_role role, double in) {
    switch (role) {
        case INIT_ROLE_EMBED:
        case INIT_ROLE_HEAD: return 1;
        case INIT_ROLE_QUERY: return 1 / (in * (double)mc->head_dim);
        case INIT_ROLE_RELATIVE: return 1 / (double)mc->hidden_size;
        default: return 1 / in;
    }
}

param_init init_of(const model_config *mc, init_role role, int l, int64_t in) {
    double s2 = mc->initializer_range * mc->initializer_range;
    double C = (double)mc->hidden_size, L = model_layers(mc);
    bool writer = role == INIT_ROLE_ATTN_OUT || role == INIT_ROLE_MLP_OUT;
    switch ((init_scheme)mc->init) {
        case INIT_SCHEME_NORMAL: return drawn(s2, 0);
        case INIT_SCHEME_GPT2: return drawn(writer ? s2 / (2 * L) : s2, 0);
        case INIT_SCHEME_SMALL_WANG: return drawn(writer ? 4 / (L * L * C) : 2 / (5 * C), 0);
        case INIT_SCHEME_MITCHELL:
            return drawn(writer ? 1 / (2 * (double)in * (l + 1)) : 1 / (double)in, 3);
        case INIT_SCHEME_TRUNCATED: return drawn(s2, 3);
        case INIT_SCHEME_FAN_IN: return drawn(writer ? 1 / (2 * L * C) : 1 / (double)in, 0);
        case INIT_SCHEME_T5: return drawn(s2 * t5_variance(mc, role, (double)in), 0);
        case INIT_SCHEME_WIDTH: return drawn(writer ? 1 / (2 * L * C) : 1 / C, 0);
    }
    return drawn(s2, 0);
}
