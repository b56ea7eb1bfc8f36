/* The token files of datatrove, which nanotron reads: FILE.ds with u16 or u32 ids, FILE.ds.index
 * with the documents' ends as u64 in tokens, FILE.ds.metadata with lines of text:
 * "tokenizer|bytes per id", the number of ids, and the same for people. Index and metadata may be
 * absent; a FILE.ds.loss is not read. */
#include "data/shard/foreign.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { METADATA_BYTES = 4096, END_BYTES = 8 };

static status metadata_error(const char *path, const char *what, err *e) {
    err_at(e, ST_FORMAT, path, "%s %s", path, what);
    return err_hint(
        e, "write it anew with the tool that made it, or remove it and say dtype=u16 or u32");
}

/* Takes "name|width" apart; the name may hold bars itself. */
static bool parse_first_line(shards *s, char *line, shard_item *item) {
    char *bar = strrchr(line, '|');
    if (!bar || (strcmp(bar + 1, "2") != 0 && strcmp(bar + 1, "4") != 0)) return false;
    *item = bar[1] == '2' ? ITEM_U16 : ITEM_U32;
    *bar = '\0';
    if (!s->tok_name) s->tok_name = xstrdup(line);
    return true;
}

static status parse_metadata(shards *s, const char *path, char *text, shard_item *item,
                             uint64_t *tokens, err *e) {
    char *second = strchr(text, '\n'), *end;
    if (!second) return metadata_error(path, "has no second line with the number of ids", e);
    *second++ = '\0';
    if (!parse_first_line(s, text, item))
        return metadata_error(path, "does not begin with \"tokenizer|2\" or \"tokenizer|4\"", e);
    *tokens = strtoull(second, &end, 10);
    if (end == second || (*end && *end != '\n'))
        return metadata_error(path, "has no number of ids in its second line", e);
    return ST_OK;
}

static status read_metadata(shards *s, const char *path, shard_item *item, uint64_t *tokens,
                            err *e) {
    char *text;
    size_t len;
    TRY(file_read_part(path, METADATA_BYTES, &text, &len, e));
    status st = parse_metadata(s, path, text, item, tokens, e);
    free(text);
    return st;
}

static status check_index(shards *s, int number, err *e) {
    shard *sh = &s->shard[number];
    uint64_t bytes, last;
    TRY(foreign_size(s, number, SHARD_DOCUMENTS, &bytes, e));
    sh->totals.documents = bytes / END_BYTES;
    if (bytes == 0 || bytes % END_BYTES != 0)
        return shard_error(s, number, SHARD_DOCUMENTS, e, "has %" PRIu64 " bytes: no whole ends",
                           bytes);
    TRY(nanotron_ends(s, number, sh->totals.documents - 1, 1, &last, e));
    if (last == sh->totals.tokens) return ST_OK;
    return shard_error(s, number, SHARD_DOCUMENTS, e,
                       "says that the documents end at token %" PRIu64 ", the file holds %" PRIu64,
                       last, sh->totals.tokens);
}

status nanotron_open(shards *s, int number, const shards_spec *spec, bool *indexed, err *e) {
    shard *sh = &s->shard[number];
    char path[SHARD_PATH_BYTES];
    uint64_t bytes, told = UINT64_MAX;
    snprintf(path, sizeof path, "%s.metadata", sh->file);
    sh->item = foreign_width(spec);
    if (file_exists(path)) TRY(read_metadata(s, path, &sh->item, &told, e));
    TRY(foreign_size(s, number, SHARD_TOKENS, &bytes, e));
    TRY(foreign_count_tokens(s, number, bytes, e));
    if (told != UINT64_MAX && told != sh->totals.tokens)
        return shard_error(s, number, SHARD_TOKENS, e,
                           "holds %" PRIu64 " ids, its metadata say %" PRIu64, sh->totals.tokens,
                           told);
    foreign_path(s, number, SHARD_DOCUMENTS, path);
    *indexed = file_exists(path);
    return *indexed && sh->totals.tokens > 0 ? check_index(s, number, e) : ST_OK;
}

status nanotron_ends(const shards *s, int number, uint64_t doc, int64_t n, uint64_t *ends, err *e) {
    return shard_read(s, number, SHARD_DOCUMENTS, doc * END_BYTES, ends, (size_t)n * END_BYTES, e);
}
