/* See reference.h. Reading order: reference_prepare, fill_set, compute, the file. */
#include "train/reference.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "train/execute.h"

/* A file is written so many times while it grows; seconds between lines that say how far it is. */
enum { WRITES = 16, TELL_S = 15 };

double reference_logp(const reference_set *set, const loader *l, uint64_t sample) {
    uint64_t at = sequence_index_of(&set->index, l, sample);
    return at < set->index.n ? set->logp[at] : 0;
}

status reference_check(const reference_set *set, const loader *l, err *e) {
    if (sequence_index_fits(&set->index, l)) return ST_OK;
    err_set(e, ST_FAILED, "the data have changed since the reference looked at them");
    return err_hint(e, "start the same command again: the reference then looks at those of now");
}

bool reference_is_kept(const setup *u) {
    return u->objective->reference && u->c->train.reference_cache;
}

/* ---- one set ---- */

typedef struct work {
    session *s;
    const course_stage *stage;
    loader *l; /* its sequences in order */
    reference_set *set;
    const char *path; /* of the file */
    json_t *what;     /* what the values are of, without the digest of weights */
    uint64_t done;    /* values that are known */
    plan *plan;       /* of the reference alone; NULL: it was not needed yet */
    uint64_t weights; /* digest */
    int64_t told_ns;  /* when a line last said how far it is */
} work;

/* ---- the file ---- */

uint64_t reference_identity(const setup *u, const char *path) {
    arena *a = arena_new("weights of the reference");
    uint64_t hash = 0;
    char **names;
    int n = 0;
    err unread;
    file_identity f;
    if (path && !file_is_dir(path) && file_identity_of(path, &f)) {
        const uint64_t one[] = {f.bytes, (uint64_t)f.modified_ns};
        hash = hash_bytes(one, sizeof one);
    }
    if (!path || file_list_dir(a, path, &names, &n, &unread) != ST_OK) n = 0;
    for (int i = 0; i < n; i++) {
        if (!strstr(names[i], ".safetensors") ||
            !file_identity_of(path_join(a, path, names[i]), &f))
            continue;
        const uint64_t one[] = {hash, hash_bytes(names[i], strlen(names[i])), f.bytes,
                                (uint64_t)f.modified_ns};
        hash = hash_bytes(one, sizeof one);
    }
    arena_free(a);
    return (uint64_t)peers_first(&u->peers, (int64_t)hash);
}

static json_t *describe(const work *w) {
    json_t *sources = json_array();
    for (int i = 0; i < loader_n_sources(w->l); i++) {
        const shards *s = loader_source_shards(w->l, i);
        json_array_append_new(sources, json_pack("{s:o,s:o}", "path", json_cstr(s->dir),
                                                 "fingerprint", json_hash(s->fingerprint)));
    }
    const config *c = w->stage->c;
    const setup *u = &w->s->setup;
    const char *from = c->train.reference ? u->reference.config.from : u->models[0].from;
    return json_pack("{s:o,s:o,s:o,s:i,s:s,s:b,s:I}", "reference", json_cstr(from ? from : ""),
                     "files", json_hash(reference_identity(u, from)), "sources", sources, "seq_len",
                     w->stage->T, "precision", dtype_name(setup_compute(w->s->setup.c)),
                     "document_mask", (int)c->data.document_mask, "sequences",
                     (json_int_t)w->set->index.n);
}

static const char *path_of(const work *w) {
    char *text = json_dumps(w->what, JSON_SORT_KEYS), name[17];
    hash_format(hash_bytes(text, strlen(text)), name);
    free(text);
    return arena_printf(w->s->setup.a, "%s/reference/%s.logp", w->s->setup.c->run, name);
}

static status write_file(const work *w, err *e) {
    size_t bytes = (size_t)w->done * sizeof *w->set->logp;
    strbuf b = {0};
    json_t *o = json_deep_copy(w->what);
    json_object_update_new(o, json_pack("{s:o,s:I,s:o}", "weights", json_hash(w->weights), "done",
                                        (json_int_t)w->done, "checksum",
                                        json_hash(hash_bytes(w->set->logp, bytes))));
    json_format(&b, o, 0);
    strbuf_puts(&b, "\n");
    strbuf_append(&b, w->set->logp, bytes);
    json_decref(o);
    status st = file_write_atomic(w->path, strbuf_cstr(&b), b.len, e);
    strbuf_free(&b);
    return st;
}

/* Takes the values that a file has, if they are of the same set. A file that is damaged has none. */
static void take_values(work *w, const char *data, size_t len) {
    const char *end = memchr(data, '\n', len);
    json_t *o = end ? json_loadb(data, (size_t)(end - data), JSON_REJECT_DUPLICATES, NULL) : NULL;
    json_int_t done = json_integer_value(json_object_get(o, "done"));
    uint64_t checksum, weights;
    bool told = hash_parse(json_string_value(json_object_get(o, "checksum")), &checksum) &&
                hash_parse(json_string_value(json_object_get(o, "weights")), &weights);
    json_object_del(o, "done");
    json_object_del(o, "checksum");
    json_object_del(o, "weights");
    size_t left = end ? len - (size_t)(end + 1 - data) : 0;
    if (told && json_equal(o, w->what) && done >= 0 && (uint64_t)done <= w->set->index.n &&
        left == (size_t)done * sizeof *w->set->logp && hash_bytes(end + 1, left) == checksum) {
        memcpy(w->set->logp, end + 1, left);
        w->done = (uint64_t)done;
        w->weights = weights;
    }
    json_decref(o);
}

static status read_file(work *w, err *e) {
    char *data;
    size_t len;
    if (!file_exists(w->path)) return ST_OK;
    TRY(file_read_part(w->path, FILE_TEXT_MAX_BYTES, &data, &len, e));
    take_values(w, data, len);
    free(data);
    return ST_OK;
}

/* ---- values ---- */

static int rows_of(const work *w) {
    const objective *o = w->s->setup.objective;
    return w->stage->B / o->sequences * o->learned;
}

static status open_model(work *w, err *e) {
    setup *u = &w->s->setup;
    plan_spec spec = {.model = u->reference.config,
                      .compute = setup_compute(u->c),
                      .T = w->stage->T,
                      .valid_B = rows_of(w),
                      .document_mask = w->stage->c->data.document_mask,
                      .chunk_rows = w->stage->c->train.head_chunk_rows,
                      .chunks = (int)(u->c->parallel.pp * u->c->parallel.virtual),
                      .pp_schedule = u->c->parallel.pp_schedule,
                      .micro_batches =
                          u->c->parallel.pp, /* a whole group, where stages take groups */
                      .ranks = peers_ranks(&u->peers) > 1 ? &u->peers.m : NULL,
                      .sequence_parallel = u->c->parallel.sp,
                      .async_products = u->c->parallel.tp_async,
                      .sharing = {.shards = 1}};
    uint64_t before = w->weights;
    TRY(plan_new(&w->plan, u->dev, &spec, e));
    TRY(plan_check_fits(w->plan, u->c->train.memory_limit, e));
    TRY(plan_commit(w->plan, e));
    TRY(setup_make_reference(u, w->plan->store, &u->models[0], e));
    w->weights = (uint64_t)peers_first(&u->peers, (int64_t)param_digest(w->plan->store));
    if (w->done > 0 && w->weights != before) w->done = 0; /* they are of other weights */
    return ST_OK;
}

/* The sums of the sequences of a micro-batch from `first` on; 0 behind the last one, and on stages
 * without the last layers. */
static void look(const work *w, const execute_chunks *k, const batch_rows *r, uint64_t first,
                 double *sums) {
    const batch_ports *last = &k->chunk[k->n - 1];
    loader_fill(w->l, first, r->B, r->ids, r->targets, r->start, r->pos, NULL);
    execute_forward(&w->s->setup, k, r);
    if (!last->p) return;
    batch_take_nll(last, 0, r);
    for (int b = 0; b < r->B; b++) sums[b] = batch_row_logp(r, r->nll, b);
}

/* Programs of the reference, of this stage. */
static execute_chunks chunks_of(const work *w, arena *a) {
    int n = plan_stages(w->plan) > 1 ? plan_chunks(w->plan) : 1;
    batch_ports *chunk = ARENA_ARRAY(a, batch_ports, n);
    for (int c = 0; c < n; c++) chunk[c] = batch_ports_of(plan_prog(w->plan, USE_VALID, c));
    return (execute_chunks){.plan = w->plan, .chunk = chunk, .n = n};
}

/* Adds what all ranks have found; each has its own rows, and 0 elsewhere. Bits are added, so that they
 * stay what they are. */
static void share(const work *w, uint64_t n) {
    peers_sum_counts(&w->s->setup.peers, (int64_t *)(void *)(w->set->logp + w->done), (int)n,
                     "what the reference says");
    peers_tell_stages(&w->s->setup.peers, w->set->logp + w->done,
                      (int64_t)(n * sizeof *w->set->logp));
}

static status stop_now(const work *w, err *e) {
    err_set(
        e, ST_STOPPED,
        "stopped before the first step: what the reference says of %lu of %lu sequences is kept",
        (unsigned long)w->done, (unsigned long)w->set->index.n);
    return err_hint(e, "start the same command again to go on");
}

static void tell(work *w) {
    if (!setup_leads(&w->s->setup) || clock_since_s(w->told_ns) < TELL_S) return;
    w->told_ns = clock_now_ns();
    log_info("the reference has looked at %lu of %lu", (unsigned long)w->done,
             (unsigned long)w->set->index.n);
}

/* Each round, every data-parallel rank looks at a micro-batch. */
static status compute(work *w, err *e) {
    setup *u = &w->s->setup;
    arena *a = arena_new("reference");
    execute_chunks k = chunks_of(w, a);
    batch_rows r = batch_rows_new(a, rows_of(w), w->stage->T, w->stage->c->data.document_mask,
                                  &w->s->setup.reference.config);
    uint64_t B = (uint64_t)r.B, round = B * (uint64_t)u->peers.m.size[MESH_DP], written = w->done;
    double *sums = ARENA_ARRAY(a, double, B);
    status st = ST_OK;
    while (st == ST_OK && w->done < w->set->index.n) {
        uint64_t n = w->set->index.n - w->done < round ? w->set->index.n - w->done : round;
        uint64_t own = (uint64_t)u->peers.m.rank[MESH_DP] * B;
        look(w, &k, &r, w->done + own, sums);
        for (uint64_t i = 0; i < n; i++)
            w->set->logp[w->done + i] = i >= own && i - own < B ? sums[i - own] : 0;
        share(w, n);
        w->done += n;
        tell(w);
        st = loader_error(w->l, e);
        bool stop =
            peers_any(&u->peers, w->s->opt->stop && *w->s->opt->stop) && w->done < w->set->index.n;
        bool due =
            stop || w->done == w->set->index.n || w->done - written >= w->set->index.n / WRITES + 1;
        if (st == ST_OK && due) {
            st = peers_agree(&u->peers, setup_leads(u) ? write_file(w, e) : ST_OK, e);
            written = w->done;
        }
        if (st == ST_OK && stop) st = stop_now(w, e);
    }
    arena_free(a);
    return st;
}

/* ---- all sets ---- */

static void index_sources(work *w) {
    w->set->index = sequence_index_new(w->s->setup.a, w->l);
    w->set->logp = ARENA_ARRAY(w->s->setup.a, double, w->set->index.n);
}

/* Every rank reads the file. Where one does not see what rank 0 sees, all begin anew. */
static status take_file(work *w, err *e) {
    setup *u = &w->s->setup;
    const char *dir = path_join(u->a, u->c->run, "reference");
    TRY(peers_agree(&u->peers, setup_leads(u) ? file_make_dirs(dir, e) : ST_OK, e));
    TRY(peers_agree(&u->peers, read_file(w, e), e));
    bool same = w->done == (uint64_t)peers_first(&u->peers, (int64_t)w->done);
    if (peers_any(&u->peers, !same)) w->done = 0;
    return ST_OK;
}

static status fill_set(work *w, err *e) {
    setup *u = &w->s->setup;
    index_sources(w);
    w->what = describe(w);
    w->path = path_of(w);
    status st = take_file(w, e);
    if (st == ST_OK && w->done < w->set->index.n) {
        if (setup_leads(u))
            log_info("the reference looks at %lu sequence%s before training",
                     (unsigned long)(w->set->index.n - w->done),
                     text_s((int64_t)(w->set->index.n - w->done)));
        w->told_ns = clock_now_ns();
        st = peers_agree(&u->peers, open_model(w, e), e);
        if (st == ST_OK) st = compute(w, e);
        plan_free(w->plan);
    }
    json_decref(w->what);
    return st;
}

static status prepare(session *s, int number, err *e) {
    setup *u = &s->setup;
    const course_stage *k = &u->course->stage[number];
    for (int valid = 0; valid < 2; valid++) {
        reference_sets *sets = &u->references[number];
        work w = {.s = s, .stage = k, .set = valid ? &sets->valid : &sets->train};
        status st = valid ? stage_data_open_valid(&s->data, k->c, &w.l, e)
                          : stage_data_open_in_order(&s->data, k->c, number, &w.l, e);
        if (st != ST_OK && number > 0)
            err_hint(e, "train.reference_cache=false goes without the data of later stages");
        TRY(st);
        if (!w.l) continue;
        st = fill_set(&w, e);
        loader_close(w.l);
        TRY(st);
    }
    return ST_OK;
}

status reference_prepare(session *s, err *e) {
    setup *u = &s->setup;
    if (!u->knows_reference) return ST_OK;
    u->references = ARENA_ARRAY(u->a, reference_sets, u->course->n_stages);
    for (int i = 0; i < u->course->n_stages; i++) TRY(prepare(s, i, e));
    return ST_OK;
}
