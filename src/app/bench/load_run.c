/* One round of a load: who sends when, what the streams say, and what each request came to. One thread polls all
 * connections, so that the client takes as little of the machine as it can from a server beside it. */
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/bench/serve_load.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/sort.h"

enum {
    MOST_OPEN = 4096,      /* connections at a time, where requests come at a rate */
    MOST_EVENT = 1 << 22,  /* bytes of an event of a stream */
    MOST_REFUSAL = 1 << 12 /* bytes that are kept of an answer that is an error */
};

/* A request that runs. */
typedef struct slot {
    bool open;
    int64_t number;
    load_kind kind;
    http_call call;
    int64_t began_ns, first_ns, last_ns; /* it was due; its first piece came, and its last */
    int64_t pieces, patience;
    strbuf line; /* of the stream; of an answer that is an error, its beginning */
    bool ended;  /* the stream said so */
    bool failed; /* the stream holds an error, or what is no event */
    int64_t prompt_tok, new_tok;
    load_answer *answer;
    struct load *load;
} slot;

typedef struct load {
    const load_wish *w;
    const load_server *s;
    const load_round *round;
    load_result *r;
    slot *slots;
    struct pollfd *polled; /* [n_slots] */
    int *which;            /* [n_slots] the slot of each */
    int n_slots;
    int64_t sent, ended; /* requests */
    int64_t start_ns, due_ns;
} load;

static void put_time(load_times *t, double seconds) {
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 256;
        t->v = xrealloc(t->v, sizeof(*t->v) * (size_t)t->cap);
    }
    t->v[t->n++] = seconds;
}

/* ---- the stream ---- */

static void take_text(slot *s, const char *text, size_t len) {
    if (len == 0) return;
    int64_t now = clock_now_ns();
    if (s->pieces++ == 0) {
        s->first_ns = now;
        put_time(&s->load->r->first, (double)(now - s->began_ns) / 1e9);
    } else {
        put_time(&s->load->r->gap, (double)(now - s->last_ns) / 1e9);
    }
    s->last_ns = now;
    strbuf_append(&s->answer->text, text, len);
}

static void take_event(slot *s, const char *data, size_t len) {
    if (len == 6 && memcmp(data, "[DONE]", 6) == 0) {
        s->ended = true;
        return;
    }
    json_t *o = json_loadb(data, len, JSON_ALLOW_NUL, NULL); /* models write any character */
    json_t *choice = json_array_get(json_object_get(o, "choices"), 0);
    json_t *text = json_object_get(choice, "text"), *delta = json_object_get(choice, "delta");
    json_t *usage = json_object_get(o, "usage");
    if (!text) text = json_object_get(delta, "content");
    if (!json_is_string(text)) text = json_object_get(delta, "reasoning_content");
    if (json_is_string(text)) take_text(s, json_string_value(text), json_string_length(text));
    if (json_is_object(usage)) {
        s->prompt_tok = json_integer_value(json_object_get(usage, "prompt_tokens"));
        s->new_tok = json_integer_value(json_object_get(usage, "completion_tokens"));
    }
    if (!o || json_object_get(o, "error")) s->failed = true;
    json_decref(o);
}

static void take_line(slot *s) {
    const char *line = s->line.data;
    size_t len = s->line.len;
    if (len && line[len - 1] == '\r') len--;
    if (len >= 5 && memcmp(line, "data:", 5) == 0) {
        size_t from = len > 5 && line[5] == ' ' ? 6 : 5;
        take_event(s, line + from, len - from);
    }
    strbuf_clear(&s->line);
}

static void on_body(void *ctx, const char *bytes, size_t n) {
    slot *s = ctx;
    if (s->call.code != 200) {
        if (s->line.len + n < MOST_REFUSAL) strbuf_append(&s->line, bytes, n);
        return;
    }
    for (const char *end = bytes + n, *stop; bytes < end; bytes = stop + 1) {
        stop = memchr(bytes, '\n', (size_t)(end - bytes));
        size_t len = (size_t)((stop ? stop : end) - bytes);
        s->failed |= s->line.len + len > MOST_EVENT;
        if (!s->failed) strbuf_append(&s->line, bytes, len);
        if (!stop) return;
        take_line(s);
        s->call.enough = s->kind == LOAD_CANCEL && !s->ended && s->pieces >= s->patience;
        if (s->call.enough) return;
    }
}

/* ---- what a request came to ---- */

static load_end judge(const slot *s) {
    int code = s->call.code;
    if (code == 429 || code == 503) return LOAD_TURNED_AWAY;
    if (s->kind == LOAD_MALFORMED) {
        bool refused = code >= 400 && code < 500;
        bool closed = code == 0 && s->call.sent > 0;
        return refused || closed ? LOAD_DONE : code ? LOAD_WRONG : LOAD_UNREACHABLE;
    }
    if (code == 0) return LOAD_UNREACHABLE;
    if (code != 200 || s->failed) return LOAD_WRONG;
    return s->ended && s->call.state == HTTP_ENDED ? LOAD_DONE : LOAD_CUT;
}

static void say_why(const slot *s, load_end end) {
    load_result *r = s->load->r;
    if (*r->why || end < LOAD_UNREACHABLE) return;
    snprintf(r->why, sizeof r->why, "request %ld: status %d%s%s%s%.*s", (long)s->number,
             s->call.code, s->call.why ? ", " : "", s->call.why ? s->call.why : "",
             s->line.len ? ": " : "", s->line.len < 160 ? (int)s->line.len : 160,
             strbuf_cstr(&s->line));
}

static void time_answer(const slot *s, int64_t tokens) {
    load_result *r = s->load->r;
    put_time(&r->whole, (double)(clock_now_ns() - s->began_ns) / 1e9);
    if (tokens > 1 && s->pieces > 1)
        put_time(&r->token, (double)(s->last_ns - s->first_ns) / 1e9 / (double)(tokens - 1));
}

static void end_slot(slot *s, load_end end) {
    load_result *r = s->load->r;
    int64_t tokens = s->new_tok ? s->new_tok : s->pieces;
    s->answer->end = end;
    r->ends[end]++;
    say_why(s, end);
    r->prompt_tok += s->prompt_tok;
    r->new_tok += tokens;
    if (end == LOAD_DONE && s->kind != LOAD_MALFORMED) time_answer(s, tokens);
    http_call_close(&s->call);
    strbuf_free(&s->line);
    s->open = false;
    s->load->ended++;
}

static void step_slot(slot *s) {
    bool goes_on = http_call_step(&s->call);
    if (s->call.enough)
        end_slot(s, LOAD_GIVEN_UP);
    else if (!goes_on)
        end_slot(s, judge(s));
}

/* ---- who sends when ---- */

static void begin_slot(load *l, slot *s, int64_t due_ns) {
    strbuf bytes = {0};
    int64_t index = l->sent++;
    *s = (slot){.open = true, .number = l->round->first + index, .load = l, .began_ns = due_ns};
    s->answer = &l->r->answers[index];
    s->kind = load_kind_of(l->w, s->number);
    s->patience = load_patience(l->w, s->number);
    s->call.on_body = on_body;
    s->call.ctx = s;
    load_put_request(&bytes, l->w, &l->s->place, l->s->model, s->number, &s->call.hang_up);
    http_call_open(&s->call, &l->s->place, bytes.data, bytes.len);
    strbuf_free(&bytes);
    step_slot(s);
}

/* Seconds up to the next arrival: of a Poisson process, exponential. */
static double draw_wait(const load *l) {
    double u =
        rng_uniform(rng_key_named(l->w->seed, "arrivals"), (uint64_t)(l->round->first + l->sent));
    return -log(1 - u) / l->round->rate;
}

static slot *free_slot(const load *l) {
    for (int i = 0; i < l->n_slots; i++)
        if (!l->slots[i].open) return &l->slots[i];
    return NULL;
}

static void begin_due(load *l) {
    for (slot *s; l->sent < l->round->n && (s = free_slot(l));) {
        int64_t now = clock_now_ns();
        if (l->round->clients) {
            begin_slot(l, s, now);
            continue;
        }
        if (l->due_ns > now) return;
        begin_slot(l, s, l->due_ns);
        l->due_ns += (int64_t)(draw_wait(l) * 1e9);
    }
}

static int wait_ms(const load *l) {
    if (l->round->clients || l->sent == l->round->n) return 1000;
    int64_t ms = (l->due_ns - clock_now_ns()) / 1000000 + 1;
    return ms < 0 ? 0 : ms < 1000 ? (int)ms : 1000;
}

static void give_up_late(load *l) {
    int64_t now = clock_now_ns();
    for (int i = 0; i < l->n_slots; i++) {
        slot *s = &l->slots[i];
        if (!s->open || (double)(now - s->began_ns) / 1e9 < l->w->timeout_s) continue;
        s->call.why = "it took longer than the time limit";
        end_slot(s, LOAD_CUT);
    }
}

static void poll_once(load *l) {
    int n = 0;
    for (int i = 0; i < l->n_slots; i++) {
        if (!l->slots[i].open) continue;
        l->polled[n] = (struct pollfd){.fd = l->slots[i].call.fd,
                                       .events = http_call_events(&l->slots[i].call)};
        l->which[n++] = i;
    }
    poll(l->polled, (nfds_t)n, wait_ms(l));
    for (int i = 0; i < n; i++)
        if (l->polled[i].revents) step_slot(&l->slots[l->which[i]]);
    give_up_late(l);
}

void load_run(const load_wish *w, const load_server *s, const load_round *round, load_result *r) {
    int64_t most = round->clients ? round->clients : MOST_OPEN;
    load l = {.w = w, .s = s, .round = round, .r = r};
    l.n_slots = (int)(most < round->n ? most : round->n);
    l.slots = xcalloc((size_t)l.n_slots, sizeof *l.slots);
    l.polled = xcalloc((size_t)l.n_slots, sizeof *l.polled);
    l.which = xcalloc((size_t)l.n_slots, sizeof *l.which);
    *r = (load_result){.answers = xcalloc((size_t)round->n, sizeof *r->answers)};
    l.start_ns = l.due_ns = clock_now_ns();
    for (begin_due(&l); l.ended < round->n; begin_due(&l)) poll_once(&l);
    r->seconds = clock_since_s(l.start_ns);
    free(l.slots);
    free(l.polled);
    free(l.which);
}

/* ---- results ---- */

void load_result_free(load_result *r, int64_t n) {
    for (int64_t i = 0; r->answers && i < n; i++) strbuf_free(&r->answers[i].text);
    free(r->answers);
    free(r->first.v);
    free(r->gap.v);
    free(r->token.v);
    free(r->whole.v);
}

double load_quantile(load_times *t, double q) {
    if (t->n == 0) return 0;
    sort_doubles(t->v, t->n);
    int64_t rank = (int64_t)ceil(q * (double)t->n);
    return t->v[rank > 0 ? rank - 1 : 0];
}

/* ---- a server ---- */

static void on_answer(void *ctx, const char *bytes, size_t n) {
    strbuf *b = ctx;
    if (b->len + n < MOST_EVENT) strbuf_append(b, bytes, n);
}

/* GET: the body is in *body; false with call->why or its code when there is none. */
static bool fetch(const http_place *p, const char *path, const char *key, http_call *c,
                  strbuf *body) {
    strbuf bytes = {0};
    int64_t start = clock_now_ns();
    *c = (http_call){.on_body = on_answer, .ctx = body};
    http_put_request(&bytes, p, "GET", path, key, NULL, 0);
    http_call_open(c, p, bytes.data, bytes.len);
    strbuf_free(&bytes);
    while (http_call_step(c) && clock_since_s(start) < 10) {
        struct pollfd polled = {.fd = c->fd, .events = http_call_events(c)};
        poll(&polled, 1, 1000);
    }
    bool whole = c->state == HTTP_ENDED && c->code == 200;
    if (c->state < HTTP_ENDED) c->why = "it does not answer";
    http_call_close(c);
    return whole;
}

status load_server_open(load_server *s, const char *url, const load_wish *w, err *e) {
    strbuf body = {0};
    http_call c;
    TRY(http_place_read(&s->place, url, e));
    bool there = fetch(&s->place, "/v1/models", w->key, &c, &body);
    json_t *o = there ? json_loadb(strbuf_cstr(&body), body.len, 0, NULL) : NULL;
    const char *id =
        json_string_value(json_object_get(json_array_get(json_object_get(o, "data"), 0), "id"));
    if (id) s->model = xstrdup(id);
    json_decref(o);
    strbuf_free(&body);
    if (there) return ST_OK;
    if (c.why)
        return err_at(e, ST_FAILED, url, "the server %s has no list of models: %s", s->place.host,
                      c.why);
    err_at(e, ST_FAILED, url, "the server %s has no list of models: status %d", s->place.host,
           c.code);
    return c.code == 401 ? err_hint(e, "give --api-key KEY, or set ATHANOR_API_KEY") : e->code;
}

void load_server_close(load_server *s) {
    free(s->model);
    s->model = NULL;
}
