/* Formulas that others published, against the figures that they published with them: the tables in tests/golden/plan. */
#include "test.h"

#include "plan/published/published.h"

static const double GIB = 1 << 30, MIB = 1 << 20;

static void assert_near(double a, double b) {
    if (fabs(a - b) > 1e-9 * fabs(b) + 1e-12) fail_msg("%.17g is not %.17g", a, b);
}

static double part(const published_memory *m, const char *name) {
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->part[i].name, name) == 0) return m->part[i].bytes;
    fail_msg("no part '%s'", name);
    return 0;
}

static FILE *open_golden(const char *name, char *line, int size) {
    char path[4096];
    snprintf(path, sizeof path, TEST_DIR "/golden/plan/%s", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, size, f)); /* the head */
    return f;
}

static published_run run_of(published_model m) {
    return (published_run){.m = m,
                           .micro_batch = 1,
                           .micro_batches = 1,
                           .dp = 1,
                           .tp = 1,
                           .cp = 1,
                           .pp = 1,
                           .chunks = 1,
                           .mixed = true,
                           .states = 2};
}

/* layers, hidden, heads, key heads, feed-forward, vocabulary */
static published_model llama(double l, double h, double a, double k, double f, double v) {
    return (published_model){.layers = l,
                             .hidden = h,
                             .heads = a,
                             .kv_heads = k,
                             .head_dim = h / a,
                             .ffn = f,
                             .vocab = v,
                             .tied = l < 30,
                             .gated = true};
}

static published_model llama_of(const char *size, double vocab) {
    if (strstr(size, "405B")) return llama(126, 16384, 128, 8, 53248, vocab);
    if (strstr(size, "70B")) return llama(80, 8192, 64, 8, 28672, vocab);
    if (strstr(size, "8B")) return llama(32, 4096, 32, 8, 14336, vocab);
    if (strstr(size, "3B")) return llama(28, 3072, 24, 8, 8192, vocab);
    return llama(16, 2048, 32, 8, 8192, vocab);
}

/* ---- figures of memory ---- */

/* Figures of tp and of ZeRO have a vocabulary of 131072, the others the model's own. */
static published_run figure_run(const char *figure, const char *panel) {
    bool wide = strncmp(figure, "tp_", 3) == 0 || strncmp(figure, "zero3", 5) == 0;
    const char *size = strncmp(figure, "tp_", 3) == 0                              ? "70B"
                       : strstr(figure, "zero3") || strncmp(figure, "dp_", 3) != 0 ? "8B"
                                                                                   : panel;
    bool own = strncmp(figure, "mem", 3) == 0;
    published_run r = run_of(llama_of(own ? panel : size, wide ? 131072 : 128256));
    const char *tp = strstr(panel, "TP"), *cp = strstr(panel, "CP"), *zero = strstr(panel, "ZeRO");
    if (tp) r.tp = atof(tp + 2);
    if (cp) r.cp = atof(cp + 2);
    if (strstr(panel, "PP8")) r.pp = 8;
    if (strncmp(panel, "DP8", 3) == 0) r.dp = 8;
    if (zero) r.zero = atoi(zero + 4);
    r.sequence_parallel = strstr(panel, "+SP") != NULL;
    if (strstr(panel, "selective")) r.recompute = RECOMPUTE_SELECTIVE;
    if (strstr(panel, "full")) r.recompute = RECOMPUTE_FULL;
    return r;
}

static const char *part_of(const char *component) {
    return strstr(component, "aram")     ? "parameters"
           : strstr(component, "rad")    ? "gradients"
           : strstr(component, "ptimiz") ? "optimizer"
                                         : "activations";
}

static void test_figures(void **state) {
    (void)state;
    char line[256], figure[64], panel[64], component[64];
    double seq, gib;
    int rows = 0;
    FILE *f = open_golden("memory_figures_GB.csv", line, sizeof line);
    while (fgets(line, sizeof line, f)) {
        assert_int_equal(
            sscanf(line, "%63[^,],%63[^,],%lf,%63[^,],%lf", figure, panel, &seq, component, &gib),
            5);
        published_run r = figure_run(figure, panel);
        r.seq = seq;
        bool fp32 = strncmp(figure, "mem", 3) == 0;
        published_memory m =
            published_formula(&r, published_convention_find(fp32 ? "fp32" : "figures"));
        assert_near(part(&m, part_of(component)) / GIB, gib);
        rows++;
    }
    fclose(f);
    assert_int_equal(rows, 564);
}

/* ---- Korthikanti et al. 2022 ---- */

static published_run paper_run(const char *name) {
    static const struct {
        const char *name;
        double layers, hidden, heads, pp, chunks, batch;
    } all[] = {{"22B", 48, 6144, 64, 1, 1, 4},
               {"175B", 96, 12288, 96, 8, 3, 1},
               {"530B", 105, 20480, 128, 35, 3, 1},
               {"1T", 128, 25600, 160, 64, 1, 1}};
    int i = 0;
    while (strcmp(name, all[i].name) != 0) i++;
    published_run r = run_of(
        llama(all[i].layers, all[i].hidden, all[i].heads, all[i].heads, 4 * all[i].hidden, 51200));
    r.seq = 2048;
    r.tp = 8;
    r.pp = all[i].pp;
    r.chunks = all[i].chunks;
    r.micro_batch = all[i].batch;
    return r;
}

static double paper_activations(const char *name, const char *mode) {
    published_run r = paper_run(name);
    r.sequence_parallel =
        strstr(mode, "SP") || strcmp(mode, "full") == 0 ? strstr(mode, "SP") != NULL : false;
    if (strstr(mode, "selective")) r.recompute = RECOMPUTE_SELECTIVE;
    if (strcmp(mode, "full") == 0) r.recompute = RECOMPUTE_FULL;
    published_memory m = published_formula(&r, published_convention_find("megatron"));
    return part(&m, "activations");
}

/* Bytes are exact; percentages were read off a plot, to a seventh of a point. */
static void test_paper(void **state) {
    (void)state;
    char line[256], name[16], mode[64], quantity[64];
    double value;
    int exact = 0, percent = 0;
    FILE *f = open_golden("activation_memory_unit_tests.csv", line, sizeof line);
    while (fgets(line, sizeof line, f)) {
        const char *s = strstr(line, ",22B,");
        if (!s) s = strstr(line, ",175B,");
        if (!s) s = strstr(line, ",530B,");
        if (!s) s = strstr(line, ",1T,");
        assert_non_null(s);
        const char *form = strchr(s + 1, ',')[1] == '"' ? ",%15[^,],\"%63[^\"]\",%63[^,],%lf"
                                                        : ",%15[^,],%63[^,],%63[^,],%lf";
        assert_int_equal(sscanf(s, form, name, mode, quantity, &value), 4);
        published_run r = paper_run(name);
        published_memory m = published_formula(&r, published_convention_find("megatron"));
        if (strcmp(quantity, "activations") == 0) {
            bool plain = strncmp(mode, "TP only", 7) == 0;
            assert_near(paper_activations(name, plain ? "TP" : mode) / GIB, value);
            exact++;
        } else if (strcmp(quantity, "params+grads+opt") == 0) {
            assert_near((m.total - part(&m, "activations")) / GIB, value);
            exact++;
        } else if (strstr(quantity, "TP baseline")) {
            double share = 100 * paper_activations(name, mode) / paper_activations(name, "TP");
            if (fabs(share - value) > 1.0 / 7)
                fail_msg("%s %s: %g, not %g", name, mode, share, value);
            percent++;
        } /* others are milliseconds */
    }
    fclose(f);
    assert_int_equal(exact, 12);
    assert_int_equal(percent, 20);
}

static void test_bubbles(void **state) {
    (void)state;
    char line[64];
    double m, v, bubble;
    int rows = 0;
    FILE *f = open_golden("pp_bubble_p8.csv", line, sizeof line);
    while (fgets(line, sizeof line, f)) {
        assert_int_equal(sscanf(line, "\"m=%lf, v=%lf\",%lf", &m, &v, &bubble), 3);
        published_run r = {.pp = 8,
                           .micro_batches = m,
                           .chunks = v,
                           .schedule = v > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B};
        assert_near(published_bubble(&r), bubble);
        rows++;
    }
    fclose(f);
    assert_int_equal(rows, 24);
}

/* 70B: 16 GB for each billion without fp32 gradients, 20 with; 405B 6480 and 8100. */
static void test_text(void **state) {
    (void)state;
    published_run r = run_of(llama_of("70B", 128256));
    r.seq = 4096;
    published_memory m = published_formula(&r, published_convention_find("mixed"));
    double n = published_params(&r, COUNT_ALL);
    assert_near(n, 70553706496);
    assert_near(m.total - part(&m, "activations"), 16 * n);
    m = published_formula(&r, published_convention_find("mixed-fp32-grads"));
    assert_near(m.total - part(&m, "activations"), 20 * n);
    assert_null(published_convention_find("bf16"));
}

/* A gradient of 4 bytes, sent twice by 7 of 8 ranks at 50 GB/s, beside 4 N FLOPs a token at 1 PFLOP/s: 4096 tokens. */
static void test_overlap(void **state) {
    (void)state;
    published_run r = run_of(llama_of("8B", 128256));
    r.seq = 4096;
    r.dp = 8;
    const published_links by = {.data = 5e10, .dp = 5e10, .tp = 4.5e11, .pp = 1e11};
    published_overlap x = published_overlap_of(&r, 1e15, &by);
    assert_near(x.dp, 2 * 4 * 0.875 / 5e10 / (4 * 4096 / 1e15));
    assert_near(x.tp + x.pp + x.zero3, 0);
    r.tp = 8;
    r.pp = 4;
    x = published_overlap_of(&r, 1e15, &by);
    assert_near(x.tp, 2 * 7.0 / (2 * 4096) * 1e15 / 4.5e11);
    assert_near(x.pp,
                2 * 1e15 / 1e11 / (2.0 * 8 * (2.5 * 4096 * 4096 + 3.0 * 4096 * 14336) / 4096));
    r.dp =
        1; /* ranks that share sequences sum gradients, too: an eighth of the tokens to hide it */
    r.cp = 8;
    assert_near(published_overlap_of(&r, 1e15, &by).dp,
                2 * 4 * 0.875 / 5e10 / (4 * 4096 / 8 / 1e15));
}

/* s b (18 h + 4 d_ff + 5 a s) a layer: with 4 h the 34 of all figures, which those of Llama have whatever its width. */
static void test_feed_forward_width(void **state) {
    (void)state;
    published_run r = run_of(llama(36, 2048, 16, 4, 8192, 128256));
    r.seq = 4096;
    r.recompute = RECOMPUTE_SELECTIVE;
    const published_convention *text = published_convention_find("mixed"),
                               *figures = published_convention_find("figures");
    published_memory m = published_formula(&r, text);
    assert_near(part(&m, "activations"), 34.0 * 36 * 4096 * 2048);
    for (int f = 2048; f <= 16384; f *= 2) {
        r.m.ffn = f;
        m = published_formula(&r, text);
        assert_near(part(&m, "activations"), 36.0 * 4096 * (18 * 2048 + 4 * f));
        m = published_formula(&r, figures);
        assert_near(part(&m, "activations"), 34.0 * 36 * 4096 * 2048);
    }
    r.tp = 4;
    m = published_formula(&r, text);
    assert_near(part(&m, "activations"), 36.0 * 4096 * (10 * 2048 + (8 * 2048 + 4 * 16384) / 4.0));
}

/* ---- the widget ---- */

/* Worked by hand from the formulas of the page's code. */
static void test_widget(void **state) {
    (void)state;
    published_run r;
    assert_false(published_widget_preset("7B", &r));
    assert_true(published_widget_preset("tiny", &r));
    published_memory m = published_widget(&r);
    /* 7 x 3 x 1024 = 21504 rows: 21504 (4*2 + 3) + 5 * 16 * 49 * 3; ... */
    assert_near(part(&m, "attention"), 21504 * 11 + 11760);
    assert_near(part(&m, "feedforward"), 21504 * 2 + 2 * 7 * 3 * 4096 * 2 + 21504);
    assert_near(part(&m, "layernorm"), 2 * 21504 * 2);
    assert_near(part(&m, "cross entropy"), 4 * 7 * 3 * 30522);
    double n = 1024.0 * (30522 + 7) + 12 * 1048576.0 + 13 * 1024 + 2048;
    assert_near(part(&m, "parameters"), 2 * n);
    assert_near(part(&m, "optimizer"), 12 * n);
    assert_true(published_widget_preset("70B", &r));
    m = published_widget(&r);
    double rows = 256.0 * 32 * 8192;
    n = 8192.0 * (30522 + 256) + 80 * (12 * 8192.0 * 8192 + 13 * 8192) + 2 * 8192;
    assert_near(part(&m, "attention"), 80 * (rows * (8.0 / 8 + 3) + 5.0 * 64 * 256 * 256 * 32 / 8));
    assert_near(part(&m, "feedforward"), 80 * (rows * 2 + 2 * 256.0 * 32 * 32768 * 2 / 8 + rows));
    assert_near(part(&m, "optimizer"), 12 * n / 8);
    assert_near(part(&m, "gradients"), 2 * n);
    r.sequence_parallel = true; /* the square stays whole */
    m = published_widget(&r);
    assert_near(part(&m, "attention"), 80 * (rows / 8 * 11 + 5.0 * 64 * 256 * 256 * 32));
    r.recompute = RECOMPUTE_FULL;
    m = published_widget(&r);
    assert_near(part(&m, "layers' inputs"), 80 * rows * 2);
    assert_true(published_widget_preset("8B", &r));
    m = published_widget(&r);
    rows = 256.0 * 32 * 4096;
    assert_near(part(&m, "feedforward"), 32 * (rows * 3 + 4 * 256.0 * 32 * 16384 * 2));
    assert_true(published_widget_preset("405B", &r));
    m = published_widget(&r);
    assert_near(part(&m, "projection"), 256.0 * 32 * 16384 * 2);
}

/* ---- the predictor ---- */

/* The picture of the tool: 7B of Llama's form with a tied vocabulary of 50432, 2048 tokens. */
static void test_predictor(void **state) {
    (void)state;
    static const double bars[] = {12746, 63730, 75142, 114714, 126126, 114714};
    published_run r = run_of(llama(32, 4096, 32, 32, 11008, 50432));
    r.m.tied = true;
    r.seq = 2048;
    published_memory m = published_predictor(&r);
    assert_int_equal(m.n, 6);
    for (int i = 0; i < 6; i++) assert_near(m.part[i].bytes / MIB, bars[i]);
    assert_near(m.total / MIB, 126126);
    assert_near(published_predictor_overhead(&r) / MIB, 104);
}

/* SmolLM3: 5,865, 11,730 twice and 23,460 MiB of weights and states; 21,288 of activations; 74,073 at the peak. */
static void test_predictor_of_3b(void **state) {
    (void)state;
    published_run r = run_of(llama(36, 2048, 16, 4, 11008, 128256));
    r.m.tied = true;
    r.seq = 4096;
    published_memory m = published_predictor(&r);
    assert_near(m.part[0].bytes / MIB, 5865);
    assert_near((m.part[1].bytes - m.part[0].bytes) / MIB, 2 * 11730);
    assert_near((m.part[3].bytes - m.part[1].bytes) / MIB, 23460);
    assert_near((m.part[2].bytes - m.part[1].bytes) / MIB, 21288);
    assert_near(m.total / MIB, 74073);
    published_memory of = published_predictor_components(&r);
    assert_near(part(&of, "weights in bf16") / MIB, 5865);
    assert_near(part(&of, "masters in fp32") / MIB, 11730);
    assert_near(part(&of, "gradients in fp32") / MIB, 11730);
    assert_near(part(&of, "Adam's states in fp32") / MIB, 23460);
    assert_near(part(&of, "activations") / MIB, 21288);
    assert_near(of.total, m.total);
    /* Four stages: 36 blocks and a head worth 1.9 of them; the first has 10 blocks. Weights have the embedding but no head. */
    r.pp = 4;
    r.micro_batches = 2;
    m = published_predictor(&r);
    double layer = 2048.0 * 2048 * 2.5 + 3 * 2048.0 * 11008;
    assert_near(m.part[0].bytes, 2 * (10 * layer + 128256.0 * 2048));
    assert_near(m.part[2].bytes - m.part[1].bytes, 2 * 10 * 4096.0 * 2048 * 2 * 30);
    r.pp = 37; /* more stages than blocks: one is left for each of the others */
    m = published_predictor(&r);
    assert_near(m.part[0].bytes, 2 * (layer + 128256.0 * 2048));
    r.pp = 1;
    r.dp = 8;
    m = published_predictor(&r); /* buckets of gradients beside them without ZeRO */
    assert_near((m.part[1].bytes) / MIB, 5 * 5865 + 5865);
    r.zero = 1;
    m = published_predictor(&r);
    assert_near((m.part[1].bytes) / MIB, 5865 * (1 + 2.0 / 8 + 2));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures),        cmocka_unit_test(test_paper),
        cmocka_unit_test(test_bubbles),        cmocka_unit_test(test_text),
        cmocka_unit_test(test_overlap),        cmocka_unit_test(test_feed_forward_width),
        cmocka_unit_test(test_widget),         cmocka_unit_test(test_predictor),
        cmocka_unit_test(test_predictor_of_3b)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
