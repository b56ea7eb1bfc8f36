/* See reader_int.h. An input that exists is taken by its name even if it looks like a glob. */
#include "data/text/reader_int.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/file.h"

enum { MAX_FOLDER_DEPTH = 64 };

typedef struct finder {
    input_list *list;
    arena *mem;
    reader_format format; /* what was asked for */
} finder;

/* ---- formats by name ---- */

/* Whether the name, of n bytes, ends with the suffix in any case. */
static bool ends_with(const char *name, size_t n, const char *suffix) {
    size_t m = strlen(suffix);
    return n > m && strncasecmp(name + n - m, suffix, m) == 0;
}

static size_t without_packing(const char *name) {
    static const char *const PACKING[] = {".gz", ".zst", ".zstd"};
    size_t n = strlen(name);
    for (int i = 0; i < ARRAY_LEN(PACKING); i++)
        if (ends_with(name, n, PACKING[i])) return n - strlen(PACKING[i]);
    return n;
}

static reader_format format_of(const char *name) {
    static const struct {
        const char *suffix;
        reader_format format;
    } KNOWN[] = {{".jsonl", READER_JSONL}, {".ndjson", READER_JSONL}, {".json", READER_JSONL},
                 {".csv", READER_CSV},     {".tsv", READER_TSV},      {".parquet", READER_PARQUET}};
    size_t n = without_packing(name);
    for (int i = 0; i < ARRAY_LEN(KNOWN); i++)
        if (ends_with(name, n, KNOWN[i].suffix)) return KNOWN[i].format;
    return READER_TEXT;
}

/* What a file is that cannot be text, by its name; NULL otherwise. */
static const char *not_text(const char *name) {
    static const struct {
        const char *kind, *suffixes;
    } KINDS[] = {{"Arrow", ".arrow "},
                 {"PDF", ".pdf "},
                 {"packed", ".zip .tar .tgz .bz2 .xz .7z "},
                 {"image", ".png .jpg .jpeg .gif .webp "},
                 {"sound", ".mp3 .wav "},
                 {"film", ".mp4 "},
                 {"NumPy", ".npy .npz "},
                 {"tensor", ".safetensors .gguf .pt .pth "},
                 {"pickle", ".pkl .pickle "},
                 {"word processor", ".docx .doc .odt "},
                 {"table processor", ".xlsx .xls .ods "},
                 {"book", ".epub "},
                 {"database", ".sqlite .db "},
                 {"program", ".exe .so .pyc .o "}};
    size_t n = without_packing(name);
    const char *dot = memrchr(name, '.', n);
    size_t len = dot ? (size_t)(name + n - dot) : 0;
    if (!dot || dot == name) return NULL;
    for (int i = 0; i < ARRAY_LEN(KINDS); i++)
        for (const char *s = KINDS[i].suffixes, *end; *s; s = end + 1) {
            end = strchr(s, ' ');
            if ((size_t)(end - s) == len && strncasecmp(dot, s, len) == 0) return KINDS[i].kind;
        }
    return NULL;
}

/* ---- finding ---- */

static status add_file(finder *f, const char *path, const struct stat *sb, err *e) {
    const char *kind = f->format == READER_AUTO ? not_text(path) : NULL;
    if (kind) {
        err_at(e, ST_FORMAT, path, "%s is not text but, by its name, a %s file", path, kind);
        return err_hint(
            e, "leave it out, for example with a glob such as 'DIR/*.txt'; or say what it is "
               "with format=text");
    }
    input_file file = {.path = path,
                       .format = f->format == READER_AUTO ? format_of(path) : f->format};
    if (sb && S_ISREG(sb->st_mode)) {
        file.regular = true;
        file.bytes = (uint64_t)sb->st_size;
        file.modified_ns = sb->st_mtim.tv_sec * INT64_C(1000000000) + sb->st_mtim.tv_nsec;
    }
    VEC_PUSH(f->list->file, f->list->n, f->list->cap, file);
    return ST_OK;
}

/* Symbolic links to files are followed, links to folders inside a folder are not: no cycles. */
static status add_folder(finder *f, const char *dir, int depth, err *e) {
    char **names;
    int n;
    if (depth > MAX_FOLDER_DEPTH)
        return err_at(e, ST_USAGE, dir, "%s is more than %d folders deep", dir, MAX_FOLDER_DEPTH);
    TRY(file_list_dir(f->mem, dir, &names, &n, e));
    for (int i = 0; i < n; i++) {
        if (names[i][0] == '.') continue;
        char *path = path_join(f->mem, dir, names[i]);
        struct stat link, sb;
        if (lstat(path, &link) != 0 || stat(path, &sb) != 0) return err_unreadable(e, "read", path);
        if (S_ISDIR(link.st_mode))
            TRY(add_folder(f, path, depth + 1, e));
        else if (S_ISREG(sb.st_mode))
            TRY(add_file(f, path, &sb, e));
    }
    return ST_OK;
}

static status add_path(finder *f, const char *path, err *e) {
    struct stat sb;
    if (stat(path, &sb) != 0) return err_unreadable(e, "read", path);
    return S_ISDIR(sb.st_mode) ? add_folder(f, path, 0, e) : add_file(f, path, &sb, e);
}

static int compare_paths(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static status add_glob(finder *f, const char *pattern, err *e) {
    glob_t found = {0};
    int rc = glob(pattern, GLOB_NOSORT | GLOB_ERR, NULL, &found);
    status st = ST_OK;
    if (rc == GLOB_NOMATCH) {
        err_at(e, ST_USAGE, pattern, "%s matches no file", pattern);
        st = err_hint(e, "* matches within one folder; a folder is read with all below it");
    } else if (rc != 0) {
        st = err_unreadable(e, "list", pattern);
    } else {
        qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, compare_paths);
    }
    for (size_t i = 0; st == ST_OK && i < found.gl_pathc; i++)
        st = add_path(f, arena_strdup(f->mem, found.gl_pathv[i]), e);
    globfree(&found);
    return st;
}

static status add_input(finder *f, const char *input, err *e) {
    struct stat sb;
    const char *path = arena_strdup(f->mem, input);
    if (strcmp(path, "-") == 0) return add_file(f, path, NULL, e);
    bool pattern = strpbrk(path, "*?[") && stat(path, &sb) != 0;
    return pattern ? add_glob(f, path, e) : add_path(f, path, e);
}

status input_list_find(input_list *l, arena *a, const char *const *inputs, int n,
                       reader_format format, err *e) {
    finder f = {.list = l, .mem = a, .format = format};
    *l = (input_list){0};
    for (int i = 0; i < n; i++) TRY(add_input(&f, inputs[i], e));
    if (l->n > 0) return ST_OK;
    err_at(e, ST_USAGE, n ? inputs[0] : "inputs", "%s holds no files",
           n ? inputs[0] : "the list of inputs");
    return err_hint(
        e, "give a text file, a .jsonl, .csv or .parquet file or a folder that holds some");
}

void input_list_free(input_list *l) {
    free(l->file);
    *l = (input_list){0};
}
