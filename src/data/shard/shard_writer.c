/* Writing a shard folder. A shard is closed when it has reached its size at the end of a document;
 * its headers are put in last, and the manifest comes after all shards: a folder with a manifest is
 * complete. Going on with an unfinished or a finished set is in shard_resume.c. */
#include "data/shard/shard_writer.h"

#include "base/file_fault.h"
#include "base/utf8.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t DEFAULT_SHARD_TOKENS = 100 * 1000 * 1000;

static status remove_file(arena *scratch, const char *dir, const char *name, err *e) {
    const char *path = path_join(scratch, dir, name);
    return file_sys_unlinkat(AT_FDCWD, path, 0) == 0 ? ST_OK
                                                     : err_errno(e, path, "cannot remove %s", path);
}

long shard_file_number(const char *name) {
    if (strncmp(name, "shard-", 6) != 0) return -1;
    size_t digits = strspn(name + 6, "0123456789");
    const char *end = name + 6 + digits;
    if (digits < 5 || digits > 9) return -1;
    bool known = strcmp(end, ".bin") == 0 || strcmp(end, ".idx") == 0 || strcmp(end, ".ids") == 0 ||
                 strcmp(end, ".mrk") == 0;
    return known ? strtol(name + 6, NULL, 10) : -1;
}

static status remove_shards(arena *scratch, const char *dir, int from, err *e) {
    char **names;
    int n;
    TRY(file_list_dir(scratch, dir, &names, &n, e));
    for (int i = 0; i < n; i++)
        if (shard_file_number(names[i]) >= from) TRY(remove_file(scratch, dir, names[i], e));
    return ST_OK;
}

status writer_remove_from(const char *dir, int from, err *e) {
    arena *scratch = arena_new("shards");
    status st = remove_shards(scratch, dir, from, e);
    arena_free(scratch);
    return st;
}

status shards_remove(const char *dir, err *e) {
    if (!file_is_dir(dir)) return ST_OK;
    arena *scratch = arena_new("shards");
    status st = ST_OK;
    /* The manifest goes first, so that a crash leaves an unfinished folder, not a wrong one. */
    if (file_exists(path_join(scratch, dir, "manifest.json")))
        st = remove_file(scratch, dir, "manifest.json", e);
    if (st == ST_OK) st = remove_shards(scratch, dir, 0, e);
    arena_free(scratch);
    return st;
}

shards *writer_new_set(const char *dir, const shard_writer_options *opt) {
    shards *s = shards_new(dir, SHARDS_OWN);
    s->has_index = true;
    s->has_ids = opt->ids;
    s->has_scores = opt->scores;
    s->chat = opt->chat;
    s->tok_hash = opt->tok_hash;
    s->vocab_size = opt->vocab_size;
    s->width_bytes = opt->vocab_size <= 65536 ? 2 : 4;
    s->eos = opt->eos;
    return s;
}

shard_writer *writer_new(shards *set, const shard_writer_options *opt) {
    shard_writer *w = xcalloc(1, sizeof *w);
    w->opt = *opt;
    if (w->opt.shard_tokens == 0) w->opt.shard_tokens = DEFAULT_SHARD_TOKENS;
    w->set = set;
    w->shard_cap = set->n_shards;
    w->source_cap = set->n_sources;
    w->scratch = arena_new("shard writer");
    return w;
}

uint64_t writer_body_bytes(const shard_writer *w, shard_kind kind) {
    const shard *sh = &w->set->shard[w->set->n_shards - 1];
    if (kind == SHARD_IDS) return sh->id_bytes;
    if (kind == SHARD_DOCUMENTS) return sh->totals.documents * SHARD_DOCUMENT_BYTES;
    uint64_t width = kind == SHARD_MARKS ? 1 : (uint64_t)w->set->width_bytes;
    return (sh->totals.tokens + w->pending) * width;
}

static status begin_shard(shard_writer *w, err *e) {
    shards *s = w->set;
    char name[32], path[SHARD_PATH_BYTES];
    for (shard_kind k = 0; k < SHARD_KINDS; k++) {
        if (!shard_has_kind(s, k)) continue;
        shard_path(s, s->n_shards, k, path);
        status st = shard_out_create(&w->out[k], path, shard_header_bytes(k), e);
        if (st == ST_OK) continue;
        while (k-- > 0)
            if (shard_has_kind(s, k)) shard_out_abandon(&w->out[k], true);
        return st;
    }
    shard_file_name(name, s->n_shards, SHARD_TOKENS);
    shard sh = {
        .file = xstrdup(name), .first_tok = s->totals.tokens, .first_doc = s->totals.documents};
    VEC_PUSH(s->shard, s->n_shards, w->shard_cap, sh);
    w->open = true;
    return ST_OK;
}

static status end_shard(shard_writer *w, err *e) {
    int number = w->set->n_shards - 1;
    shard *sh = &w->set->shard[number];
    uint64_t *hash[SHARD_KINDS] = {&sh->bin_hash, &sh->idx_hash, &sh->ids_hash, &sh->mrk_hash};
    status result = ST_OK;
    w->open = false;
    for (shard_kind k = 0; k < SHARD_KINDS; k++) {
        uint8_t header[SHARD_HEADER_BYTES];
        if (!shard_has_kind(w->set, k)) continue;
        shard_header_make(header, w->set, number, k);
        status st = shard_out_finish(&w->out[k], header, hash[k], result == ST_OK ? e : NULL);
        if (result == ST_OK) result = st;
    }
    return result;
}

static status check_ids(const shard_writer *w, const shard_record *r, err *e) {
    uint32_t max = 0;
    for (int64_t i = 0; i < r->n; i++) max = (uint32_t)r->ids[i] > max ? (uint32_t)r->ids[i] : max;
    if (max < (uint32_t)w->opt.vocab_size) return ST_OK;
    int64_t i = 0;
    while ((uint32_t)r->ids[i] < (uint32_t)w->opt.vocab_size) i++;
    return err_at(e, ST_USAGE, r->source, "%s: token %" PRId64 " is %d, the vocabulary has %d ids",
                  r->source, i, r->ids[i], w->opt.vocab_size);
}

static status write_tokens(shard_writer *w, const int32_t *ids, int64_t n, err *e) {
    shard_out *o = &w->out[SHARD_TOKENS];
    if (w->set->width_bytes == 4) return shard_out_write(o, ids, (size_t)n * 4, e);
    while (n > 0) {
        uint8_t *room;
        size_t bytes;
        TRY(shard_out_room(o, &room, &bytes, e));
        int64_t take = (size_t)n < bytes / 2 ? n : (int64_t)(bytes / 2);
        uint16_t *restrict narrow = (uint16_t *)(void *)room; /* the buffer holds nothing else */
        for (int64_t i = 0; i < take; i++) narrow[i] = (uint16_t)ids[i];
        shard_out_filled(o, (size_t)take * 2);
        ids += take;
        n -= take;
    }
    return ST_OK;
}

/* Length of an id, cut at a character's beginning when it is too long. */
static size_t id_length(const char *id) {
    size_t n = strnlen(id, SHARD_MAX_ID_BYTES + 1);
    if (n <= SHARD_MAX_ID_BYTES) return n;
    return utf8_cut(id, SHARD_MAX_ID_BYTES);
}

static uint32_t source_number(shard_writer *w, const char *source) {
    shards *s = w->set;
    if (s->n_sources == 0 || strcmp(s->source[s->n_sources - 1], source) != 0)
        VEC_PUSH(s->source, s->n_sources, w->source_cap, xstrdup(source));
    return (uint32_t)s->n_sources - 1;
}

static void add_totals(shard_totals *t, uint64_t tokens, uint64_t text_bytes) {
    t->tokens += tokens;
    t->documents++;
    t->text_bytes += text_bytes;
}

status shard_writer_add(shard_writer *w, const shard_record *r, err *e) {
    if (r->n == 0 && (r->more || w->pending == 0)) return ST_OK;
    TRY(check_ids(w, r, e));
    if (!w->open) TRY(begin_shard(w, e));
    if (w->opt.chat.marks) TRY(shard_out_write(&w->out[SHARD_MARKS], r->marks, (size_t)r->n, e));
    if (r->more) {
        w->pending += (uint64_t)r->n;
        return write_tokens(w, r->ids, r->n, e);
    }
    bool eos = w->opt.eos >= 0;
    size_t id_bytes = w->opt.ids && r->id ? id_length(r->id) : 0;
    TRY(write_tokens(w, r->ids, r->n, e));
    if (eos) TRY(write_tokens(w, &w->opt.eos, 1, e));
    if (id_bytes) TRY(shard_out_write(&w->out[SHARD_IDS], r->id, id_bytes, e));
    shard *sh = &w->set->shard[w->set->n_shards - 1];
    uint64_t n = w->pending + (uint64_t)r->n + eos;
    shard_document d = {.end_tok = sh->totals.tokens + n,
                        .text_offset = r->text_offset,
                        .id_end = sh->id_bytes + id_bytes,
                        .source = source_number(w, r->source),
                        .line = r->line,
                        .score = w->opt.scores ? r->score : NAN};
    TRY(shard_out_write(&w->out[SHARD_DOCUMENTS], &d, sizeof d, e));
    sh->id_bytes = d.id_end;
    add_totals(&sh->totals, n, r->text_bytes);
    add_totals(&w->set->totals, n, r->text_bytes);
    w->pending = 0;
    return sh->totals.tokens >= w->opt.shard_tokens ? end_shard(w, e) : ST_OK;
}

shard_totals shard_writer_totals(const shard_writer *w) {
    return w->set->totals;
}

status shard_writer_finish(shard_writer *w, err *e) {
    shards *s = w->set;
    CHECK(w->pending == 0, "%s: the last document was not ended", s->dir);
    if (s->totals.tokens == 0) {
        err_at(e, ST_USAGE, s->dir, "%s: there is no text to write", s->dir);
        return err_hint(e, "give an input with at least one document that is not empty");
    }
    if (w->open) TRY(end_shard(w, e));
    TRY(file_sync_dir(s->dir, e));
    return manifest_write(s, path_join(w->scratch, s->dir, "manifest.json"), e);
}

void shard_writer_free(shard_writer *w) {
    if (!w) return;
    for (shard_kind k = 0; w->open && k < SHARD_KINDS; k++)
        if (shard_has_kind(w->set, k)) shard_out_abandon(&w->out[k], !w->synced);
    shards_close(w->set);
    arena_free(w->scratch);
    free(w);
}
