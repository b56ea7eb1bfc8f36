#include "eval/slices.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/strbuf.h"

/* ---- quantiles ---- */

static int ascending(const void *a, const void *b) {
    const float *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int64_t count_tokens(const eval_task *t) {
    int64_t n = 0;
    for (int32_t i = 0; i < t->n; i++) n += t->doc[i].n_tokens;
    return n;
}

/* Between the two nearest of the sorted values, as numpy.quantile. */
static double quantile(const float *sorted, int64_t n, double q) {
    double at = q * (double)(n - 1), low = floor(at);
    int64_t i = (int64_t)low, next = i + 1 < n ? i + 1 : i;
    return (double)sorted[i] + (at - low) * ((double)sorted[next] - (double)sorted[i]);
}

static json_t *token_loss(const eval_task *t, int64_t n) {
    float *all = xmalloc(sizeof *all * (size_t)n);
    int64_t at = 0;
    double sum = 0;
    for (int32_t i = 0; i < t->n; i++) {
        const eval_doc *d = &t->doc[i];
        memcpy(all + at, d->token_nll, sizeof *all * (size_t)d->n_tokens);
        at += d->n_tokens;
        sum -= d->loglik;
    }
    qsort(all, (size_t)n, sizeof *all, ascending);
    json_t *o = json_pack("{s:o}", "mean", json_f64(sum / (double)n));
    static const struct {
        const char *name;
        double q;
    } quantiles[] = {{"p10", 0.1}, {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"max", 1}};
    for (int i = 0; i < ARRAY_LEN(quantiles); i++)
        json_object_set_new(o, quantiles[i].name, json_f64(quantile(all, n, quantiles[i].q)));
    free(all);
    return o;
}

/* ---- frequency ---- */

enum { CLASSES = 5 };
static const char *const class_names[CLASSES] = {"1", "2-9", "10-99", "100-999", "1000+"};

static int class_of(int64_t count) {
    int c = 0;
    for (int64_t most = 1; c < CLASSES - 1 && count > most; most = most == 1 ? 9 : most * 10 + 9)
        c++;
    return c;
}

/* How often each id is there; the caller owns the list. */
static int64_t *count_ids(const eval_task *t) {
    int32_t most = 0;
    for (int32_t i = 0; i < t->n; i++)
        for (int64_t k = 0; k < t->doc[i].n_tokens; k++)
            if (t->doc[i].token[k] > most) most = t->doc[i].token[k];
    int64_t *count = xcalloc((size_t)most + 1, sizeof *count);
    for (int32_t i = 0; i < t->n; i++)
        for (int64_t k = 0; k < t->doc[i].n_tokens; k++) count[t->doc[i].token[k]]++;
    return count;
}

/* loss, tokens: [documents]; returns how many tokens there are. */
static int64_t sum_class(const eval_task *t, const int64_t *count, int class, double *loss,
                         double *tokens) {
    double all = 0;
    for (int32_t i = 0; i < t->n; i++) {
        const eval_doc *d = &t->doc[i];
        loss[i] = tokens[i] = 0;
        for (int64_t k = 0; k < d->n_tokens; k++) {
            if (class_of(count[d->token[k]]) != class) continue;
            loss[i] += (double)d->token_nll[k];
            tokens[i]++;
        }
        all += tokens[i];
    }
    return (int64_t)all;
}

static json_t *by_frequency(const eval_task *t) {
    int64_t *count = count_ids(t);
    double *loss = xmalloc(sizeof *loss * 2 * (size_t)t->n), *tokens = loss + t->n;
    json_t *o = json_object();
    for (int c = 0; c < CLASSES; c++) {
        int64_t n = sum_class(t, count, c, loss, tokens);
        if (n == 0) continue;
        eval_score s = eval_ratio(loss, tokens, t->n);
        json_object_set_new(o, class_names[c],
                            json_pack("{s:o,s:o,s:I}", "loss", json_f64(s.value), "stderr",
                                      json_f64(s.stderr_), "tokens", (json_int_t)n));
    }
    free(loss);
    free(count);
    return o;
}

/* ---- origin ---- */

typedef const char *(*origin_of)(const eval_doc *d);
static const char *source_of(const eval_doc *d) {
    return d->source;
}
static const char *language_of(const eval_doc *d) {
    return d->language;
}

static json_t *one_origin(const eval_task *t, origin_of of, const char *name) {
    double *nll = xmalloc(sizeof *nll * 2 * (size_t)t->n), *bytes = nll + t->n;
    int64_t n = 0;
    for (int32_t i = 0; i < t->n; i++) {
        const char *own = of(&t->doc[i]);
        if (strcmp(own ? own : "unknown", name) != 0) continue;
        nll[n] = -t->doc[i].loglik / log(2.0);
        bytes[n++] = (double)t->doc[i].text.len;
    }
    eval_score s = eval_ratio(nll, bytes, n);
    free(nll);
    return json_pack("{s:o,s:o,s:I}", "bits_per_byte", json_f64(s.value), "stderr",
                     json_f64(s.stderr_), "sample_len", (json_int_t)n);
}

/* NULL: no document says it. */
static json_t *by_origin(const eval_task *t, origin_of of) {
    json_t *o = json_object();
    bool any = false;
    for (int32_t i = 0; i < t->n; i++) {
        const char *own = of(&t->doc[i]), *name = own ? own : "unknown";
        any |= own != NULL;
        if (!json_object_get(o, name)) json_object_set_new(o, name, one_origin(t, of, name));
    }
    if (any) return o;
    json_decref(o);
    return NULL;
}

/* ---- the whole ---- */

json_t *eval_slices_json(const eval_task *t) {
    int64_t n = count_tokens(t);
    if (n == 0) return json_object();
    json_t *o =
        json_pack("{s:o,s:o}", "token_loss", token_loss(t, n), "by_frequency", by_frequency(t));
    json_t *source = by_origin(t, source_of), *language = by_origin(t, language_of);
    if (source) json_object_set_new(o, "by_source", source);
    if (language) json_object_set_new(o, "by_language", language);
    return o;
}

static void print_group(const json_t *all, const char *name, const char *title) {
    const char *key;
    json_t *v;
    json_object_foreach(json_object_get(all, name), key, v) {
        const json_t *value = json_object_get(v, "loss"), *n = json_object_get(v, "tokens");
        if (!value) value = json_object_get(v, "bits_per_byte");
        if (!n) n = json_object_get(v, "sample_len");
        const json_t *error = json_object_get(v, "stderr");
        strbuf visible = {0};
        strbuf_append_visible(&visible, key,
                              strlen(key)); /* of the documents, not of this program */
        printf("  %-20s %-22s %9.4f", title, strbuf_cstr(&visible), json_number_value(value));
        strbuf_free(&visible);
        eval_print_error(json_is_number(error) ? json_number_value(error) : NAN);
        printf(" %9ld\n", (long)json_integer_value(n));
    }
}

void eval_print_error(double x) {
    isfinite(x) ? printf(" %9.4f", x) : printf(" %9s", "-");
}

void eval_print_slices(const eval_task *t) {
    json_t *o = eval_slices_json(t), *v;
    const char *key;
    printf("\n%s, in slices: what, which, value, +-, tokens or documents\n", t->name);
    json_object_foreach(json_object_get(o, "token_loss"), key, v)
        printf("  %-20s %-22s %9.4f\n", "loss of a token", key, json_number_value(v));
    print_group(o, "by_frequency", "loss by frequency");
    print_group(o, "by_source", "bits per byte of");
    print_group(o, "by_language", "bits per byte in");
    json_decref(o);
}
