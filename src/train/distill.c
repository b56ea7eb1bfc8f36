#include "train/distill.h"

#include <math.h>
#include <string.h>

#include "io/model_source.h"
#include "run/folder.h"
#include "train/lessons.h"

model_lesson distill_lesson(const config *c, int64_t vocab) {
    if (!c->distill.teacher) return (model_lesson){0};
    return (model_lesson){.weight = (float)c->distill.weight,
                          .temperature = (float)c->distill.temperature,
                          .stored = lessons_stored(c, vocab)};
}

/* ---- opening ---- */

static status check_parts(const setup *u, err *e) {
    const config *c = u->c;
    const struct {
        bool refused;
        const char *key, *what, *hint;
    } all[] = {
        {u->models[0].num_encoder_layers > 0, "distill.teacher",
         "an encoder-decoder does not learn from a teacher", "leave distill.teacher out"},
        {u->objective->loss != NULL || u->objective->head, "distill.teacher",
         "a teacher says more of the next token, which this objective does not learn",
         "use train.objective=lm or sft"},
        {u->peers.m.size[MESH_TP] > 1, "parallel.tp",
         "tensor-parallel ranks share the vocabulary, over which a student is compared with its "
         "teacher as a whole",
         "use parallel.tp=1; parallel.dp and parallel.zero can be combined with distill"},
        {run_is_run(c->distill.teacher), "distill.teacher",
         "this is a run, which may go on; a teacher stays",
         "name one of its checkpoints: RUN/checkpoints/step-N"},
        {c->distill.weight <= 0, "distill.weight", "with a weight of 0 nothing is learned of it",
         "leave distill.teacher out"},
        {c->distill.store && c->distill.top_k <= 0, "distill.top_k",
         "distill.store keeps the likeliest tokens of each, and 'distill.top_k' does not say how "
         "many",
         "distill.top_k=64"},
    };
    for (int i = 0; i < ARRAY_LEN(all); i++) {
        if (!all[i].refused) continue;
        config_error(c, e, all[i].key, "%s", all[i].what);
        return err_hint(e, "%s", all[i].hint);
    }
    return ST_OK;
}

static bool same_token(const tok *a, const tok *b, int32_t id) {
    size_t n = 0, m = 0;
    const char *x = tok_bytes(a, id, &n), *y = tok_bytes(b, id, &m);
    return x && y ? n == m && memcmp(x, y, n) == 0 : x == y;
}

static status check_tokenizer(const setup *u, const model_source *s, err *e) {
    int64_t rows = u->models[0].vocab_size;
    if (u->tok && s->tok) {
        int32_t id = 0, n = tok_vocab_size(u->tok), m = tok_vocab_size(s->tok);
        while (id < n && id < m && same_token(u->tok, s->tok, id)) id++;
        if (id < n || id < m) {
            config_error(u->c, e, "distill.teacher",
                         "the teacher has another tokenizer: token %d is not that of %s", id,
                         u->c->tokenizer);
            return err_hint(e, "train the student with the teacher's: tokenizer=%s",
                            u->c->distill.teacher);
        }
    }
    if (s->config.vocab_size == rows) return ST_OK;
    config_error(u->c, e, "distill.teacher", "the teacher has %ld tokens, the student %ld",
                 (long)s->config.vocab_size, (long)rows);
    return err_hint(e, "model.vocab_size=%ld, if the tokenizers are equal",
                    (long)s->config.vocab_size);
}

static status check_length(const setup *u, const model_source *s, err *e) {
    int64_t most = model_max_tokens(&s->config);
    for (int i = 0; i < u->course->n_stages; i++) {
        if (u->course->stage[i].T <= most) continue;
        config_error(u->course->stage[i].c, e, "train.seq_len",
                     "the teacher's positions end at %ld, sequences have %d tokens", (long)most,
                     u->course->stage[i].T);
        return err_hint(e, "train.seq_len=%ld", (long)most);
    }
    return ST_OK;
}

static status open_source(const setup *u, model_source *s, err *e) {
    status st = model_source_open(s, u->c->distill.teacher, NULL, 0, e);
    if (st != ST_OK) {
        model_source_close(s);
        return err_context(e, "distill.teacher");
    }
    return ST_OK;
}

status distill_open(setup *u, err *e) {
    model_source s;
    TRY(check_parts(u, e));
    TRY(open_source(u, &s, e));
    status st = check_tokenizer(u, &s, e);
    if (st == ST_OK) st = check_length(u, &s, e);
    if (st == ST_OK && s.config.num_encoder_layers)
        st = config_error(u->c, e, "distill.teacher",
                          "the teacher has an encoder, and the student reads no source");
    if (st == ST_OK && s.config.num_labels)
        st = config_error(u->c, e, "distill.teacher",
                          "the teacher has a head of labels, and says nothing of the next token");
    u->reference = (plan_other){.name = "teacher", .config = model_config_copy(u->a, &s.config)};
    u->reference.config.from = NULL;
    model_source_close(&s);
    return st;
}

status distill_load(const setup *u, const param_store *store, err *e) {
    model_source s;
    TRY(open_source(u, &s, e));
    status st = model_source_load(&s, store, e);
    model_source_close(&s);
    return st;
}

/* ---- what the teacher says ---- */

/* Puts x where the smallest of a heap's n numbers is, which is the first. */
static void sift(float *heap, int n, float x) {
    int at = 0;
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= x) break;
        heap[at] = heap[child];
    }
    heap[at] = x;
}

void distill_best(const float *row, int64_t V, int k, float *heap, int32_t *best) {
    for (int i = 0; i < k; i++) heap[i] = -INFINITY;
    for (int64_t v = 0; v < V; v++)
        if (row[v] > heap[0]) sift(heap, k, row[v]);
    int left = k, n = 0;
    for (int64_t v = 0; v < V; v++) left -= row[v] > heap[0];
    for (int64_t v = 0; v < V && n < k; v++)
        if (row[v] > heap[0] || (row[v] == heap[0] && left-- > 0)) best[n++] = (int32_t)v;
}

/* Leaves these of a row; the others become -inf. */
static void keep_best(float *row, int64_t V, int k, float *heap, int32_t *best) {
    int n = 0;
    distill_best(row, V, k, heap, best);
    for (int64_t v = 0; v < V; v++) {
        if (n < k && best[n] == v)
            n++;
        else
            row[v] = -INFINITY;
    }
}

void distill_give(dev *d, const batch_ports *teacher, const batch_ports *student, int frame,
                  int64_t top_k, float *heap, int32_t *best) {
    size_t bytes = (size_t)student->teacher.bytes;
    int64_t rows = student->teacher.rows, V = student->teacher.cols;
    if (!bytes) return;
    void *to = prog_port_at(student->p, frame, student->teacher);
    dev_copy(d, to, prog_port_at(teacher->p, 0, teacher->score), bytes);
    if (top_k <= 0 || top_k >= V) return;
    dev_room room = {0};
    float *host = dev_borrow(d, to, bytes, true, &room);
    for (int64_t n = 0; n < rows; n++) keep_best(host + n * V, V, (int)top_k, heap, best);
    dev_put_back(d, to, host, bytes);
    dev_room_free(&room);
}
