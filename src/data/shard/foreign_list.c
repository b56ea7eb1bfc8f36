/* Which files a path means, and of which format they are.
 *
 * A path is a file, a folder (the token files right in it, sorted by name) or a glob; Megatron's
 * sets go by the name of either file or by their common prefix. The format is told by the spec, or
 * found out file by file from its sidecars, its first bytes and its name; all must be of one. What
 * could be read in two ways is refused rather than guessed. */
#include "base/text.h"
#include "data/shard/foreign.h"

#include <ctype.h>
#include <glob.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { HEAD_BYTES = 16 };

static status refuse(err *e, status code, const char *path, const char *what, const char *hint) {
    err_at(e, code, path, "%s %s", path, what);
    if (hint)
        err_hint(e, "%s", hint);
    else
        foreign_hint_keys(e);
    return code;
}

/* ---- what one file is ---- */

static status read_head(const char *path, uint8_t head[HEAD_BYTES], err *e) {
    memset(head, 0, HEAD_BYTES);
    int fd;
    TRY(file_open_part(path, &fd, NULL, e));
    status st = file_read_at(fd, head, HEAD_BYTES, 0) < 0 ? err_unreadable(e, "read", path) : ST_OK;
    close(fd);
    return st;
}

static bool is_llmc(const uint8_t head[HEAD_BYTES]) {
    int32_t magic;
    memcpy(&magic, head, 4);
    return llmc_contents(magic) != NULL;
}

static bool is_text_name(const char *path) {
    static const char *const TEXT[] = {".txt", ".jsonl", ".ndjson", ".json", ".csv",
                                       ".tsv", ".md",    ".gz",     ".zst"};
    for (int i = 0; i < ARRAY_LEN(TEXT); i++)
        if (text_ends_with(path, TEXT[i])) return true;
    return false;
}

/* "a/b.bin" -> "a/b.idx" */
static const char *with_suffix(arena *a, const char *path, const char *suffix) {
    return arena_printf(a, "%.*s%s", (int)strlen(path) - 4, path, suffix);
}

static status not_tokens(arena *a, const char *path, err *e) {
    if (!is_text_name(path))
        return refuse(e, ST_USAGE, path, "does not tell by its name which token file it is", NULL);
    return refuse(e, ST_USAGE, path, "is text, not tokens",
                  arena_printf(a,
                               "turn it into shards with `athanor data build %s -o SHARDS "
                               "tokenizer=F`",
                               path));
}

static status recognise(const char *path, arena *a, shards_format *format, err *e) {
    uint8_t head[HEAD_BYTES];
    TRY(read_head(path, head, e));
    if (memcmp(head, "ATHSHRD1", 8) == 0 || memcmp(head, "ATHSIDX1", 8) == 0)
        return refuse(e, ST_USAGE, path, "is one file of a shard folder", "give the folder");
    *format = SHARDS_AUTO;
    if (text_ends_with(path, ".ds"))
        *format = SHARDS_NANOTRON;
    else if (text_ends_with(path, ".npy"))
        *format = SHARDS_OLMO;
    else if (text_ends_with(path, ".bin"))
        *format = file_exists(with_suffix(a, path, ".idx")) ? SHARDS_MEGATRON
                  : is_llmc(head)                           ? SHARDS_LLMC
                                                            : SHARDS_NANOGPT;
    return *format == SHARDS_AUTO ? not_tokens(a, path, e) : ST_OK;
}

/* ---- candidates ---- */

typedef struct candidates {
    arena *a;
    char **file;
    int32_t n, cap;
} candidates;

static void add(candidates *c, const char *path) {
    c->file = arena_grow(c->a, c->file, c->n, &c->cap, sizeof *c->file);
    c->file[c->n++] = arena_strdup(c->a, path);
}

/* Suffix of the files that hold the ids. */
static const char *suffix_of(shards_format format) {
    return format == SHARDS_NANOTRON ? ".ds" : format == SHARDS_OLMO ? ".npy" : ".bin";
}

static bool is_token_name(const char *name, shards_format format) {
    if (format != SHARDS_AUTO) return text_ends_with(name, suffix_of(format));
    return text_ends_with(name, ".bin") || text_ends_with(name, ".ds") ||
           text_ends_with(name, ".npy");
}

static bool is_sidecar(const char *name) {
    static const char *const SUFFIX[] = {".idx",     ".ds.index", ".ds.metadata",
                                         ".ds.loss", ".csv.gz",   ".csv"};
    for (int i = 0; i < ARRAY_LEN(SUFFIX); i++)
        if (text_ends_with(name, SUFFIX[i])) return true;
    return false;
}

/* Whether one of the words of a file's name says that it is not for training. */
static bool is_validation_name(const char *path) {
    static const char *const WORDS[] = {"val", "valid", "validation", "test", "eval"};
    for (const char *p = path_base(path); *p;) {
        size_t n = 0;
        while (isalnum((unsigned char)p[n])) n++;
        for (int i = 0; i < ARRAY_LEN(WORDS); i++)
            if (n == strlen(WORDS[i]) && strncasecmp(p, WORDS[i], n) == 0) return true;
        p += n ? n : 1;
    }
    return false;
}

/* A folder often holds both sides of a split; read as one set, validation would be trained on. */
static status check_sides(const candidates *c, const char *dir, err *e) {
    const char *train = NULL, *valid = NULL;
    for (int i = 0; i < c->n; i++) {
        if (is_validation_name(c->file[i]))
            valid = path_base(c->file[i]);
        else
            train = path_base(c->file[i]);
    }
    if (!train || !valid) return ST_OK;
    err_at(e, ST_USAGE, dir, "%s holds files to train on and to validate on: %s and %s", dir, train,
           valid);
    return err_hint(e, "name the files, or give a glob such as '%s/*train*'", dir);
}

static status list_folder(candidates *c, const char *dir, shards_format format, err *e) {
    char **names;
    int n;
    TRY(file_list_dir(c->a, dir, &names, &n, e));
    for (int i = 0; i < n; i++)
        if (names[i][0] != '.' && is_token_name(names[i], format))
            add(c, path_join(c->a, dir, names[i]));
    if (c->n == 0)
        return refuse(e, ST_FORMAT, dir,
                      "has no manifest.json and no token files: it is no shard folder, or its "
                      "build did not finish",
                      "build it with `athanor data build`, or say format= of the token files");
    return check_sides(c, dir, e);
}

static status list_glob(candidates *c, const char *pattern, err *e) {
    glob_t g = {0};
    int rc = glob(pattern, 0, NULL, &g);
    for (size_t i = 0; rc == 0 && i < g.gl_pathc; i++)
        if (!is_sidecar(g.gl_pathv[i]) && !file_is_dir(g.gl_pathv[i])) add(c, g.gl_pathv[i]);
    globfree(&g);
    return c->n ? ST_OK
                : refuse(e, ST_USAGE, pattern, "matches no token file", "check the pattern");
}

/* The .bin file of a Megatron set that is named by its prefix or its index; NULL: it is not one. */
static const char *megatron_bin(arena *a, const char *path) {
    const char *bin = text_ends_with(path, ".idx")   ? with_suffix(a, path, ".bin")
                      : text_ends_with(path, ".bin") ? path
                                                     : arena_printf(a, "%s.bin", path);
    return file_exists(bin) && file_exists(with_suffix(a, bin, ".idx")) ? bin : NULL;
}

static status list_path(candidates *c, const shards_spec *spec, err *e) {
    const char *path = spec->path, *bin = NULL;
    if (file_is_dir(path)) return list_folder(c, path, spec->format, e);
    if (spec->format == SHARDS_MEGATRON || spec->format == SHARDS_AUTO)
        bin = megatron_bin(c->a, path);
    if (bin)
        add(c, bin);
    else if (file_exists(path))
        add(c, path);
    else if (strpbrk(path, "*?["))
        return list_glob(c, path, e);
    else
        return shards_none_such(path, e);
    return ST_OK;
}

static status check_megatron(candidates *c, err *e) {
    for (int i = 0; i < c->n; i++)
        if (!text_ends_with(c->file[i], ".bin") ||
            !file_exists(with_suffix(c->a, c->file[i], ".idx")))
            return refuse(e, ST_USAGE, c->file[i], "has no .bin and .idx of Megatron", NULL);
    return ST_OK;
}

static status two_formats(const char *path, const candidates *c, int other, shards_format a,
                          shards_format b, err *e) {
    err_at(e, ST_USAGE, path, "%s holds files of several formats: %s is of %s, %s of %s", path,
           path_base(c->file[0]), shards_format_name(a), path_base(c->file[other]),
           shards_format_name(b));
    return err_hint(e, "give a glob that matches the files of one format, or say format=");
}

status foreign_list_files(foreign_list *out, const shards_spec *spec, arena *a, err *e) {
    candidates c = {.a = a};
    TRY(list_path(&c, spec, e));
    *out = (foreign_list){.file = c.file, .n = c.n, .format = spec->format};
    for (int i = 0; spec->format == SHARDS_AUTO && i < c.n; i++) {
        shards_format format;
        TRY(recognise(c.file[i], a, &format, e));
        if (i > 0 && format != out->format)
            return two_formats(spec->path, &c, i, out->format, format, e);
        out->format = format;
    }
    return out->format == SHARDS_MEGATRON ? check_megatron(&c, e) : ST_OK;
}
