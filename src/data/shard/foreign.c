/* Sets of token files of others: opening all files of a path, and a look at samples of their ids,
 * which finds a wrong width, format or tokenizer before training does, and names the content. */
#include "data/shard/foreign.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { SAMPLES = 4, SAMPLE_TOKENS = 1024, SAMPLE_ENDS = 64 };

void foreign_hint_keys(err *e) {
    err_hint(e, "say what the files are with format=nanogpt, llm.c, megatron, nanotron or olmo and "
                "dtype=u16 or u32");
}

void foreign_path(const shards *s, int number, shard_kind kind, char out[SHARD_PATH_BYTES]) {
    const char *file = s->shard[number].file;
    int n = (int)strlen(file);
    if (kind == SHARD_TOKENS)
        snprintf(out, SHARD_PATH_BYTES, "%s", file);
    else if (s->format == SHARDS_MEGATRON)
        snprintf(out, SHARD_PATH_BYTES, "%.*sidx", n - 3, file); /* its name ends with "bin" */
    else
        snprintf(out, SHARD_PATH_BYTES, "%s.index", file);
}

status foreign_size(shards *s, int number, shard_kind kind, uint64_t *bytes, err *e) {
    char path[SHARD_PATH_BYTES];
    foreign_path(s, number, kind, path);
    if (!shard_note_file(s, number, kind)) return err_unreadable(e, "read", path);
    *bytes = s->shard[number].known[kind].bytes;
    if (*bytes < SHARD_MAX_TOKENS) return ST_OK;
    return shard_error(s, number, kind, e, "is too large");
}

shard_item foreign_width(const shards_spec *spec) {
    int width = spec->width_bytes ? spec->width_bytes : spec->vocab_size > 65536 ? 4 : 2;
    return width == 2 ? ITEM_U16 : ITEM_U32;
}

status foreign_count_tokens(shards *s, int number, uint64_t bytes, err *e) {
    shard *sh = &s->shard[number];
    uint64_t width = (uint64_t)shard_item_bytes(sh->item), data = bytes - sh->data_offset;
    sh->totals.tokens = data / width;
    if (data % width == 0) return ST_OK;
    shard_error(s, number, SHARD_TOKENS, e,
                "has %" PRIu64 " bytes of ids: these are no whole ids of %" PRIu64 " bytes", data,
                width);
    foreign_hint_keys(e);
    return ST_FORMAT;
}

/* ---- formats ---- */

static status open_format(shards *s, int number, const shards_spec *spec, bool *indexed, err *e) {
    *indexed = false;
    switch (s->format) {
        case SHARDS_LLMC: return llmc_open(s, number, spec, e);
        case SHARDS_MEGATRON: *indexed = true; return megatron_open(s, number, spec, e);
        case SHARDS_NANOTRON: return nanotron_open(s, number, spec, indexed, e);
        default: return flat_open(s, number, spec, e);
    }
}

static status open_file(shards *s, int number, const shards_spec *spec, bool *indexed, err *e) {
    TRY(open_format(s, number, spec, indexed, e));
    int width = shard_item_bytes(s->shard[number].item);
    if (!spec->width_bytes || width == spec->width_bytes) return ST_OK;
    shard_error(s, number, SHARD_TOKENS, e, "says itself that its ids have %d bits, not %d",
                8 * width, 8 * spec->width_bytes);
    err_hint(e, "leave dtype out: it is for files that do not say");
    return ST_FORMAT;
}

status foreign_ends(const shards *s, int number, uint64_t doc, int64_t n, uint64_t *ends, err *e) {
    if (s->format == SHARDS_MEGATRON) return megatron_ends(s, number, doc, n, ends, e);
    return nanotron_ends(s, number, doc, n, ends, e);
}

status foreign_verify(const shards *s, int number, err *e) {
    return s->format == SHARDS_MEGATRON ? megatron_verify(s, number, e) : ST_OK;
}

/* ---- samples ---- */

static status beyond_vocabulary(const shards *s, int number, uint32_t id, err *e) {
    shard_error(s, number, SHARD_TOKENS, e,
                "holds id %u, the vocabulary has %d: it is of another tokenizer, or its ids are "
                "not of %d bits",
                id, s->vocab_size, 8 * shard_item_bytes(s->shard[number].item));
    foreign_hint_keys(e);
    return ST_FORMAT;
}

static uint64_t spread(uint64_t total, uint64_t window, int i) {
    return total > window ? (total - window) / (SAMPLES - 1) * (uint64_t)i : 0;
}

/* Hashes the ids of a few places, and compares them with the vocabulary. */
static status sample_tokens(const shards *s, int number, XXH3_state_t *h, err *e) {
    const shard *sh = &s->shard[number];
    int32_t ids[SAMPLE_TOKENS];
    int64_t n = sh->totals.tokens < SAMPLE_TOKENS ? (int64_t)sh->totals.tokens : SAMPLE_TOKENS;
    for (int i = 0; i < SAMPLES; i++) {
        uint32_t max;
        uint64_t at = spread(sh->totals.tokens, SAMPLE_TOKENS, i);
        TRY(shards_copy(s, sh->first_tok + at, n, ids, &max, e));
        if (max >= (uint32_t)s->vocab_size) return beyond_vocabulary(s, number, max, e);
        XXH3_64bits_update(h, ids, (size_t)n * sizeof *ids);
    }
    return ST_OK;
}

static status sample_ends(const shards *s, int number, XXH3_state_t *h, err *e) {
    uint64_t ends[SAMPLE_ENDS], documents = s->shard[number].totals.documents;
    int64_t n = documents < SAMPLE_ENDS ? (int64_t)documents : SAMPLE_ENDS;
    for (int i = 0; i < SAMPLES; i++) {
        uint64_t at = spread(documents, SAMPLE_ENDS, i);
        TRY(foreign_ends(s, number, at, n, ends, e));
        XXH3_64bits_update(h, ends, (size_t)n * sizeof *ends);
    }
    return ST_OK;
}

static status sample_shard(const shards *s, int number, XXH3_state_t *h, err *e) {
    const shard_totals *t = &s->shard[number].totals;
    const uint64_t sizes[] = {t->tokens, t->documents, s->shard[number].item};
    XXH3_64bits_update(h, sizes, sizeof sizes);
    TRY(sample_tokens(s, number, h, e));
    return s->has_index ? sample_ends(s, number, h, e) : ST_OK;
}

static status take_fingerprint(shards *s, err *e) {
    XXH3_state_t *h = hash_begin();
    const uint64_t head[] = {(uint64_t)s->format, s->has_index};
    XXH3_64bits_update(h, head, sizeof head);
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < s->n_shards; i++) st = sample_shard(s, i, h, e);
    s->fingerprint = XXH3_64bits_digest(h);
    XXH3_freeState(h);
    return st;
}

/* ---- opening ---- */

static status empty_set(const shards *s, err *e) {
    err_at(e, ST_FORMAT, s->dir, "%s holds no tokens", s->dir);
    return err_hint(e, "write it anew with the tool that made it");
}

static status open_files(shards *s, const foreign_list *list, const shards_spec *spec, err *e) {
    s->shard = xcalloc((size_t)list->n, sizeof *s->shard);
    s->has_index = true;
    for (int i = 0; i < list->n; i++) {
        int number = s->n_shards++;
        shard *sh = &s->shard[number];
        bool indexed;
        sh->file = xstrdup(list->file[i]);
        TRY(open_file(s, number, spec, &indexed, e));
        s->has_index = s->has_index && (indexed || sh->totals.tokens == 0);
        if (sh->totals.tokens > 0) continue;
        free(sh->file); /* an empty file is passed over */
        *sh = (shard){0};
        s->n_shards--;
    }
    if (s->n_shards == 0) return empty_set(s, e);
    s->width_bytes = shard_item_bytes(s->shard[0].item);
    for (int i = 0; !s->has_index && i < s->n_shards; i++) s->shard[i].totals.documents = 0;
    return ST_OK;
}

static status open_list(shards *s, const foreign_list *list, const shards_spec *spec, err *e) {
    shards_use_files(s, spec->files);
    s->eos = spec->eos;
    TRY(open_files(s, list, spec, e));
    int32_t widest = s->width_bytes <= 2 ? 65536 : INT32_MAX;
    s->vocab_size = spec->vocab_size > 0 ? spec->vocab_size : widest;
    TRY(shards_limit(s, spec->max_tok, e));
    return take_fingerprint(s, e);
}

status foreign_open(shards **out, const shards_spec *spec, err *e) {
    arena *scratch = arena_new("token files");
    foreign_list list;
    status st = foreign_list_files(&list, spec, scratch, e);
    if (st == ST_OK) {
        *out = shards_new(spec->path, list.format);
        st = open_list(*out, &list, spec, e);
    }
    arena_free(scratch);
    return st;
}
