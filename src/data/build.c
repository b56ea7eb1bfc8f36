/* See build.h. The order is: clear the old folders, stream documents through the tokenizer into one
 * or two shard writers, copy the tokenizer, then finish the writers: the manifests come last. */
#include "data/build.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"

#include <stdio.h>
#include <string.h>

enum { FEW_FILES = 32, NEAR_BYTES = 4096 };
static const double PROGRESS_EVERY_S = 0.25;

typedef struct build {
    const tok *tok;
    const data_build_options *opt;
    const char *out_dir;
    data_split split;
    reader *reader;
    shard_writer *train, *valid; /* valid NULL: no split */
    const char *train_dir, *valid_dir;
    tok_ids ids;
    uint64_t n_docs;
    int64_t start_ns, last_ns;
    arena *mem;
} build;

bool data_split_parse(const char *name, data_split *out) {
    static const char *const NAMES[] = {"auto", "documents", "lines", "tail"};
    for (int i = 0; i < ARRAY_LEN(NAMES); i++)
        if (strcmp(name, NAMES[i]) == 0) {
            *out = (data_split)i;
            return true;
        }
    return false;
}

/* The line end nearest to `cut` within NEAR_BYTES, as the byte after it; 0 when none is near. */
static size_t near_line_end(const char *text, size_t n, size_t cut) {
    for (size_t d = 0; d < NEAR_BYTES; d++) {
        if (d < cut && text[cut - d - 1] == '\n') return cut - d;
        if (cut + d < n - 1 && text[cut + d] == '\n') return cut + d + 1;
    }
    return 0;
}

size_t data_split_point(const char *text, size_t n, double valid_fraction, data_split split) {
    size_t cut = (size_t)((double)n * (1.0 - valid_fraction));
    if (cut >= n) return n;
    size_t line = split == DATA_SPLIT_TAIL ? 0 : near_line_end(text, n, cut);
    if (line) return line;
    while (cut > 0 && ((uint8_t)text[cut] & 0xc0) == 0x80) /* never inside a character */
        cut--;
    return cut;
}

static status add_text(build *b, shard_writer *w, const document *doc, size_t from, size_t to,
                       err *e) {
    if (from == to) return ST_OK;
    b->ids.n = 0;
    status st = tok_encode(b->tok, doc->text + from, to - from, 0, &b->ids, e);
    if (st != ST_OK) {
        char place[480];
        if (doc->line)
            snprintf(place, sizeof place, "%s:%u", doc->source, doc->line);
        else
            snprintf(place, sizeof place, "%s", doc->source);
        err_context(e, "%s", place);
        err_where(e, "%s", place);
        return st;
    }
    return shard_writer_add(w, b->ids.id, b->ids.n, doc->source, doc->line, to - from, e);
}

static bool is_valid_document(const build *b, uint64_t number) {
    rng_key key = rng_key_named(b->opt->seed, "data.split");
    uint32_t bits[4];
    rng_block(key, number, 0, bits);
    double u = ((double)bits[0] * 4294967296.0 + bits[1]) / 18446744073709551616.0;
    return u < b->opt->valid_fraction;
}

static status add_document(build *b, const document *doc, err *e) {
    uint64_t number = b->n_docs++;
    if (!b->valid) return add_text(b, b->train, doc, 0, doc->len, e);
    if (b->split == DATA_SPLIT_DOCUMENTS) {
        shard_writer *w = is_valid_document(b, number) ? b->valid : b->train;
        return add_text(b, w, doc, 0, doc->len, e);
    }
    size_t cut = data_split_point(doc->text, doc->len, b->opt->valid_fraction, b->split);
    TRY(add_text(b, b->train, doc, 0, cut, e));
    return add_text(b, b->valid, doc, cut, doc->len, e);
}

static void report(build *b, bool last) {
    int64_t now = clock_now_ns();
    if (!b->opt->progress) return;
    if (!last && (double)(now - b->last_ns) * 1e-9 < PROGRESS_EVERY_S) return;
    b->last_ns = now;
    shard_totals t = shard_writer_totals(b->train), v = {0};
    if (b->valid) v = shard_writer_totals(b->valid);
    data_progress p = {.bytes_done = reader_bytes_done(b->reader),
                       .bytes_total = reader_bytes_total(b->reader),
                       .tokens = t.tokens + v.tokens,
                       .documents = t.documents + v.documents,
                       .seconds = clock_since_s(b->start_ns)};
    b->opt->progress(b->opt->progress_ctx, &p);
}

static status open_writers(build *b, err *e) {
    shard_writer_options wo = {.tok_hash = tok_hash(b->tok),
                               .vocab_size = tok_vocab_size(b->tok),
                               .eos = b->opt->no_eos ? -1 : tok_eos(b->tok),
                               .shard_tokens = b->opt->shard_tokens};
    bool split = b->opt->valid_fraction > 0;
    const char *train = path_join(b->mem, b->out_dir, "train");
    b->valid_dir = path_join(b->mem, b->out_dir, "valid");
    b->train_dir = split ? train : b->out_dir;
    /* A folder holds either one set or a split; leftovers of the other kind would mislead. */
    TRY(shards_remove(split ? b->out_dir : train, e));
    if (!split) TRY(shards_remove(b->valid_dir, e));
    TRY(shard_writer_open(&b->train, b->train_dir, &wo, e));
    return split ? shard_writer_open(&b->valid, b->valid_dir, &wo, e) : ST_OK;
}

static status empty_side(const build *b, const char *side, err *e) {
    err_set(e, ST_USAGE, "valid=%g leaves no text for %s: the corpus has %llu documents",
            b->opt->valid_fraction, side, (unsigned long long)b->n_docs);
    err_where(e, "valid");
    err_hint(e, "use split=lines to cut inside documents, or another fraction");
    return ST_USAGE;
}

static status finish_side(build *b, shard_writer *w, const char *dir, err *e) {
    TRY(tok_save_file(b->tok, path_join(b->mem, dir, "tokenizer.json"), e));
    return shard_writer_finish(w, e);
}

static status finish(build *b, data_build_result *result, err *e) {
    result->train = shard_writer_totals(b->train);
    if (b->valid) {
        result->valid = shard_writer_totals(b->valid);
        if (result->train.tokens == 0) return empty_side(b, "training", e);
        if (result->valid.tokens == 0) return empty_side(b, "validation", e);
        TRY(finish_side(b, b->valid, b->valid_dir, e));
    }
    TRY(finish_side(b, b->train, b->train_dir, e));
    result->seconds = clock_since_s(b->start_ns);
    return ST_OK;
}

static status run(build *b, const char *const *inputs, int n, data_build_result *result, err *e) {
    TRY(reader_open(&b->reader, inputs, n, &b->opt->reader, e));
    b->split = b->opt->split;
    if (b->split == DATA_SPLIT_AUTO) {
        bool few = reader_is_text_only(b->reader) && reader_n_files(b->reader) <= FEW_FILES;
        b->split = few ? DATA_SPLIT_LINES : DATA_SPLIT_DOCUMENTS;
    }
    document doc;
    bool more;
    /* The first document is read before anything is written: bad input leaves OUT as it was. */
    TRY(reader_next(b->reader, &doc, &more, e));
    TRY(open_writers(b, e));
    while (more) {
        TRY(add_document(b, &doc, e));
        report(b, false);
        TRY(reader_next(b->reader, &doc, &more, e));
    }
    report(b, true);
    return finish(b, result, e);
}

status data_build(const char *const *inputs, int n_inputs, const char *out_dir, const tok *t,
                  const data_build_options *opt, data_build_result *result, err *e) {
    *result = (data_build_result){0};
    if (!(opt->valid_fraction >= 0 && opt->valid_fraction < 1)) {
        err_set(e, ST_USAGE, "valid is %g, it must be a fraction from 0 to below 1",
                opt->valid_fraction);
        err_where(e, "valid");
        err_hint(e, "0.1 keeps a tenth of the text for validation");
        return ST_USAGE;
    }
    build b = {.tok = t, .opt = opt, .out_dir = out_dir, .mem = arena_new("data build")};
    b.start_ns = b.last_ns = clock_now_ns();
    status st = run(&b, inputs, n_inputs, result, e);
    shard_writer_free(b.train);
    shard_writer_free(b.valid);
    reader_close(b.reader);
    tok_ids_free(&b.ids);
    arena_free(b.mem);
    return st;
}
