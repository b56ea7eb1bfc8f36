/* Our own shard folders: opening one, its index, and the check of every byte.
 *
 * Invariant after own_check_files: every file has exactly the length its manifest entry implies, so token
 * and document numbers below the totals lie in the files, whatever these contain. */
#include "data/shard/shard_format.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef struct header_field {
    const char *name;
    int offset, bytes;
} header_field;

static const header_field HEADER_FIELDS[] = {
    {"magic", 0, 8},      {"version", 8, 4},     {"bytes per item", 12, 4},
    {"tokens", 16, 8},    {"documents", 24, 8},  {"text bytes", 32, 8},
    {"tokenizer", 40, 8}, {"vocabulary", 48, 4}, {"shard number", 52, 4},
    {"reserved", 56, 8},
};

void shard_header_make(uint8_t out[SHARD_HEADER_BYTES], const shards *s, int number,
                       shard_kind kind) {
    const shard_totals *t = &s->shard[number].totals;
    uint32_t version = s->chat.marks ? SHARD_VERSION_MARKS : SHARD_VERSION;
    uint32_t vocab = (uint32_t)s->vocab_size, n = (uint32_t)number;
    uint32_t width = kind == SHARD_TOKENS ? (uint32_t)s->width_bytes : SHARD_DOCUMENT_BYTES;
    memset(out, 0, SHARD_HEADER_BYTES);
    memcpy(out, kind == SHARD_TOKENS ? "ATHSHRD1" : "ATHSIDX1", 8);
    memcpy(out + 8, &version, 4);
    memcpy(out + 12, &width, 4);
    memcpy(out + 16, &t->tokens, 8);
    memcpy(out + 24, &t->documents, 8);
    memcpy(out + 32, &t->text_bytes, 8);
    memcpy(out + 40, &s->tok_hash, 8);
    memcpy(out + 48, &vocab, 4);
    memcpy(out + 52, &n, 4);
}

static uint64_t expected_bytes(const shards *s, int number, shard_kind kind) {
    const shard *sh = &s->shard[number];
    if (kind == SHARD_IDS) return sh->id_bytes;
    if (kind == SHARD_MARKS) return sh->totals.tokens;
    return SHARD_HEADER_BYTES + (kind == SHARD_TOKENS
                                     ? sh->totals.tokens * (uint64_t)s->width_bytes
                                     : sh->totals.documents * SHARD_DOCUMENT_BYTES);
}

static status check_size(shards *s, int number, shard_kind kind, err *e) {
    if (!shard_note_file(s, number, kind))
        return shard_error(s, number, kind, e, "is missing, its manifest names it");
    uint64_t have = s->shard[number].known[kind].bytes, want = expected_bytes(s, number, kind);
    if (have == want) return ST_OK;
    return shard_error(s, number, kind, e,
                       "has %" PRIu64 " bytes, its manifest says %" PRIu64 ": it is %s", have, want,
                       have < want ? "truncated" : "too long");
}

static status check_header(const shards *s, int number, shard_kind kind, err *e) {
    uint8_t have[SHARD_HEADER_BYTES], want[SHARD_HEADER_BYTES];
    TRY(shard_read(s, number, kind, 0, have, sizeof have, e));
    shard_header_make(want, s, number, kind);
    for (int i = 0; i < ARRAY_LEN(HEADER_FIELDS); i++) {
        const header_field *f = &HEADER_FIELDS[i];
        if (memcmp(have + f->offset, want + f->offset, (size_t)f->bytes) != 0)
            return shard_error(s, number, kind, e,
                               "is corrupt: header field \"%s\" is not what its manifest says",
                               f->name);
    }
    return ST_OK;
}

static status read_records(const shards *s, int number, uint64_t doc, int64_t n,
                           shard_document *out, err *e) {
    return shard_read(s, number, SHARD_DOCUMENTS, SHARD_HEADER_BYTES + doc * SHARD_DOCUMENT_BYTES,
                      out, (size_t)n * SHARD_DOCUMENT_BYTES, e);
}

status own_check_shard(shards *s, int number, err *e) {
    const shard *sh = &s->shard[number];
    for (shard_kind k = SHARD_TOKENS; k <= SHARD_DOCUMENTS; k++) {
        TRY(check_size(s, number, k, e));
        TRY(check_header(s, number, k, e));
    }
    if (s->has_ids) TRY(check_size(s, number, SHARD_IDS, e));
    if (s->chat.marks) TRY(check_size(s, number, SHARD_MARKS, e));
    shard_document last;
    TRY(read_records(s, number, sh->totals.documents - 1, 1, &last, e));
    if (last.end_tok != sh->totals.tokens || last.id_end != sh->id_bytes)
        return shard_error(s, number, SHARD_DOCUMENTS, e,
                           "is corrupt: the last document does not end the shard");
    return ST_OK;
}

bool own_is_current(const shards *s) {
    arena *scratch = arena_new("shards");
    file_identity now;
    bool same = file_identity_of(path_join(scratch, s->dir, "manifest.json"), &now) &&
                file_identity_equal(&now, &s->manifest);
    arena_free(scratch);
    return same;
}

/* `data build` removes a set's manifest before it replaces the first shard. So if the manifest that
 * was read still stands after all files were noted, they are the files that it tells of. */
status own_check_files(shards *s, err *e) {
    for (int i = 0; i < s->n_shards; i++) TRY(own_check_shard(s, i, e));
    if (own_is_current(s)) return ST_OK;
    err_at(e, ST_FORMAT, s->dir, "%s was rebuilt while it was opened", s->dir);
    return err_hint(e, "start again when nothing writes there any more");
}

/* The manifest's absence has three usual causes; each has its own way out. */
static status no_manifest(const char *dir, arena *scratch, err *e) {
    if (file_exists(path_join(scratch, dir, "train/manifest.json"))) {
        err_at(e, ST_USAGE, dir, "%s holds a split, not shards", dir);
        return err_hint(e, "use %s/train or %s/valid", dir, dir);
    }
    err_at(e, ST_FORMAT, dir,
           "%s has no manifest.json: it is no shard folder, or its build did not finish", dir);
    shards_hint_rebuild(e);
    return ST_FORMAT;
}

/* What makes this set: checksums cover every token and every record of the index. */
static uint64_t fingerprint(const shards *s) {
    XXH3_state_t *h = hash_begin();
    const uint64_t head[] = {SHARD_VERSION, s->tok_hash, (uint64_t)s->vocab_size,
                             (uint64_t)s->width_bytes};
    XXH3_64bits_update(h, head, sizeof head);
    for (int i = 0; i < s->n_shards; i++) {
        const shard *sh = &s->shard[i];
        const uint64_t one[] = {sh->totals.tokens, sh->totals.documents, sh->bin_hash, sh->idx_hash,
                                sh->ids_hash};
        XXH3_64bits_update(h, one, sizeof one);
        if (s->chat.marks) XXH3_64bits_update(h, &sh->mrk_hash, sizeof sh->mrk_hash);
    }
    const uint64_t chat[] = {(uint64_t)s->chat.sequences, s->chat.labels};
    if (s->chat.marks) XXH3_64bits_update(h, chat, sizeof chat);
    uint64_t hash = XXH3_64bits_digest(h);
    XXH3_freeState(h);
    return hash;
}

status own_open(shards **out, const char *dir, uint64_t max_tok, err *e) {
    arena *scratch = arena_new("shards");
    const char *path = path_join(scratch, dir, "manifest.json");
    char *json = NULL;
    size_t len;
    shards *s = NULL;
    file_identity manifest;
    status st = file_identity_of(path, &manifest)
                    ? file_read_part(path, FILE_PART_MAX_BYTES, &json, &len, e)
                    : no_manifest(dir, scratch, e);
    if (st == ST_OK) st = shards_parse_manifest(&s, dir, json, len, e);
    if (st == ST_OK) s->manifest = manifest;
    if (st == ST_OK) st = shards_limit(s, max_tok, e);
    if (st == ST_OK) s->fingerprint = fingerprint(s);
    free(json);
    arena_free(scratch);
    *out = s;
    return st;
}

status own_ends(const shards *s, int number, uint64_t doc, int64_t n, uint64_t *ends, float *scores,
                err *e) {
    shard_document block[64];
    while (n > 0) {
        int64_t take = n < ARRAY_LEN(block) ? n : ARRAY_LEN(block);
        TRY(read_records(s, number, doc, take, block, e));
        for (int64_t i = 0; i < take; i++) ends[i] = block[i].end_tok;
        for (int64_t i = 0; scores && i < take; i++) scores[i] = block[i].score;
        ends += take;
        if (scores) scores += take;
        doc += (uint64_t)take;
        n -= take;
    }
    return ST_OK;
}

/* Where the id of a document lies in .ids; the length is bounded before anything is allocated. */
static status id_range(const shards *s, int number, uint64_t doc, const shard_document *d,
                       uint64_t *from, err *e) {
    *from = 0;
    if (doc > 0) {
        shard_document before;
        TRY(read_records(s, number, doc - 1, 1, &before, e));
        *from = before.id_end;
    }
    if (*from <= d->id_end && d->id_end - *from <= SHARD_MAX_ID_BYTES &&
        d->id_end <= s->shard[number].id_bytes)
        return ST_OK;
    return shard_error(s, number, SHARD_DOCUMENTS, e,
                       "is corrupt: document %" PRIu64 " has an impossible id", doc);
}

status own_place(const shards *s, int number, uint64_t doc, arena *a, shard_place *out, err *e) {
    shard_document d;
    TRY(read_records(s, number, doc, 1, &d, e));
    if (d.source >= (uint32_t)s->n_sources)
        return shard_error(s, number, SHARD_DOCUMENTS, e,
                           "is corrupt: document %" PRIu64 " has source %u of %d", doc, d.source,
                           s->n_sources);
    out->source = s->source[d.source];
    out->line = d.line;
    out->text_offset = d.text_offset;
    out->score = s->has_scores ? d.score : NAN;
    uint64_t from;
    TRY(id_range(s, number, doc, &d, &from, e));
    if (d.id_end == from) return ST_OK;
    char *id = arena_alloc(a, d.id_end - from + 1);
    TRY(shard_read(s, number, SHARD_IDS, from, id, d.id_end - from, e));
    out->id = id;
    return ST_OK;
}

/* Reads a file from `offset` on, for its checksum. */
static status hash_rest(const shards *s, int number, shard_kind kind, uint64_t offset,
                        uint64_t *hash, err *e) {
    enum { BLOCK_BYTES = 1 << 18 };
    uint64_t left = expected_bytes(s, number, kind) - offset;
    uint8_t *buf = xmalloc(BLOCK_BYTES);
    XXH3_state_t *h = hash_begin();
    status st = ST_OK;
    while (left > 0 && st == ST_OK) {
        size_t n = left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES;
        st = shard_read(s, number, kind, offset, buf, n, e);
        if (st == ST_OK) XXH3_64bits_update(h, buf, n);
        offset += n;
        left -= n;
    }
    *hash = XXH3_64bits_digest(h);
    XXH3_freeState(h);
    free(buf);
    return st;
}

static status check_hash(const shards *s, int number, shard_kind kind, uint64_t want, err *e) {
    uint64_t hash;
    TRY(hash_rest(s, number, kind, shard_header_bytes(kind), &hash, e));
    if (hash == want) return ST_OK;
    return shard_error(s, number, kind, e, "is corrupt: its checksum is not the manifest's");
}

/* Sources and ids of a block of documents; bounds are checked for every format alike. */
static status verify_block(const shards *s, int number, uint64_t doc, const shard_document *d,
                           int64_t n, uint64_t *id_end, err *e) {
    for (int64_t i = 0; i < n; i++) {
        if (d[i].source >= (uint32_t)s->n_sources || d[i].zero != 0 || d[i].id_end < *id_end ||
            d[i].id_end - *id_end > SHARD_MAX_ID_BYTES)
            return shard_error(s, number, SHARD_DOCUMENTS, e,
                               "is corrupt: document %" PRIu64 " has an impossible record",
                               doc + (uint64_t)i);
        *id_end = d[i].id_end;
    }
    return ST_OK;
}

status own_verify(const shards *s, int number, err *e) {
    const shard *sh = &s->shard[number];
    TRY(check_hash(s, number, SHARD_TOKENS, sh->bin_hash, e));
    TRY(check_hash(s, number, SHARD_DOCUMENTS, sh->idx_hash, e));
    if (s->has_ids) TRY(check_hash(s, number, SHARD_IDS, sh->ids_hash, e));
    if (s->chat.marks) TRY(check_hash(s, number, SHARD_MARKS, sh->mrk_hash, e));
    shard_document block[64];
    uint64_t id_end = 0;
    for (uint64_t doc = 0; doc < sh->totals.documents; doc += ARRAY_LEN(block)) {
        uint64_t left = sh->totals.documents - doc;
        int64_t n = left < ARRAY_LEN(block) ? (int64_t)left : ARRAY_LEN(block);
        TRY(read_records(s, number, doc, n, block, e));
        TRY(verify_block(s, number, doc, block, n, &id_end, e));
    }
    return ST_OK;
}
