/* Results under a hidden name until they are complete (model_folder.h). */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "io/hf/model_folder.h"

static bool is_empty_folder(arena *a, const char *path) {
    char **names;
    int n;
    err ignored;
    return file_is_dir(path) && file_list_dir(a, path, &names, &n, &ignored) == ST_OK && n == 0;
}

/* --force deletes only what could have been written by it: a folder that also holds anything else
 * (a run, a project with a config.json) is not replaced. *other names what that is. */
static bool is_model(arena *a, const char *path, const char **other) {
    char **names;
    int n;
    err ignored;
    *other = NULL;
    if (!file_is_dir(path)) return gguf_is_file(path);
    if (file_list_dir(a, path, &names, &n, &ignored) != ST_OK) return false;
    for (int i = 0; i < n && !*other; i++)
        if (!model_folder_may_hold(names[i])) *other = names[i];
    return !*other && file_exists(path_join(a, path, "config.json"));
}

static status refuse_existing(const char *path, err *e) {
    err_set(e, ST_USAGE, "%s exists already", path);
    err_hint(e, "give another name, or --force");
    return err_where(e, "-o %s", path);
}

static status refuse_other(const char *path, const char *other, err *e) {
    if (other)
        err_set(e, ST_USAGE, "%s holds %s, which is no part of a model, and is not replaced", path,
                other);
    else
        err_set(e, ST_USAGE, "%s is no model and is not replaced", path);
    err_hint(e, "give another name, or remove it yourself");
    return err_where(e, "-o %s", path);
}

/* Also a link that leads nowhere. */
static bool is_taken(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

/* "DIR/.tmp-PID-NAME" for DIR/NAME. */
static const char *hidden_name(arena *a, const char *path) {
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path + 1) : 0;
    return arena_printf(a, "%.*s.tmp-%ld-%s", folder, path, (long)getpid(), path + folder);
}

/* Without slashes at the end. */
static const char *plain_path(arena *a, const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    return arena_strndup(a, path, n);
}

status staged_begin(staged *s, arena *a, const char *path, bool folder, bool force, err *e) {
    path = plain_path(a, path);
    *s = (staged){.path = path, .temp = hidden_name(a, path)};
    if (is_taken(path) && !is_empty_folder(a, path)) {
        const char *other;
        if (!force) return refuse_existing(path, e);
        if (!is_model(a, path, &other)) return refuse_other(path, other, e);
        s->replace = true;
    }
    const char *slash = strrchr(path, '/');
    if (slash && slash > path)
        TRY(file_make_dirs(arena_strndup(a, path, (size_t)(slash - path)), e));
    TRY(file_remove_tree(s->temp, e));
    return folder ? file_make_dirs(s->temp, e) : ST_OK;
}

status staged_commit(const staged *s, err *e) {
    if (file_is_dir(s->temp)) TRY(file_sync_dir(s->temp, e));
    bool swap = s->replace && file_is_dir(s->temp); /* a file is replaced by renaming */
    TRY((swap ? file_swap : file_rename)(s->temp, s->path, e));
    TRY(file_sync_parent(s->path, e));
    return swap ? file_remove_tree(s->temp, e) : ST_OK;
}

void staged_abandon(const staged *s, err *why) {
    err ignored;
    if (!s->temp) return;
    status st = file_remove_tree(s->temp, &ignored);
    (void)st; /* the failure that led here is told */
    err_rename(why, s->temp, s->path);
}
