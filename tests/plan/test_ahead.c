/* Modules of multi-token prediction. In training: module k sees no token behind i + k and no other document, and has
 * no loss where its target lies behind one of these. As an engine has the first module: its logits are those of
 * PyTorch, however a text is cut into passes. Losses and gradients are in test_golden. */
#include "golden.h"

enum { PAGE = 4, SEQS = 2, ROWS = 12 };

static const char *const names[] = {"llama-ahead", "qwen3-moe-ahead"};

/* ---- what a position sees ---- */

/* Row 0 is one document; row 1 has a second one from `border` on. */
static void feed_documents(const golden *g, const prog *p, int border) {
    const int32_t *ids = (const int32_t *)(const void *)g->ids->data;
    golden_feed(p, ids, g->B, g->T);
    for (int i = 0; i < g->B * g->T; i++) {
        int t = i % g->T;
        bool second = i >= g->T && t >= border;
        golden_ints(p, "start")[i] = second ? border : 0;
        golden_ints(p, "pos")[i] = second ? t - border : t;
        if (i >= g->T && t == border - 1) golden_ints(p, "targets")[i] = -1;
    }
}

/* nll of module k, of all rows. */
static float *losses(golden *g, int k) {
    const prog *p = plan_prog(g->p, USE_TRAIN, 0);
    char name[16] = "nll";
    if (k) snprintf(name, sizeof name, "nll.%d", k);
    golden_run(g, 1);
    size_t bytes = sizeof(float) * (size_t)(g->B * g->T);
    float *out = malloc(bytes);
    memcpy(out, prog_at(p, name), bytes);
    return out;
}

/* Position i of module k reads tokens to i + k, and its target is that of i + k. */
static void check_mask(const golden *g, const float *nll, int k, int border) {
    for (int i = 0; i < g->B * g->T; i++) {
        int t = i % g->T, end = i < g->T || t >= border ? g->T : border - 1;
        bool counts = t + k < end; /* the last target of the first document is not counted */
        if (counts != (nll[i] != 0)) fail_msg("module %d, row %d: loss %g", k, i, (double)nll[i]);
    }
}

static void check_causality(golden *g, int k, int border) {
    const prog *p = plan_prog(g->p, USE_TRAIN, 0);
    int T = g->T, probes[] = {1, border - 2, border, border + 3, T - 1};
    float *before = losses(g, k);
    check_mask(g, before, k, border);
    for (int c = 0; c < ARRAY_LEN(probes); c++) {
        int32_t *id = &golden_ints(p, "ids")[T + probes[c]], old = *id;
        *id = (old + 1) % (int32_t)g->mc.vocab_size;
        float *after = losses(g, k);
        int first = probes[c] < border ? 0 : border, end = probes[c] < border ? border : T;
        for (int i = 0; i < g->B * T; i++) {
            int t = i - T;
            bool may = t >= first && t < end && t + k >= probes[c];
            if (!may && before[i] != after[i])
                fail_msg("module %d: row %d sees token %d", k, t, probes[c]);
        }
        int seen = probes[c] - k; /* it reads just this token */
        if (seen >= first && seen + k < end - (first == 0) && before[T + seen] == after[T + seen])
            fail_msg("module %d: row %d does not see token %d", k, seen, probes[c]);
        *id = old;
        free(after);
    }
    free(before);
}

static void test_causality(void **state) {
    (void)state;
    for (int m = 0; m < ARRAY_LEN(golden_names) && m < ARRAY_LEN(names); m++) {
        golden g;
        golden_open(&g, names[m], (plan_spec){.compute = DT_F32, .document_mask = true});
        int border = g.T / 2;
        feed_documents(&g, plan_prog(g.p, USE_TRAIN, 0), border);
        for (int k = 0; k <= g.mc.num_nextn_predict_layers; k++) check_causality(&g, k, border);
        golden_close(&g);
    }
}

/* ---- the first module in an engine's programs ---- */

typedef struct served {
    golden g;
    int of_seq;
    float *y; /* [B,T,C] of the last layer */
} served;

static void put_row(const served *s, const prog *p, int n, int b, int pos, int32_t id) {
    bool none = b < 0;
    int page = none ? 0 : b * s->of_seq + pos / PAGE + 1;
    golden_ints(p, "ids")[n] = none ? 0 : id;
    golden_ints(p, "pos")[n] = none ? 0 : pos;
    golden_ints(p, "at")[n] = none ? -1 : page * PAGE + pos % PAGE;
    golden_ints(p, "place")[2 * n] = none ? 0 : b;
    golden_ints(p, "place")[2 * n + 1] = none ? -1 : pos;
}

/* Rows [from, from + n) of text b with the tokens `ahead` places further on; the program has more. */
static const prog *run_rows(served *s, plan_use use, int b, int from, int n, int ahead) {
    int number = 0;
    while (engine_rows_at(&s->g.p->spec.serve, number, true) < n) number++;
    const prog *p = plan_prog(s->g.p, use, number);
    int rows = engine_rows_at(&s->g.p->spec.serve, number, true);
    const int32_t *ids = (const int32_t *)(const void *)s->g.ids->data + (int64_t)b * (s->g.T + 1);
    for (int i = 0; i < SEQS * s->of_seq; i++) golden_ints(p, "pages")[i] = i + 1;
    for (int i = 0; i < rows; i++)
        put_row(s, p, i, i < n ? b : -1, from + i, i < n ? ids[from + i + ahead] : 0);
    if (ahead) {
        size_t C = (size_t)s->g.mc.hidden_size;
        const float *y = s->y + (size_t)(b * s->g.T + from) * C;
        memset(prog_at(p, "x"), 0, sizeof(float) * C * (size_t)rows);
        memcpy(prog_at(p, "x"), y, sizeof(float) * C * (size_t)n);
    }
    op_run run = {.dev = s->g.dev, .first_micro = true};
    prog_replay(p, PROG_F, &run);
    golden_wait(&s->g);
    return p;
}

/* Logits [V] of row n of a module's body, by the head of one row. */
static const float *head_of_row(served *s, const prog *body, int n) {
    const prog *head = plan_prog(s->g.p, USE_AHEAD_HEAD, 0);
    size_t C = (size_t)s->g.mc.hidden_size;
    memcpy(prog_at(head, "x"), (const float *)prog_at(body, "y") + (size_t)n * C,
           sizeof(float) * C);
    op_run run = {.dev = s->g.dev, .first_micro = true};
    prog_replay(head, PROG_F, &run);
    golden_wait(&s->g);
    return prog_at(head, "logits");
}

/* In pieces of 1 to 7 rows, the texts by turns. */
static double module_distance(served *s) {
    const st_view *want = st_find(s->g.file, "logits.1"); /* [B,T-1,V] */
    int T = s->g.T, V = (int)s->g.mc.vocab_size, n;
    size_t C = (size_t)s->g.mc.hidden_size;
    double worst = 0;
    for (int from = 0, piece = 1; from < T; from += n, piece++) {
        n = piece % 7 + 1 < T - from ? piece % 7 + 1 : T - from;
        for (int b = 0; b < s->g.B; b++) {
            const prog *p = run_rows(s, USE_BODY, b, from, n, 0);
            memcpy(s->y + (size_t)(b * T + from) * C, prog_at(p, "y"),
                   sizeof(float) * C * (size_t)n);
            int known = from + n < T ? n : n - 1;
            if (known == 0) continue;
            p = run_rows(s, USE_AHEAD_BODY, b, from, known, 1);
            for (int i = 0; i < known; i++) {
                const float *right =
                    (const float *)(const void *)want->data + (int64_t)(b * (T - 1) + from + i) * V;
                double d = golden_distance(head_of_row(s, p, i), right, V);
                if (!(d <= worst)) worst = d;
            }
        }
    }
    return worst;
}

static void test_module_in_pages(void **state) {
    (void)state;
    for (int m = 0; m < ARRAY_LEN(golden_names) && m < ARRAY_LEN(names); m++) {
        served s = {.of_seq = 8};
        golden_open(&s.g, names[m],
                    (plan_spec){.compute = DT_F32,
                                .serve = {.rows = ROWS,
                                          .logits = 4,
                                          .longest = PAGE * s.of_seq,
                                          .seqs = SEQS,
                                          .page = PAGE,
                                          .pages = SEQS * s.of_seq + 1,
                                          .draft = 2,
                                          .ahead = true}});
        assert_int_equal(s.g.B, SEQS);
        s.y = malloc(sizeof(float) * (size_t)(s.g.B * s.g.T * s.g.mc.hidden_size));
        double d = module_distance(&s);
        print_message("%s: logits of the module %.2e\n", names[m], d);
        assert_true(d < 1e-5);
        free(s.y);
        golden_close(&s.g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_causality),
                                       cmocka_unit_test(test_module_in_pages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
