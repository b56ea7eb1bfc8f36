/* See lessons.h. Reading order: lessons_prepare, fill_set, compute, the file; then lessons_take. */
#include "train/lessons.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/file_fault.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "train/distill.h"
#include "train/session.h"

/* Tokens that the teacher reads in a pass, about; NAME.json is written so many times; seconds between lines that say how far it
 * is. */
enum { PASS_TOKENS = 1024, WRITES = 16, TELL_S = 15, CHECKSUM_BYTES = 8 };

int lessons_stored(const config *c, int64_t vocab) {
    if (!c->distill.teacher || !c->distill.store) return 0;
    return (int)(c->distill.top_k < vocab ? c->distill.top_k : vocab);
}

/* ---- records ---- */

lesson_format lesson_format_of(int T, int k, int64_t vocab) {
    lesson_format f = {.T = T, .k = k, .id_bytes = vocab <= 65536 ? 2 : 4};
    f.bytes = (size_t)T * (size_t)k * (sizeof(uint16_t) + (size_t)f.id_bytes) + CHECKSUM_BYTES;
    return f;
}

int64_t lessons_host_bytes(const config *c, int64_t vocab, int B, int T) {
    int k = lessons_stored(c, vocab);
    int64_t each = (int64_t)(sizeof(float) + sizeof(int32_t));
    return k ? (int64_t)B * T * k * each + (int64_t)lesson_format_of(T, k, vocab).bytes : 0;
}

static double log_sum_exp(const float *x, int64_t n) {
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
    for (int64_t i = 0; i < n; i++) sum += (double)expf(x[i] - most);
    return (double)most + log(sum);
}

static uint8_t *ids_in(const lesson_format *f, uint8_t *record) {
    return record + (size_t)f->T * (size_t)f->k * sizeof(uint16_t);
}

static size_t checked_bytes(const lesson_format *f) {
    return f->bytes - CHECKSUM_BYTES;
}

/* Of token t. A token that is -inf for the teacher is stored so. */
static void pack_token(const lesson_format *f, int64_t t, const float *logits, int64_t vocab,
                       uint8_t *record) {
    double lse = log_sum_exp(logits, vocab);
    float *room = xcalloc((size_t)f->k, sizeof *room);
    int32_t *best = xcalloc((size_t)f->k, sizeof *best);
    distill_best(logits, vocab, f->k, room, best);
    for (int64_t i = 0; i < f->k; i++) {
        int64_t at = t * f->k + i;
        uint16_t p = f32_to_f16((float)((double)logits[best[i]] - lse)), id = (uint16_t)best[i];
        memcpy(record + at * (int64_t)sizeof p, &p, sizeof p);
        memcpy(ids_in(f, record) + at * f->id_bytes, f->id_bytes == 2 ? (void *)&id : &best[i],
               (size_t)f->id_bytes);
    }
    free(room);
    free(best);
}

void lessons_pack(const lesson_format *f, const float *logits, int64_t vocab, uint8_t *record) {
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < f->T; t++) pack_token(f, t, logits + t * vocab, vocab, record);
    uint64_t sum = hash_bytes(record, checked_bytes(f));
    memcpy(record + checked_bytes(f), &sum, sizeof sum);
}

status lessons_unpack(const lesson_format *f, const uint8_t *record, int64_t vocab, float *logp,
                      int32_t *tokens, err *e) {
    uint64_t sum, is = hash_bytes(record, checked_bytes(f));
    memcpy(&sum, record + checked_bytes(f), sizeof sum);
    bool good = sum == is;
    const uint8_t *ids = ids_in(f, (uint8_t *)record);
    for (int64_t i = 0; good && i < (int64_t)f->T * f->k; i++) {
        uint16_t p, narrow = 0;
        uint32_t wide = 0;
        memcpy(&p, record + i * (int64_t)sizeof p, sizeof p);
        memcpy(f->id_bytes == 2 ? (void *)&narrow : &wide, ids + i * f->id_bytes,
               (size_t)f->id_bytes);
        uint32_t id = f->id_bytes == 2 ? narrow : wide;
        logp[i] = f16_to_f32(p);
        tokens[i] = (int32_t)id;
        good = id < vocab;
    }
    return good ? ST_OK : err_set(e, ST_FORMAT, "what the teacher said is damaged");
}

/* ---- one set ---- */

typedef struct work {
    session *s;
    const course_stage *stage;
    loader *l; /* its sequences in order */
    lesson_set *set;
    const char *about; /* path of NAME.json */
    json_t *what;      /* what the records are of, without files, weights and done */
    uint64_t files;    /* identity of the teacher's files */
    uint64_t weights;  /* digest of what said it */
    uint64_t done;     /* records that are there */
    plan *plan;        /* of the teacher alone; NULL: it was not needed yet */
    int64_t told_ns;   /* when a line last said how far it is */
} work;

static int64_t vocab_of(const work *w) {
    return w->s->setup.models[0].vocab_size;
}

/* ---- the file ---- */

/* The data, and how they are cut. */
static json_t *describe_data(const work *w) {
    json_t *sources = json_array();
    for (int i = 0; i < loader_n_sources(w->l); i++)
        json_array_append_new(sources, json_hash(loader_source_shards(w->l, i)->fingerprint));
    static const char *const packings[] = {LOADER_PACKINGS(LIST_WORD)};
    const config *c = w->stage->c;
    return json_pack("{s:o,s:i,s:s,s:o,s:b,s:I}", "sources", sources, "seq_len", w->stage->T,
                     "packing", packings[loader_get_packing(w->l)], "order",
                     config_get_json(c, "data.order"), "document_mask", (int)c->data.document_mask,
                     "sequences", (json_int_t)w->set->index.n);
}

static void describe(work *w) {
    const setup *u = &w->s->setup;
    char name[17];
    w->what = describe_data(w);
    char *text = json_dumps(w->what, JSON_SORT_KEYS);
    hash_format(hash_bytes(text, strlen(text)), name);
    free(text);
    w->about = arena_printf(u->a, "%s/%s.json", u->c->distill.store, name);
    w->set->path = arena_printf(u->a, "%s/%s.logp", u->c->distill.store, name);
    json_object_update_new(w->what, json_pack("{s:i,s:o,s:I,s:s}", "top_k", w->set->format.k,
                                              "tokenizer", json_hash(u->tok ? tok_hash(u->tok) : 0),
                                              "vocabulary", (json_int_t)vocab_of(w), "precision",
                                              dtype_name(setup_compute(u->c))));
    w->files = reference_identity(u, u->c->distill.teacher);
}

static status write_about(const work *w, err *e) {
    strbuf b = {0};
    json_t *o = json_deep_copy(w->what);
    json_object_update_new(o, json_pack("{s:o,s:o,s:I}", "files", json_hash(w->files), "weights",
                                        json_hash(w->weights), "done", (json_int_t)w->done));
    json_format(&b, o, 0);
    json_decref(o);
    status st = file_write_atomic(w->about, strbuf_cstr(&b), b.len, e);
    strbuf_free(&b);
    return st;
}

static status refuse(const work *w, const char *what, err *e) {
    config_error(w->s->setup.c, e, "distill.store", "%s is of %s", w->about, what);
    return err_hint(e, "another folder in distill.store, or remove this file, and it is made anew");
}

/* Sets done, weights, and whether the teacher's files are those of then. */
static status read_about(work *w, bool *same_files, err *e) {
    json_t *o;
    *same_files = false;
    if (!file_exists(w->about)) return ST_OK;
    TRY(json_read_file(&o, w->about, JSON_FILE_MAX_BYTES, e));
    const char *key, *other = NULL;
    json_t *value;
    uint64_t files = 0;
    json_object_foreach(
        w->what, key, value) if (!other && !json_equal(value, json_object_get(o, key))) other = key;
    json_int_t done = json_integer_value(json_object_get(o, "done"));
    bool told = hash_parse(json_string_value(json_object_get(o, "files")), &files) &&
                hash_parse(json_string_value(json_object_get(o, "weights")), &w->weights);
    json_decref(o);
    if (other) return refuse(w, arena_printf(w->s->setup.a, "another %s", other), e);
    bool whole = told && done >= 0 && (uint64_t)done <= w->set->index.n &&
                 file_size(w->set->path) >= done * (int64_t)w->set->format.bytes;
    if (!whole) return ST_OK; /* begins anew */
    w->done = (uint64_t)done;
    *same_files = files == w->files;
    return ST_OK;
}

static status open_records(work *w, err *e) {
    const peers *p = &w->s->setup.peers;
    lesson_set *set = w->set;
    bool leads = setup_leads(&w->s->setup);
    TRY(peers_agree(p, leads ? file_make_dirs(w->s->setup.c->distill.store, e) : ST_OK, e));
    for (int turn = 0; turn < 2; turn++) { /* rank 0 first, which makes the file */
        status st = ST_OK;
        if (leads == (turn == 0))
            set->fd = open(set->path, O_RDWR | O_CLOEXEC | (leads ? O_CREAT : 0), 0666);
        if (leads == (turn == 0) && set->fd < 0)
            st = err_errno(e, set->path, "cannot open %s", set->path);
        TRY(peers_agree(p, st, e));
    }
    return ST_OK;
}

static status write_record(const lesson_set *set, uint64_t number, err *e) {
    size_t left = set->format.bytes;
    off_t at = (off_t)(number * set->format.bytes);
    for (const uint8_t *from = set->room; left > 0;) {
        ssize_t n = file_sys_pwrite(set->fd, from, left, at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return err_errno(e, set->path, "cannot write %s", set->path);
        from += n, at += n, left -= (size_t)n;
    }
    return ST_OK;
}

/* ---- the teacher ---- */

static int rows_of(const work *w) {
    int rows = PASS_TOKENS / w->stage->T;
    return rows < 1 ? 1 : rows < w->stage->B ? rows : w->stage->B;
}

static status open_teacher(work *w, err *e) {
    setup *u = &w->s->setup;
    plan_spec spec = {.model = u->reference.config,
                      .compute = setup_compute(u->c),
                      .T = w->stage->T,
                      .valid_B = rows_of(w),
                      .teaches = true,
                      .document_mask = w->stage->c->data.document_mask,
                      .ranks = peers_ranks(&u->peers) > 1 ? &u->peers.m : NULL,
                      .sharing = {.shards = 1}};
    TRY(plan_new(&w->plan, u->dev, &spec, e));
    TRY(plan_check_fits(w->plan, u->c->train.memory_limit, e));
    TRY(plan_commit(w->plan, e));
    TRY(distill_load(u, w->plan->store, e));
    uint64_t before = w->weights;
    w->weights = param_digest(w->plan->store);
    if (w->done > 0 && w->weights != before) return refuse(w, "another teacher", e);
    return ST_OK;
}

/* n sequences from `first` on; records of them are written. */
static status look(const work *w, const batch_ports *io, const batch_rows *r, uint64_t first, int n,
                   err *e) {
    setup *u = &w->s->setup;
    op_run run = {.dev = u->dev, .mesh = &u->peers.m, .first_micro = true};
    int64_t vocab = vocab_of(w);
    size_t bytes = (size_t)io->score.bytes;
    status st = ST_OK;
    if (n <= 0) return ST_OK;
    loader_fill(w->l, first, n, r->ids, r->targets, r->start, r->pos, NULL);
    batch_put(io, 0, r);
    prog_replay(io->p, PROG_ALL, &run);
    void *logits = prog_port_at(io->p, 0, io->score);
    dev_room room = {0};
    const float *host = dev_borrow(u->dev, logits, bytes, true, &room);
    for (int b = 0; b < n && st == ST_OK; b++) {
        lessons_pack(&w->set->format, host + (int64_t)b * r->T * vocab, vocab, w->set->room);
        st = write_record(w->set, first + (uint64_t)b, e);
    }
    dev_put_back(u->dev, logits, (float *)host, bytes);
    dev_room_free(&room);
    return st;
}

static status stop_now(const work *w, err *e) {
    err_set(e, ST_STOPPED,
            "stopped before the first step: what the teacher says of %lu of %lu sequences is kept",
            (unsigned long)w->done, (unsigned long)w->set->index.n);
    return err_hint(e, "start the same command again to go on");
}

static void tell(work *w) {
    if (!setup_leads(&w->s->setup) || clock_since_s(w->told_ns) < TELL_S) return;
    w->told_ns = clock_now_ns();
    log_info("the teacher has looked at %lu of %lu", (unsigned long)w->done,
             (unsigned long)w->set->index.n);
}

/* What was written is on disk before NAME.json says so. */
static status keep(const work *w, err *e) {
    const setup *u = &w->s->setup;
    status st =
        fdatasync(w->set->fd) ? err_errno(e, w->set->path, "cannot write %s", w->set->path) : ST_OK;
    TRY(peers_agree(&u->peers, st, e));
    return peers_agree(&u->peers, setup_leads(u) ? write_about(w, e) : ST_OK, e);
}

/* Each round, every data-parallel rank looks at a micro-batch. */
static status compute(work *w, err *e) {
    setup *u = &w->s->setup;
    arena *a = arena_new("lessons");
    batch_ports io = batch_ports_of(plan_prog(w->plan, USE_VALID, 0));
    batch_rows r = batch_rows_new(a, rows_of(w), w->stage->T, w->stage->c->data.document_mask,
                                  &u->reference.config);
    uint64_t all = w->set->index.n, B = (uint64_t)r.B;
    uint64_t round = B * (uint64_t)u->peers.m.size[MESH_DP], written = w->done;
    status st = ST_OK;
    while (st == ST_OK && w->done < all) {
        uint64_t own = w->done + (uint64_t)u->peers.m.rank[MESH_DP] * B;
        uint64_t left = own < all ? all - own : 0;
        st = look(w, &io, &r, own, (int)(left < B ? left : B), e);
        if (st == ST_OK) st = loader_error(w->l, e);
        st = peers_agree(&u->peers, st, e);
        w->done = all - w->done < round ? all : w->done + round;
        tell(w);
        bool stop = peers_any(&u->peers, w->s->opt->stop && *w->s->opt->stop) && w->done < all;
        bool due = stop || w->done == all || w->done - written >= all / WRITES + 1;
        if (st == ST_OK && due) st = keep(w, e), written = w->done;
        if (st == ST_OK && stop) st = stop_now(w, e);
    }
    arena_free(a);
    return st;
}

/* ---- all sets ---- */

static status complete(work *w, bool same_files, err *e) {
    setup *u = &w->s->setup;
    uint64_t all = w->set->index.n;
    if (w->done == all && same_files) return ST_OK;
    if (setup_leads(u) && w->done < all)
        log_info("the teacher looks at %lu sequence%s before training: %.1f MB in %s",
                 (unsigned long)(all - w->done), text_s((int64_t)(all - w->done)),
                 (double)(all - w->done) * (double)w->set->format.bytes / 1e6, w->set->path);
    w->told_ns = clock_now_ns();
    TRY(peers_agree(&u->peers, open_teacher(w, e), e));
    return w->done < all ? compute(w, e) : keep(w, e);
}

/* All ranks read the same files; where one does not see what rank 0 sees, the folder is not shared. */
static status fill_set(work *w, err *e) {
    setup *u = &w->s->setup;
    lesson_set *set = w->set;
    bool same_files;
    set->index = sequence_index_new(u->a, w->l);
    set->format = lesson_format_of(w->stage->T, lessons_stored(u->c, vocab_of(w)), vocab_of(w));
    set->room = ARENA_ARRAY(u->a, uint8_t, set->format.bytes);
    set->fault = ARENA_ARRAY(u->a, err, 1);
    describe(w);
    TRY(open_records(w, e));
    TRY(peers_agree(&u->peers, read_about(w, &same_files, e), e));
    bool differs = w->done != (uint64_t)peers_first(&u->peers, (int64_t)w->done);
    if (peers_any(&u->peers, differs)) {
        config_error(u->c, e, "distill.store", "the ranks do not see the same files in %s",
                     u->c->distill.store);
        return err_hint(e, "name a folder that all machines share");
    }
    return complete(w, same_files, e);
}

static status prepare(session *s, int number, err *e) {
    setup *u = &s->setup;
    const course_stage *k = &u->course->stage[number];
    work w = {.s = s, .stage = k, .set = &u->lessons[number]};
    status st = stage_data_open_in_turn(&s->data, k->c, number, &w.l, e);
    if (st != ST_OK && number > 0)
        err_hint(e, "without distill.store the teacher needs no data of later stages");
    TRY(st);
    st = fill_set(&w, e);
    plan_free(w.plan);
    json_decref(w.what);
    loader_close(w.l);
    return st;
}

status lessons_prepare(session *s, err *e) {
    setup *u = &s->setup;
    if (!lessons_stored(u->c, u->models[0].vocab_size)) return ST_OK;
    int n = u->course->n_stages;
    u->lessons = ARENA_ARRAY(u->a, lesson_set, n);
    for (int i = 0; i < n; i++) u->lessons[i].fd = -1;
    for (int i = 0; i < n; i++) TRY(prepare(s, i, e));
    return ST_OK;
}

void lessons_close(setup *u) {
    for (int i = 0; u->lessons && i < u->course->n_stages; i++)
        if (u->lessons[i].fd >= 0) close(u->lessons[i].fd);
}

/* ---- in a step ---- */

static status take(const lesson_set *set, uint64_t number, float *logp, int32_t *tokens,
                   int64_t vocab, err *e) {
    const lesson_format *f = &set->format;
    ssize_t n = file_read_at(set->fd, set->room, f->bytes, number * f->bytes);
    if (n < 0) return err_errno(e, set->path, "cannot read %s", set->path);
    status st = (size_t)n < f->bytes ? err_set(e, ST_FORMAT, "%s has become shorter", set->path)
                                     : lessons_unpack(f, set->room, vocab, logp, tokens, e);
    if (st == ST_OK) return ST_OK;
    err_where(e, "%s, sequence %lu", set->path, (unsigned long)number);
    return err_hint(e, "remove this file: what the teacher says is then stored anew");
}

void lessons_take(const lesson_set *set, const loader *l, uint64_t first, const batch_rows *rows,
                  int64_t vocab) {
    int64_t each = (int64_t)rows->T * rows->k;
    for (int b = 0; b < rows->B; b++) {
        uint64_t number = sequence_index_of(&set->index, l, first + (uint64_t)b);
        err e = {0};
        if (number >= set->index.n) continue;
        status st = take(set, number, rows->taught + b * each, rows->tokens + b * each, vocab, &e);
        if (st != ST_OK && set->fault->code == ST_OK) *set->fault = e;
    }
}

status lessons_check(const lesson_set *set, const loader *l, err *e) {
    if (!set) return ST_OK;
    if (set->fault->code != ST_OK) {
        if (e) *e = *set->fault;
        return set->fault->code;
    }
    if (sequence_index_fits(&set->index, l)) return ST_OK;
    err_set(e, ST_FAILED, "the data have changed since the teacher looked at them");
    return err_hint(e, "start the same command again: the teacher then looks at those of now");
}
