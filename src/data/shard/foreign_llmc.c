/* llm.c's token files: 256 i32 of header (magic, version, number of ids), then u16 (magic 20240520,
 * version 1) or u32 (20240801, version 7). Each document begins with the end-of-text token, and may
 * go on in the next file. */
#include "data/shard/foreign.h"

#include <inttypes.h>
#include <string.h>

/* Files of llm.c that hold no stream of tokens, by what they are; NULL: not one of these. */
static const char *other_file(int32_t magic) {
    switch (magic) {
        case LLMC_EVAL: return "questions with choices (HellaSwag, MMLU)";
        case LLMC_MODEL: return "a model";
        case LLMC_TOKENIZER: return "a tokenizer";
        case LLMC_STATE: return "the state of a run";
        default: return NULL;
    }
}

static status no_tokens(const shards *s, int number, int32_t magic, err *e) {
    const char *other = other_file(magic);
    if (other) {
        shard_error(s, number, SHARD_TOKENS, e, "is a file of llm.c with %s, not tokens", other);
        err_hint(e, "give the token files, such as fineweb_train_*.bin");
    } else {
        shard_error(s, number, SHARD_TOKENS, e,
                    "is no token file of llm.c: it begins with %" PRId32, magic);
        foreign_hint_keys(e);
    }
    return ST_FORMAT;
}

status llmc_open(shards *s, int number, const shards_spec *spec, err *e) {
    (void)spec; /* the header tells all */
    shard *sh = &s->shard[number];
    uint64_t bytes;
    int32_t head[3];
    TRY(foreign_size(s, number, SHARD_TOKENS, &bytes, e));
    if (bytes < LLMC_HEADER_BYTES)
        return shard_error(s, number, SHARD_TOKENS, e, "is shorter than llm.c's header");
    TRY(shard_read(s, number, SHARD_TOKENS, 0, head, sizeof head, e));
    if (head[0] != LLMC_TOKENS_U16 && head[0] != LLMC_TOKENS_U32)
        return no_tokens(s, number, head[0], e);
    int32_t version = head[0] == LLMC_TOKENS_U16 ? 1 : 7;
    if (head[1] != version)
        return shard_error(s, number, SHARD_TOKENS, e,
                           "has version %" PRId32 " in its header, not %" PRId32, head[1], version);
    sh->item = head[0] == LLMC_TOKENS_U16 ? ITEM_U16 : ITEM_U32;
    sh->data_offset = LLMC_HEADER_BYTES;
    TRY(foreign_count_tokens(s, number, bytes, e));
    if (head[2] >= 0 && (uint64_t)head[2] == sh->totals.tokens) return ST_OK;
    return shard_error(s, number, SHARD_TOKENS, e,
                       "holds %" PRIu64 " ids, its header says %" PRId32, sh->totals.tokens,
                       head[2]);
}
