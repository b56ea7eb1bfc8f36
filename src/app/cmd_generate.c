/* athanor generate: text or ids in, continuation out; or the logits of a prompt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/frame/cli.h"
#include "app/frame/cli_ids.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "infer/beam.h"
#include "infer/grammar/grammar.h"
#include "io/npy.h"
#include "interchange/drafting.h"

typedef struct batch_prompt {
    tok_ids ids;
    int line; /* of the batch; 1 for a prompt of the command line */
} batch_prompt;

typedef struct prompts {
    batch_prompt *item;
    int n, cap;
} prompts;

/* ---- prompts ---- */

static status encode(const open_model *m, const char *text, size_t len, tok_ids *out, err *e) {
    if (m->tok) return tok_encode(m->tok, text, len, TOK_ADD_SPECIAL, out, e);
    if (m->dir)
        err_set(e, ST_USAGE, "%s has no tokenizer.json, so text cannot be encoded", m->dir);
    else
        err_set(e, ST_USAGE, "the GGUF file has no tokenizer, so text cannot be encoded");
    return err_hint(e, "give the prompt as --ids 1,2,3");
}

static status read_batch_line(const open_model *m, const json_t *o, tok_ids *out, err *e) {
    const json_t *ids = json_object_get(o, "ids");
    const json_t *text = json_object_get(o, "prompt");
    if (json_is_string(text))
        return encode(m, json_string_value(text), json_string_length(text), out, e);
    if (!json_is_array(ids)) {
        err_set(e, ST_FORMAT, "a batch line needs \"prompt\" (text) or \"ids\" (a list)");
        return err_hint(e, "for example {\"prompt\": \"Once upon a time\"} or {\"ids\": [1, 2]}");
    }
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)ids, i, v) {
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id > INT32_MAX)
            return err_set(e, ST_FORMAT, "element %zu of \"ids\" is not a token id", i);
        tok_ids_push(out, (int32_t)id);
    }
    return ST_OK;
}

static status read_batch(const open_model *m, const char *path, prompts *p, err *e) {
    char *data;
    size_t len;
    TRY(file_read_all(path, &data, &len, e));
    status st = ST_OK;
    int line = 0;
    for (const char *s = data + utf8_mark(data, len), *end = data + len; st == ST_OK && s < end;) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        size_t n = (size_t)((stop ? stop : end) - s);
        line++;
        if (strspn(s, " \t\r") < n) {
            json_t *o = json_loadb(s, n, JSON_ALLOW_NUL, NULL);
            VEC_PUSH(p->item, p->n, p->cap, (batch_prompt){.line = line});
            st = o ? read_batch_line(m, o, &p->item[p->n - 1].ids, e)
                   : err_set(e, ST_FORMAT, "the line is not JSON");
            json_decref(o);
            if (st != ST_OK) err_where(e, "%s:%d", path, line);
        }
        s += n + (stop != NULL);
    }
    free(data);
    return st;
}

static status read_prompts(const cli_args *args, const open_model *m, prompts *p, err *e) {
    const char *text = cli_value(args, "prompt"), *ids = cli_value(args, "ids");
    const char *batch = cli_value(args, "batch");
    if (!text && !ids && !batch) {
        err_set(e, ST_USAGE, "generate needs one of --prompt TEXT, --ids 1,2,3, --batch F.jsonl");
        return err_hint(e, "for example: athanor generate %s --prompt \"Once upon a time\"",
                        args->inputs[0]);
    }
    if (batch) return read_batch(m, batch, p, e);
    VEC_PUSH(p->item, p->n, p->cap, (batch_prompt){.line = 1});
    tok_ids *out = &p->item[0].ids;
    return text ? encode(m, text, strlen(text), out, e) : cli_parse_ids(ids, out, e);
}

/* What is wrong with one line of a batch is at that line. */
static status at_line(const cli_args *args, const batch_prompt *item, status st, err *e) {
    const char *batch = cli_value(args, "batch");
    if (st != ST_OK && batch && !*e->where) err_where(e, "%s:%d", batch, item->line);
    return st;
}

static status check_id(const open_model *m, int32_t id, err *e) {
    if (id >= 0 && id < m->config.vocab_size) return ST_OK;
    err_set(e, ST_USAGE, "token id %d is outside the vocabulary of %ld", id,
            (long)m->config.vocab_size);
    return err_hint(e, "ids go from 0 to %ld", (long)m->config.vocab_size - 1);
}

static status check_ids(const cli_args *args, const open_model *m, const prompts *p, err *e) {
    for (int i = 0; i < p->n; i++)
        for (int64_t k = 0; k < p->item[i].ids.n; k++)
            TRY(at_line(args, &p->item[i], check_id(m, p->item[i].ids.id[k], e), e));
    return ST_OK;
}

static int64_t longest(const prompts *p) {
    int64_t most = 0;
    for (int i = 0; i < p->n; i++)
        if (p->item[i].ids.n > most) most = p->item[i].ids.n;
    return most;
}

/* ---- logits ---- */

typedef struct logit_rows {
    int64_t from, to, of; /* of: tokens of the prompt; 0: no logits are asked for */
} logit_rows;

static status parse_positions(const char *s, logit_rows *r, err *e) {
    r->from = 0;
    r->to = r->of;
    if (!s) return ST_OK;
    char tail;
    long a, b;
    if (sscanf(s, "%ld:%ld%c", &a, &b, &tail) == 2 && a >= 0 && a < b && b <= r->of) {
        r->from = a;
        r->to = b;
        return ST_OK;
    }
    return err_at(e, ST_USAGE, "--positions",
                  "--positions %s is not a range a:b with 0 <= a < b <= %ld", s, (long)r->of);
}

static status read_rows(const cli_args *args, const open_model *m, const prompts *p, logit_rows *r,
                        err *e) {
    if (!cli_has(args, "logits")) return ST_OK;
    int64_t most = model_max_tokens(&m->config);
    if (p->n != 1) {
        err_set(e, ST_USAGE, "--logits takes one prompt, not %d", p->n);
        return err_hint(e, "give --prompt or --ids instead of --batch");
    }
    r->of = p->item[0].ids.n;
    if (r->of == 0 || r->of > most)
        return err_set(e, ST_USAGE, "the prompt has %ld tokens; 1 to %ld are possible", (long)r->of,
                       (long)most);
    return parse_positions(cli_value(args, "positions"), r, e);
}

static status store_logits(const char *path, open_model *m, const tok_ids *prompt,
                           const logit_rows *r, err *e) {
    int64_t V = m->config.vocab_size, n = r->to - r->from;
    const float *logits = open_model_logits(m, prompt->id, (int)r->of) + r->from * V;
    TRY(logits_check(logits, n, V, r->from + 1, e));
    return npy_write_f32(path, logits, 2, (int64_t[]){n, V}, e);
}

static void add_logits(json_t *o, const char *path, const logit_rows *r, int64_t V) {
    json_object_set_new(o, "logits", json_cstr(path));
    json_object_set_new(o, "shape", json_pack("[I,I]", (json_int_t)(r->to - r->from), V));
}

static status only_logits(const cli_args *args, open_model *m, const prompts *p,
                          const logit_rows *r, err *e) {
    const char *path = cli_value(args, "logits");
    TRY(open_model_load(m, 0, (int)r->of, e));
    TRY(store_logits(path, m, &p->item[0].ids, r, e));
    if (!args->json) return ST_OK;
    json_t *o = json_pack("{s:o}", "prompt_ids", cli_id_list(p->item[0].ids.id, p->item[0].ids.n));
    add_logits(o, path, r, m->config.vocab_size);
    cli_print_json(o);
    return ST_OK;
}

/* ---- what may be written ---- */

/* --schema: a vocabulary and the grammar over it; both NULL without. */
typedef struct json_answer {
    token_trie *vocab;
    grammar *grammar;
} json_answer;

static status read_schema(const cli_args *args, const open_model *m, json_answer *out, err *e) {
    const char *path = cli_value(args, "schema");
    json_t *schema = NULL;
    if (!path) return ST_OK;
    if (!m->tok) {
        err_set(e, ST_USAGE, "the model has no tokenizer.json, so it cannot be held to JSON");
        return err_hint(e, "leave --schema out");
    }
    if (strcmp(path, "object") != 0) TRY(json_read_file(&schema, path, JSON_FILE_MAX_BYTES, e));
    out->vocab = token_trie_new(m->tok, (int32_t)m->config.vocab_size);
    status st = grammar_of_schema(&out->grammar, out->vocab, schema, e);
    if (st != ST_OK) err_context(e, "--schema %s", path);
    json_decref(schema);
    return st;
}

static void json_answer_free(json_answer *a) {
    grammar_free(a->grammar);
    token_trie_free(a->vocab);
}

/* ---- generation ---- */

static status read_request(const cli_args *args, const open_model *m, generate_request *rq,
                           err *e) {
    int64_t top_k, ngram, seed;
    sample_options *s = &rq->sample;
    TRY(cli_int(args, "max-new", 128, 1, 1 << 24, &rq->max_new, e));
    TRY(cli_num(args, "temperature", 0.8, 0, 100, &s->temperature, e));
    TRY(cli_int(args, "top-k", 0, 0, INT32_MAX, &top_k, e));
    TRY(cli_num(args, "top-p", 0.95, 0, 1, &s->top_p, e));
    TRY(cli_num(args, "min-p", 0, 0, 1, &s->min_p, e));
    TRY(cli_num(args, "repetition-penalty", 1, 0.01, 100, &s->repetition_penalty, e));
    TRY(cli_int(args, "no-repeat-ngram", 0, 0, 1 << 24, &ngram, e));
    TRY(cli_int(args, "min-new", 0, 0, 1 << 24, &rq->min_new, e));
    TRY(cli_int(args, "seed", 0, 0, INT64_MAX, &seed, e));
    s->top_k = (int)top_k;
    s->no_repeat_ngram = (int)ngram;
    s->seed = (uint64_t)seed;
    rq->tok = m->tok;
    return ST_OK;
}

static json_t *number_list(const double *x, int64_t n) {
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) json_array_append_new(list, json_f64(x[i]));
    return list;
}

/* What writes: an engine where tokens are tried in advance, else a generator. */
typedef struct text_writer {
    generator g;
    engine *en; /* NULL: g writes */
} text_writer;

static status generate_one(const cli_args *args, const open_model *m, text_writer *w,
                           const tok_ids *prompt, const logit_rows *r, grammar *held_to,
                           generate_request rq, err *e) {
    tok_ids out = {0};
    strbuf text = {0}, shown = {0};
    generate_result result;
    rq.prompt = prompt->id;
    rq.n_prompt = prompt->n;
    status st = ST_OK;
    if (!args->json && m->tok) rq.on_text = cli_print_piece;
    if (rq.on_text && !m->config.num_encoder_layers) { /* which answers, and goes not on */
        st = tok_decode(m->tok, prompt->id, prompt->n, true, &shown, e);
        cli_print_text(stdout, strbuf_cstr(&shown), shown.len);
    }
    if (held_to) rq.limit = grammar_constrain(held_to);
    if (st == ST_OK)
        st = w->en ? engine_write(w->en, &rq, &out, &text, &result, e)
                   : generate_run(&w->g, &rq, &out, &text, &result, e);
    constraint_free(rq.limit);
    if (st == ST_OK && args->json) {
        json_t *o =
            json_pack("{s:o,s:o,s:o,s:s}", "prompt_ids", cli_id_list(prompt->id, prompt->n), "ids",
                      cli_id_list(out.id, out.n), "text", json_text(strbuf_cstr(&text), text.len),
                      "finish", generate_finish_name(result.finish));
        if (rq.logprobs) json_object_set_new(o, "logprobs", number_list(rq.logprobs, out.n));
        if (r->of) add_logits(o, cli_value(args, "logits"), r, m->config.vocab_size);
        if (w->en) json_object_set_new(o, "drafts", drafting_json(w->en, &result));
        cli_print_json(o);
    } else if (st == ST_OK && m->tok)
        putchar('\n');
    for (int64_t i = 0; st == ST_OK && !args->json && !m->tok && i < out.n; i++)
        printf("%d%c", out.id[i], i + 1 < out.n ? ',' : '\n');
    strbuf_free(&text);
    strbuf_free(&shown);
    tok_ids_free(&out);
    return st;
}

/* ---- beam search ---- */

static status read_beams(const cli_args *args, const generate_request *rq, beam_request *out,
                         err *e) {
    static const char *const words[] = {"false", "true", "never"}; /* as beam_stop */
    const char *stop = cli_value(args, "early-stopping");
    int64_t beams;
    *out = (beam_request){.rq = *rq};
    TRY(cli_int(args, "beams", 0, 1, BEAMS_MOST, &beams, e));
    TRY(cli_num(args, "length-penalty", 1, -100, 100, &out->length_penalty, e));
    out->beams = (int)beams;
    for (int i = 0; stop && i < ARRAY_LEN(words); i++)
        if (strcmp(stop, words[i]) == 0) {
            out->stop = (beam_stop)i;
            stop = NULL;
        }
    if (!stop) return ST_OK;
    return err_at(e, ST_USAGE, "--early-stopping",
                  "--early-stopping %s is not true, false or never", stop);
}

/* The text of ids, which goes on that of the prompt; that of an encoder is another text. */
static status decode_answer(const open_model *m, const tok_ids *prompt, const tok_ids *ids,
                            strbuf *text, err *e) {
    tok_stream s = {.t = m->tok, .skip_special = true};
    s.behind = !m->config.num_encoder_layers && tok_has_text(m->tok, prompt->id, prompt->n, true);
    status st = ST_OK;
    for (int64_t i = 0; st == ST_OK && i < ids->n; i++)
        st = tok_stream_push(&s, ids->id[i], text, e);
    if (st == ST_OK) st = tok_stream_flush(&s, text, e);
    tok_stream_free(&s);
    return st;
}

/* With --json all that the search has found; else the best. */
static status tell_beams(const cli_args *args, const open_model *m, const tok_ids *prompt,
                         const beam_text *texts, int n, err *e) {
    json_t *list = json_array();
    status st = ST_OK;
    for (int i = 0; i < n && st == ST_OK; i++) {
        strbuf text = {0};
        if (m->tok) st = decode_answer(m, prompt, &texts[i].ids, &text, e);
        json_array_append_new(list, json_pack("{s:o,s:o,s:f,s:s}", "ids",
                                              cli_id_list(texts[i].ids.id, texts[i].ids.n), "text",
                                              json_text(strbuf_cstr(&text), text.len), "score",
                                              texts[i].score, "finish",
                                              generate_finish_name(texts[i].finish)));
        strbuf_free(&text);
    }
    if (st == ST_OK && args->json) {
        json_t *o = json_deep_copy(json_array_get(list, 0));
        json_object_set_new(o, "prompt_ids", cli_id_list(prompt->id, prompt->n));
        json_object_set(o, "beams", list);
        cli_print_json(o);
    }
    json_decref(list);
    return st;
}

static status print_best(const open_model *m, const tok_ids *prompt, const tok_ids *best, err *e) {
    strbuf text = {0};
    status st = ST_OK;
    for (int64_t i = 0; !m->tok && i < best->n; i++)
        printf("%d%c", best->id[i], i + 1 < best->n ? ',' : '\n');
    if (!m->tok) return ST_OK;
    if (!m->config.num_encoder_layers) /* which answers, and goes not on */
        st = tok_decode(m->tok, prompt->id, prompt->n, true, &text, e);
    if (st == ST_OK) st = decode_answer(m, prompt, best, &text, e);
    cli_print_text(stdout, strbuf_cstr(&text), text.len);
    putchar('\n');
    strbuf_free(&text);
    return st;
}

/* s NULL: on a generator. */
static status beams_of(const cli_args *args, const open_model *m, scorer *s, beam_request rq,
                       const tok_ids *prompt, err *e) {
    beam_text texts[BEAMS_MOST];
    int n;
    rq.rq.prompt = prompt->id;
    rq.rq.n_prompt = prompt->n;
    if (s) {
        generate_limits limits = plan_limits(m->plan, m->tok, m->score.longest);
        TRY(beam_run(s, &limits, &rq, texts, &n, e));
    } else {
        generator g = open_model_generator(m);
        status st = beam_run_in_turn(&g, &rq, texts, &n, e);
        generator_free(&g);
        TRY(st);
    }
    status st = args->json ? tell_beams(args, m, prompt, texts, n, e)
                           : print_best(m, prompt, &texts[0].ids, e);
    for (int i = 0; i < n; i++) tok_ids_free(&texts[i].ids);
    return st;
}

static status search_lines(const cli_args *args, open_model *m, const prompts *p,
                           const generate_request *rq, err *e) {
    beam_request beams;
    int64_t room = longest(p) + rq->max_new, ctx = model_max_tokens(&m->config);
    bool encoder = m->config.num_encoder_layers > 0;
    TRY(read_beams(args, rq, &beams, e));
    if (encoder)
        open_model_set_source(m, (int)(longest(p) < ctx ? longest(p) : ctx));
    else
        open_model_set_beams(m, room < ctx ? room : ctx, beams.beams);
    TRY(open_model_load(m, encoder ? (int)(rq->max_new < ctx ? 1 + rq->max_new : ctx) : 0, 0, e));
    scorer *s = encoder ? NULL : open_model_scorer(m);
    status st = ST_OK;
    for (int i = 0; i < p->n && st == ST_OK; i++)
        st = at_line(args, &p->item[i], beams_of(args, m, s, beams, &p->item[i].ids, e), e);
    scorer_free(s);
    return st;
}

/* ---- lines ---- */

/* The model, with what --draft asks for. */
static status load_writer(const cli_args *args, open_model *m, drafting *d, int room, int logits_T,
                          text_writer *w, err *e) {
    const char *draft = cli_value(args, "draft");
    if (draft) {
        open_model_set_engine(m, room, 1, 0);
        TRY(drafting_open(d, m, draft, dev_threads(m->dev), e));
    }
    TRY(open_model_load(m, draft ? 0 : room, logits_T, e));
    if (draft) {
        w->en = open_model_engine(m);
        drafting_begin(d, w->en);
    } else {
        w->g = open_model_generator(m);
    }
    return ST_OK;
}

static status generate_lines(const cli_args *args, open_model *m, const prompts *p,
                             const logit_rows *r, generate_request rq, grammar *held_to, err *e) {
    int64_t room = longest(p) + rq.max_new;
    int64_t ctx = model_max_tokens(&m->config), source = longest(p);
    if (m->config.num_encoder_layers) {
        open_model_set_source(m, (int)(source < ctx ? source : ctx));
        room = 1 + rq.max_new;
    }
    text_writer w = {0};
    drafting d = {0};
    uint64_t seed = rq.sample.seed;
    status st = load_writer(args, m, &d, (int)(room < ctx ? room : ctx), (int)r->of, &w, e);
    if (st == ST_OK && r->of)
        st = store_logits(cli_value(args, "logits"), m, &p->item[0].ids, r, e);
    if (cli_has(args, "logprobs")) rq.logprobs = xcalloc((size_t)rq.max_new, sizeof *rq.logprobs);
    for (int i = 0; i < p->n && st == ST_OK; i++) {
        rq.sample.seed = sample_seed(seed, p->item[i].line);
        st = generate_one(args, m, &w, &p->item[i].ids, r, held_to, rq, e);
        st = at_line(args, &p->item[i], st, e);
    }
    free(rq.logprobs);
    engine_free(w.en);
    generator_free(&w.g);
    drafting_close(&d);
    return st;
}

static status generate_with(const cli_args *args, open_model *m, const prompts *p,
                            const logit_rows *r, const tok_ids *end, err *e) {
    generate_request rq = {.end = end->id, .n_end = end->n, .goes_on = true};
    const char *stop = cli_value(args, "stop");
    TRY(read_request(args, m, &rq, e));
    rq.stop = &stop;
    rq.n_stop = stop && *stop ? 1 : 0;
    json_answer answer = {0};
    status st = read_schema(args, m, &answer, e);
    if (st == ST_OK && cli_has(args, "beams"))
        st = search_lines(args, m, p, &rq, e);
    else if (st == ST_OK)
        st = generate_lines(args, m, p, r, rq, answer.grammar, e);
    json_answer_free(&answer);
    return st;
}

/* Without a tokenizer nothing is known to be an end: ids go on to max-new. */
static status generate_all(const cli_args *args, open_model *m, const prompts *p,
                           const logit_rows *r, err *e) {
    generation_settings settings = {0};
    if (m->tok) TRY(open_model_settings(m, &settings, e));
    status st = generate_with(args, m, p, r, &settings.end, e);
    generation_settings_free(&settings);
    return st;
}

/* Logits are there to be compared with others: they are computed in fp32. */
static status set_formats(const cli_args *args, open_model *m, err *e) {
    const char *precision = cli_has(args, "logits") ? "fp32" : cli_value(args, "precision");
    return open_model_set_formats(m, cli_value(args, "cache"), precision, e);
}

static status read_model(const cli_args *args, open_model *m, err *e) {
    int threads;
    TRY(cli_threads(args, &threads, e));
    TRY(open_model_read_on(m, args->inputs[0], cli_value(args, "base"), cli_value(args, "device"),
                           threads, e));
    return set_formats(args, m, e);
}

static status cmd_generate(const cli_args *args, err *e) {
    open_model m = {0};
    prompts p = {0};
    logit_rows rows = {0};
    status st = read_model(args, &m, e);
    if (st == ST_OK) st = read_prompts(args, &m, &p, e);
    if (st == ST_OK) st = check_ids(args, &m, &p, e);
    if (st == ST_OK) st = read_rows(args, &m, &p, &rows, e);
    if (st == ST_OK && rows.of && !cli_has(args, "max-new"))
        st = only_logits(args, &m, &p, &rows, e);
    else if (st == ST_OK)
        st = generate_all(args, &m, &p, &rows, e);
    for (int i = 0; i < p.n; i++) tok_ids_free(&p.item[i].ids);
    free(p.item);
    open_model_close(&m);
    return st;
}

static const cli_option options[] = {
    {"prompt", "TEXT", "text to continue"},
    {"ids", "1,2,3", "token ids to continue"},
    {"batch", "F.jsonl", "one {\"prompt\"} or {\"ids\"} a line"},
    {"max-new", "N", "at most this many new tokens (128)"},
    {"temperature", "X", "0 takes the most likely token (0.8)"},
    {"top-k", "K", "keep the K most likely tokens; 0 = all (0)"},
    {"top-p", "P", "keep the most likely tokens of mass P; 1 = all, 0 = the first (0.95)"},
    {"min-p", "P", "drop tokens below P times the most likely (0)"},
    {"repetition-penalty", "R", "weaken tokens already seen (1 = off)"},
    {"no-repeat-ngram", "N", "no N tokens in a row come twice (0 = off)"},
    {"min-new", "N", "at least this many new tokens before an end (0)"},
    {"beams", "N", "beam search with N beams: the likeliest text that it finds, without draws"},
    {"length-penalty", "X", "beams: a text's log p is divided by its length to this power (1)"},
    {"early-stopping", "WORD", "beams: true, false or never, as transformers has them (false)"},
    {"stop", "TEXT", "end before this text"},
    {"schema", "FILE|object", "write JSON that is valid by this JSON Schema, or any JSON object"},
    {"seed", "N", "of the draws; each line of a batch has its own (0)"},
    {"cache", "auto|f32|f16", "what keys and values are kept in (auto: f16 for quantised weights)"},
    {"precision", "FORMAT",
     "auto, fp32, bf16 or fp16: what the model computes in (auto; with --logits fp32)"},
    CLI_OPTION_DEVICE,
    CLI_OPTION_THREADS,
    {"draft", "WORD|MODEL",
     "try tokens in advance by auto, mtp, ngram or a smaller model; the text is that of "
     "none (without --draft)"},
    {"logprobs", NULL,
     "with --json: log p of each new token, as the model says it (natural logarithm)"},
    {"base", "FOLDER", "an adapter's base model (where the adapter says)"},
    {"logits", "OUT.npy", "store the prompt's logits [T,V] in fp32; generates only with --max-new"},
    {"positions", "a:b", "only these positions of the logits"},
    {0}};

static const cli_rule rules[] = {
    {"logprobs", CLI_NEEDS, "json", "add --json, or leave --logprobs out"},
    {"logits", CLI_EXCLUDES, "precision", "leave --precision out: logits are computed in fp32"},
    {"positions", CLI_NEEDS, "logits", "add --logits OUT.npy, or leave --positions out"},
    {"beams", CLI_EXCLUDES,
     "temperature|top-k|top-p|min-p|seed|stop|schema|cache|draft|logprobs|logits",
     "beam search draws nothing, has its own cache, and ends at the model's end of text"},
    {"length-penalty", CLI_NEEDS, "beams", "add --beams N"},
    {"early-stopping", CLI_NEEDS, "beams", "add --beams N"},
    {"prompt", CLI_EXCLUDES, "ids|batch", "give one of the three"},
    {"ids", CLI_EXCLUDES, "batch", "give one of the three"},
    {0}};

const cli_command command_generate = {
    .name = "generate",
    .summary = "continue a prompt, or write its logits",
    .usage = "MODEL --prompt TEXT | --ids 1,2,3 | --batch F.jsonl [--option value]",
    .run = cmd_generate,
    .options = options,
    .rules = rules};
