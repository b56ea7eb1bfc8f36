/* Reading shard folders: opening, checking, and the lookups the loader makes.
 *
 * Invariant after shards_open: every mapping has exactly the length its manifest entry implies, so
 * token and document numbers below the totals are always in bounds, whatever the files contain.
 * Start at shards_open, then shards_copy and shards_documents_before. */
#include "data/shard_format.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    uint32_t version = SHARD_VERSION, vocab = (uint32_t)s->vocab_size, n = (uint32_t)number;
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

static status shard_error(err *e, const char *path, const char *fmt, ...) ATH_PRINTF(3, 4);
static status shard_error(err *e, const char *path, const char *fmt, ...) {
    char what[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    err_set(e, ST_FORMAT, "%s %s", path, what);
    err_where(e, "%s", path);
    shards_hint_rebuild(e);
    return ST_FORMAT;
}

status shard_header_check(const file_map *m, const char *path, const shards *s, int number,
                          shard_kind kind, err *e) {
    const shard_totals *t = &s->shard[number].totals;
    uint64_t body = kind == SHARD_TOKENS ? t->tokens * (uint64_t)s->width_bytes
                                         : t->documents * SHARD_DOCUMENT_BYTES;
    if (m->len != SHARD_HEADER_BYTES + body)
        return shard_error(e, path, "has %zu bytes, its manifest says %" PRIu64 ": it is %s",
                           m->len, SHARD_HEADER_BYTES + body,
                           m->len < SHARD_HEADER_BYTES + body ? "truncated" : "too long");
    uint8_t want[SHARD_HEADER_BYTES];
    shard_header_make(want, s, number, kind);
    for (int i = 0; i < ARRAY_LEN(HEADER_FIELDS); i++) {
        const header_field *f = &HEADER_FIELDS[i];
        if (memcmp(m->data + f->offset, want + f->offset, (size_t)f->bytes) != 0)
            return shard_error(e, path,
                               "is corrupt: header field \"%s\" is not what its "
                               "manifest says",
                               f->name);
    }
    return ST_OK;
}

static shard_document read_record(const shard *sh, uint64_t doc) {
    shard_document d;
    memcpy(&d, sh->idx.data + SHARD_HEADER_BYTES + doc * SHARD_DOCUMENT_BYTES, sizeof d);
    return d;
}

static status open_files(shards *s, int number, arena *scratch, err *e) {
    shard *sh = &s->shard[number];
    char name[32];
    shard_file_name(name, number, SHARD_DOCUMENTS);
    const char *bin = path_join(scratch, s->dir, sh->file);
    const char *idx = path_join(scratch, s->dir, name);
    if (!file_exists(bin)) return shard_error(e, bin, "is missing, its manifest names it");
    if (!file_exists(idx)) return shard_error(e, idx, "is missing, its manifest names it");
    TRY(file_map_open(&sh->bin, bin, e));
    TRY(shard_header_check(&sh->bin, bin, s, number, SHARD_TOKENS, e));
    TRY(file_map_open(&sh->idx, idx, e));
    TRY(shard_header_check(&sh->idx, idx, s, number, SHARD_DOCUMENTS, e));
    if (read_record(sh, sh->totals.documents - 1).end_tok != sh->totals.tokens)
        return shard_error(e, idx, "is corrupt: the last document does not end the shard");
    return ST_OK;
}

/* The manifest's absence has three usual causes; each has its own way out. */
static status no_manifest(const char *dir, arena *scratch, err *e) {
    if (!file_exists(dir)) {
        err_set(e, ST_USAGE, "%s: there is no such folder", dir);
        err_hint(e, "make it with `athanor data build TEXT -o %s tokenizer=TOKENIZER`", dir);
    } else if (!file_is_dir(dir)) {
        err_set(e, ST_USAGE, "%s is a file, not a shard folder", dir);
        err_hint(e, "turn text into shards with `athanor data build %s -o SHARDS tokenizer=F`",
                 dir);
    } else if (file_exists(path_join(scratch, dir, "train/manifest.json"))) {
        err_set(e, ST_USAGE, "%s holds a split, not shards", dir);
        err_hint(e, "use %s/train or %s/valid", dir, dir);
    } else {
        err_set(e, ST_FORMAT,
                "%s has no manifest.json: it is no shard folder, or its build did "
                "not finish",
                dir);
        shards_hint_rebuild(e);
    }
    err_where(e, "%s", dir);
    return e->code;
}

static status open_all(shards **out, const char *dir, arena *scratch, err *e) {
    const char *path = path_join(scratch, dir, "manifest.json");
    if (!file_exists(path)) return no_manifest(dir, scratch, e);
    char *json;
    size_t len;
    TRY(file_read_all(path, &json, &len, e));
    shards *s;
    status st = shards_parse_manifest(&s, dir, json, len, e);
    free(json);
    TRY(st);
    for (int i = 0; st == ST_OK && i < s->n_shards; i++) st = open_files(s, i, scratch, e);
    if (st == ST_OK)
        *out = s;
    else
        shards_close(s);
    return st;
}

status shards_open(shards **out, const char *dir, err *e) {
    *out = NULL;
    err local;
    arena *scratch = arena_new("shards");
    status st = open_all(out, dir, scratch, e ? e : &local);
    arena_free(scratch);
    return st;
}

void shards_close(shards *s) {
    if (!s) return;
    for (int i = 0; i < s->n_shards; i++) {
        file_map_close(&s->shard[i].bin);
        file_map_close(&s->shard[i].idx);
        free(s->shard[i].file);
    }
    for (int i = 0; i < s->n_sources; i++) free(s->source[i]);
    free(s->shard);
    free(s->source);
    free(s->dir);
    free(s);
}

status shards_check_tokenizer(const shards *s, uint64_t tok_hash, err *e) {
    if (s->tok_hash == tok_hash) return ST_OK;
    char have[17], want[17];
    hash_format(s->tok_hash, have);
    hash_format(tok_hash, want);
    err_set(e, ST_USAGE, "%s was made with another tokenizer (hash %s, the run's is %s)", s->dir,
            have, want);
    err_where(e, "%s", s->dir);
    err_hint(e, "use the tokenizer.json in that folder, or rebuild it with `athanor data build`");
    return ST_USAGE;
}

/* The last shard whose first token (or document) is <= x. */
static int find_shard(const shards *s, uint64_t x, bool by_doc) {
    int lo = 0, hi = s->n_shards;
    while (hi - lo > 1) {
        int mid = lo + (hi - lo) / 2;
        uint64_t first = by_doc ? s->shard[mid].first_doc : s->shard[mid].first_tok;
        if (first <= x)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* Widens n stored ids; the largest tells the caller in one comparison that all are good. */
static uint32_t widen(const uint8_t *src, int width_bytes, int64_t n, int32_t *ids) {
    uint32_t max = 0;
    if (width_bytes == 2) {
        for (int64_t i = 0; i < n; i++) {
            uint16_t v;
            memcpy(&v, src + 2 * i, 2);
            ids[i] = v;
            max = v > max ? v : max;
        }
        return max;
    }
    for (int64_t i = 0; i < n; i++) {
        uint32_t v;
        memcpy(&v, src + 4 * i, 4);
        ids[i] = (int32_t)v;
        max = v > max ? v : max;
    }
    return max;
}

uint32_t shards_copy(const shards *s, uint64_t first, int64_t n, int32_t *ids) {
    CHECK(n >= 0 && first <= s->totals.tokens && (uint64_t)n <= s->totals.tokens - first,
          "tokens %" PRIu64 " + %" PRId64 " of %" PRIu64, first, n, s->totals.tokens);
    uint32_t max = 0;
    for (int i = find_shard(s, first, false); n > 0; i++) {
        const shard *sh = &s->shard[i];
        uint64_t at = first - sh->first_tok, left = sh->totals.tokens - at;
        int64_t take = (uint64_t)n < left ? n : (int64_t)left;
        const uint8_t *src = sh->bin.data + SHARD_HEADER_BYTES + at * (uint64_t)s->width_bytes;
        uint32_t m = widen(src, s->width_bytes, take, ids);
        max = m > max ? m : max;
        ids += take;
        first += (uint64_t)take;
        n -= take;
    }
    return max;
}

uint64_t shards_documents_before(const shards *s, uint64_t tok) {
    if (tok >= s->totals.tokens) return s->totals.documents;
    const shard *sh = &s->shard[find_shard(s, tok, false)];
    uint64_t at = tok - sh->first_tok, lo = 0, hi = sh->totals.documents;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (read_record(sh, mid).end_tok <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return sh->first_doc + lo;
}

bool shards_document(const shards *s, uint64_t doc, shard_range *out) {
    if (doc >= s->totals.documents) return false;
    int i = find_shard(s, doc, true);
    const shard *sh = &s->shard[i];
    uint64_t local = doc - sh->first_doc;
    shard_document d = read_record(sh, local);
    uint64_t first = local ? read_record(sh, local - 1).end_tok : 0;
    if (first >= d.end_tok || d.end_tok > sh->totals.tokens) return false;
    if (d.source >= (uint32_t)s->n_sources) return false;
    *out = (shard_range){.first_tok = sh->first_tok + first,
                         .end_tok = sh->first_tok + d.end_tok,
                         .source = d.source,
                         .line = d.line,
                         .shard = i};
    return true;
}

static status verify_ids(const shards *s, const shard *sh, const char *path, err *e) {
    int32_t ids[4096];
    for (uint64_t at = 0; at < sh->totals.tokens;) {
        uint64_t left = sh->totals.tokens - at;
        int64_t n = left < ARRAY_LEN(ids) ? (int64_t)left : ARRAY_LEN(ids);
        if (shards_copy(s, sh->first_tok + at, n, ids) >= (uint32_t)s->vocab_size) {
            int64_t i = 0;
            while ((uint32_t)ids[i] < (uint32_t)s->vocab_size) i++;
            return shard_error(e, path,
                               "is corrupt: token %" PRIu64 " is %u, the vocabulary has %d",
                               at + (uint64_t)i, (unsigned)ids[i], s->vocab_size);
        }
        at += (uint64_t)n;
    }
    return ST_OK;
}

static status verify_shard(const shards *s, int number, arena *scratch, err *e) {
    const shard *sh = &s->shard[number];
    char name[32];
    shard_file_name(name, number, SHARD_DOCUMENTS);
    const char *bin = path_join(scratch, s->dir, sh->file);
    const char *idx = path_join(scratch, s->dir, name);
    if (hash_bytes(sh->bin.data, sh->bin.len) != sh->bin_hash)
        return shard_error(e, bin, "is corrupt: its checksum is not the manifest's");
    if (hash_bytes(sh->idx.data, sh->idx.len) != sh->idx_hash)
        return shard_error(e, idx, "is corrupt: its checksum is not the manifest's");
    TRY(verify_ids(s, sh, bin, e));
    for (uint64_t d = 0; d < sh->totals.documents; d++) {
        shard_range r;
        if (!shards_document(s, sh->first_doc + d, &r))
            return shard_error(e, idx, "is corrupt: document %" PRIu64 " has impossible bounds", d);
    }
    return ST_OK;
}

status shards_verify(const shards *s, err *e) {
    status st = ST_OK;
    arena *scratch = arena_new("shards");
    for (int i = 0; st == ST_OK && i < s->n_shards; i++) st = verify_shard(s, i, scratch, e);
    arena_free(scratch);
    return st;
}
