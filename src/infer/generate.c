#include "infer/generate.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"

void generator_reset(generator *g) {
    g->n_cached = 0;
}

const char *generate_finish_name(generate_finish f) {
    static const char *const names[] = {"length", "eos", "stop"};
    return names[f];
}

static int32_t *ints(const prog *p, const char *name) {
    return prog_tensor(p, name)->data;
}

/* One pass of n <= T tokens; the rest of the pass is padding, whose cache rows the next pass
 * overwrites. */
static void pass(generator *g, const prog *p, int T, const int32_t *ids, int n) {
    int32_t *in = ints(p, "ids"), *pos = ints(p, "pos");
    for (int i = 0; i < T; i++) {
        in[i] = i < n ? ids[i] : 0;
        pos[i] = (int32_t)g->n_cached + i;
    }
    ints(p, "qpos")[0] = (int32_t)g->n_cached;
    ints(p, "rows")[0] = n - 1;
    op_run run = {.dev = g->dev, .first_micro = true, .grad_scale = 1.0f};
    prog_replay(p, PROG_F, &run);
    g->n_cached += n;
}

void generator_feed(generator *g, const int32_t *ids, int64_t n, float *logits) {
    const prog *last = g->decode;
    for (int64_t done = 0; done < n;) {
        int64_t left = n - done;
        bool whole = left > 1 && g->n_cached + g->prefill_T <= g->Tmax;
        int take = !whole ? 1 : left < g->prefill_T ? (int)left : g->prefill_T;
        last = whole ? g->prefill : g->decode;
        pass(g, last, whole ? g->prefill_T : 1, ids + done, take);
        done += take;
    }
    const tensor *t = prog_tensor(last, "logits");
    dtype_convert(logits, DT_F32, t->data, t->dt, g->vocab);
}

/* ---- text and stop strings ---- */

typedef struct text_state {
    const generate_request *rq;
    tok_stream stream;
    strbuf *text; /* all text so far */
    size_t shown; /* bytes already given to on_text */
} text_state;

static void show_until(text_state *t, size_t end) {
    if (t->rq->on_text && end > t->shown)
        t->rq->on_text(t->rq->ctx, t->text->data + t->shown, end - t->shown);
    if (end > t->shown) t->shown = end;
}

/* Where the earliest stop string begins, or the text's length. */
static size_t find_stop(const text_state *t) {
    size_t best = t->text->len;
    for (int i = 0; i < t->rq->n_stop; i++) {
        const char *at = strstr(strbuf_cstr(t->text), t->rq->stop[i]);
        if (at && (size_t)(at - t->text->data) < best) best = (size_t)(at - t->text->data);
    }
    return best;
}

static size_t longest_stop(const generate_request *rq) {
    size_t most = 0;
    for (int i = 0; i < rq->n_stop; i++)
        if (strlen(rq->stop[i]) > most) most = strlen(rq->stop[i]);
    return most;
}

/* Adds a token's text. *stopped: a stop string is complete; the text ends before it. */
static status add_text(text_state *t, int32_t id, bool *stopped, err *e) {
    *stopped = false;
    if (!t->rq->tok) return ST_OK;
    TRY(tok_stream_push(&t->stream, id, t->text, e));
    size_t end = find_stop(t);
    *stopped = end < t->text->len;
    if (*stopped) {
        t->text->len = end;
        t->text->data[end] = '\0';
    } else { /* hold back what may be the beginning of a stop string */
        size_t held = longest_stop(t->rq);
        end = held && end > held - 1 ? end - (held - 1) : held ? 0 : end;
    }
    show_until(t, end);
    return ST_OK;
}

static status check_request(const generator *g, const generate_request *rq, err *e) {
    if (rq->n_prompt == 0) {
        err_set(e, ST_USAGE, "the prompt is empty");
        return err_hint(e, "give at least one token, for example --prompt \"Once upon a time\"");
    }
    if (rq->n_prompt < g->Tmax) return ST_OK;
    err_set(e, ST_USAGE, "the prompt has %ld tokens, the context holds %d", (long)rq->n_prompt,
            g->Tmax);
    return err_hint(e, "shorten the prompt");
}

status generate_run(generator *g, const generate_request *rq, tok_ids *out, strbuf *text,
                    generate_finish *finish, err *e) {
    TRY(check_request(g, rq, e));
    text_state t = {
        .rq = rq, .stream = {.t = rq->tok, .skip_special = true}, .text = text, .shown = text->len};
    float *logits = xmalloc(sizeof(float) * (size_t)g->vocab);
    tok_ids seen = {0};
    for (int64_t i = 0; i < rq->n_prompt; i++) tok_ids_push(&seen, rq->prompt[i]);
    sampler *s = sampler_new(&rq->sample, g->n_ids);
    status st = ST_OK;
    *finish = FINISH_LENGTH;
    generator_reset(g);
    generator_feed(g, rq->prompt, rq->n_prompt, logits);
    for (int64_t i = 0; i < rq->max_new; i++) {
        int32_t id = sampler_pick(s, logits, (uint64_t)seen.n, seen.id, seen.n);
        if (id == rq->eos) {
            *finish = FINISH_EOS;
            break;
        }
        tok_ids_push(out, id);
        tok_ids_push(&seen, id);
        bool stopped;
        TRY_GOTO(st, add_text(&t, id, &stopped, e), done);
        if (stopped) {
            *finish = FINISH_STOP;
            break;
        }
        if (i + 1 == rq->max_new || g->n_cached >= g->Tmax) break;
        generator_feed(g, &id, 1, logits);
    }
    if (rq->tok && *finish != FINISH_STOP) TRY_GOTO(st, tok_stream_flush(&t.stream, text, e), done);
    show_until(&t, text->len);
done:
    tok_stream_free(&t.stream);
    sampler_free(s);
    tok_ids_free(&seen);
    free(logits);
    return st;
}
