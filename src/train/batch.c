#include "train/batch.h"

#include <stdio.h>
#include <string.h>

batch_rows batch_rows_new(arena *a, int B, int T, bool start, const model_config *mc) {
    int n = B * T, labels = (int)mc->num_labels;
    int P = (int)model_slots(mc);
    return (batch_rows){.B = B,
                        .T = T,
                        .ids = ARENA_ARRAY(a, int32_t, n),
                        .targets = ARENA_ARRAY(a, int32_t, n),
                        .pos = ARENA_ARRAY(a, int32_t, n),
                        .info = ARENA_ARRAY(a, loader_row, B),
                        .start = start ? ARENA_ARRAY(a, int32_t, n) : NULL,
                        .nll = ARENA_ARRAY(a, float, n),
                        /* also the room of batch_sort_rows, for B doubles too */
                        .d_nll = ARENA_ARRAY(a, float, n > 2 * B ? n : 2 * B),
                        .ref_nll = ARENA_ARRAY(a, float, n),
                        .ref_logp = ARENA_ARRAY(a, double, B),
                        .P = P,
                        .slots_end = P ? ARENA_ARRAY(a, int32_t, B * P) : NULL,
                        .labels = labels,
                        .problem = model_problem(mc),
                        .pad_token_id = mc->pad_token_id,
                        .last = ARENA_ARRAY(a, int32_t, B),
                        .score = ARENA_ARRAY(a, float, B *labels),
                        .d_score = ARENA_ARRAY(a, float, B *labels)};
}

void batch_rows_add_sources(arena *a, batch_rows *r, int S) {
    int n = r->B * S;
    r->S = S;
    r->source = ARENA_ARRAY(a, int32_t, n);
    r->source_pos = ARENA_ARRAY(a, int32_t, n);
    r->source_start = ARENA_ARRAY(a, int32_t, n);
    r->source_end = ARENA_ARRAY(a, int32_t, n);
    r->seen_start = ARENA_ARRAY(a, int32_t, r->B * r->T);
    r->seen_end = ARENA_ARRAY(a, int32_t, r->B * r->T);
}

void batch_rows_add_lessons(arena *a, batch_rows *r, int k) {
    int n = r->B * r->T * k;
    r->k = k;
    r->taught = ARENA_ARRAY(a, float, n);
    r->tokens = ARENA_ARRAY(a, int32_t, n);
}

void batch_rows_see_source(batch_rows *r, int b, int n) {
    for (int64_t i = (int64_t)b * r->S; i < (int64_t)(b + 1) * r->S; i++) {
        int32_t at = (int32_t)(i - (int64_t)b * r->S);
        r->source_pos[i] = at;
        r->source_start[i] = 0;
        r->source_end[i] = at < n ? n : 0;
    }
    for (int64_t i = (int64_t)b * r->T; i < (int64_t)(b + 1) * r->T; i++) {
        r->seen_start[i] = 0;
        r->seen_end[i] = n;
    }
}

int64_t batch_rows_bytes(int B, int T, int S, int64_t labels) {
    int64_t bytes = (int64_t)B * T * (4 * (int64_t)sizeof(int32_t) + 3 * (int64_t)sizeof(float));
    if (S) bytes += (int64_t)B * (4 * (int64_t)S + 2 * (int64_t)T) * (int64_t)sizeof(int32_t);
    return bytes + B * (int64_t)(sizeof(loader_row) + sizeof(int32_t) + sizeof(double)) +
           2 * B * labels * (int64_t)sizeof(float);
}

void batch_find_last(const batch_rows *r) {
    for (int b = 0; b < r->B; b++) {
        const int32_t *ids = r->ids + (int64_t)b * r->T;
        int t = r->info[b].n_inputs - 1;
        while (t > 0 && ids[t] == r->pad_token_id) t--;
        r->last[b] = (int32_t)(b * r->T + (t > 0 ? t : 0));
    }
}

/* room: as large as all rows. */
static void sort(void *all, size_t row_bytes, int B, int sequences, char *room) {
    int samples = B / sequences;
    if (!all) return;
    memcpy(room, all, row_bytes * (size_t)B);
    for (int b = 0; b < B; b++)
        memcpy((char *)all + (size_t)(b % sequences * samples + b / sequences) * row_bytes,
               room + (size_t)b * row_bytes, row_bytes);
}

void batch_sort_rows(const batch_rows *r, int sequences) {
    size_t row = (size_t)r->T * sizeof(int32_t);
    char *room = (char *)r->d_nll;
    sort(r->ids, row, r->B, sequences, room);
    sort(r->targets, row, r->B, sequences, room);
    sort(r->pos, row, r->B, sequences, room);
    sort(r->start, row, r->B, sequences, room);
    CHECK(!r->S || sequences == 1, "sources of samples of several sequences");
    sort(r->info, sizeof *r->info, r->B, sequences, room);
    sort(r->ref_logp, sizeof *r->ref_logp, r->B, sequences, room);
}

batch_rows batch_rows_from(const batch_rows *r, int first) {
    batch_rows part = *r;
    int64_t at = (int64_t)first * r->T;
    part.B -= first;
    part.ids += at, part.targets += at, part.pos += at;
    part.nll += at, part.d_nll += at, part.ref_nll += at;
    part.info += first, part.ref_logp += first;
    if (part.start) part.start += at;
    if (r->P) part.slots_end += (int64_t)first * r->P;
    if (r->k) part.taught += at * r->k, part.tokens += at * r->k;
    int64_t of_source = (int64_t)first * r->S;
    if (!r->S) return part;
    part.source += of_source, part.source_pos += of_source;
    part.source_start += of_source, part.source_end += of_source;
    part.seen_start += at, part.seen_end += at;
    return part;
}

batch_ports batch_ports_of(const prog *p) {
    if (!p) return (batch_ports){0};
    batch_ports io = {.p = p,
                      .ids = prog_find_port(p, "ids"),
                      .targets = prog_find_port(p, "targets"),
                      .pos = prog_find_port(p, "pos"),
                      .start = prog_find_port(p, "start"),
                      .order = prog_find_port(p, "context.order"),
                      .end = prog_find_port(p, "context.end"),
                      .source = prog_find_port(p, "source"),
                      .source_pos = prog_find_port(p, "source_pos"),
                      .source_start = prog_find_port(p, "source_start"),
                      .source_end = prog_find_port(p, "source_end"),
                      .slots_end = prog_find_port(p, "slots_end"),
                      .seen_start = prog_find_port(p, "seen_start"),
                      .seen_end = prog_find_port(p, "seen_end"),
                      .nll = prog_find_port(p, "nll"),
                      .d_nll = prog_find_port(p, "grad.nll"),
                      .last = prog_find_port(p, "rows"),
                      .score = prog_find_port(p, "logits"),
                      .d_score = prog_find_port(p, "grad.logits"),
                      .teacher = prog_find_port(p, "teacher"),
                      .tokens = prog_find_port(p, "teacher.tokens"),
                      .x = prog_find_port(p, "x"),
                      .y = prog_find_port(p, "y"),
                      .d_x = prog_find_port(p, "grad.x"),
                      .d_y = prog_find_port(p, "grad.y")};
    for (int k = 0; k < MODEL_MOST_MASKS; k++) {
        char name[32];
        snprintf(name, sizeof name, "context.first.%d", k);
        io.first[k] = prog_find_port(p, name);
    }
    for (int k = 0; k < MODEL_MOST_AHEAD; k++) {
        char name[16];
        snprintf(name, sizeof name, "nll.%d", k + 1);
        io.ahead[k] = prog_find_port(p, name);
    }
    return io;
}

void batch_put(const batch_ports *io, int frame, const batch_rows *rows) {
    prog_put(io->p, frame, io->ids, rows->ids);
    prog_put(io->p, frame, io->targets, rows->targets);
    prog_put(io->p, frame, io->pos, rows->pos);
    prog_put(io->p, frame, io->start, rows->start);
    prog_put(io->p, frame, io->source, rows->source);
    prog_put(io->p, frame, io->source_pos, rows->source_pos);
    prog_put(io->p, frame, io->source_start, rows->source_start);
    prog_put(io->p, frame, io->source_end, rows->source_end);
    for (int64_t i = 0; i < (int64_t)rows->B * rows->P; i++) /* one text a row */
        rows->slots_end[i] = rows->source_end[i / rows->P * rows->S];
    prog_put(io->p, frame, io->slots_end, rows->slots_end);
    prog_put(io->p, frame, io->seen_start, rows->seen_start);
    prog_put(io->p, frame, io->seen_end, rows->seen_end);
    prog_put(io->p, frame, io->last, rows->last);
    if (io->tokens.bytes) prog_put(io->p, frame, io->teacher, rows->taught);
    prog_put(io->p, frame, io->tokens, rows->tokens);
}

void batch_take_scores(const batch_ports *io, int frame, const batch_rows *rows) {
    void *stored = rows->d_score; /* in the program's format, which is no larger */
    prog_get(io->p, frame, io->score, stored);
    dtype_convert(rows->score, DT_F32, stored, io->score.dt, io->score.rows * io->score.cols);
}

void batch_put_score_grads(const batch_ports *io, int frame, const batch_rows *rows) {
    void *stored = rows->score;
    dtype_convert(stored, io->d_score.dt, rows->d_score, DT_F32,
                  io->d_score.rows * io->d_score.cols);
    prog_put(io->p, frame, io->d_score, stored);
}

double batch_sum(const float *nll, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += nll[i];
    return sum;
}

static double take_sum(const batch_ports *io, int frame, prog_port port, float *to) {
    prog_get(io->p, frame, port, to);
    return batch_sum(to, port.rows);
}

double batch_take_nll(const batch_ports *io, int frame, const batch_rows *rows) {
    return take_sum(io, frame, io->nll, rows->nll);
}

double batch_take_ahead(const batch_ports *io, int frame, int number, const batch_rows *rows) {
    return take_sum(io, frame, io->ahead[number], rows->d_nll);
}

double batch_row_logp(const batch_rows *r, const float *nll, int b) {
    double sum = 0;
    for (int64_t i = (int64_t)b * r->T; i < (int64_t)(b + 1) * r->T; i++)
        if (r->targets[i] >= 0) sum -= (double)nll[i];
    return sum;
}

/* A port without bytes: a chunk of frozen layers takes no gradient. */
typedef struct place {
    const prog *p;
    int frame;
    prog_port port;
} place;

static void copy(dev *d, place to, place from) {
    if (!to.port.bytes) return;
    dev_copy(d, prog_port_at(to.p, to.frame, to.port), prog_port_at(from.p, from.frame, from.port),
             (size_t)from.port.bytes);
}

void batch_pass_on(dev *d, const batch_ports *chunk, int frame, const batch_ports *next,
                   int next_frame) {
    copy(d, (place){next->p, next_frame, next->x}, (place){chunk->p, frame, chunk->y});
}

void batch_pass_back(dev *d, const batch_ports *chunk, int frame, const batch_ports *next,
                     int next_frame) {
    copy(d, (place){chunk->p, frame, chunk->d_y}, (place){next->p, next_frame, next->d_x});
}
