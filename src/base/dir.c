/* Folders and paths (declared in file.h): tests, making, listing, removing. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_fault.h"

bool file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

bool file_is_dir(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

const char *file_nearest_dir(arena *a, const char *path) {
    char *at = arena_strdup(a, path);
    while (!file_is_dir(at)) {
        char *slash = strrchr(at, '/');
        if (!slash) return ".";
        slash[slash == at] = '\0';
    }
    return at;
}

const char *file_temp_dir(void) {
    const char *dir = getenv("TMPDIR");
    return dir && *dir ? dir : "/tmp";
}

bool file_is_same(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino &&
           (S_ISREG(x.st_mode) || S_ISDIR(x.st_mode));
}

int64_t file_size(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

/* *made: it was not there. */
static status make_dir(const char *path, bool *made, err *e) {
    *made = file_sys_mkdir(path) == 0;
    if (*made || (errno == EEXIST && file_is_dir(path))) return ST_OK;
    return err_errno(e, path, "cannot make folder %s", path);
}

status file_sync_dir(const char *path, err *e) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return err_errno(e, path, "cannot open folder %s", path);
    /* Some file systems cannot sync a folder and say EINVAL; then there is nothing to wait for. */
    status s = ST_OK;
    if (file_sys_fsync(fd) != 0 && errno != EINVAL)
        s = err_errno(e, path, "cannot sync folder %s", path);
    close(fd);
    return s;
}

/* The folder that holds `path`. One that may not be read cannot be synced either. */
status file_sync_parent(const char *path, err *e) {
    char *parent = xstrdup(path);
    size_t n = strlen(parent);
    while (n > 1 && parent[n - 1] == '/') n--;
    while (n > 0 && parent[n - 1] != '/') n--;
    while (n > 1 && parent[n - 1] == '/') n--;
    parent[n] = '\0';
    const char *dir = n > 0 ? parent : ".";
    status st = access(dir, R_OK) == 0 ? file_sync_dir(dir, e) : ST_OK;
    free(parent);
    return st;
}

static status make_dirs(const char *path, bool synced, err *e) {
    char *partial = xstrdup(path);
    status st = ST_OK;
    bool made;
    for (char *p = partial + 1; st == ST_OK && partial[0] && *p; p++) {
        if (*p != '/') continue;
        *p = '\0';
        st = make_dir(partial, &made, e);
        if (st == ST_OK && made && synced) st = file_sync_parent(partial, e);
        *p = '/';
    }
    if (st == ST_OK) st = make_dir(partial, &made, e);
    if (st == ST_OK && synced) st = file_sync_parent(partial, e);
    free(partial);
    return st;
}

status file_make_dirs(const char *path, err *e) {
    return make_dirs(path, false, e);
}

status file_make_dirs_synced(const char *path, err *e) {
    return make_dirs(path, true, e);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_dot(const char *name) {
    return !strcmp(name, ".") || !strcmp(name, "..");
}

status file_list_dir(arena *a, const char *path, char ***names, int *n, err *e) {
    *names = NULL;
    *n = 0;
    DIR *dir = opendir(path);
    if (!dir) return err_errno(e, path, "cannot open folder %s", path);
    char **found = NULL;
    int count = 0, cap = 0;
    struct dirent *entry;
    while (errno = 0, (entry = readdir(dir)))
        if (!is_dot(entry->d_name)) VEC_PUSH(found, count, cap, arena_strdup(a, entry->d_name));
    status s = errno ? err_errno(e, path, "cannot list folder %s", path) : ST_OK;
    if (count) qsort(found, (size_t)count, sizeof *found, compare_names);
    if (s == ST_OK) {
        *names = arena_memdup(a, found, sizeof *found * (size_t)count);
        *n = count;
    }
    free(found);
    closedir(dir);
    return s;
}

static status remove_at(int parent, const char *name, const char *root, err *e);

/* Empties an open folder; takes over fd. */
static status remove_entries(int fd, const char *root, err *e) {
    DIR *dir = fdopendir(fd);
    if (!dir) {
        err_errno(e, root, "cannot list a folder in %s", root);
        close(fd);
        return ST_FAILED;
    }
    status s = ST_OK;
    struct dirent *entry;
    while (s == ST_OK && (errno = 0, (entry = readdir(dir))))
        if (!is_dot(entry->d_name)) s = remove_at(dirfd(dir), entry->d_name, root, e);
    if (s == ST_OK && errno) s = err_errno(e, root, "cannot list a folder in %s", root);
    closedir(dir);
    return s;
}

/* O_NOFOLLOW and *at calls: a symbolic link is removed, never entered, also when someone swaps a
 * folder for a link meanwhile. */
static status remove_at(int parent, const char *name, const char *root, err *e) {
    if (file_sys_unlinkat(parent, name, 0) == 0 || errno == ENOENT) return ST_OK;
    if (errno != EISDIR && errno != EPERM)
        return err_errno(e, root, "cannot remove %s in %s", name, root);
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return err_errno(e, root, "cannot remove %s in %s", name, root);
    TRY(remove_entries(fd, root, e));
    if (file_sys_unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return ST_OK;
    return err_errno(e, root, "cannot remove %s in %s", name, root);
}

status file_remove_tree(const char *path, err *e) {
    return remove_at(AT_FDCWD, path, path, e);
}

char *path_join(arena *a, const char *dir, const char *name) {
    size_t n = strlen(dir);
    if (name[0] == '/' || n == 0) return arena_strdup(a, name);
    return arena_printf(a, dir[n - 1] == '/' ? "%s%s" : "%s/%s", dir, name);
}

char *path_plain(arena *a, const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    return arena_strndup(a, path, n);
}

const char *path_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
