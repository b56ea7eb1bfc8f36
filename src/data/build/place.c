/* See place.h. */
#include "data/build/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "data/shard/shard_format.h"

#define MANIFEST "manifest.json"

/* What lies beside the shards of a set. */
static const char *const COMPANIONS[] = {"tokenizer.json", "chat.json", "chat_template.jinja"};

/* "shard-00012.idx" belongs to the shard in "shard-00012.bin"; not every set has all kinds. */
static bool is_named(const shards *s, const char *name) {
    const char *kind = name + strcspn(name, ".");
    if ((strcmp(kind, ".ids") == 0 && !s->has_ids) || (strcmp(kind, ".mrk") == 0 && !s->chat.marks))
        return false;
    for (int i = 0; i < s->n_shards; i++)
        if (strncmp(s->shard[i].file, name, strcspn(name, ".") + 1) == 0) return true;
    return false;
}

/* What a process that died while it wrote one of the small files has left. */
static bool is_remains(const char *name) {
    const char *temp = strstr(name, ".tmp-");
    size_t n = temp ? (size_t)(temp - name) : 0;
    bool known = n == strlen(MANIFEST) && strncmp(name, MANIFEST, n) == 0;
    for (int i = 0; i < ARRAY_LEN(COMPANIONS); i++)
        known = known || (n == strlen(COMPANIONS[i]) && strncmp(name, COMPANIONS[i], n) == 0);
    return temp && known;
}

static bool is_companion(const char *name) {
    for (int i = 0; i < ARRAY_LEN(COMPANIONS); i++)
        if (strcmp(name, COMPANIONS[i]) == 0) return true;
    return false;
}

static status parse_manifest(const char *dir, arena *a, shards **out, err *e) {
    char *text;
    size_t len;
    TRY(file_read_part(path_join(a, dir, MANIFEST), FILE_PART_MAX_BYTES, &text, &len, e));
    status st = shards_parse_manifest(out, dir, text, len, e);
    free(text);
    return st;
}

/* Removes the shard files of `dir` that the manifest in `manifest_dir` does not name. */
static status remove_strays(const char *dir, const char *manifest_dir, arena *a, err *e) {
    shards *s;
    char **names;
    int n;
    TRY(parse_manifest(manifest_dir, a, &s, e));
    status st = file_list_dir(a, dir, &names, &n, e);
    for (int i = 0; st == ST_OK && i < n; i++)
        if (is_remains(names[i]) || (shard_file_number(names[i]) >= 0 && !is_named(s, names[i])))
            st = file_remove_tree(path_join(a, dir, names[i]), e);
    shards_close(s);
    return st;
}

status place_remove_strays(const char *dir, err *e) {
    arena *a = arena_new("place");
    status st = remove_strays(dir, dir, a, e);
    arena_free(a);
    return st;
}

static status move(const char *from, const char *to, const char *name, arena *a, err *e) {
    return file_rename(path_join(a, from, name), path_join(a, to, name), e);
}

static status place(const char *from, const char *to, arena *a, err *e) {
    char **names;
    int n;
    shards *s;
    if (!file_exists(path_join(a, from, MANIFEST))) return ST_OK;
    TRY(parse_manifest(from, a, &s, e));
    bool is_chat = s->chat.marks;
    shards_close(s);
    TRY(file_make_dirs(to, e));
    TRY(file_remove_tree(path_join(a, to, MANIFEST), e));
    /* Those of the set before may have no successor; of an interrupted exchange they are the new ones. */
    for (int i = 1; i < ARRAY_LEN(COMPANIONS); i++)
        if (!is_chat && file_exists(path_join(a, to, COMPANIONS[i])))
            TRY(file_remove_tree(path_join(a, to, COMPANIONS[i]), e));
    TRY(file_sync_dir(to, e));
    TRY(file_list_dir(a, from, &names, &n, e));
    for (int i = 0; i < n; i++)
        if (shard_file_number(names[i]) >= 0 || is_companion(names[i]))
            TRY(move(from, to, names[i], a, e));
    TRY(remove_strays(to, from, a, e));
    TRY(file_sync_dir(to, e));
    TRY(move(from, to, MANIFEST, a, e));
    return file_sync_dir(to, e);
}

status place_lock(const char *dir, bool wait, int *fd, err *e) {
    TRY(file_make_dirs(dir, e));
    *fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0) return err_errno(e, dir, "cannot open folder %s", dir);
    int rc, how = wait ? LOCK_EX : LOCK_EX | LOCK_NB;
    do rc = flock(*fd, how);
    while (rc != 0 && errno == EINTR);
    if (rc == 0 || errno != EWOULDBLOCK) return ST_OK;
    close(*fd);
    *fd = -1;
    err_at(e, ST_FAILED, dir, "another build is writing %s", dir);
    return err_hint(e, "wait for it, or name another folder");
}

status place_set(const char *from, const char *to, err *e) {
    arena *a = arena_new("place");
    status st = place(from, to, a, e);
    arena_free(a);
    return st;
}
