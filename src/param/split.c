/* What one rank has of a parameter (see split.h). */
#include "param/split.h"

#include "op/op.h"

param_split param_split_rows(int64_t all, int64_t heads) {
    return (param_split){.kind = SPLIT_ROWS, .run = {{.all = all, .heads = heads}}, .runs = 1};
}

void param_split_append(param_split *s, int64_t all, int64_t heads) {
    CHECK(s->kind == SPLIT_ROWS && s->runs < PARAM_MAX_RUNS, "a parameter of too many runs");
    s->run[s->runs++] = (param_run){.all = all, .heads = heads};
}

param_split param_split_cols(void) {
    return (param_split){.kind = SPLIT_COLS};
}

bool param_run_divides(int64_t all, int64_t heads, int ranks) {
    if (heads == 0) return all >= ranks;
    return all % heads == 0 && (heads % ranks == 0 || ranks % heads == 0);
}

/* Shares out the heads of a run, or its rows as evenly as they go. begin: the run's first row in
 * the whole. */
static void place_run(param_run *k, const param_ranks *r, int64_t begin) {
    CHECK(param_run_divides(k->all, k->heads, r->n), "%lld rows of %lld heads on %d ranks",
          (long long)k->all, (long long)k->heads, r->n);
    k->copies = k->heads > 0 && k->heads < r->n ? (int)(r->n / k->heads) : 1;
    op_part part =
        op_part_of(k->heads > 0 ? k->heads : k->all, r->n / k->copies, r->rank / k->copies);
    int64_t rows_each = k->heads > 0 ? k->all / k->heads : 1;
    k->first = begin + part.first * rows_each;
    k->n = part.n * rows_each;
    k->partial = k->copies > 1;
    k->counted = r->rank % k->copies == 0;
}

/* SPLIT_NONE is one run, of which all ranks have copies. */
static void place_everything(param_split *s, const param_ranks *r, int64_t rows) {
    s->run[0] = (param_run){.all = rows, .n = rows, .copies = r->n, .counted = r->rank == 0};
    s->run[0].partial = r->n > 1 && (s->per_head || r->sequence_parallel);
    s->runs = 1;
}

/* SPLIT_COLS is one run of all rows, of which this rank alone has these columns. */
static void place_cols(param_split *s, const param_ranks *r, int64_t rows, int64_t *cols) {
    op_part part = op_part_of(*cols, r->n, r->rank);
    CHECK(*cols % r->n == 0, "%lld columns on %d ranks", (long long)*cols, r->n);
    s->run[0] = (param_run){.all = rows, .n = rows, .copies = 1, .counted = true};
    s->runs = 1;
    s->col0 = part.first;
    *cols = part.n;
}

void param_split_place(param_split *s, const param_ranks *r, int rank, int64_t *rows,
                       int64_t *cols) {
    int64_t *lines = rank == 1 ? cols : rows, sum = 0, begin = 0;
    s->rows = *rows, s->cols = *cols;
    if (s->kind == SPLIT_NONE)
        place_everything(s, r, *lines);
    else if (s->kind == SPLIT_COLS)
        place_cols(s, r, *lines, cols);
    if (s->kind != SPLIT_ROWS) return;
    for (int i = 0; i < s->runs; i++) {
        place_run(&s->run[i], r, begin);
        begin += s->run[i].all;
        sum += s->run[i].n;
    }
    CHECK(begin == *lines, "runs of %lld rows in a parameter of %lld", (long long)begin,
          (long long)*lines);
    *lines = sum;
}
