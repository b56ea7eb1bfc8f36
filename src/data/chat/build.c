/* See chat.h. Reading order: samples (from records), tasks (what becomes a document), the batch that all
 * threads encode, writing, the set, chat_build. */
#include "data/chat/chat.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "data/build/place.h"
#include "data/build/split.h"
#include "data/chat/records.h"

enum { BATCH = 256 };
static const double PROGRESS_EVERY_S = 0.25;

/* A sample, where it came from, and what becomes of it. */
typedef struct task {
    chat_sample sample;
    json_t *mismatched; /* labels: the prompt with the next sample's answer */
    const char *source;
    uint32_t line;
    uint64_t offset;
    chat_document *docs;
    int n_docs, cap_docs;
    status st;
    err e;
} task;

typedef struct build {
    const chat_build_options *opt;
    chat_encoder encoder;
    chat_template *template;
    struct tm now;
    records *records;
    chat_audit *audit;
    const char *out_dir, *work_dir;
    struct {
        const char *dir, *stage;
        shard_writer *w;
    } side[2]; /* training or all; validation */
    int n_sides, lock_fd;
    bool made_out_dir;
    chat_kind kind;
    bool begun;        /* the kind is known, and the writers are open */
    task held;         /* the sample read last; labels need the next one's answer */
    json_t *variables; /* of the template, if they are more than opt->variables */
    json_t *first_answer;
    uint64_t n_samples;
    uint64_t tokens;
    int64_t start_ns, shown_ns;
    task batch[BATCH];
    arena *mem;
} build;

static void task_free(task *t) {
    chat_sample_free(&t->sample);
    json_decref(t->mismatched);
    for (int i = 0; i < t->n_docs; i++) chat_document_free(&t->docs[i]);
    free(t->docs);
    *t = (task){0};
}

static void name_place(char out[512], const char *source, uint32_t line) {
    snprintf(out, 512, "%.480s:%u", source, (unsigned)line);
}

/* Puts file and line before an error. */
static status at_place(const task *t, err *e) {
    char place[512];
    name_place(place, t->source, t->line);
    err_context(e, "%s", place);
    return err_where(e, "%s", place);
}

/* ---- samples ---- */

static status no_form(err *e) {
    err_set(e, ST_USAGE, "this record has none of the forms of conversations");
    return err_hint(
        e,
        "they are %s; name one with --chat FORM to hear what it lacks, or build text with "
        "--chat no",
        chat_form_names());
}

static const char *kind_name(chat_kind kind) {
    static const char *const NAMES[] = {"a conversation", "a chosen and a rejected answer",
                                        "an answer with a label"};
    return NAMES[kind];
}

static status check_sample_kind(build *b, const chat_sample *s, err *e) {
    if (b->begun && s->kind != b->kind) {
        err_set(e, ST_USAGE, "this record is %s, the ones before are each %s", kind_name(s->kind),
                kind_name(b->kind));
        return err_hint(e, "build sets of different kinds apart");
    }
    return ST_OK;
}

static status read_sample(build *b, const chat_record *r, task *t, err *e) {
    const chat_form *f = b->opt->form ? chat_form_find(b->opt->form) : chat_form_of(r->value);
    if (!f) return no_form(e);
    TRY(chat_form_read(f, r->value, &t->sample, e));
    status st = check_sample_kind(b, &t->sample, e);
    if (st != ST_OK) chat_sample_free(&t->sample);
    return st;
}

/* *more false at the end. */
static status next_sample(build *b, task *t, bool *more, err *e) {
    chat_record r;
    char place[512];
    *t = (task){0};
    TRY(records_next(b->records, &r, e));
    *more = r.value != NULL;
    if (!*more) return ST_OK;
    t->source = r.source;
    t->line = r.line;
    t->offset = r.offset;
    name_place(place, r.source, r.line);
    chat_audit_record(b->audit, r.value, place);
    status st = read_sample(b, &r, t, e);
    json_decref(r.value);
    return st == ST_OK ? ST_OK : at_place(t, e);
}

/* ---- tasks ---- */

static json_t *last_of(const json_t *messages) {
    return json_array_get(messages, json_array_size(messages) - 1);
}

static json_t *with_answer(const chat_sample *s, json_t *answer) {
    json_t *out = json_copy(s->messages);
    json_array_set(out, json_array_size(out) - 1, answer);
    return out;
}

/* The sample that is held, now that the one behind it is known. */
static status next_task(build *b, task *out, bool *more, err *e) {
    task next;
    bool another;
    *out = b->held;
    *more = out->sample.messages != NULL;
    if (!*more) return ST_OK;
    b->held = (task){0};
    TRY(next_sample(b, &next, &another, e));
    if (b->kind == CHAT_LABELS) {
        json_t *answer = another ? last_of(next.sample.messages) : b->first_answer;
        out->mismatched = with_answer(&out->sample, answer);
    }
    b->held = next;
    return ST_OK;
}

/* ---- encoding ---- */

static status add_document(const build *b, task *t, const json_t *messages, size_t n,
                           bool rejected) {
    chat_document d;
    TRY(chat_encode(&b->encoder, &t->sample, messages, n, &d, &t->e));
    for (int64_t i = 0; rejected && i < d.ids.n; i++)
        if (d.marks[i] & MARK_TRAINED) d.marks[i] |= MARK_REJECTED;
    VEC_PUSH(t->docs, t->n_docs, t->cap_docs, d);
    return ST_OK;
}

/* Each answer with what comes before it as its prompt. */
static status add_each(const build *b, task *t) {
    const json_t *messages = t->sample.messages;
    for (size_t i = 1; i < json_array_size(messages); i++) {
        if (!chat_is_learned(json_array_get(messages, i))) continue;
        t->sample.n_prompt = i;
        TRY(add_document(b, t, messages, i + 1, false));
    }
    t->sample.n_prompt = 0;
    if (t->n_docs > 0) return ST_OK;
    return add_document(b, t, messages, json_array_size(messages), false);
}

/* Where the tokens of two answers differ at once, the prompt is what both have in common, as in TRL. */
static void align_answers(task *t) {
    chat_document *a = &t->docs[0], *b = &t->docs[1];
    int64_t i = 0;
    while (i < a->ids.n && i < b->ids.n && !(a->marks[i] & MARK_TRAINED) &&
           !(b->marks[i] & MARK_TRAINED))
        i++;
    if (i < a->ids.n && !(a->marks[i] & MARK_TRAINED)) a->marks[i] |= MARK_TRAINED;
    if (i < b->ids.n && !(b->marks[i] & MARK_TRAINED)) b->marks[i] |= MARK_TRAINED | MARK_REJECTED;
}

static status encode_task(const build *b, task *t) {
    const chat_sample *s = &t->sample;
    size_t n = json_array_size(s->messages);
    bool each = b->opt->train == CHAT_TRAIN_EACH && s->kind == CHAT_SINGLE && s->n_prompt == 0;
    if (each) return add_each(b, t);
    TRY(add_document(b, t, s->messages, n, s->kind == CHAT_LABELS && !s->desirable));
    if (s->kind == CHAT_LABELS) return add_document(b, t, t->mismatched, n, !s->desirable);
    if (s->kind == CHAT_SINGLE) return ST_OK;
    TRY(add_document(b, t, s->rejected, json_array_size(s->rejected), true));
    align_answers(t);
    return ST_OK;
}

static void encode_batch(build *b, int n, int threads) {
#pragma omp parallel for schedule(dynamic, 4) num_threads(threads)
    for (int i = 0; i < n; i++) b->batch[i].st = encode_task(b, &b->batch[i]);
}

/* ---- writing ---- */

/* A sample of two documents is left out as a whole. */
static bool is_left_out(const task *t) {
    enum { NOTHING = 1u << CHECK_NOTHING_TRAINED };
    bool all = true, any = false;
    for (int i = 0; i < t->n_docs; i++) {
        bool out = t->docs[i].ids.n == 0 || t->docs[i].found & NOTHING;
        all = all && out;
        any = any || out;
    }
    return t->sample.kind == CHAT_SINGLE ? all : any;
}

static void drop_document(chat_document *d) {
    uint32_t found = d->found;
    chat_document_free(d);
    d->found = found;
}

static status write_document(build *b, const task *t, const chat_document *d, int side, err *e) {
    shard_record r = {.ids = d->ids.id,
                      .marks = d->marks,
                      .n = d->ids.n,
                      .source = t->source,
                      .line = t->line,
                      .text_offset = t->offset,
                      .text_bytes = d->text_bytes};
    b->tokens += (uint64_t)d->ids.n;
    return shard_writer_add(b->side[side].w, &r, e);
}

static status write_task(build *b, task *t, err *e) {
    char place[512];
    if (t->st != ST_OK) {
        if (e) *e = t->e;
        return at_place(t, e);
    }
    bool all = is_left_out(t);
    int side = data_split_is_valid(b->opt->seed, b->n_samples++, b->opt->valid_fraction);
    for (int i = 0; i < t->n_docs; i++) {
        chat_document *d = &t->docs[i];
        if (all || d->found & 1u << CHECK_NOTHING_TRAINED) drop_document(d);
    }
    name_place(place, t->source, t->line);
    chat_audit_sample(b->audit, &t->sample, t->source, place, t->docs, t->n_docs);
    for (int i = 0; i < t->n_docs; i++)
        if (t->docs[i].ids.n > 0) TRY(write_document(b, t, &t->docs[i], side, e));
    return ST_OK;
}

static void show_progress(build *b) {
    if (!b->opt->progress || clock_since_s(b->shown_ns) < PROGRESS_EVERY_S) return;
    b->shown_ns = clock_now_ns();
    b->opt->progress(b->n_samples, b->tokens, clock_since_s(b->start_ns));
}

/* *more: there may be another batch. */
static status do_batch(build *b, bool *more, err *e) {
    int n = 0, threads = b->opt->threads > 0 ? b->opt->threads : omp_get_max_threads();
    status st = ST_OK;
    for (*more = true; st == ST_OK && *more && n < BATCH;) {
        st = next_task(b, &b->batch[n], more, e);
        n += *more;
    }
    if (st == ST_OK) encode_batch(b, n, threads);
    for (int i = 0; i < n; i++) {
        if (st == ST_OK) st = write_task(b, &b->batch[i], e);
        task_free(&b->batch[i]);
    }
    show_progress(b);
    return st;
}

/* ---- the set ---- */

static uint64_t variables_hash(const chat_encoder *k, chat_train train) {
    char *text = k->variables ? json_dumps(k->variables, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    uint64_t all[3] = {text ? hash_bytes(text, strlen(text)) : 0, (uint64_t)train, 0};
    if (k->now && chat_template_mentions(k->template, "strftime_now"))
        all[2] = (uint64_t)(k->now->tm_year * 400 + k->now->tm_yday);
    free(text);
    return hash_bytes(all, sizeof all);
}

static status open_writers(build *b, err *e) {
    const chat_encoder *k = &b->encoder;
    shard_writer_options wo = {.tok_hash = tok_hash(k->tok),
                               .vocab_size = tok_vocab_size(k->tok),
                               .eos = -1,
                               .shard_tokens = b->opt->shard_tokens,
                               .chat = {.marks = true,
                                        .labels = b->kind == CHAT_LABELS,
                                        .sequences = b->kind == CHAT_SINGLE ? 1 : 2,
                                        .template_hash = chat_template_hash(k->template),
                                        .variables_hash = variables_hash(k, b->opt->train)}};
    TRY(file_remove_tree(b->work_dir, e));
    TRY(file_make_dirs(b->work_dir, e));
    for (int i = 0; i < b->n_sides; i++)
        TRY(shard_writer_open(&b->side[i].w, b->side[i].stage, &wo, e));
    b->begun = true;
    return ST_OK;
}

static void plan_sides(build *b) {
    static const char *const NAMES[] = {"train", "valid"};
    bool split = b->opt->valid_fraction > 0;
    b->n_sides = split ? 2 : 1;
    for (int i = 0; i < b->n_sides; i++) {
        b->side[i].dir = split ? path_join(b->mem, b->out_dir, NAMES[i]) : b->out_dir;
        b->side[i].stage = path_join(b->mem, b->work_dir, split ? NAMES[i] : "set");
    }
}

static json_t *report_of(build *b) {
    static const char *const KINDS[] = {"single", "pairs", "labels"};
    json_t *o = json_pack("{s:s,s:o}", "kind", KINDS[b->kind], "template_hash",
                          json_hash(chat_template_hash(b->template)));
    json_t *audit = chat_audit_json(b->audit);
    json_object_update(o, audit);
    json_decref(audit);
    return o;
}

static status write_companions(build *b, const char *dir, const json_t *report, err *e) {
    strbuf text = {0};
    const char *template = chat_template_text(b->template);
    json_format(&text, report, 1);
    strbuf_putc(&text, '\n');
    status st = tok_save_file(b->encoder.tok, path_join(b->mem, dir, "tokenizer.json"), e);
    if (st == ST_OK)
        st = file_write_atomic(path_join(b->mem, dir, "chat.json"), text.data, text.len, e);
    if (st == ST_OK && template)
        st = file_write_atomic(path_join(b->mem, dir, "chat_template.jinja"), template,
                               strlen(template), e);
    strbuf_free(&text);
    return st;
}

static status finish_sets(build *b, const json_t *report, err *e) {
    for (int i = b->n_sides - 1; i >= 0; i--) {
        if (shard_writer_totals(b->side[i].w).tokens == 0) {
            err_at(e, ST_USAGE, "valid", "valid=%g leaves no conversation for %s",
                   b->opt->valid_fraction, i ? "validation" : "training");
            return err_hint(e, "take another fraction, or another seed");
        }
        TRY(write_companions(b, b->side[i].stage, report, e));
        TRY(shard_writer_finish(b->side[i].w, e));
    }
    for (int i = b->n_sides - 1; i >= 0; i--) TRY(place_set(b->side[i].stage, b->side[i].dir, e));
    if (b->n_sides == 2) return shards_remove(b->out_dir, e);
    TRY(shards_remove(path_join(b->mem, b->out_dir, "train"), e));
    return shards_remove(path_join(b->mem, b->out_dir, "valid"), e);
}

/* ---- the whole ---- */

static status no_conversation(const build *b, err *e) {
    err_at(e, ST_USAGE, records_file(b->records, 0), "%s holds no conversation",
           records_file(b->records, 0));
    return err_hint(e, "give at least one record");
}

static status run(build *b, chat_build_result *result, err *e) {
    bool more;
    TRY(next_sample(b, &b->held, &more, e));
    if (!more) return no_conversation(b, e);
    b->kind = b->held.sample.kind;
    if (b->kind == CHAT_LABELS) b->first_answer = json_incref(last_of(b->held.sample.messages));
    TRY(open_writers(b, e));
    for (more = true; more;) TRY(do_batch(b, &more, e));
    TRY(chat_audit_check(b->audit, b->opt->allowed, e));
    result->report = report_of(b);
    for (int i = 0; i < b->n_sides; i++)
        *(i ? &result->valid : &result->train) = shard_writer_totals(b->side[i].w);
    if (result->train.tokens == 0 && b->n_sides == 1) return no_conversation(b, e);
    return finish_sets(b, result->report, e);
}

/* The template plain ends texts by what the tokenizer ends them by, whatever its other files say. */
static status set_end(build *b, const char *tokenizer, err *e) {
    int32_t eos = tok_eos(b->encoder.tok);
    size_t len;
    if (eos < 0) {
        err_at(e, ST_USAGE, "--template plain",
               "%s has no end of text, by which source and target end", tokenizer);
        return err_hint(e,
                        "name it eos_token in tokenizer_config.json, or add </s>: athanor tok add");
    }
    const char *text = tok_bytes(b->encoder.tok, eos, &len);
    b->variables = b->opt->variables ? json_copy((json_t *)b->opt->variables) : json_object();
    json_object_set_new(b->variables, "eos_token", json_stringn_nocheck(text, len));
    b->encoder.variables = b->variables;
    return ST_OK;
}

/* The template, and what it is rendered with. */
static status open_template(build *b, const char *tokenizer, err *e) {
    const char *file = b->opt->template_file;
    time_t now = (time_t)clock_wall_s();
    TRY(chat_template_load_open(&b->template, tokenizer, NULL, file, e));
    localtime_r(&now, &b->now);
    b->encoder.template = b->template;
    b->encoder.now = &b->now;
    if (file && strcmp(file, "plain") == 0) return set_end(b, tokenizer, e);
    status st = chat_template_check(file, b->encoder.tok, tokenizer, e);
    if (st == ST_OK) return ST_OK;
    return err_hint(e, "add them: athanor tok add %s --special '<|im_start|>,<|im_end|>' -o tok/",
                    tokenizer);
}

static void clean_up(build *b, status st) {
    for (int i = 0; i < b->n_sides; i++) shard_writer_free(b->side[i].w);
    for (int i = 0; i < BATCH; i++) task_free(&b->batch[i]);
    task_free(&b->held);
    json_decref(b->first_answer);
    json_decref(b->variables);
    if (b->lock_fd >= 0) {
        if (file_remove_tree(b->work_dir, NULL) == ST_OK && st != ST_OK && b->made_out_dir)
            rmdir(b->out_dir);
        close(b->lock_fd);
    }
    records_close(b->records);
    chat_audit_free(b->audit);
    chat_template_free(b->template);
    arena_free(b->mem);
    free(b);
}

static build *build_new(const tok *t, const chat_build_options *opt) {
    build *b = xcalloc(1, sizeof *b);
    b->opt = opt;
    b->encoder = (chat_encoder){
        .tok = t, .variables = opt->variables, .train = opt->train, .allowed = opt->allowed};
    b->lock_fd = -1;
    b->mem = arena_new("chat build");
    b->audit = chat_audit_new();
    b->start_ns = b->shown_ns = clock_now_ns();
    return b;
}

static status build_in(build *b, const char *const *inputs, int n, const char *tokenizer,
                       chat_build_result *result, err *e) {
    TRY(open_template(b, tokenizer, e));
    TRY(records_open(&b->records, inputs, n, e));
    b->made_out_dir = !file_exists(b->out_dir);
    TRY(place_lock(b->out_dir, false, &b->lock_fd, e));
    plan_sides(b);
    return run(b, result, e);
}

status chat_build(const char *const *inputs, int n, const char *out_dir, const char *tokenizer,
                  const tok *t, const chat_build_options *opt, chat_build_result *result, err *e) {
    *result = (chat_build_result){0};
    CHECK(!opt->form || chat_form_find(opt->form), "no form %s", opt->form);
    build *b = build_new(t, opt);
    b->out_dir = out_dir;
    b->work_dir = path_join(b->mem, out_dir, ".build");
    status st = build_in(b, inputs, n, tokenizer, result, e);
    result->seconds = clock_since_s(b->start_ns);
    clean_up(b, st);
    if (st != ST_OK) {
        json_decref(result->report);
        result->report = NULL;
    }
    return st;
}

status chat_build_digest(const char *tokenizer, const tok *t, const chat_build_options *opt,
                         uint64_t *out, err *e) {
    build *b = build_new(t, opt);
    status st = open_template(b, tokenizer, e);
    if (st == ST_OK) {
        b->encoder.now = NULL; /* a set stays, whatever day it is */
        const uint64_t all[] = {tok_hash(t), chat_template_hash(b->template),
                                variables_hash(&b->encoder, opt->train), opt->allowed,
                                opt->form ? hash_bytes(opt->form, strlen(opt->form)) : 0};
        *out = hash_bytes(all, sizeof all);
    }
    clean_up(b, st);
    return st;
}

bool chat_may_be(const char *const *inputs, int n) {
    records *r;
    if (strcmp(inputs[0], "-") == 0 || records_open(&r, inputs, n, NULL) != ST_OK) return false;
    records_close(r);
    return true;
}

uint64_t chat_inputs_fingerprint(const char *const *inputs, int n) {
    records *r;
    if (records_open(&r, inputs, n, NULL) != ST_OK) return 0;
    uint64_t hash = records_fingerprint(r);
    records_close(r);
    return hash;
}

bool chat_is(const char *const *inputs, int n) {
    records *r;
    chat_record first = {0};
    if (n == 0 || strcmp(inputs[0], "-") == 0) return false;
    if (records_open(&r, inputs, n, NULL) != ST_OK) return false;
    bool stays = records_fingerprint(r) != 0; /* a look at a pipe would take its beginning */
    bool is = stays && records_next(r, &first, NULL) == ST_OK && first.value &&
              !json_is_string(json_object_get(first.value, "text")) && chat_form_of(first.value);
    json_decref(first.value);
    records_close(r);
    return is;
}
