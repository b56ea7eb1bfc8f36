/* Finding the files of a split (see split_files.h). */
#include "eval/split_files.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"

/* The hub writes SPLIT-00000-of-00002.parquet. A set of which a part is missing would be another
 * set. */
static status check_shards(const split_files *f, err *e) {
    for (int i = 0; i < f->n; i++) {
        int number, of;
        const char *base = path_base(f->path[i]), *of_at = strstr(base, "-of-"), *at = of_at;
        while (at && at > base && at[-1] >= '0' && at[-1] <= '9') at--;
        if (!at || sscanf(at, "%9d-of-%9d", &number, &of) != 2) continue;
        if (number == i && of == f->n) continue;
        err_at(e, ST_FORMAT, f->path[i], "only %d of the %d shards are there", f->n, of);
        return err_hint(e, "put all files of the split into one folder, and no others of its name");
    }
    return ST_OK;
}

status eval_match_files(split_files *out, arena *a, const char *path, err *e) {
    const char *base = path_base(path);
    char *dir = base > path ? arena_strndup(a, path, (size_t)(base - path)) : arena_strdup(a, ".");
    char **names;
    int n;
    *out = (split_files){0};
    if (!file_is_dir(dir)) return ST_OK;
    TRY(file_list_dir(a, dir, &names, &n, e));
    out->path = ARENA_ARRAY(a, char *, n);
    for (int i = 0; i < n; i++)
        if (fnmatch(base, names[i], FNM_PERIOD) == 0)
            out->path[out->n++] = path_join(a, dir, names[i]);
    return check_shards(out, e);
}

/* The files of a split that lie in this folder. */
static status look_in(split_files *out, arena *a, const char *dir, const char *split, err *e) {
    static const char *const ends[] = {".jsonl",     ".json",    ".csv",    ".tsv",    ".jsonl.gz",
                                       ".jsonl.zst", ".json.gz", ".csv.gz", ".parquet"};
    *out = (split_files){0};
    for (int i = 0; i < ARRAY_LEN(ends); i++) {
        char *path = arena_printf(a, "%s/%s%s", dir, split, ends[i]);
        if (!file_exists(path)) continue;
        *out = (split_files){.path = arena_memdup(a, &path, sizeof path), .n = 1};
        return ST_OK;
    }
    TRY(eval_match_files(out, a, arena_printf(a, "%s/%s-[0-9]*.parquet", dir, split), e));
    if (out->n) return ST_OK;
    return eval_match_files(out, a, arena_printf(a, "%s/%s/[0-9]*.parquet", dir, split), e);
}

status eval_split_files(split_files *out, arena *a, const char *data, const char *task,
                        const char *part, const char *split, err *e) {
    if (!part) part = task;
    const char *places[] = {task,  path_join(a, task, part), path_join(a, task, "data"), part, ".",
                            "data"};
    for (int i = 0; i < ARRAY_LEN(places); i++) {
        TRY(look_in(out, a, path_join(a, data, places[i]), split, e));
        if (out->n) return ST_OK;
    }
    return ST_OK;
}
