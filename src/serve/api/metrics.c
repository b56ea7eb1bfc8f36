#include "serve/api/metrics.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum { MOST_MODELS = 64, BUCKETS = 16 };

/* Upper ends of the buckets, in seconds: from a token of a small model to an answer of a large one. */
static const double ends[BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                     0.5,   1,      2.5,   5,    10,    30,   60,  300};

typedef struct histogram {
    int64_t count[BUCKETS + 1]; /* the last one: longer than all */
    double sum;
} histogram;

typedef enum why { DONE, FAILED, GONE, WHYS } why;
static const char *const why_name[WHYS] = {"done", "failed", "gone"};

struct metrics {
    pthread_mutex_t lock;
    histogram first, per_token, whole;
    int64_t answers[2][WHYS]; /* texts, chats */
    int64_t texts, refused, prompt_tokens, reused_tokens, new_tokens;
    engine_load load[MOST_MODELS];
};

metrics *metrics_new(void) {
    metrics *m = xcalloc(1, sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
    return m;
}

void metrics_free(metrics *m) {
    if (!m) return;
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* ---- adding ---- */

static void observe(histogram *h, double seconds) {
    int i = 0;
    while (i < BUCKETS && seconds > ends[i]) i++;
    h->count[i]++;
    h->sum += seconds;
}

void metrics_add_first(metrics *m, double seconds) {
    pthread_mutex_lock(&m->lock);
    observe(&m->first, seconds);
    pthread_mutex_unlock(&m->lock);
}

void metrics_add_text(metrics *m, int64_t n_prompt, const generate_result *r, double seconds) {
    pthread_mutex_lock(&m->lock);
    m->texts++;
    m->prompt_tokens += n_prompt;
    m->reused_tokens += r->n_reused;
    m->new_tokens += r->n_new;
    if (r->n_new > 1) observe(&m->per_token, seconds / (double)(r->n_new - 1));
    pthread_mutex_unlock(&m->lock);
}

void metrics_add_answer(metrics *m, bool chat, const char *how, double seconds) {
    int i = 0;
    while (i < WHYS - 1 && strcmp(why_name[i], how) != 0) i++;
    pthread_mutex_lock(&m->lock);
    m->answers[chat][i]++;
    observe(&m->whole, seconds);
    pthread_mutex_unlock(&m->lock);
}

void metrics_add_refused(metrics *m) {
    pthread_mutex_lock(&m->lock);
    m->refused++;
    pthread_mutex_unlock(&m->lock);
}

void metrics_set_load(metrics *m, int model, const engine_load *load) {
    if (model >= MOST_MODELS) return;
    pthread_mutex_lock(&m->lock);
    m->load[model] = *load;
    pthread_mutex_unlock(&m->lock);
}

/* ---- printing ---- */

static void head(strbuf *out, const char *name, const char *type, const char *help) {
    strbuf_printf(out, "# HELP athanor_%s %s\n# TYPE athanor_%s %s\n", name, help, name, type);
}

static void one(strbuf *out, const char *name, const char *type, const char *help, int64_t value) {
    head(out, name, type, help);
    strbuf_printf(out, "athanor_%s %ld\n", name, (long)value);
}

static void put_histogram(strbuf *out, const histogram *h, const char *name, const char *help) {
    int64_t n = 0;
    head(out, name, "histogram", help);
    for (int i = 0; i < BUCKETS; i++) {
        n += h->count[i];
        strbuf_printf(out, "athanor_%s_bucket{le=\"%.9g\"} %ld\n", name, ends[i], (long)n);
    }
    n += h->count[BUCKETS];
    strbuf_printf(out, "athanor_%s_bucket{le=\"+Inf\"} %ld\n", name, (long)n);
    strbuf_printf(out, "athanor_%s_sum %.9g\nathanor_%s_count %ld\n", name, h->sum, name, (long)n);
}

/* The value of a label: \\, " and line feeds are escaped. */
static void put_label(strbuf *out, const char *s) {
    for (; *s; s++) {
        if (*s == '\\' || *s == '"') strbuf_putc(out, '\\');
        if (*s == '\n')
            strbuf_puts(out, "\\n");
        else
            strbuf_putc(out, *s);
    }
}

/* Of each model; at: an int64 of its load, or an int. */
static void put_loads(strbuf *out, const metrics *m, const char *const *names, int n,
                      const char *name, const char *type, const char *help,
                      int64_t (*of)(const engine_load *)) {
    head(out, name, type, help);
    for (int i = 0; i < n && i < MOST_MODELS; i++) {
        strbuf_printf(out, "athanor_%s{model=\"", name);
        put_label(out, names[i]);
        strbuf_printf(out, "\"} %ld\n", (long)of(&m->load[i]));
    }
}

#define LOAD(member)                                                                               \
    static int64_t get_##member(const engine_load *l) {                                            \
        return l->member;                                                                          \
    }
LOAD(running)
LOAD(waiting)
LOAD(pages)
LOAD(pages_used)
LOAD(pages_kept)
LOAD(passes)
LOAD(rows)
LOAD(drafted)
LOAD(accepted)

static void put_engines(strbuf *out, const metrics *m, const char *const *names, int n) {
    static const struct {
        const char *name, *type, *help;
        int64_t (*of)(const engine_load *);
    } rows[] = {
        {"texts_running", "gauge", "Texts that are being written.", get_running},
        {"texts_waiting", "gauge", "Texts that wait for their place.", get_waiting},
        {"cache_pages", "gauge", "Pages of the cache.", get_pages},
        {"cache_pages_used", "gauge", "Pages that texts hold.", get_pages_used},
        {"cache_pages_kept", "gauge", "Pages kept for prefixes to come.", get_pages_kept},
        {"passes_total", "counter", "Passes of the engine.", get_passes},
        {"rows_total", "counter", "Rows that the passes computed.", get_rows},
        {"drafted_tokens_total", "counter", "Tokens tried in advance.", get_drafted},
        {"accepted_tokens_total", "counter", "Of these, those that were right.", get_accepted},
    };
    for (int i = 0; i < ARRAY_LEN(rows); i++)
        put_loads(out, m, names, n, rows[i].name, rows[i].type, rows[i].help, rows[i].of);
}

static void put_answers(strbuf *out, const metrics *m) {
    static const char *const route[] = {"completions", "chat"};
    head(out, "answers_total", "counter", "Requests for text that have ended.");
    for (int r = 0; r < 2; r++)
        for (int w = 0; w < WHYS; w++)
            strbuf_printf(out, "athanor_answers_total{route=\"%s\",end=\"%s\"} %ld\n", route[r],
                          why_name[w], (long)m->answers[r][w]);
    one(out, "answers_refused_total", "counter", "Requests that got 429.", m->refused);
    one(out, "texts_total", "counter", "Texts that have ended.", m->texts);
    one(out, "prompt_tokens_total", "counter", "Tokens of prompts.", m->prompt_tokens);
    one(out, "reused_tokens_total", "counter", "Of these, those found in the cache.",
        m->reused_tokens);
    one(out, "new_tokens_total", "counter", "Tokens written.", m->new_tokens);
    put_histogram(out, &m->first, "first_token_seconds", "From the request to its first token.");
    put_histogram(out, &m->per_token, "token_seconds", "Per token after the first, of each text.");
    put_histogram(out, &m->whole, "answer_seconds", "From the request to the end of its reply.");
}

static void put_http(strbuf *out, const http_counters *h) {
    one(out, "http_connections", "gauge", "Connections that are open.", h->connections);
    one(out, "http_requests_running", "gauge", "Requests whose replies have not ended.",
        h->requests_now);
    one(out, "http_connections_total", "counter", "Connections accepted.", (int64_t)h->accepted);
    one(out, "http_evicted_total", "counter", "Idle connections that made place.",
        (int64_t)h->evicted);
    one(out, "http_timed_out_total", "counter", "Connections that were too slow.",
        (int64_t)h->timed_out);
    one(out, "http_gone_total", "counter", "Requests whose client went.", (int64_t)h->gone);
    one(out, "http_dropped_total", "counter", "Requests whose client did not read.",
        (int64_t)h->dropped);
    one(out, "http_received_bytes_total", "counter", "Bytes of bodies.", (int64_t)h->body_bytes);
    one(out, "http_sent_bytes_total", "counter", "Bytes of answers.", (int64_t)h->answer_bytes);
    head(out, "http_requests_total", "counter", "Requests by the status of their answer.");
    for (int i = 0; i < ARRAY_LEN(h->by_status); i++)
        if (h->by_status[i])
            strbuf_printf(out, "athanor_http_requests_total{status=\"%d\"} %ld\n", i,
                          (long)h->by_status[i]);
}

void metrics_print(metrics *m, const char *const *names, int n, const http_counters *http,
                   strbuf *out) {
    pthread_mutex_lock(&m->lock);
    metrics now = *m;
    pthread_mutex_unlock(&m->lock);
    put_answers(out, &now);
    put_engines(out, &now, names, n);
    put_http(out, http);
}
