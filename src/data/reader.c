/* See reader.h. reader_next moves from file to file; text files are mapped, JSONL goes through a
 * line buffer. Read reader_next, then next_line. */
#include "data/reader.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 20, MAX_LINE_BYTES = 1 << 30, MAX_FOLDER_DEPTH = 64 };

typedef struct input_file {
    const char *path;
    uint64_t bytes;
    bool jsonl;
} input_file;

struct reader {
    arena *mem;
    const char *field, *label; /* label NULL: not asked for */
    input_file *file;
    int n_files, cap;
    bool text_only, sized;
    uint64_t bytes_total, bytes_done, n_docs;
    int at; /* the file being read, or the next one */
    /* of the document just given, or of the JSONL file being read */
    file_map map;
    char *whole; /* standard input and pipes */
    json_t *json;
    int fd; /* -1: no JSONL file is open */
    strbuf buf;
    size_t begin; /* of what is not yet consumed in buf */
    bool end;
    uint32_t line;
};

static bool ends_with(const char *s, const char *suffix) {
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && strcmp(s + n - m, suffix) == 0;
}

static void add_file(reader *r, const char *path, const struct stat *sb, reader_format format) {
    input_file f = {.path = path};
    f.jsonl = format == READER_JSONL ||
              (format == READER_AUTO && (ends_with(path, ".jsonl") || ends_with(path, ".ndjson")));
    r->text_only &= !f.jsonl;
    if (sb && S_ISREG(sb->st_mode))
        f.bytes = (uint64_t)sb->st_size;
    else
        r->sized = false;
    r->bytes_total += f.bytes;
    VEC_PUSH(r->file, r->n_files, r->cap, f);
}

/* Symbolic links to files are followed, links to folders inside a folder are not: no cycles. */
static status add_folder(reader *r, const char *dir, reader_format format, int depth, err *e) {
    char **names;
    int n;
    if (depth > MAX_FOLDER_DEPTH) {
        err_set(e, ST_USAGE, "%s is more than %d folders deep", dir, MAX_FOLDER_DEPTH);
        err_where(e, "%s", dir);
        return ST_USAGE;
    }
    TRY(file_list_dir(r->mem, dir, &names, &n, e));
    for (int i = 0; i < n; i++) {
        if (names[i][0] == '.') continue;
        char *path = path_join(r->mem, dir, names[i]);
        struct stat link, sb;
        if (lstat(path, &link) != 0 || stat(path, &sb) != 0) return err_unreadable(e, "read", path);
        if (S_ISDIR(link.st_mode))
            TRY(add_folder(r, path, format, depth + 1, e));
        else if (S_ISREG(sb.st_mode))
            add_file(r, path, &sb, format);
    }
    return ST_OK;
}

static status add_input(reader *r, const char *input, reader_format format, err *e) {
    struct stat sb;
    const char *path = arena_strdup(r->mem, input);
    if (strcmp(path, "-") == 0) {
        add_file(r, path, NULL, format);
        return ST_OK;
    }
    if (stat(path, &sb) != 0) return err_unreadable(e, "read", path);
    if (S_ISDIR(sb.st_mode)) return add_folder(r, path, format, 0, e);
    add_file(r, path, &sb, format);
    return ST_OK;
}

static status no_text(const reader *r, err *e) {
    const char *first = r->n_files ? r->file[0].path : "input";
    err_set(e, ST_USAGE,
            r->n_files > 1 ? "%s and the other inputs hold no text"
                           : "%s holds no text: the corpus is empty",
            first);
    err_where(e, "%s", first);
    err_hint(e, "give a text file, a .jsonl file or a folder that holds some");
    return ST_USAGE;
}

status reader_open(reader **out, const char *const *inputs, int n, const reader_options *opt,
                   err *e) {
    *out = NULL;
    reader *r = xcalloc(1, sizeof *r);
    r->mem = arena_new("reader");
    r->field = arena_strdup(r->mem, opt && opt->field ? opt->field : "text");
    if (opt && opt->label) r->label = arena_strdup(r->mem, opt->label);
    r->text_only = r->sized = true;
    r->fd = -1;
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < n; i++)
        st = add_input(r, inputs[i], opt ? opt->format : READER_AUTO, e);
    if (st == ST_OK && r->n_files == 0) {
        st = err_set(e, ST_USAGE, "%s holds no files", n ? inputs[0] : "the list of inputs");
        err_where(e, "%s", n ? inputs[0] : "inputs");
        err_hint(e, "give a text file, a .jsonl file or a folder that holds some");
    }
    if (st == ST_OK)
        *out = r;
    else
        reader_close(r);
    return st;
}

static void drop_document(reader *r) {
    file_map_close(&r->map);
    free(r->whole);
    r->whole = NULL;
    json_decref(r->json);
    r->json = NULL;
}

static void close_lines(reader *r) {
    if (r->fd > 0) close(r->fd);
    r->fd = -1;
    strbuf_clear(&r->buf);
    r->begin = 0;
    r->end = false;
    r->line = 0;
}

void reader_close(reader *r) {
    if (!r) return;
    drop_document(r);
    close_lines(r);
    strbuf_free(&r->buf);
    free(r->file);
    arena_free(r->mem);
    free(r);
}

/* Moves what is left to the front and reads more; sets r->end at the end of the file. */
static status fill_buffer(reader *r, err *e) {
    const char *path = r->file[r->at].path;
    size_t left = r->buf.len - r->begin;
    if (r->begin) {
        memmove(r->buf.data, r->buf.data + r->begin, left);
        r->buf.len = left;
        r->begin = 0;
    }
    if (left > MAX_LINE_BYTES) {
        err_set(e, ST_FORMAT, "%s:%u is longer than %d bytes", path, r->line + 1, MAX_LINE_BYTES);
        err_where(e, "%s:%u", path, r->line + 1);
        err_hint(e, "JSONL has one object a line; for plain text use format=text");
        return ST_FORMAT;
    }
    char *chunk = xmalloc(READ_BYTES);
    ssize_t got;
    do got = read(r->fd, chunk, READ_BYTES);
    while (got < 0 && errno == EINTR);
    if (got > 0) strbuf_append(&r->buf, chunk, (size_t)got);
    free(chunk);
    if (got < 0) return err_unreadable(e, "read", path);
    r->end = got == 0;
    return ST_OK;
}

/* The next line without its end; *line = NULL at the end of the file. */
static status next_line(reader *r, const char **line, size_t *len, err *e) {
    size_t seen = 0;
    *line = NULL;
    for (;;) {
        size_t left = r->buf.len - r->begin;
        const char *p = left ? r->buf.data + r->begin : NULL;
        const char *nl = left > seen ? memchr(p + seen, '\n', left - seen) : NULL;
        if (nl || (r->end && left)) {
            *line = p;
            *len = nl ? (size_t)(nl - p) : left;
            size_t used = *len + (nl != NULL);
            r->begin += used;
            r->bytes_done += used;
            r->line++;
            return ST_OK;
        }
        if (r->end) return ST_OK;
        seen = left;
        TRY(fill_buffer(r, e));
    }
}

static status line_error(const reader *r, err *e, const char *what, const char *detail) {
    const char *path = r->file[r->at].path;
    err_set(e, ST_FORMAT, "%s:%u %s%s", path, r->line, what, detail);
    err_where(e, "%s:%u", path, r->line);
    return ST_FORMAT;
}

static status parse_line(reader *r, const char *line, size_t len, document *doc, err *e) {
    json_error_t je;
    r->json = json_loadb(line, len, JSON_ALLOW_NUL | JSON_DECODE_ANY, &je);
    if (!r->json) {
        line_error(r, e, "is not JSON: ", je.text);
        err_hint(e, "JSONL has one object a line; for plain text use format=text");
        return ST_FORMAT;
    }
    const json_t *text = json_object_get(r->json, r->field);
    if (json_is_string(text)) {
        *doc = (document){.text = json_string_value(text),
                          .len = json_string_length(text),
                          .source = r->file[r->at].path,
                          .line = r->line};
        if (r->label) doc->label = json_string_value(json_object_get(r->json, r->label));
        return ST_OK;
    }
    if (!json_is_object(r->json)) return line_error(r, e, "is not a JSON object", "");
    line_error(r, e, text ? "does not hold text in field " : "has no field ", r->field);
    const char *key = json_object_iter_key(json_object_iter(r->json));
    if (key)
        err_hint(e, "name the field that holds the text: field=NAME (the line has \"%s\")", key);
    return ST_FORMAT;
}

static bool is_blank(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r') return false;
    return true;
}

static status open_lines(reader *r, err *e) {
    const char *path = r->file[r->at].path;
    r->fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    return r->fd < 0 ? err_unreadable(e, "open", path) : ST_OK;
}

/* One JSONL document; doc->len 0 at the end of the file. */
static status next_jsonl(reader *r, document *doc, err *e) {
    if (r->fd < 0) TRY(open_lines(r, e));
    while (doc->len == 0) {
        const char *line;
        size_t len;
        drop_document(r);
        TRY(next_line(r, &line, &len, e));
        if (!line) {
            close_lines(r);
            r->at++;
            return ST_OK;
        }
        if (!is_blank(line, len)) TRY(parse_line(r, line, len, doc, e));
    }
    return ST_OK;
}

static status next_text(reader *r, document *doc, err *e) {
    const char *path = r->file[r->at].path;
    struct stat sb;
    *doc = (document){.source = path};
    if (strcmp(path, "-") != 0 && stat(path, &sb) == 0 && S_ISREG(sb.st_mode)) {
        TRY(file_map_open(&r->map, path, e));
        doc->text = (const char *)r->map.data;
        doc->len = r->map.len;
    } else {
        TRY(file_read_all(path, &r->whole, &doc->len, e));
        doc->text = r->whole;
    }
    r->at++;
    r->bytes_done += doc->len;
    status st = text_check(path, doc->text, doc->len, e);
    reader_forget(r, doc->len); /* the check has read all of it */
    return st;
}

status reader_next(reader *r, document *doc, bool *more, err *e) {
    *doc = (document){0};
    while (doc->len == 0 && r->at < r->n_files) {
        drop_document(r);
        TRY(r->file[r->at].jsonl ? next_jsonl(r, doc, e) : next_text(r, doc, e));
    }
    *more = doc->len > 0;
    r->n_docs += *more;
    return *more || r->n_docs ? ST_OK : no_text(r, e);
}

/* Pages of a mapping come back from the file if they are touched again after all. */
void reader_forget(const reader *r, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes > r->map.len) bytes = r->map.len;
    if (bytes / page == 0) return;
    madvise((void *)(uintptr_t)r->map.data, bytes / page * page, MADV_DONTNEED);
}

int reader_n_files(const reader *r) {
    return r->n_files;
}
bool reader_is_text_only(const reader *r) {
    return r->text_only;
}
uint64_t reader_bytes_done(const reader *r) {
    return r->bytes_done;
}
uint64_t reader_bytes_total(const reader *r) {
    return r->sized ? r->bytes_total : 0;
}
