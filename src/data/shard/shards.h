/* Token shards: a corpus after the tokenizer. A set is a folder that `data build` wrote, or token
 * files of another program, read as they are. Each of its files of tokens is a shard. Tokens and
 * documents are numbered through all shards of a set, from 0.
 *
 * Reading: shards_open; shards_copy for tokens; shards_ends for where documents end among them;
 * shards_locate for what is known about the document at a token; shards_close. The loader
 * (data/order) and `data show` do this. Writing: shard_writer_open, shard_writer_add for each
 * document, shard_writer_finish. `data build` does this.
 *
 * Our own format, a folder:
 *   manifest.json    format version, tokenizer hash, vocabulary, totals, sources, one record per
 *                    shard; written last and atomically, so a folder without it is not finished
 *   shard-00000.bin  64-byte header, then the tokens (u16 or u32, little-endian)
 *   shard-00000.idx  64-byte header, then one 40-byte record per document (shard_format.h)
 *   shard-00000.ids  the documents' own ids as text, one after the other; absent without ids
 *   shard-00000.mrk  a byte for each token: its marks (below); only in sets of conversations
 *   tokenizer.json   the tokenizer that made the tokens (written by `data build`)
 * A document lies wholly in one shard and has at least one token; with a tokenizer that has an
 * end-of-text token, that token is its last.
 *
 * Files of others (foreign.h): a file, a folder or a glob of nanoGPT, llm.c, Megatron,
 * nanotron/datatrove and OLMo token files; each file is a shard. Where they have no index,
 * documents are found by the end-of-text token, in the tokens that are asked about only.
 *
 * Opening looks at sizes and headers only, so it costs the same for a small and a large shard;
 * shards_verify reads and checks every byte. Files are read with pread through a small cache of open
 * files: neither memory nor descriptors grow with the corpus. Nothing that a file says is trusted;
 * wrong contents are errors. Many threads may read at once. A file that is replaced or written to
 * while the set is open is an error, too (shard_files.h). */
#ifndef DATA_SHARDS_H
#define DATA_SHARDS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/status.h"
#include "data/shard/shard_files.h"

/* Sets with marks have a version of their own: a program that does not know marks must not read
 * them, it would train on every token. */
enum { SHARD_VERSION = 2, SHARD_VERSION_MARKS = 3, SHARD_MAX_ID_BYTES = 4096 };

/* auto       by magic, sidecar files and name
 * athanor    a folder that `data build` wrote
 * nanogpt    headerless u16 .bin, documents end with end-of-text
 * llm.c      256 x i32 header, then u16 or u32; documents begin with end-of-text
 * megatron   PREFIX.bin and PREFIX.idx
 * nanotron   datatrove: .ds and .ds.index, .ds.metadata
 * olmo       headerless u16 or u32 .npy, documents end with end-of-text */
#define SHARDS_FORMATS(W)                                                                          \
    W(SHARDS_AUTO, "auto")                                                                         \
    W(SHARDS_OWN, "athanor")                                                                       \
    W(SHARDS_NANOGPT, "nanogpt")                                                                   \
    W(SHARDS_LLMC, "llm.c")                                                                        \
    W(SHARDS_MEGATRON, "megatron")                                                                 \
    W(SHARDS_NANOTRON, "nanotron")                                                                 \
    W(SHARDS_OLMO, "olmo")
typedef enum shards_format { SHARDS_FORMATS(LIST_ENUMERATOR) } shards_format;

typedef struct shards_spec {
    const char *path;     /* folder, file or glob */
    shards_format format; /* of files of others; our own folders are always recognised, and refused
                             when this says that they are something else */
    int width_bytes;      /* of a headerless id: 2 or 4; 0: 2 where the vocabulary fits. Refused
                             where the files say something else themselves */
    int32_t vocab_size;   /* of the run's tokenizer; 0: unknown (then that of the set) */
    int32_t eos;          /* end-of-text id of the run's tokenizer, for files without index; -1 */
    uint64_t max_tok;     /* only the shards that end at or before this token; 0: all. So a run goes
                             on with the shards it began with, though others were appended since */
    shard_files *files;   /* open files shared by many sets; NULL: the set has its own few */
} shards_spec;

typedef struct shard_totals {
    uint64_t tokens;
    uint64_t documents;  /* 0: unknown (files without index) */
    uint64_t text_bytes; /* of the text that the tokens were made from; 0: unknown */
} shard_totals;

/* How an id is stored. Our own sets: U16 or U32. */
typedef enum shard_item {
    ITEM_U8,
    ITEM_I8,
    ITEM_U16,
    ITEM_I16,
    ITEM_U32,
    ITEM_I32,
    ITEM_I64,
} shard_item;

/* The files of a shard. Others' formats: SHARD_DOCUMENTS is their index, there are no ids and no
 * marks. */
typedef enum shard_kind {
    SHARD_TOKENS,
    SHARD_DOCUMENTS,
    SHARD_IDS,
    SHARD_MARKS,
    SHARD_KINDS
} shard_kind;

/* Marks of a token, in one byte: two bits and, above them, who wrote it. */
enum { MARK_TRAINED = 1, MARK_REJECTED = 2, MARK_ROLE_SHIFT = 2, MARK_END = 1 << 5 };
typedef enum mark_role {
    ROLE_TEMPLATE, /* what the template puts around messages */
    ROLE_SYSTEM,
    ROLE_USER,
    ROLE_ASSISTANT,
    ROLE_TOOL,
    ROLE_REASONING, /* of the assistant */
    MARK_ROLES
} mark_role;
static inline uint8_t mark_of(mark_role role, bool trained) {
    return (uint8_t)(((int)role << MARK_ROLE_SHIFT) | (trained ? MARK_TRAINED : 0));
}
/* A role that no mark of ours has is taken as the template's: the byte is out of a file. */
static inline mark_role mark_get_role(uint8_t mark) {
    int role = (mark & (MARK_END - 1)) >> MARK_ROLE_SHIFT;
    return role < MARK_ROLES ? (mark_role)role : ROLE_TEMPLATE;
}

/* What a set of conversations is; all zero for a set of texts.
 *
 * A sample is a document, or two that follow each other (sequences = 2). Without labels such two are
 * a chosen conversation and a rejected one. With labels the first is an answer that is desirable or
 * not, and the second has the same prompt with the answer of the next sample, from which KTO
 * estimates its KL term (Ethayarajh et al. 2024, section 4). The trained tokens of a rejected or
 * undesirable answer have MARK_REJECTED. */
typedef struct shard_chat {
    bool marks;                             /* there are .mrk files */
    bool labels;                            /* samples are desirable or undesirable */
    int sequences;                          /* documents of a sample: 1 or 2 */
    uint64_t template_hash, variables_hash; /* of the chat template, and of what it was given */
} shard_chat;

typedef struct shard {
    char *file; /* "shard-00000.bin", or the path of a file of others */
    shard_totals totals;
    uint64_t first_tok; /* tokens and documents of the shards before this one */
    uint64_t first_doc;
    /* XXH3-64 of what follows the headers (of the whole .ids); 0 for files of others */
    uint64_t bin_hash, idx_hash, ids_hash, mrk_hash;
    file_identity known[SHARD_KINDS]; /* its files as they were when the set was opened */
    uint64_t id_bytes;                /* of the .ids file */
    uint64_t data_offset;             /* of the first token in its file */
    uint64_t sequences;               /* Megatron: pieces of documents in its index */
    bool by_sequence;                 /* Megatron: documents are not told, each sequence is one */
    shard_item item;
} shard;

/* An open set; what stands here is read-only after shards_open. */
typedef struct shards {
    char *dir; /* as given */
    shards_format format;
    bool has_index;  /* documents are known without reading tokens */
    bool has_scores; /* documents have a score */
    bool has_ids;    /* documents have an id */
    shard_chat chat;
    uint64_t tok_hash;  /* tok_hash() of the tokenizer; 0: unknown */
    int32_t vocab_size; /* every id is below it; files of others: the spec's, else 2^16 or 2^31-1 */
    int width_bytes;    /* of a stored id: 2 or 4; Megatron: 1 and 8 as well */
    int32_t eos;        /* what ends (or, llm.c, begins) a document; -1: unknown */
    shard_totals totals;
    shard *shard;
    int n_shards;
    char **source; /* paths of the documents' files */
    int n_sources;
    /* Names the content, not the place: equal for a copied set. Of our own sets it is made from the
     * manifest's checksums, of others' files from sizes and samples of the bytes. With max_tok it
     * covers those shards only, so that it does not change when shards are appended. */
    uint64_t fingerprint;
    char *tok_name;         /* of the tokenizer, where nanotron's metadata say; else NULL */
    file_identity manifest; /* of our own sets: the manifest.json that was read */
    shard_files *files;
    bool own_files; /* `files` goes with the set */
} shards;

/* ST_USAGE: no such thing, or it cannot be told what it is. ST_FORMAT: no manifest, or a file that
 * contradicts it, naming the file and key. A folder that holds train/ and valid/ is refused with a
 * hint that names them. */
status shards_open(shards **out, const shards_spec *spec, err *e) ATH_MUST_USE;
void shards_close(shards *s);
/* Parses manifest.json text without touching shard files; `shards_close` frees the result. */
status shards_parse_manifest(shards **out, const char *dir, const char *json, size_t len,
                             err *e) ATH_MUST_USE;
/* As the key `format` of configs spells it: "llm.c". */
const char *shards_format_name(shards_format f);
/* Full check: checksums, ids below vocab_size, document bounds. ST_FORMAT names the first fault. */
status shards_verify(const shards *s, err *e) ATH_MUST_USE;
/* ST_USAGE when the shards were made with another tokenizer than `tok_hash`; sets that do not say
 * pass. */
status shards_check_tokenizer(const shards *s, uint64_t tok_hash, err *e) ATH_MUST_USE;

/* Copies n tokens from `first` on; the range must lie inside the set (CHECK). Ids are as stored:
 * the caller compares *largest (as unsigned; may be NULL) with its vocabulary. ST_FORMAT when the
 * file cannot be read any more. */
status shards_copy(const shards *s, uint64_t first, int64_t n, int32_t *ids, uint32_t *largest,
                   err *e) ATH_MUST_USE;
/* The marks of n tokens from `first` on. Sets with marks only. */
status shards_copy_marks(const shards *s, uint64_t first, int64_t n, uint8_t *marks,
                         err *e) ATH_MUST_USE;
/* Where documents end in the n tokens from `first` on: ascending counts of tokens 1..n after which
 * a document ends, into ends[n] (the caller's); *n_ends of them. The end of the set is always one.
 * `ids` are those n tokens, for sets without index (NULL: they are read). ST_FORMAT: impossible
 * bounds, or unreadable. */
status shards_ends(const shards *s, uint64_t first, int64_t n, const int32_t *ids, int32_t *ends,
                   int64_t *n_ends, err *e) ATH_MUST_USE;

/* A document: all that is known about it. Strings live in the shards or in the arena. */
typedef struct shard_place {
    uint64_t document;           /* number in the set; UINT64_MAX: unknown, without an index */
    uint64_t first_tok, end_tok; /* in the set; without index the search for the bounds looks at
                                    most 1 Mi tokens each way */
    int shard;
    const char *source;   /* path of the text it was made from; "" unknown */
    uint32_t line;        /* record in it, from 1; 0: the whole file */
    uint64_t text_offset; /* of the record, in bytes of the unpacked source */
    const char *id;       /* the document's own id; NULL: none */
    float score;          /* NaN: none */
} shard_place;
/* The document that holds token `tok`. */
status shards_locate(const shards *s, uint64_t tok, arena *a, shard_place *out,
                     err *e) ATH_MUST_USE;
/* Bounds and scores of n documents from `doc` on, for those who need all of them (packing): end_tok
 * of each in tokens of the set, ascending (Megatron's and nanotron's documents may be empty: equal
 * ends); score may be NULL. Sets with index only. */
status shards_bounds(const shards *s, uint64_t doc, int64_t n, uint64_t *end_tok, float *score,
                     err *e) ATH_MUST_USE;

/* ---- writing ---- */

typedef struct shard_writer_options {
    uint64_t tok_hash;
    int32_t vocab_size;
    int32_t eos;           /* id appended to each document; -1: none */
    uint64_t shard_tokens; /* a shard is closed when it holds this many; 0: 100 million */
    bool ids;              /* documents have ids: .ids files are written */
    bool scores;
    shard_chat chat; /* with marks eos must be -1: the template ends what it renders */
    bool append;     /* new shards after those of an existing set with the same tokenizer */
} shard_writer_options;

typedef struct shard_record {
    const int32_t *ids;   /* tokens, without end-of-text */
    const uint8_t *marks; /* of each id, in sets with marks */
    int64_t n;
    const char *source; /* path; equal paths in a row share one entry of the manifest */
    uint32_t line;
    uint64_t text_offset, text_bytes;
    const char *id; /* NULL: none */
    float score;
    bool more; /* the document goes on in the next record: here only ids and n count, and all else
                  is taken from the last record of the document */
} shard_record;

typedef struct shard_writer shard_writer;
/* Creates the folder; removes an older shard set in it (unless append), and nothing else. */
status shard_writer_open(shard_writer **out, const char *dir, const shard_writer_options *opt,
                         err *e) ATH_MUST_USE;
/* Adds one document. ST_USAGE: an id outside the vocabulary. A document without tokens is not
 * stored. */
status shard_writer_add(shard_writer *w, const shard_record *r, err *e) ATH_MUST_USE;
shard_totals shard_writer_totals(const shard_writer *w);
/* Makes durable what was added so far, also in the middle of a document, and puts what
 * shard_writer_resume needs into the empty object `state`. It holds whatever is written later. */
status shard_writer_sync(shard_writer *w, json_t *state, err *e) ATH_MUST_USE;
/* In place of shard_writer_open: goes on at a state of an earlier writer with the same options. It
 * cuts the files down to that state, so the finished set is byte for byte that of a writer that was
 * never interrupted. Where the earlier writer had finished, its manifest is removed first.
 * ST_FORMAT: the files or the state are not what a writer left; then nothing was changed that the
 * state speaks of. */
status shard_writer_resume(shard_writer **out, const char *dir, const shard_writer_options *opt,
                           const json_t *state, err *e) ATH_MUST_USE;
/* Writes the manifest. The folder is complete only after ST_OK. Frees nothing. */
status shard_writer_finish(shard_writer *w, err *e) ATH_MUST_USE;
/* Removes the unfinished shard of a writer that was neither finished nor ever synced. NULL is fine.
 */
void shard_writer_free(shard_writer *w);
/* Removes manifest.json and shard files from a folder, if there are any. */
status shards_remove(const char *dir, err *e) ATH_MUST_USE;

#endif
