/* The report and its charts: well-formed and escaped HTML, the same bytes twice, small at a million
 * steps, empty and broken runs; stages, alarms and their marks; ticks, numbers, decimation, the
 * terminal curve. */
#include "run/run_test.h"

#include <math.h>

#include "run/report/report.h"
#include "run/report/svg.h"

static const char CONFIG[] = "{\"run\": \"runs/a&b\", \"model\": {\"hidden_size\": 64}, "
                             "\"train\": {\"steps\": 40}, \"sample\": {\"prompts\": [\"<i>\"]}}";

static char *report_of(const char *dir, const char *metrics) {
    put_file(dir, "config.json", CONFIG);
    put_file(dir, "metrics.jsonl", metrics);
    OK(report_write(dir, NULL, NULL));
    return get_file(dir, "report.html");
}

static void put_step(strbuf *out, int64_t step, const char *loss) {
    strbuf_printf(out,
                  "{\"event\": \"step\", \"step\": %lld, \"loss\": %s, \"grad_norm\": 1.0, "
                  "\"lr\": 1e-3, \"tokens\": %lld, \"tok_per_s\": 1000.0, \"mfu\": 0.5, "
                  "\"hfu\": 0.5, \"step_ms\": 10.0}\n",
                  (long long)step, loss, (long long)step * 100);
}

static void put_start(strbuf *out) {
    strbuf_puts(out, "{\"event\": \"start\", \"params\": 2900000, \"text_bytes\": 1100000}\n");
}

/* A run of n steps with validation, a hostile sample and an end. */
static void put_run(strbuf *out, int64_t n) {
    put_start(out);
    for (int64_t i = 1; i <= n; i++) {
        char loss[32];
        snprintf(loss, sizeof loss, "%.5f", 1.5 + 3.0 / (double)i);
        put_step(out, i, loss);
    }
    strbuf_printf(out,
                  "{\"event\": \"valid\", \"step\": %lld, \"val_loss\": 1.52, \"val_bpb\": 2.4}\n"
                  "{\"event\": \"sample\", \"step\": %lld, \"prompt\": \"</b>\", \"text\": "
                  "\"<script>alert(1)</script> \\u0000\\u0001 \\\"&'\"}\n"
                  "{\"event\": \"end\", \"steps\": %lld, \"peak_rss_bytes\": 90000000, "
                  "\"planned_peak_bytes\": 100000000}\n",
                  (long long)n, (long long)n, (long long)n);
}

static void put_eval(strbuf *out, int64_t step, const char *task, double acc) {
    strbuf_printf(out,
                  "{\"event\": \"eval\", \"step\": %lld, \"task\": \"%s\", \"metrics\": "
                  "{\"alias\": \"x\", \"acc,none\": %g, \"acc_stderr,none\": 0.1, "
                  "\"sample_len\": 20, \"chance\": 0.25}}\n",
                  (long long)step, task, acc);
}

/* Length of the tag name at s. */
static size_t name_length(const char *s) {
    return strcspn(s, " >/\n");
}

static bool is_void(const char *name, size_t n) {
    static const char *const VOID[] = {"meta", "input", "br"};
    for (int i = 0; i < ARRAY_LEN(VOID); i++)
        if (strlen(VOID[i]) == n && strncmp(VOID[i], name, n) == 0) return true;
    return false;
}

/* Where the tag that starts at s ends, with regard to quoted attributes. */
static const char *tag_end(const char *s) {
    char quote = 0;
    for (; *s && (quote || *s != '>'); s++) {
        if (quote ? *s == quote : (*s == '"' || *s == '\'')) quote = quote ? 0 : *s;
    }
    return s;
}

/* Every element is closed, in order; style and script hold no tags. */
static void expect_well_formed(const char *html) {
    const char *open[64];
    int depth = 0;
    assert_true(strncmp(html, "<!DOCTYPE html>", 15) == 0);
    for (const char *s = strchr(html + 15, '<'); s; s = strchr(s, '<')) {
        bool closing = s[1] == '/';
        const char *name = s + 1 + closing, *end = tag_end(s);
        size_t n = name_length(name);
        assert_true(*end == '>');
        assert_true(n > 0 && ((*name >= 'a' && *name <= 'z')));
        if (closing) {
            assert_true(depth > 0);
            depth--;
            if (name_length(open[depth]) != n || strncmp(open[depth], name, n) != 0)
                fail_msg("<%.*s> closed by </%.*s>", 12, open[depth], (int)n, name);
        } else if (!is_void(name, n) && end[-1] != '/') {
            assert_true(depth < 64);
            open[depth++] = name;
        }
        s = end;
        if (!closing && (strncmp(name, "script", n) == 0 || strncmp(name, "style", n) == 0)) {
            s = strstr(s, strncmp(name, "script", n) == 0 ? "</script>" : "</style>");
            assert_non_null(s);
        }
    }
    assert_int_equal(depth, 0);
}

static int count_of(const char *text, const char *word) {
    int n = 0;
    for (const char *s = text; (s = strstr(s, word)); s++) n++;
    return n;
}

static void expect_self_contained(const char *html) {
    assert_null(strstr(html, "http:"));
    assert_null(strstr(html, "https:"));
    assert_null(strstr(html, " src="));
    assert_null(strstr(html, "url("));
    assert_null(strstr(html, "nan"));
    assert_null(strstr(html, "inf%"));
}

static void test_whole_report(void **state) {
    strbuf metrics = {0};
    put_run(&metrics, 40);
    strbuf_puts(&metrics, "{\"event\": \"checkpoint\", \"step\": 40}\n");
    char *html = report_of(*state, metrics.data), *again = report_of(*state, metrics.data);
    assert_string_equal(html, again);
    expect_well_formed(html);
    expect_self_contained(html);
    assert_non_null(strstr(html, "Trained 2.9M parameters on 1.10 MB of text, 4000 tokens in all, "
                                 "for 0.4 s; validation loss 1.52 nats per token = 2.4 bits per "
                                 "byte."));
    assert_non_null(
        strstr(html, "&lt;script&gt;alert(1)&lt;/script&gt; \xef\xbf\xbd\xef\xbf\xbd &quot;"));
    assert_int_equal(count_of(html, "<script"), 1);
    assert_non_null(strstr(html, "<b>&lt;/b&gt;</b>"));
    assert_non_null(strstr(html, "10.0 % less than planned"));
    assert_non_null(strstr(html, "athanor generate "));
    assert_int_equal(count_of(html, "<svg class=\"chart\""), 6);
    assert_non_null(strstr(html, "class=\"state finished\""));
    free(html);
    free(again);
    strbuf_free(&metrics);
}

/* Of the steps before a fork there are no lines; the first one after it is slow. */
static void test_time_of_a_fork(void **state) {
    strbuf metrics = {0};
    put_start(&metrics);
    put_step(&metrics, 1001, "1.5");
    put_step(&metrics, 1002, "1.5");
    strbuf_puts(&metrics, "{\"event\": \"end\", \"steps\": 1002, \"train_s\": 500}\n");
    char *html = report_of(*state, metrics.data);
    assert_non_null(strstr(html, " for 8 min 20 s"));
    free(html);
    strbuf_free(&metrics);
}

/* One that was cut off has not said its end: it was trained for what its own lines say. */
static void test_time_of_a_fork_that_was_killed(void **state) {
    strbuf metrics = {0};
    strbuf_puts(&metrics, "{\"event\": \"start\", \"step\": 1000, \"params\": 2900000}\n");
    strbuf_puts(&metrics, "{\"event\": \"start\", \"step\": 1008, \"params\": 2900000}\n");
    put_step(&metrics, 1010, "1.5");
    char *html = report_of(*state, metrics.data);
    assert_non_null(strstr(html, " for 0.1 s"));
    free(html);
    strbuf_free(&metrics);
}

/* What is said to make a run longer is taken by it: an end of the last stage comes before train.steps. */
static void test_longer(void **state) {
    static const struct {
        const char *train, *stages, *more;
    } cases[] = {
        {"\"steps\": 40", "", "config.json train.steps=80<"},
        {"\"tokens\": 4000", "", "config.json train.steps=80<"},
        {"\"steps\": 40", "{\"name\": \"a\", \"until\": {\"steps\": 3}}, {\"name\": \"b\"}",
         "config.json train.steps=80<"},
        {"\"steps\": null", "{\"name\": \"a\"}, {\"name\": \"b\", \"until\": {\"steps\": 40}}",
         "config.json stages.1.until.steps=80<"},
        {"\"steps\": 40", "{\"name\": \"a\", \"until\": {\"tokens\": 4000}}",
         "config.json stages.0.until.tokens=8000 train.steps=null<"},
    };
    strbuf metrics = {0};
    put_run(&metrics, 40);
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        strbuf config = {0};
        strbuf_printf(&config, "{\"run\": \"r\", \"model\": {}, \"train\": {%s}, \"stages\": [%s]}",
                      cases[i].train, cases[i].stages);
        put_file(*state, "config.json", config.data);
        strbuf_free(&config);
        put_file(*state, "metrics.jsonl", metrics.data);
        OK(report_write(*state, NULL, NULL));
        char *html = get_file(*state, "report.html");
        if (!strstr(html, cases[i].more)) fail_msg("case %d lacks %s", i, cases[i].more);
        free(html);
    }
    strbuf_free(&metrics);
}

static void test_plan_is_shown_by_class(void **state) {
    put_file(*state, "plan.json",
             "{\"memory\": {\"peak_bytes\": 60, \"baseline_bytes\": 40, \"param_bytes\": 20, "
             "\"grad_bytes\": 20, \"activation_peak_bytes\": 20}}");
    strbuf metrics = {0};
    put_start(&metrics);
    strbuf_puts(&metrics, "{\"event\": \"end\", \"steps\": 0, \"peak_rss_bytes\": 200}\n");
    char *html = report_of(*state, metrics.data);
    expect_well_formed(html);
    assert_non_null(strstr(html, "class=\"m1\" style=\"width:10.00%\""));
    assert_non_null(strstr(html, "class=\"m6\" style=\"width:20.00%\""));
    assert_non_null(strstr(html, "100.0 % more than planned"));
    free(html);
    strbuf_free(&metrics);
}

/* The program itself, a bound of which small runs leave most, is in no comparison. */
static void test_memory_is_compared_alike(void **state) {
    strbuf metrics = {0};
    put_start(&metrics);
    strbuf_puts(&metrics, "{\"event\": \"end\", \"steps\": 0, \"peak_rss_bytes\": 27000000, "
                          "\"peak_anon_bytes\": 11000000, \"planned_peak_bytes\": 6000000, "
                          "\"touched_peak_bytes\": 5000000}\n");
    char *html = report_of(*state, metrics.data);
    expect_well_formed(html);
    assert_non_null(
        strstr(html, "Without the program itself 6.00 MB were planned, and 5.00 MB used."));
    free(html);
    strbuf_free(&metrics);
}

static void test_small_and_broken_runs(void **state) {
    strbuf metrics = {0};
    char *html = report_of(*state, "");
    expect_well_formed(html);
    assert_non_null(strstr(html, "No step has been recorded yet."));
    free(html);
    put_start(&metrics);
    put_step(&metrics, 1, "4.5");
    html = report_of(*state, metrics.data);
    expect_well_formed(html);
    expect_self_contained(html);
    free(html);
    put_step(&metrics, 2, "null");
    strbuf_puts(&metrics, "{\"event\": \"alarm\", \"step\": 2, \"message\": \"loss is <NaN>\", "
                          "\"op\": \"rmsnorm\"}\n");
    html = report_of(*state, metrics.data);
    expect_well_formed(html);
    expect_self_contained(html);
    assert_non_null(strstr(html, "loss is &lt;NaN&gt;"));
    assert_non_null(strstr(html, "op: rmsnorm"));
    assert_non_null(strstr(html, "class=\"state failed\""));
    assert_non_null(strstr(html, "stopped after step"));
    assert_null(strstr(html, "athanor generate")); /* nothing is saved */
    assert_null(strstr(html, "newest checkpoint"));
    assert_null(strstr(html, ">1.5<")); /* there is no half step */
    free(html);
    strbuf_free(&metrics);
}

static void put_stage(strbuf *out, int64_t step, const char *name, const char *sources) {
    strbuf_printf(out,
                  "{\"event\": \"stage\", \"step\": %lld, \"name\": \"%s\", \"seq_len\": 64, "
                  "\"batch\": 8, \"rope_theta\": 10000, \"sources\": [%s]}\n",
                  (long long)step, name, sources);
}

static void put_spike(strbuf *out, int64_t step) {
    strbuf_printf(
        out,
        "{\"event\": \"alarm\", \"step\": %lld, \"kind\": \"spike\", \"action\": \"skip\", "
        "\"message\": \"said by the numbers\", \"loss\": 4.5, \"loss_z\": 1.25, \"loss_mean\": "
        "4.25, \"grad_norm\": 9.5, \"norm_z\": 31, \"norm_mean\": 0.75, \"documents\": "
        "[{\"set\": \"web\", \"shard\": \"shard-00000.bin\", \"document\": 17, \"source\": "
        "\"<a>.jsonl\", \"line\": 18, \"loss\": 0.5, \"repeated\": 1}, {\"shard\": \"x\"}]}\n",
        (long long)step);
}

#define WEB "{\"path\": \"shards/web/train\", \"share\": 0.75}"
#define CODE "{\"path\": \"shards/code\", \"share\": 0.25}"

static void test_stages_and_spikes(void **state) {
    strbuf metrics = {0};
    put_start(&metrics);
    put_stage(&metrics, 1, "<first>", WEB ", " CODE);
    for (int i = 1; i <= 40; i++) {
        if (i == 21) put_stage(&metrics, 21, "second", CODE ", " WEB);
        if (i == 30) put_spike(&metrics, i);
        put_step(&metrics, i, "4.5");
    }
    char *html = report_of(*state, metrics.data);
    expect_well_formed(html);
    expect_self_contained(html);
    assert_non_null(strstr(html, "gradient norm 9.5, usually 0.75 (+31.0 &sigma;)"));
    assert_non_null(strstr(html, "loss 4.5, usually 4.25 (+1.2 &sigma;)"));
    assert_null(strstr(html, "said by the numbers"));
    assert_non_null(strstr(html, "most suspicious: &lt;a&gt;.jsonl:18 (document 17 in "
                                 "web/shard-00000.bin), 100 % repeated, loss 0.5"));
    assert_non_null(strstr(html, "<td>step skipped</td>"));
    assert_non_null(strstr(html, " --step 30 --render"));
    assert_non_null(strstr(html, "<b>&lt;first&gt;</b></td><td>1 to 20</td>"));
    assert_non_null(strstr(html, "<b>second</b></td><td>21 on</td>"));
    assert_non_null(strstr(html, "64 tokens x 8, rotary base 10k"));
    /* a source keeps its colour */
    assert_int_equal(count_of(html, "<i class=\"m1\" style=\"width:75.00%\"></i>"), 2);
    assert_int_equal(count_of(html, "<i class=\"m2\" style=\"width:25.00%\"></i>"), 2);
    /* lines in all six charts, but alarms say nothing about the rate; labels where there is room */
    assert_int_equal(count_of(html, "<line class=\"mark stage\""), 12);
    assert_int_equal(count_of(html, "<line class=\"mark alarm\""), 5);
    assert_int_equal(count_of(html, "<text class=\"label stage\""), 8);
    assert_int_equal(count_of(html, "<text class=\"label alarm\""), 3);
    free(html);
    strbuf_free(&metrics);
}

/* Labels say what has room beside a line; the line has all of it. */
static void test_long_names_of_stages(void **state) {
    strbuf metrics = {0};
    put_start(&metrics);
    put_stage(&metrics, 1, "a stage whose name is long \xc3\xbc\xc3\xbc\xc3\xbc", WEB);
    put_step(&metrics, 1, "4.5");
    put_step(&metrics, 2, "4.5");
    char *html = report_of(*state, metrics.data);
    expect_well_formed(html);
    assert_non_null(strstr(html, ">a stage whose name is long \xe2\x80\xa6</text>"));
    assert_non_null(strstr(html, "<title>a stage whose name is long \xc3\xbc\xc3\xbc\xc3\xbc<"));
    free(html);
    strbuf_free(&metrics);
}

static void test_many_alarms_are_folded(void **state) {
    strbuf metrics = {0};
    put_start(&metrics);
    for (int i = 1; i <= 250; i++) {
        put_step(&metrics, i, "4.5");
        put_spike(&metrics, i);
    }
    char *html = report_of(*state, metrics.data);
    expect_well_formed(html);
    assert_non_null(strstr(html, "<summary>245 earlier ones</summary>"));
    assert_non_null(strstr(html, "The first 150 are in"));
    assert_int_equal(count_of(html, "<td>spike</td>"), 100);
    assert_int_equal(count_of(html, "<line class=\"mark alarm\""), 5 * SVG_MAX_MARKS);
    const char *chart = strstr(html, "<svg class=\"chart\"");
    const char *first = strstr(chart, "<line class=\"mark alarm\" x1=\"");
    assert_true(strtod(strstr(first, "x1=") + 4, NULL) > 59); /* the newest 100 of 250 */
    free(html);
    strbuf_free(&metrics);
}

/* Steps that were made again after a rewind are drawn once, as the second time went. */
static void test_rewound_steps(void **state) {
    strbuf metrics = {0};
    put_start(&metrics);
    put_stage(&metrics, 1, "a", WEB);
    for (int i = 1; i <= 30; i++) put_step(&metrics, i, i > 20 ? "99" : "4.5");
    put_stage(&metrics, 21, "b", WEB);
    strbuf_puts(&metrics, "{\"event\": \"alarm\", \"step\": 20, \"kind\": \"rewind\", "
                          "\"message\": \"went back\", \"from_step\": 30, \"to_step\": 20}\n");
    put_stage(&metrics, 21, "b", WEB);
    for (int i = 21; i <= 40; i++) put_step(&metrics, i, "4.25");
    char *html = report_of(*state, metrics.data);
    expect_well_formed(html);
    assert_non_null(strstr(html, "for 0.5 s")); /* all 50 steps took their time */
    assert_int_equal(count_of(html, "<td><b>b</b></td>"), 1);
    const char *chart = strstr(html, "data-y1=\"");
    assert_true(strtod(chart + 9, NULL) < 10);
    assert_null(strstr(html, "from_step"));
    free(html);
    strbuf_free(&metrics);
}

/* Events with wrong types and missing members must not break the page. */
static void test_hostile_events(void **state) {
    char *html = report_of(*state, "{\"event\": \"step\"}\n{\"event\": 3}\n{}\n"
                                   "{\"event\": \"step\", \"step\": \"x\", \"loss\": []}\n"
                                   "{\"event\": \"step\", \"step\": 1e300, \"loss\": -1e300}\n"
                                   "{\"event\": \"sample\", \"text\": 5}\n"
                                   "{\"event\": \"alarm\"}\n{\"event\": \"valid\"}\n"
                                   "{\"event\": \"alarm\", \"kind\": 5, \"message\": [], "
                                   "\"documents\": [3, {\"line\": -1, \"repeated\": 1e300}]}\n"
                                   "{\"event\": \"alarm\", \"kind\": \"spike\", \"step\": -1e300, "
                                   "\"documents\": {}, \"loss\": \"x\", \"norm_z\": []}\n"
                                   "{\"event\": \"stage\"}\n"
                                   "{\"event\": \"stage\", \"step\": 7, \"name\": 1, \"sources\": "
                                   "[null, {\"share\": 1e9}, {\"path\": \"/\", \"share\": -1}]}\n"
                                   "{\"event\": \"end\", \"peak_rss_bytes\": -5}\n");
    expect_well_formed(html);
    free(html);
}

static void test_no_run(void **state) {
    err e = {0};
    assert_int_equal(report_write(*state, NULL, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "is not a run folder"));
}

static void test_many_steps_stay_small(void **state) {
    (void)state;
    enum { N = 1000000 };
    double *x = xmalloc(sizeof(double) * N), *y = xmalloc(sizeof(double) * N);
    for (int i = 0; i < N; i++) {
        x[i] = i + 1;
        y[i] = i == 777777 ? 100 : 2 + sin(i * 0.7);
    }
    int64_t points[SVG_MAX_POINTS];
    int64_t n = svg_decimate(x, y, N, 1, N, false, SVG_MAX_POINTS, points);
    assert_true(n <= SVG_MAX_POINTS && n > SVG_MAX_POINTS / 2);
    bool spike = false;
    for (int64_t i = 0; i < n; i++) {
        assert_true(i == 0 || points[i] > points[i - 1]);
        spike |= points[i] == 777777;
    }
    assert_true(spike);
    strbuf out = {0};
    svg_chart c = {
        .title = "t", .series = {{"s", "raw", x, y, N, false, NULL}}, .n_series = 1, .y_top = NAN};
    svg_chart_write(&out, &c);
    assert_true(out.len < 40000);
    strbuf_free(&out);
    free(x);
    free(y);
}

static void test_gaps(void **state) {
    (void)state;
    const double x[] = {1, 2, 3, 4}, y[] = {1, 2, NAN, 4};
    strbuf out = {0};
    svg_chart c = {
        .title = "t", .series = {{"s", "raw", x, y, 4, false, NULL}}, .n_series = 1, .y_top = NAN};
    svg_chart_write(&out, &c);
    const char *path = strstr(out.data, " d=\"");
    assert_int_equal(strcspn(path + 4, "\""), strlen("M0 9464L3333 6488M10000 536"));
    assert_int_equal(count_of(path, "M"), 2);
    strbuf_free(&out);
}

static void expect_number(double value, const char *want) {
    char text[32];
    svg_format_number(text, value);
    assert_string_equal(text, want);
}

static void test_numbers_and_ticks(void **state) {
    (void)state;
    expect_number(0, "0");
    expect_number(1.525, "1.52");
    expect_number(2000, "2000");
    expect_number(12345, "12.3k");
    expect_number(2912448, "2.91M");
    expect_number(3e-4, "3e-4");
    expect_number(-0.5, "-0.5");
    expect_number(1e300, "1e300");
    double ticks[SVG_MAX_TICKS];
    assert_int_equal(svg_ticks(0, 2000, 4, ticks), 5);
    assert_true(ticks[0] == 0 && ticks[4] == 2000);
    assert_int_equal(svg_ticks(1, 1, 4, ticks), 0);
    assert_true(svg_ticks(1.1, 9.4, 4, ticks) >= 3);
}

static void test_terminal_curve(void **state) {
    (void)state;
    const double falling[] = {4, 3, 2, 1}, none[] = {NAN};
    strbuf out = {0};
    report_terminal_curve(&out, falling, 4, 12, 2);
    assert_string_equal(out.data, "     4 │⠙⢦⡀⠀\n     1 │⠀⠀⠙⢦\n");
    strbuf_clear(&out);
    const double diverged[] = {4, NAN, NAN}; /* what is a number has its dot */
    report_terminal_curve(&out, diverged, 3, 12, 1);
    assert_string_equal(out.data, "     4 │⠄⠀⠀⠀\n");
    strbuf_clear(&out);
    report_terminal_curve(&out, none, 1, 40, 4);
    report_terminal_curve(&out, none, 0, 40, 4);
    assert_int_equal(out.len, 0);
    strbuf_free(&out);
}

#define T(f) cmocka_unit_test_setup_teardown(f, make_scratch, remove_scratch)

/* A task that was not evaluated at a step has a gap in its curve, and a dash in the table. */
static void test_tasks(void **state) {
    strbuf metrics = {0};
    put_run(&metrics, 30);
    for (int64_t step = 10; step <= 30; step += 10) {
        put_eval(&metrics, step, "whole", 0.5);
        if (step != 20) put_eval(&metrics, step, "<gap>", 0.25 + 0.01 * (double)step);
    }
    put_eval(&metrics, 31, "whole", 0.75);
    char *html = report_of(*state, metrics.data);
    expect_well_formed(html);
    const char *whole = strstr(html, "whole: acc</figcaption>");
    const char *gap = strstr(html, "&lt;gap&gt;: acc</figcaption>");
    assert_true(whole && gap && gap > whole);
    /* what is drawn, behind the run's name, which is drawn by lot */
    const char *line = strstr(strstr(gap, "<path class=\"line task\""), " d=\"");
    assert_null(memchr(line, 'L', (size_t)(strstr(line, "/>") - line)));
    line = strstr(strstr(whole, "<path class=\"line task\""), " d=\"");
    assert_non_null(memchr(line, 'L', (size_t)(strstr(line, "/>") - line)));
    assert_non_null(strstr(gap, "Scores at step 31"));
    assert_non_null(strstr(gap, "0.75 <small>\xc2\xb1 0.1</small>"));
    free(html);
    strbuf_free(&metrics);
}

/* Two layers with three experts, of which the last of layer 4 dies. What has another shape is left out, and so is what was
 * told before a rewind. */
static void test_experts(void **state) {
    strbuf metrics = {0};
    put_run(&metrics, 30);
    for (int step = 10; step <= 30; step += 10)
        strbuf_printf(&metrics,
                      "{\"event\": \"experts\", \"step\": %d, \"layers\": [1, 4], \"load\": "
                      "[[100, 100, 100], [250, 50, %d]]}\n",
                      step, step < 30 ? 100 : 0);
    strbuf_puts(&metrics, "{\"event\": \"experts\", \"step\": 20, \"load\": [[1], 2]}\n"
                          "{\"event\": \"experts\", \"step\": 30, \"layers\": [1, 4], \"load\": "
                          "[[100, null, 100], [250, 50, 0]]}\n");
    char *html = report_of(*state, metrics.data);
    expect_well_formed(html);
    assert_int_equal(count_of(html, "<svg class=\"map\""), 3);
    const char *now = strstr(html, "Load of experts now");
    const char *layer = strstr(html, "<figcaption>Layer 4 <small>1 without tokens");
    assert_non_null(strstr(html, "<figcaption>Layer 1</figcaption>"));
    assert_true(now && layer > now);
    const char *path = strstr(now, "class=\"none\" d=\"M2 1h1v1h-1z\"");
    assert_true(path && path < layer); /* column: expert 2, row: the second layer */
    assert_non_null(strstr(layer, "viewBox=\"0 0 2 3\"")); /* steps 10 and 30 */
    assert_non_null(strstr(layer, "class=\"high2\" d=\"M0 0h2v1h-2z\""));
    assert_non_null(strstr(layer, "class=\"none\" d=\"M1 2h1v1h-1z\""));
    free(html);
    html = report_of(*state, "{\"event\": \"experts\", \"load\": 3}\n{\"event\": \"experts\"}\n"
                             "{\"event\": \"experts\", \"load\": [[], []]}\n");
    assert_null(strstr(html, "class=\"map\""));
    free(html);
    html = report_of(*state, "{\"event\": \"experts\", \"load\": [[1, 2], [3]]}\n");
    assert_null(strstr(html, "class=\"map\""));
    free(html);
    strbuf_free(&metrics);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_whole_report),
        T(test_time_of_a_fork),
        T(test_time_of_a_fork_that_was_killed),
        T(test_longer),
        T(test_plan_is_shown_by_class),
        T(test_memory_is_compared_alike),
        T(test_small_and_broken_runs),
        T(test_stages_and_spikes),
        T(test_long_names_of_stages),
        T(test_many_alarms_are_folded),
        T(test_rewound_steps),
        T(test_hostile_events),
        T(test_tasks),
        T(test_experts),
        T(test_no_run),
        cmocka_unit_test(test_many_steps_stay_small),
        cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_numbers_and_ticks),
        cmocka_unit_test(test_terminal_curve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
