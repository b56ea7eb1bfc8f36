#include "plan/published/laws.h"

#include <math.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/text.h"

/* Table 3 of Hoffmann et al.: parameters, tokens; and the sizes that they trained. */
static const double FITTED_LOW = 70e6, FITTED_HIGH = 16e9;
static const double optimal[][2] = {{0.4e9, 8.0e9}, {1e9, 20.2e9},   {10e9, 205.1e9},
                                    {67e9, 1.5e12}, {175e9, 3.7e12}, {280e9, 5.9e12},
                                    {520e9, 11e12}, {1e12, 21.2e12}, {10e12, 216.2e12}};

/* Beyond its ends the table goes on as straight as its last piece. */
double laws_optimal_tokens(double params) {
    int i = 1;
    while (i < ARRAY_LEN(optimal) - 1 && params > optimal[i][0]) i++;
    const double *a = optimal[i - 1], *b = optimal[i];
    double slope = log(b[1] / a[1]) / log(b[0] / a[0]);
    return a[1] * pow(params / a[0], slope);
}

double laws_optimal_params(double flops) {
    double low = 1, high = 1e18;
    while (high / low > 1 + 1e-9) {
        double n = sqrt(low * high);
        if (6 * n * laws_optimal_tokens(n) < flops)
            low = n;
        else
            high = n;
    }
    return low;
}

double laws_worth_of_epochs(double epochs) {
    static const double HALF = 15.39;
    return epochs <= 1 ? epochs : 1 + HALF * (1 - exp((1 - epochs) / HALF));
}

/* ---- batch and rate ---- */

/* What a law is fitted on: a number of the run and its range. */
typedef enum law_of { OF_COMPUTE, OF_PARAMS, OF_TOKENS } law_of;
typedef struct law_range {
    law_of of;
    double low, high;
} law_range;

typedef struct law {
    const char *source;
    double (*batch)(const laws_run *r); /* NULL: it says nothing of it */
    double (*lr)(const laws_run *r);
    law_range range[2]; /* high 0: none */
} law;

static double compute(const laws_run *r) {
    return 6 * r->params * r->tokens;
}

static double body(const laws_run *r) {
    return r->body > 0 ? r->body : r->params;
}

static double deepseek_batch(const laws_run *r) {
    return 0.2920 * pow(compute(r), 0.3271);
}

static double deepseek_lr(const laws_run *r) {
    return 0.3118 * pow(compute(r), -0.1250);
}

static double step_batch(const laws_run *r) {
    return 0.58 * pow(r->tokens, 0.571);
}

static double step_lr(const laws_run *r) {
    return 1.79 * pow(body(r), -0.713) * pow(r->tokens, 0.307);
}

static double kaplan_lr(const laws_run *r) {
    return 0.003239 - 0.0001395 * log(body(r));
}

static const law laws[] = {
    {"DeepSeek LLM 2024", deepseek_batch, deepseek_lr, {{OF_COMPUTE, 1e17, 2e19}}},
    {"Step Law 2025", step_batch, step_lr, {{OF_PARAMS, 6e7, 1.1e9}, {OF_TOKENS, 2e9, 1e11}}},
    {"Kaplan et al. 2020", NULL, kaplan_lr, {{OF_PARAMS, 768, 1.5e9}}},
};

static double value_of(const laws_run *r, law_of of) {
    return of == OF_COMPUTE ? compute(r) : of == OF_PARAMS ? body(r) : r->tokens;
}

static const char *say(law_of of, double x, char out[16]) {
    if (of != OF_COMPUTE) return text_short_number(x, out);
    snprintf(out, 16, "%.2g", x);
    return out;
}

/* "fitted on C from 1e+17 to 2e+19; this run has 2e+23"; "": the run is within. */
static void say_outside(const laws_run *r, const law *l, char out[128]) {
    static const char *const names[] = {"C", "N", "D"};
    char text[3][16];
    out[0] = '\0';
    for (int i = 0; i < ARRAY_LEN(l->range) && l->range[i].high > 0; i++) {
        const law_range *x = &l->range[i];
        double v = value_of(r, x->of);
        if (v >= x->low && v <= x->high) continue;
        snprintf(out, 128, "fitted on %s from %s to %s; this run has %s", names[x->of],
                 say(x->of, x->low, text[0]), say(x->of, x->high, text[1]), say(x->of, v, text[2]));
        return;
    }
}

/* What a published run used, so far beyond what the laws were fitted on. */
static const char *const PRACTICE = "SmolLM3 2025";
static const laws_run practice = {
    .params = 3.0751e9, .tokens = 11.1e12, .batch = 2359296, .lr = 2e-4};

static bool is_beyond_some(const laws_run *r) {
    char outside[128] = "";
    for (int i = 0; i < ARRAY_LEN(laws) && !*outside; i++) say_outside(r, &laws[i], outside);
    return *outside;
}

/* ---- what is said ---- */

static json_t *law_json(const laws_run *r, const law *l) {
    char outside[128];
    say_outside(r, l, outside);
    json_t *o = json_pack("{s:s,s:b}", "source", l->source, "within", !*outside);
    if (*outside) json_object_set_new(o, "outside", json_string(outside));
    if (l->batch) json_object_set_new(o, "batch_tokens", json_real(l->batch(r)));
    if (l->lr(r) > 0) json_object_set_new(o, "lr", json_real(l->lr(r)));
    return o;
}

json_t *laws_json(const laws_run *r) {
    json_t *rows = json_array();
    for (int i = 0; i < ARRAY_LEN(laws); i++) json_array_append_new(rows, law_json(r, &laws[i]));
    double n = laws_optimal_params(compute(r)), d = laws_optimal_tokens(r->params);
    json_t *o = json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:o}", "flops", compute(r), "tokens",
                          r->tokens, "tokens_per_param", r->tokens / r->params, "optimal_tokens", d,
                          "over_training", r->tokens / d, "optimal_params_of_flops", n,
                          "optimal_tokens_of_flops", compute(r) / (6 * n), "batch_and_rate", rows);
    if (is_beyond_some(r))
        json_object_set_new(o, "practice",
                            json_pack("{s:s,s:f,s:f,s:f,s:f}", "run", PRACTICE, "params",
                                      practice.params, "tokens", practice.tokens, "batch_tokens",
                                      practice.batch, "lr", practice.lr));
    return o;
}

static void describe_optimal(const laws_run *r, strbuf *out) {
    char a[16], b[16], c[16], d[16];
    double most = laws_optimal_tokens(r->params), n = laws_optimal_params(compute(r)),
           ratio = r->tokens / most;
    strbuf_printf(
        out,
        "  %-22s %s parameters want %s tokens (Hoffmann et al. 2022%s); %s are %.3g times that",
        "compute-optimal", text_short_number(r->params, a), text_short_number(most, b),
        r->params < FITTED_LOW || r->params > FITTED_HIGH
            ? ", an extrapolation: fitted on 70M to 16B"
            : "",
        text_short_number(r->tokens, c), ratio);
    strbuf_puts(out, ratio > 1.5    ? ": over-trained, for cheap inference\n"
                     : ratio < 0.67 ? ": too few for so large a model\n"
                                    : "\n");
    strbuf_printf(out, "  %-22s with this compute (C = 6 N D = %.3g) %s on %s is best\n", "",
                  compute(r), text_short_number(n, a), text_short_number(compute(r) / (6 * n), d));
}

static void describe_law(const laws_run *r, const law *l, strbuf *out) {
    char outside[128], batch[16];
    say_outside(r, l, outside);
    strbuf_printf(out, "  %-22s ", l->source);
    if (l->batch) strbuf_printf(out, "batch %s tokens, ", text_short_number(l->batch(r), batch));
    if (l->lr(r) > 0)
        strbuf_printf(out, "lr %.2g", l->lr(r));
    else
        strbuf_puts(out, "no lr: N is beyond it");
    if (*outside) strbuf_printf(out, "  (an extrapolation: %s)", outside);
    strbuf_putc(out, '\n');
}

/* How far a run was from what the first law says of it. */
static void describe_practice(strbuf *out) {
    const law *l = &laws[0];
    char n[16], d[16], used[16], said[16];
    strbuf_printf(out,
                  "  %-22s beyond a fit it differs: %s (%s on %s tokens) used batch %s tokens, lr "
                  "%.2g, where %s says %s, %.2g\n",
                  "practice", PRACTICE, text_short_number(practice.params, n),
                  text_short_number(practice.tokens, d), text_short_number(practice.batch, used),
                  practice.lr, l->source, text_short_number(l->batch(&practice), said),
                  l->lr(&practice));
}

void laws_describe(const laws_run *r, strbuf *out) {
    char batch[16], stored[16];
    strbuf_puts(out, "what published laws say (a wide optimum: near is enough)\n");
    describe_optimal(r, out);
    if (r->stored > r->params)
        strbuf_printf(out, "  %-22s active parameters of %s: the laws are of dense models\n", "N",
                      text_short_number(r->stored, stored));
    for (int i = 0; i < ARRAY_LEN(laws); i++) describe_law(r, &laws[i], out);
    if (is_beyond_some(r)) describe_practice(out);
    if (r->batch > 0)
        strbuf_printf(out, "  %-22s batch %s tokens, lr %.2g\n", "this run",
                      text_short_number(r->batch, batch), r->lr);
}
