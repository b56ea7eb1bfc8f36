/* Results under a hidden name until they are complete (model_folder.h). */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "io/model_folder.h"

static bool is_empty_folder(arena *a, const char *path) {
    char **names;
    int n;
    err ignored;
    return file_is_dir(path) && file_list_dir(a, path, &names, &n, &ignored) == ST_OK && n == 0;
}

/* --force deletes only what could have been written by it. */
static bool is_model(arena *a, const char *path) {
    if (file_is_dir(path)) return file_exists(path_join(a, path, "config.json"));
    size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".gguf") == 0;
}

static status refuse(const char *path, const char *why, const char *hint, err *e) {
    err_set(e, ST_USAGE, "%s %s", path, why);
    err_hint(e, "%s", hint);
    return err_where(e, "-o %s", path);
}

/* "DIR/.PREFIX-PID-NAME" for DIR/NAME: the end of a name tells the kind of a file. */
static const char *hidden_name(arena *a, const char *path, const char *prefix) {
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path + 1) : 0;
    return arena_printf(a, "%.*s.%s-%ld-%s", folder, path, prefix, (long)getpid(), path + folder);
}

/* Without slashes at the end. */
static const char *plain_path(arena *a, const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    return arena_strndup(a, path, n);
}

status staged_begin(staged *s, arena *a, const char *path, bool folder, bool force, err *e) {
    path = plain_path(a, path);
    *s = (staged){
        .path = path, .temp = hidden_name(a, path, "tmp"), .old = hidden_name(a, path, "old")};
    if (file_exists(path) && !is_empty_folder(a, path)) {
        if (!force) return refuse(path, "exists already", "give another name, or --force", e);
        if (!is_model(a, path))
            return refuse(path, "holds something else than a model and is not replaced",
                          "give another name, or remove it yourself", e);
        s->replace = true;
    }
    const char *slash = strrchr(path, '/');
    if (slash && slash > path)
        TRY(file_make_dirs(arena_strndup(a, path, (size_t)(slash - path)), e));
    TRY(file_remove_tree(s->temp, e));
    return folder ? file_make_dirs(s->temp, e) : ST_OK;
}

status staged_commit(const staged *s, err *e) {
    const char *slash = strrchr(s->path, '/');
    char parent[4096] = ".";
    if (slash) snprintf(parent, sizeof parent, "%.*s", (int)(slash - s->path + 1), s->path);
    if (file_is_dir(s->temp)) TRY(file_sync_dir(s->temp, e));
    if (s->replace) TRY(file_rename(s->path, s->old, e));
    status st = file_rename(s->temp, s->path, e);
    if (st != ST_OK && s->replace) {
        err ignored;
        if (file_rename(s->old, s->path, &ignored) != ST_OK)
            err_hint(e, "what stood there is now %s", s->old);
    }
    TRY(st);
    TRY(file_sync_dir(parent, e));
    return s->replace ? file_remove_tree(s->old, e) : ST_OK;
}

void staged_abandon(const staged *s) {
    err ignored;
    status st = s->temp ? file_remove_tree(s->temp, &ignored) : ST_OK;
    (void)st; /* the failure that led here is told */
}
