/* Writing a shard folder. A shard is closed when it has reached its size at the end of a document;
 * its header is put in last, then the file is read back for its checksum, and the manifest comes
 * after all shards: a folder with a manifest is complete. */
#include "data/shard_format.h"

#include "base/file_fault.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct shard_writer {
    shards set; /* what the manifest will say; no mappings */
    int shard_cap, source_cap;
    shard_writer_options opt;
    file_out bin, idx;
    bool open; /* bin and idx are being written: the last entry of set.shard */
    arena *scratch;
};

static const char *shard_path(shard_writer *w, int number, shard_kind kind) {
    char name[32];
    shard_file_name(name, number, kind);
    return path_join(w->scratch, w->set.dir, name);
}

static status remove_file(arena *scratch, const char *dir, const char *name, err *e) {
    const char *path = path_join(scratch, dir, name);
    return file_sys_unlinkat(AT_FDCWD, path, 0) == 0 ? ST_OK
                                                     : err_errno(e, path, "cannot remove %s", path);
}

static bool is_shard_file(const char *name) {
    if (strncmp(name, "shard-", 6) != 0) return false;
    size_t digits = strspn(name + 6, "0123456789");
    const char *end = name + 6 + digits;
    return digits >= 5 && (strcmp(end, ".bin") == 0 || strcmp(end, ".idx") == 0);
}

/* The manifest goes first, so that a crash leaves an unfinished folder, not a wrong one. */
static status remove_set(arena *scratch, const char *dir, err *e) {
    if (file_exists(path_join(scratch, dir, "manifest.json")))
        TRY(remove_file(scratch, dir, "manifest.json", e));
    char **names;
    int n;
    TRY(file_list_dir(scratch, dir, &names, &n, e));
    for (int i = 0; i < n; i++)
        if (is_shard_file(names[i])) TRY(remove_file(scratch, dir, names[i], e));
    return ST_OK;
}

status shards_remove(const char *dir, err *e) {
    if (!file_is_dir(dir)) return ST_OK;
    arena *scratch = arena_new("shards");
    status st = remove_set(scratch, dir, e);
    arena_free(scratch);
    return st;
}

status shard_writer_open(shard_writer **out, const char *dir, const shard_writer_options *opt,
                         err *e) {
    *out = NULL;
    CHECK(opt->vocab_size > 0 && opt->eos < opt->vocab_size, "vocab_size %d, eos %d",
          opt->vocab_size, opt->eos);
    TRY(file_make_dirs(dir, e));
    TRY(shards_remove(dir, e));
    shard_writer *w = xcalloc(1, sizeof *w);
    w->opt = *opt;
    if (w->opt.shard_tokens == 0) w->opt.shard_tokens = 100 * 1000 * 1000;
    w->set.dir = xstrdup(dir);
    w->set.tok_hash = opt->tok_hash;
    w->set.vocab_size = opt->vocab_size;
    w->set.width_bytes = opt->vocab_size <= 65536 ? 2 : 4;
    w->scratch = arena_new("shard writer");
    *out = w;
    return ST_OK;
}

static status begin_shard(shard_writer *w, err *e) {
    static const uint8_t blank[SHARD_HEADER_BYTES];
    int number = w->set.n_shards;
    char name[32];
    shard_file_name(name, number, SHARD_TOKENS);
    TRY(file_out_open(&w->bin, shard_path(w, number, SHARD_TOKENS), e));
    status st = file_out_open(&w->idx, shard_path(w, number, SHARD_DOCUMENTS), e);
    if (st != ST_OK) {
        file_out_abandon(&w->bin);
        return st;
    }
    shard sh = {.file = xstrdup(name),
                .first_tok = w->set.totals.tokens,
                .first_doc = w->set.totals.documents};
    VEC_PUSH(w->set.shard, w->set.n_shards, w->shard_cap, sh);
    w->open = true;
    TRY(file_out_write(&w->bin, blank, sizeof blank, e));
    return file_out_write(&w->idx, blank, sizeof blank, e);
}

/* Writes the header into a closed file, makes it durable and hashes the file as it stands. */
static status seal_file(shard_writer *w, int number, shard_kind kind, uint64_t *hash, err *e) {
    uint8_t header[SHARD_HEADER_BYTES];
    const char *path = shard_path(w, number, kind);
    shard_header_make(header, &w->set, number, kind);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return err_errno(e, path, "cannot open %s", path);
    status st = ST_OK;
    if (file_sys_write(fd, header, sizeof header) != (ssize_t)sizeof header ||
        file_sys_fsync(fd) != 0)
        st = err_errno(e, path, "cannot write %s", path);
    if (close(fd) != 0 && st == ST_OK) st = err_errno(e, path, "cannot write %s", path);
    return st == ST_OK ? hash_file(path, hash, e) : st;
}

static status end_shard(shard_writer *w, err *e) {
    int number = w->set.n_shards - 1;
    shard *sh = &w->set.shard[number];
    w->open = false;
    status bin = file_out_close(&w->bin, NULL, e);
    status idx = file_out_close(&w->idx, NULL, bin == ST_OK ? e : NULL);
    TRY(bin);
    TRY(idx);
    TRY(seal_file(w, number, SHARD_TOKENS, &sh->bin_hash, e));
    return seal_file(w, number, SHARD_DOCUMENTS, &sh->idx_hash, e);
}

static status check_ids(const shard_writer *w, const int32_t *ids, int64_t n, const char *source,
                        err *e) {
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= w->opt.vocab_size) {
            err_set(e, ST_USAGE, "%s: token %" PRId64 " is %d, the vocabulary has %d ids", source,
                    i, ids[i], w->opt.vocab_size);
            err_where(e, "%s", source);
            return ST_USAGE;
        }
    return ST_OK;
}

static status write_ids(shard_writer *w, const int32_t *ids, int64_t n, err *e) {
    if (w->set.width_bytes == 4) return file_out_write(&w->bin, ids, (size_t)n * 4, e);
    uint16_t narrow[2048];
    while (n > 0) {
        int64_t take = n < ARRAY_LEN(narrow) ? n : ARRAY_LEN(narrow);
        for (int64_t i = 0; i < take; i++) narrow[i] = (uint16_t)ids[i];
        TRY(file_out_write(&w->bin, narrow, (size_t)take * 2, e));
        ids += take;
        n -= take;
    }
    return ST_OK;
}

static uint32_t source_id(shard_writer *w, const char *source) {
    shards *s = &w->set;
    if (s->n_sources == 0 || strcmp(s->source[s->n_sources - 1], source) != 0)
        VEC_PUSH(s->source, s->n_sources, w->source_cap, xstrdup(source));
    return (uint32_t)(s->n_sources - 1);
}

static void add_totals(shard_totals *t, uint64_t tokens, uint64_t text_bytes) {
    t->tokens += tokens;
    t->documents++;
    t->text_bytes += text_bytes;
}

status shard_writer_add(shard_writer *w, const int32_t *ids, int64_t n, const char *source,
                        uint32_t line, uint64_t text_bytes, err *e) {
    if (n == 0) return ST_OK;
    TRY(check_ids(w, ids, n, source, e));
    if (!w->open) TRY(begin_shard(w, e));
    bool eos = w->opt.eos >= 0;
    TRY(write_ids(w, ids, n, e));
    if (eos) TRY(write_ids(w, &w->opt.eos, 1, e));
    shard *sh = &w->set.shard[w->set.n_shards - 1];
    add_totals(&sh->totals, (uint64_t)n + eos, text_bytes);
    add_totals(&w->set.totals, (uint64_t)n + eos, text_bytes);
    shard_document d = {.end_tok = sh->totals.tokens, .source = source_id(w, source), .line = line};
    TRY(file_out_write(&w->idx, &d, sizeof d, e));
    return sh->totals.tokens >= w->opt.shard_tokens ? end_shard(w, e) : ST_OK;
}

shard_totals shard_writer_totals(const shard_writer *w) {
    return w->set.totals;
}

status shard_writer_finish(shard_writer *w, err *e) {
    if (w->set.totals.tokens == 0) {
        err_set(e, ST_USAGE, "%s: there is no text to write", w->set.dir);
        err_where(e, "%s", w->set.dir);
        err_hint(e, "give an input with at least one document that is not empty");
        return ST_USAGE;
    }
    if (w->open) TRY(end_shard(w, e));
    TRY(file_sync_dir(w->set.dir, e));
    return manifest_write(&w->set, path_join(w->scratch, w->set.dir, "manifest.json"), e);
}

void shard_writer_free(shard_writer *w) {
    if (!w) return;
    if (w->open) {
        file_out_abandon(&w->bin);
        file_out_abandon(&w->idx);
    }
    for (int i = 0; i < w->set.n_shards; i++) free(w->set.shard[i].file);
    for (int i = 0; i < w->set.n_sources; i++) free(w->set.source[i]);
    free(w->set.shard);
    free(w->set.source);
    free(w->set.dir);
    arena_free(w->scratch);
    free(w);
}
