/* See resample.h. */
#include "train/course/resample.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_fault.h"
#include "base/json.h"
#include "base/rng.h"
#include "train/objective/objective.h"

bool resample_cuts_once(const config *c) {
    return c->distill.store || c->data.resample.keep_losses || c->data.resample.share < 1;
}

/* Stages of another run in which losses are looked for. */
enum { MOST_STAGES = 1000 };

/* ---- the file ---- */

/* The name is of the data and how they are cut. */
static const char *path_of(arena *a, const char *run, const config *c, const loader *l, int stage) {
    const uint64_t cut[] = {sequence_index_new(a, l).data, (uint64_t)loader_seq_len(l),
                            (uint64_t)loader_source_len(l), (uint64_t)loader_get_packing(l),
                            (uint64_t)c->data.order};
    char name[17];
    hash_format(hash_bytes(cut, sizeof cut), name);
    return arena_printf(a, "%s/losses/%s-%d.f32", run, name, stage);
}

static status check_run(const config *c, err *e) {
    const objective *o = objective_of(c);
    if (!o->loss && !o->head) return ST_OK;
    config_error(c, e, "data.resample", "train.objective=%s has no loss of single sequences",
                 o->name);
    return err_hint(e, "data.resample goes with train.objective=lm and sft");
}

status resample_open(resample_losses *r, arena *a, const char *run, const config *c, int stage,
                     const loader *l, bool begins, err *e) {
    *r = (resample_losses){.fd = -1};
    if (!c->data.resample.keep_losses) return ST_OK;
    TRY(check_run(c, e));
    TRY(file_make_dirs(arena_printf(a, "%s/losses", run), e));
    r->index = sequence_index_new(a, l);
    r->path = path_of(a, run, c, l, stage);
    r->fd = open(r->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    off_t bytes = (off_t)(r->index.n * sizeof(float));
    bool good =
        r->fd >= 0 && (!begins || (ftruncate(r->fd, 0) == 0 && ftruncate(r->fd, bytes) == 0));
    return good ? ST_OK : err_errno(e, r->path, "cannot write %s", r->path);
}

void resample_close(resample_losses *r) {
    if (r->path && r->fd >= 0) close(r->fd);
    *r = (resample_losses){.fd = -1};
}

void resample_note(resample_losses *r, const loader *l, uint64_t sample, double loss) {
    uint64_t at = sequence_index_of(&r->index, l, sample);
    float x = (float)loss;
    if (at >= r->index.n || r->fault.code != ST_OK) return;
    if (file_sys_pwrite(r->fd, &x, sizeof x, (off_t)(at * sizeof x)) != (ssize_t)sizeof x)
        err_errno(&r->fault, r->path, "cannot write %s", r->path);
}

/* 0 stands where no step has seen the sequence yet. */
static bool is_known(float loss) {
    return isfinite(loss) && loss > 0;
}

/* What is known after the stages before: the latest counts. *any: there is such a file. */
static status read_losses(arena *a, const char *run, const config *c, int stages, const loader *l,
                          float *loss, uint64_t n, bool *any, err *e) {
    for (int i = 0; i < stages; i++) {
        const char *path = path_of(a, run, c, l, i);
        char *data;
        size_t len;
        if (!file_exists(path)) continue;
        TRY(file_read_part(path, FILE_TEXT_MAX_BYTES, &data, &len, e));
        *any = true;
        for (uint64_t k = 0; k < n && (k + 1) * sizeof *loss <= len; k++) {
            float x;
            memcpy(&x, data + k * sizeof x, sizeof x);
            if (is_known(x)) loss[k] = x;
        }
        free(data);
    }
    return ST_OK;
}

/* ---- the draw ---- */

typedef struct lot {
    double key;
    uint32_t sequence;
} lot;

static int larger_first(const void *a, const void *b) {
    const lot *x = a, *y = b;
    if (x->key != y->key) return x->key > y->key ? -1 : 1;
    return x->sequence < y->sequence ? -1 : 1;
}

static int smaller_first(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double mean_known(const float *loss, uint64_t n) {
    double sum = 0;
    uint64_t known = 0;
    for (uint64_t i = 0; i < n; i++)
        if (is_known(loss[i])) sum += (double)loss[i], known++;
    return known ? sum / (double)known : 0;
}

void resample_choose(const float *loss, uint64_t all, uint64_t n, uint64_t seed, int stage,
                     uint32_t *chosen) {
    rng_key key = rng_key_numbered(seed, (uint64_t)stage);
    double mean = mean_known(loss, all);
    lot *lots = xcalloc((size_t)all, sizeof *lots);
    for (uint64_t i = 0; i < all; i++) {
        uint32_t bits[4];
        rng_block(key, i, 0, bits);
        double u = ((double)bits[0] + 0.5) * 0x1p-32;
        lots[i] = (lot){(is_known(loss[i]) ? (double)loss[i] : mean) - log(-log(u)), (uint32_t)i};
    }
    qsort(lots, (size_t)all, sizeof *lots, larger_first);
    for (uint64_t i = 0; i < n; i++) chosen[i] = lots[i].sequence;
    qsort(chosen, (size_t)n, sizeof *chosen, smaller_first);
    free(lots);
}

static status no_losses(const config *c, const char *run, int stage, err *e) {
    config_error(c, e, "data.resample.share",
                 "no earlier stage has noted losses of these data, cut as they are here, in "
                 "%s/losses",
                 run);
    if (stage == 0 || c->data.resample.from)
        return err_hint(e, "data.resample.from names a run with data.resample.keep_losses");
    return err_hint(e, "set data.resample.keep_losses from the first stage on, with the same "
                       "data.train and train.seq_len");
}

static void draw_sources(const config *c, int stage, loader *l, const float *loss, uint64_t *hash) {
    for (int i = 0; i < loader_n_sources(l); i++) {
        uint64_t all = loader_source_sequences(l, i);
        uint64_t n = (uint64_t)ceil(c->data.resample.share * (double)all);
        uint32_t *chosen = xcalloc((size_t)(n ? n : 1), sizeof *chosen);
        uint64_t seed = mix64((uint64_t)c->data.seed ^ loader_source_shards(l, i)->fingerprint);
        resample_choose(loss, all, n, seed, stage, chosen);
        const uint64_t one[] = {*hash, hash_bytes(chosen, (size_t)n * sizeof *chosen)};
        *hash = hash_bytes(one, sizeof one);
        loader_choose(l, i, chosen, n);
        loss += all;
    }
}

status resample_draw(const char *run, const config *c, int stage, loader *l, uint64_t *hash,
                     err *e) {
    *hash = 0;
    if (c->data.resample.share >= 1) return ST_OK;
    TRY(check_run(c, e));
    arena *a = arena_new("losses of sequences");
    const char *from = c->data.resample.from;
    uint64_t n = sequence_index_new(a, l).n;
    float *loss = xcalloc((size_t)n, sizeof *loss);
    bool any = false;
    status st =
        read_losses(a, from ? from : run, c, from ? MOST_STAGES : stage, l, loss, n, &any, e);
    if (st == ST_OK && !any) st = no_losses(c, from ? from : run, stage, e);
    if (st == ST_OK) draw_sources(c, stage, l, loss, hash);
    free(loss);
    arena_free(a);
    return st;
}
