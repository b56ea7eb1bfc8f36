/* Sets of shards: opening and closing, and copying tokens. Documents are in shard_docs.c, our own
 * folders in shard_own.c, files of others in foreign.c; shards_verify checks every byte. */
#include "data/shard/foreign.h"
#include "data/shard/shard_format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OWN_OPEN_FILES = 16, OPEN_AGAIN = 3 };

const char *shards_format_name(shards_format f) {
    static const char *const NAMES[] = {SHARDS_FORMATS(LIST_WORD)};
    return NAMES[f];
}

shards *shards_new(const char *dir, shards_format format) {
    shards *s = xcalloc(1, sizeof *s);
    s->dir = xstrdup(dir);
    s->format = format;
    s->eos = -1;
    return s;
}

void shards_use_files(shards *s, shard_files *shared) {
    s->own_files = !shared;
    s->files = shared ? shared : shard_files_new(OWN_OPEN_FILES);
}

void shards_close(shards *s) {
    if (!s) return;
    if (s->own_files)
        shard_files_free(s->files);
    else if (s->files)
        shard_files_drop(s->files, s);
    for (int i = 0; i < s->n_shards; i++) free(s->shard[i].file);
    for (int i = 0; i < s->n_sources; i++) free(s->source[i]);
    free(s->shard);
    free(s->source);
    free(s->tok_name);
    free(s->dir);
    free(s);
}

status shards_none_such(const char *path, err *e) {
    const char *base = path_base(path);
    err_at(e, ST_USAGE, path, "%s: there is no such folder or file", path);
    if (strchr(base, '.')) /* chats.jsonl: a file that was meant to be there */
        return err_hint(e, "check the path; relative paths start at the working folder");
    return err_hint(e, "make it with `athanor data build TEXT -o %s tokenizer=TOKENIZER`", path);
}

/* A folder that is ours: with a manifest, or a split of sets; or that should be: shards without a
 * manifest, unless they are said to be others'. */
static bool is_own_folder(const char *dir, shards_format format) {
    static const char *const SIGNS[] = {"manifest.json", "train/manifest.json", "shard-00000.bin"};
    bool own = false;
    arena *scratch = arena_new("shards");
    for (int i = 0; i < ARRAY_LEN(SIGNS) - (format != SHARDS_AUTO); i++)
        own = own || file_exists(path_join(scratch, dir, SIGNS[i]));
    arena_free(scratch);
    return own;
}

/* What says how to read files of others says nothing of ours. */
static status check_own_spec(const shards_spec *spec, err *e) {
    const char *format = shards_format_name(spec->format);
    bool other = spec->format != SHARDS_AUTO && spec->format != SHARDS_OWN;
    if (!other && spec->width_bytes == 0) return ST_OK;
    if (other)
        err_at(e, ST_USAGE, spec->path, "%s was written by `data build`: it is not of format=%s",
               spec->path, format);
    else
        err_at(e, ST_USAGE, spec->path, "%s was written by `data build`: dtype=u%d does nothing",
               spec->path, 8 * spec->width_bytes);
    return err_hint(e, "leave %s out, or name the files of the other program",
                    other ? "format" : "dtype");
}

static status open_own(shards **out, const shards_spec *spec, err *e) {
    if (!file_exists(spec->path)) return shards_none_such(spec->path, e);
    TRY(check_own_spec(spec, e));
    TRY(own_open(out, spec->path, spec->max_tok, e));
    shards_use_files(*out, spec->files);
    return own_check_files(*out, e);
}

status shards_open(shards **out, const shards_spec *spec, err *e) {
    bool own = spec->format == SHARDS_OWN || is_own_folder(spec->path, spec->format);
    for (int i = 0;; i++) {
        *out = NULL;
        status st = own ? open_own(out, spec, e) : foreign_open(out, spec, e);
        if (st == ST_OK) return ST_OK;
        /* What a build replaced or appended meanwhile is read again from its manifest on. */
        bool again = own && *out && i < OPEN_AGAIN && !own_is_current(*out);
        shards_close(*out);
        *out = NULL;
        if (!again) return st;
    }
}

status shards_limit(shards *s, uint64_t max_tok, err *e) {
    shard_totals sum = {0};
    int keep = 0;
    for (; keep < s->n_shards; keep++) {
        shard *sh = &s->shard[keep];
        if (max_tok && sum.tokens + sh->totals.tokens > max_tok) break;
        sh->first_tok = sum.tokens;
        sh->first_doc = sum.documents;
        sum.tokens += sh->totals.tokens;
        sum.documents += sh->totals.documents;
        sum.text_bytes += sh->totals.text_bytes;
    }
    if (keep == 0 && s->n_shards > 0) {
        err_at(e, ST_USAGE, s->dir,
               "%s: its first shard holds %" PRIu64 " tokens, only %" PRIu64 " are asked for",
               s->dir, s->shard[0].totals.tokens, max_tok);
        return err_hint(e, "the set is not the one that the run began with");
    }
    for (int i = keep; i < s->n_shards; i++) free(s->shard[i].file);
    s->n_shards = keep;
    s->totals = sum;
    return ST_OK;
}

status shards_check_tokenizer(const shards *s, uint64_t tok_hash, err *e) {
    if (s->tok_hash == tok_hash || s->tok_hash == 0) return ST_OK;
    char have[17], want[17];
    hash_format(s->tok_hash, have);
    hash_format(tok_hash, want);
    err_at(e, ST_USAGE, s->dir, "%s was made with another tokenizer (hash %s, the run's is %s)",
           s->dir, have, want);
    return err_hint(
        e, "use the tokenizer.json in that folder, or rebuild it with `athanor data build`");
}

/* ---- files ---- */

void shard_path(const shards *s, int number, shard_kind kind, char out[SHARD_PATH_BYTES]) {
    if (s->format != SHARDS_OWN) {
        foreign_path(s, number, kind, out);
        return;
    }
    char name[32];
    shard_file_name(name, number, kind);
    const char *slash = *s->dir && s->dir[strlen(s->dir) - 1] == '/' ? "" : "/";
    snprintf(out, SHARD_PATH_BYTES, "%s%s%s", s->dir, slash, name);
}

static void path_of_file(const void *owner, int number, char out[SHARD_PATH_BYTES]) {
    shard_path(owner, number / SHARD_KINDS, (shard_kind)(number % SHARD_KINDS), out);
}

status shard_read(const shards *s, int number, shard_kind kind, uint64_t offset, void *buf,
                  size_t n, err *e) {
    return shard_files_read(s->files, s, number * SHARD_KINDS + (int)kind, path_of_file,
                            &s->shard[number].known[kind], offset, buf, n, e);
}

bool shard_note_file(shards *s, int number, shard_kind kind) {
    char path[SHARD_PATH_BYTES];
    shard_path(s, number, kind, path);
    return file_identity_of(path, &s->shard[number].known[kind]);
}

status shard_error(const shards *s, int number, shard_kind kind, err *e, const char *fmt, ...) {
    char what[256], path[SHARD_PATH_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    shard_path(s, number, kind, path);
    err_at(e, ST_FORMAT, path, "%s %s", path, what);
    if (s->format == SHARDS_OWN)
        shards_hint_rebuild(e);
    else
        err_hint(e, "restore the file, or write it anew with the tool that made it");
    return ST_FORMAT;
}

int shard_find(const shards *s, uint64_t x, bool by_doc) {
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

/* ---- tokens ---- */

int shard_item_bytes(shard_item item) {
    static const int BYTES[] = {1, 1, 2, 2, 4, 4, 8};
    return BYTES[item];
}

/* Room for stored ids of every width. */
typedef union item_buffer {
    uint8_t u8[16384];
    int8_t i8[1];
    uint16_t u16[1];
    int16_t i16[1];
    int32_t i32[1];
    int64_t i64[1];
} item_buffer;

/* Widens n stored ids; the largest tells the caller in one comparison that all are good. A negative
 * id is a very large one then. */
#define WIDEN(type)                                                                                \
    for (int64_t i = 0; i < n; i++) {                                                              \
        ids[i] = (int32_t)((const type *)src)[i];                                                  \
        max = (uint32_t)ids[i] > max ? (uint32_t)ids[i] : max;                                     \
    }                                                                                              \
    break

static uint32_t widen(const void *restrict src, shard_item item, int64_t n, int32_t *restrict ids) {
    uint32_t max = 0;
    switch (item) {
        case ITEM_U8: WIDEN(uint8_t);
        case ITEM_I8: WIDEN(int8_t);
        case ITEM_U16: WIDEN(uint16_t);
        case ITEM_I16: WIDEN(int16_t);
        case ITEM_U32:
        case ITEM_I32: WIDEN(int32_t);
        case ITEM_I64:
            for (int64_t i = 0; i < n; i++) {
                int64_t v = ((const int64_t *)src)[i];
                ids[i] = v < 0 || v > INT32_MAX ? -1 : (int32_t)v;
                max = (uint32_t)ids[i] > max ? (uint32_t)ids[i] : max;
            }
            break;
    }
    return max;
}

static status copy_from(const shards *s, int number, uint64_t at, int64_t n, int32_t *ids,
                        uint32_t *max, err *e) {
    item_buffer buf;
    const shard *sh = &s->shard[number];
    int bytes = shard_item_bytes(sh->item);
    while (n > 0) {
        int64_t room = (int64_t)sizeof buf / bytes, take = n < room ? n : room;
        TRY(shard_read(s, number, SHARD_TOKENS, sh->data_offset + at * (uint64_t)bytes, &buf,
                       (size_t)(take * bytes), e));
        uint32_t m = widen(&buf, sh->item, take, ids);
        *max = m > *max ? m : *max;
        at += (uint64_t)take;
        ids += take;
        n -= take;
    }
    return ST_OK;
}

status shards_copy(const shards *s, uint64_t first, int64_t n, int32_t *ids, uint32_t *largest,
                   err *e) {
    CHECK(n >= 0 && first <= s->totals.tokens && (uint64_t)n <= s->totals.tokens - first,
          "tokens %" PRIu64 " + %" PRId64 " of %" PRIu64, first, n, s->totals.tokens);
    uint32_t max = 0;
    for (int i = shard_find(s, first, false); n > 0; i++) {
        const shard *sh = &s->shard[i];
        uint64_t at = first - sh->first_tok, left = sh->totals.tokens - at;
        int64_t take = (uint64_t)n < left ? n : (int64_t)left;
        TRY(copy_from(s, i, at, take, ids, &max, e));
        ids += take;
        first += (uint64_t)take;
        n -= take;
    }
    if (largest) *largest = max;
    return ST_OK;
}

status shards_copy_marks(const shards *s, uint64_t first, int64_t n, uint8_t *marks, err *e) {
    CHECK(s->chat.marks, "%s has no marks", s->dir);
    CHECK(n >= 0 && first <= s->totals.tokens && (uint64_t)n <= s->totals.tokens - first,
          "marks %" PRIu64 " + %" PRId64 " of %" PRIu64, first, n, s->totals.tokens);
    for (int i = shard_find(s, first, false); n > 0; i++) {
        const shard *sh = &s->shard[i];
        uint64_t at = first - sh->first_tok, left = sh->totals.tokens - at;
        int64_t take = (uint64_t)n < left ? n : (int64_t)left;
        TRY(shard_read(s, i, SHARD_MARKS, at, marks, (size_t)take, e));
        marks += take;
        first += (uint64_t)take;
        n -= take;
    }
    return ST_OK;
}

/* ---- the check of every byte: what is common to all formats ---- */

static status verify_ids(const shards *s, int number, err *e) {
    const shard *sh = &s->shard[number];
    int32_t ids[4096];
    for (uint64_t at = 0; at < sh->totals.tokens;) {
        uint64_t left = sh->totals.tokens - at;
        int64_t n = left < ARRAY_LEN(ids) ? (int64_t)left : ARRAY_LEN(ids);
        uint32_t max;
        TRY(shards_copy(s, sh->first_tok + at, n, ids, &max, e));
        if (max >= (uint32_t)s->vocab_size) {
            int64_t i = 0;
            while ((uint32_t)ids[i] < (uint32_t)s->vocab_size) i++;
            return shard_error(s, number, SHARD_TOKENS, e,
                               "is corrupt: token %" PRIu64 " is %u, the vocabulary has %d",
                               at + (uint64_t)i, (unsigned)ids[i], s->vocab_size);
        }
        at += (uint64_t)n;
    }
    return ST_OK;
}

static status verify_bounds(const shards *s, int number, err *e) {
    uint64_t ends[512], last = 0, documents = s->shard[number].totals.documents;
    for (uint64_t doc = 0; doc < documents;) {
        uint64_t left = documents - doc;
        int64_t n = left < (uint64_t)ARRAY_LEN(ends) ? (int64_t)left : ARRAY_LEN(ends);
        TRY(shard_read_ends(s, number, doc, n, ends, NULL, e));
        for (int64_t i = 0; i < n; i++) {
            TRY(shard_check_end(s, number, doc + (uint64_t)i, last, ends[i], e));
            last = ends[i];
        }
        doc += (uint64_t)n;
    }
    if (last == s->shard[number].totals.tokens) return ST_OK;
    return shard_error(s, number, SHARD_DOCUMENTS, e,
                       "is corrupt: the last document does not end the file");
}

status shards_verify(const shards *s, err *e) {
    for (int i = 0; i < s->n_shards; i++) {
        TRY(s->format == SHARDS_OWN ? own_verify(s, i, e) : foreign_verify(s, i, e));
        TRY(verify_ids(s, i, e));
        if (s->has_index) TRY(verify_bounds(s, i, e));
    }
    return ST_OK;
}
