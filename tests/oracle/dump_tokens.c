/* Prints all tokens and document ends of a set, for compare_token_files.py:
 *   dump_tokens PATH WIDTH VOCAB EOS
 * writes i64 tokens, i64 documents, i64 ends, then i32 tokens and i64 ends. Ends are asked for in
 * stretches of changing length, as a loader does. */
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "data/shard/shards.h"

static status dump(const shards *s, err *e) {
    int64_t n = (int64_t)s->totals.tokens, n_ends = 0;
    int32_t *ids = xcalloc((size_t)n, sizeof *ids), *part = xcalloc((size_t)n, sizeof *part);
    int64_t *ends = xcalloc((size_t)n, sizeof *ends);
    TRY(shards_verify(s, e));
    TRY(shards_copy(s, 0, n, ids, NULL, e));
    for (int64_t at = 0, step = 1; at < n; at += step, step = 1 + (step * 7 + at) % 5000) {
        int64_t found, take = step < n - at ? step : n - at;
        TRY(shards_ends(s, (uint64_t)at, take, at % 2 ? ids + at : NULL, part, &found, e));
        for (int64_t i = 0; i < found; i++) ends[n_ends++] = at + part[i];
    }
    const int64_t head[3] = {n, (int64_t)s->totals.documents, n_ends};
    fwrite(head, sizeof *head, 3, stdout);
    fwrite(ids, sizeof *ids, (size_t)n, stdout);
    fwrite(ends, sizeof *ends, (size_t)n_ends, stdout);
    free(ids);
    free(part);
    free(ends);
    return ST_OK;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    shards_spec spec = {.path = argv[1],
                        .width_bytes = atoi(argv[2]),
                        .vocab_size = atoi(argv[3]),
                        .eos = atoi(argv[4])};
    shards *s;
    err e = {0};
    status st = shards_open(&s, &spec, &e);
    if (st == ST_OK) st = dump(s, &e);
    if (st != ST_OK) fprintf(stderr, "%s\n", e.message);
    shards_close(s);
    return (int)st;
}
