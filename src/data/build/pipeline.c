/* See pipeline.h. Reading order: the cutter (long documents become parts), reading, writing, the
 * choice of what to do next, the loop of a thread. */
#include "data/build/pipeline.h"

#include <omp.h>
#include <pthread.h>
#include <stdlib.h>

/* A chunk is cut into parts of a document when it is longer than this many parts: a record of
 * JSONL that long is rare, while a text file is a single document however long it is. */
enum { LONG_RECORDS = 16, LONG_TEXT = 2 };

typedef enum task { TASK_WAIT, TASK_READ, TASK_ENCODE, TASK_WRITE, TASK_END } task;

/* The long documents of a chunk. The next one is read when no thread works on the text of the last:
 * it may stand in the same memory. */
typedef struct cutter {
    chunk *c; /* NULL: nothing to cut */
    document doc;
    size_t at, cut; /* bytes of the document that are in jobs; where the validation part begins */
    size_t loaded;  /* its bytes from the first part on up to here are in memory */
    size_t skip;    /* bytes of the first document that an earlier build has written */
} cutter;

typedef struct pipeline {
    const pipeline_options *o;
    reader *r;
    pthread_mutex_t reader_lock; /* the reader: chunks are taken while others are given back */
    uint64_t read_bytes, written_bytes; /* of text; under the same lock */
    pthread_mutex_t lock;               /* all that follows, and the states of jobs */
    pthread_cond_t changed;
    job *job; /* the ring */
    int n_jobs;
    uint64_t head, tail;  /* numbers of the next job to write, and to read */
    int n_ready, n_parts; /* jobs that wait; parts of the cutter's document not yet encoded */
    bool reading, writing, ended;
    cutter cut;        /* of the thread that reads */
    build_place place; /* of the thread that writes */
    status read_st;    /* what ended reading; counts after all jobs before it */
    err read_e;
    status st;
    err *e;
} pipeline;

static job *job_at(pipeline *p, uint64_t number) {
    return &p->job[number % (uint64_t)p->n_jobs];
}

/* ---- long documents ---- */

static void count_read(pipeline *p, size_t bytes) {
    pthread_mutex_lock(&p->reader_lock);
    p->read_bytes += bytes;
    pthread_mutex_unlock(&p->reader_lock);
}

/* Has the text in memory from what is there already up to `to`. */
static status load_to(cutter *c, size_t to, err *e) {
    if (to <= c->loaded) return ST_OK;
    TRY(chunk_need(c->c, c->doc.text + c->loaded, to - c->loaded, e));
    c->loaded = to;
    return ST_OK;
}

static status begin_document(pipeline *p, err *e) {
    cutter *c = &p->cut;
    const job_rules *rules = &p->o->rules;
    size_t from, to;
    c->at = c->loaded = c->skip <= c->doc.len ? c->skip : 0;
    c->skip = 0;
    data_split_range(c->doc.len, rules->valid_fraction, &from, &to);
    TRY(chunk_need(c->c, c->doc.text + from, to - from, e));
    c->cut = job_cut(rules, &c->doc);
    count_read(p, c->doc.len - c->at);
    return ST_OK;
}

static status cannot_cut(const pipeline *p, size_t limit, err *e) {
    const document *doc = &p->cut.doc;
    err_at(
        e, ST_FORMAT, doc->source,
        "%s: from byte %zu on there are more than %zu MiB that this tokenizer takes in one piece",
        doc->source, p->cut.at, limit >> 20);
    return err_hint(e, "divide the text into documents, as JSONL or as several files");
}

/* Where the part that begins at c->at ends: at the first place from part_bytes on where the
 * tokenizer allows a cut. What is looked at grows until there is one. */
static status find_end(pipeline *p, size_t range_to, size_t *to, err *e) {
    cutter *c = &p->cut;
    size_t left = range_to - c->at, looked = p->o->part_bytes, limit = reader_document_limit(p->r);
    for (size_t n = 2 * looked;; n *= 2) {
        if (n > left) n = left;
        TRY(load_to(c, c->at + n, e));
        size_t cut = tok_cut(p->o->rules.tok, c->doc.text + c->at, n, looked);
        *to = c->at + cut;
        if (cut < n || n == left) return cut > limit ? cannot_cut(p, limit, e) : ST_OK;
        if (n > limit) return cannot_cut(p, limit, e);
        looked = n;
    }
}

/* The next part of the cutter's chunk; at its end a job that ends it. Of a document that an earlier
 * build has written to its end there is none. */
static status next_part(pipeline *p, job *j, err *e) {
    cutter *c = &p->cut;
    while (c->at == c->doc.len) {
        if (!chunk_next(c->c, &c->doc)) {
            j->chunk[j->n_chunks++] = c->c;
            j->ends_parts = true;
            *c = (cutter){0};
            return ST_OK;
        }
        TRY(begin_document(p, e));
    }
    bool after = c->at >= c->cut;
    j->part = (job_part){.chunk = c->c,
                         .doc = c->doc,
                         .from = c->at,
                         .range_from = after ? c->cut : 0,
                         .range_to = after ? c->doc.len : c->cut,
                         .side = job_side_of(&p->o->rules, after)};
    TRY(find_end(p, j->part.range_to, &j->part.to, e));
    c->at = j->part.to;
    j->is_part = true;
    j->text_bytes = j->part.to - j->part.from;
    return ST_OK;
}

/* Labelled texts are encoded whole, each with what the tokenizer adds around it. */
static bool is_long(const pipeline *p, const chunk *c) {
    size_t parts = reader_is_text_only(p->r) ? LONG_TEXT : LONG_RECORDS;
    if (p->o->rules.labels.are_wanted && !chunk_is_partial(c)) return false;
    return p->cut.skip > 0 || chunk_is_partial(c) || chunk_bytes(c) > parts * p->o->part_bytes;
}

/* ---- reading ---- */

static chunk *next_chunk(pipeline *p, bool *ended) {
    chunk *c = NULL;
    pthread_mutex_lock(&p->reader_lock);
    p->read_st = reader_next_chunk(p->r, &c, &p->read_e);
    pthread_mutex_unlock(&p->reader_lock);
    *ended = p->read_st != ST_OK || !c;
    return *ended ? NULL : c;
}

/* Fills a job; false when the text has ended before it. */
static bool read_job(pipeline *p, job *j, bool *ended) {
    while (!p->cut.c && j->text_bytes < p->o->part_bytes && j->n_chunks < JOB_MAX_CHUNKS) {
        chunk *c = next_chunk(p, ended);
        if (!c) return j->n_chunks > 0;
        if (is_long(p, c)) {
            p->cut = (cutter){.c = c, .skip = p->cut.skip};
            break;
        }
        j->chunk[j->n_chunks++] = c;
        j->text_bytes += chunk_bytes(c);
        count_read(p, chunk_bytes(c));
    }
    if (j->n_chunks > 0) return true;
    j->st = next_part(p, j, &j->e);
    if (j->st != ST_OK) p->cut.at = p->cut.doc.len; /* this error ends the build */
    return true;
}

static void do_read(pipeline *p) {
    job *j = job_at(p, p->tail);
    bool ended = false;
    p->reading = true;
    pthread_mutex_unlock(&p->lock);
    job_clear(j);
    bool got = read_job(p, j, &ended);
    pthread_mutex_lock(&p->lock);
    p->reading = false;
    p->ended = ended;
    if (!got) return;
    j->state = JOB_READY;
    p->tail++;
    p->n_ready++;
    p->n_parts += j->is_part;
}

/* ---- encoding ---- */

static void do_encode(pipeline *p) {
    uint64_t n = p->head;
    while (job_at(p, n)->state != JOB_READY) n++;
    job *j = job_at(p, n);
    j->state = JOB_BUSY;
    p->n_ready--;
    pthread_mutex_unlock(&p->lock);
    job_encode(j, &p->o->rules);
    pthread_mutex_lock(&p->lock);
    j->state = JOB_DONE;
    p->n_parts -= j->is_part;
}

/* ---- writing ---- */

/* Gives a written job's chunks back; whether the build could go on from here. */
static status finish_job(pipeline *p, job *j, bool *can_resume, err *e) {
    status st = ST_OK;
    for (int i = 0; i < j->n_chunks; i++) {
        if (st == ST_OK) st = reader_done(p->r, j->chunk[i], &p->place.at, e);
        chunk_free(j->chunk[i]);
    }
    /* Inside a text file a build can be gone on with; inside a record of a chunk it cannot. */
    *can_resume = !j->is_part || j->part.doc.line == 0;
    p->place.document_bytes = j->is_part ? j->part.to : 0;
    if (j->is_part && j->part.doc.line == 0) chunk_forget(j->part.chunk, j->part.to);
    j->n_chunks = 0;
    return st;
}

static status write_job(pipeline *p, job *j, err *e) {
    bool can_resume;
    if (j->st != ST_OK) {
        *e = j->e;
        return j->st;
    }
    pthread_mutex_lock(&p->reader_lock);
    status st = finish_job(p, j, &can_resume, e);
    p->written_bytes += j->text_bytes;
    p->o->look(p->o->ctx, p->r, p->read_bytes - p->written_bytes);
    pthread_mutex_unlock(&p->reader_lock);
    TRY(st);
    return p->o->write(p->o->ctx, j, can_resume ? &p->place : NULL, e);
}

static void do_write(pipeline *p) {
    job *j = job_at(p, p->head);
    err e;
    p->writing = true;
    pthread_mutex_unlock(&p->lock);
    status st = write_job(p, j, &e);
    pthread_mutex_lock(&p->lock);
    p->writing = false;
    p->head++;
    j->state = JOB_FREE;
    if (st == ST_OK) return;
    p->st = st;
    *p->e = e;
}

/* ---- who does what ---- */

static bool can_read(const pipeline *p) {
    if (p->reading || p->ended || p->tail - p->head == (uint64_t)p->n_jobs) return false;
    return !p->cut.c || p->cut.at < p->cut.doc.len || p->n_parts == 0;
}

static task choose(pipeline *p) {
    bool empty = p->head == p->tail;
    if (p->st != ST_OK || (p->ended && empty)) return TASK_END;
    if (!p->writing && !empty && job_at(p, p->head)->state == JOB_DONE) return TASK_WRITE;
    if (p->n_ready == 0 && can_read(p)) return TASK_READ;
    return p->n_ready > 0 ? TASK_ENCODE : TASK_WAIT;
}

static void work(pipeline *p) {
    pthread_mutex_lock(&p->lock);
    for (task t; (t = choose(p)) != TASK_END;) {
        if (t == TASK_WAIT) {
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        if (t == TASK_READ) do_read(p);
        if (t == TASK_ENCODE) do_encode(p);
        if (t == TASK_WRITE) do_write(p);
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
}

/* ---- the whole ---- */

static void free_jobs(pipeline *p) {
    for (int i = 0; i < p->n_jobs; i++) job_free(&p->job[i]);
    chunk_free(p->cut.c);
    free(p->job);
}

status pipeline_run(reader *r, const pipeline_options *opt, err *e) {
    pipeline p = {.o = opt,
                  .r = r,
                  .reader_lock = PTHREAD_MUTEX_INITIALIZER,
                  .lock = PTHREAD_MUTEX_INITIALIZER,
                  .changed = PTHREAD_COND_INITIALIZER,
                  .n_jobs = opt->threads + opt->threads / 2 + 2,
                  .place = opt->begin,
                  .e = e};
    err scratch;
    if (!e) p.e = &scratch;
    p.cut.skip = opt->begin.document_bytes;
    p.job = xcalloc((size_t)p.n_jobs, sizeof *p.job);
    for (int i = 0; i < p.n_jobs; i++) job_init(&p.job[i]);
#pragma omp parallel num_threads(opt->threads)
    {
        /* A team of one is not "in parallel" for the tokenizer, which would start one of its own.
         */
        omp_set_num_threads(1);
        work(&p);
    }
    free_jobs(&p);
    if (p.st != ST_OK || p.read_st == ST_OK) return p.st;
    *p.e = p.read_e;
    return p.read_st;
}
