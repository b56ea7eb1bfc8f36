/* Whether one checkpoint is what was written, and what of it is not.
 *
 * Invariant: every file is read to its end and compared with the manifest, which is itself covered
 * by a checksum. Nothing that is read here is trusted before that.
 *
 * Reading order: checkpoint_inspect, inspect_files, name_damaged_tensors, checkpoint_check. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/strbuf.h"
#include "io/checkpoint/checkpoint_layout.h"
#include "io/checkpoint/checkpoint_manifest.h"

enum { SHOWN_TENSORS = 3 };

static checkpoint_fault *add_fault(arena *a, checkpoint_report *r, const char *file,
                                   const char *what) {
    r->faults = arena_grow(a, r->faults, r->n_faults, &r->cap_faults, sizeof *r->faults);
    r->faults[r->n_faults] = (checkpoint_fault){.file = file, .what = what};
    return &r->faults[r->n_faults++];
}

/* The tensors of a file with a wrong checksum whose own checksums are wrong, too. A header that
 * cannot be read any more says nothing about tensors. */
static void name_damaged_tensors(arena *a, const char *path, const manifest_file *f,
                                 checkpoint_fault *fault) {
    st_reader *r;
    if (f->n_tensors == 0) return;
    if (st_open(&r, path, NULL) != ST_OK) {
        fault->what = arena_printf(a, "%s; its header can no longer be read", fault->what);
        return;
    }
    fault->tensors = ARENA_ARRAY(a, const char *, f->n_tensors);
    for (int64_t i = 0; i < f->n_tensors; i++) {
        const st_view *v = st_find(r, f->tensors[i].name);
        if (!v || hash_bytes(v->data, v->bytes) != f->tensors[i].hash)
            fault->tensors[fault->n_tensors++] = f->tensors[i].name;
    }
    st_close(r);
}

/* What is wrong with the size of a file; NULL: nothing. */
static const char *check_size(arena *a, const char *path, const manifest_file *f) {
    int64_t bytes = file_size(path);
    if (bytes < 0)
        return errno == ENOENT ? "the file is missing"
                               : arena_printf(a, "cannot be read: %s", strerror(errno));
    if ((uint64_t)bytes == f->bytes) return NULL;
    return arena_printf(a, "%lld bytes instead of %llu (file %s)", (long long)bytes,
                        (unsigned long long)f->bytes,
                        (uint64_t)bytes < f->bytes ? "truncated" : "changed");
}

static void inspect_file(arena *a, const char *dir, const manifest_file *f, checkpoint_report *r) {
    const char *path = path_join(a, dir, f->name), *wrong = check_size(a, path, f);
    err why = {0};
    uint64_t hash = 0;
    if (wrong)
        add_fault(a, r, f->name, wrong);
    else if (hash_file(path, &hash, &why) != ST_OK)
        add_fault(a, r, f->name, arena_strdup(a, why.message));
    else if (hash != f->hash)
        name_damaged_tensors(a, path, f,
                             add_fault(a, r, f->name, "checksum differs (file damaged)"));
}

/* A folder that was given another step's name would resume at another place than it says. */
static void inspect_name(arena *a, const char *dir, checkpoint_report *r) {
    int64_t named = checkpoint_parse_step(path_base(dir));
    if (named >= 0 && named != r->step)
        add_fault(a, r, MANIFEST_NAME,
                  arena_printf(a, "it is of step %lld (folder renamed)", (long long)r->step));
}

static void inspect_files(arena *a, const char *dir, checkpoint_report *r, bool to_the_end) {
    manifest m;
    err why = {0};
    if (manifest_read(a, &m, dir, &why) != ST_OK) {
        size_t skip = strlen(MANIFEST_NAME ": "); /* the message begins with the name */
        add_fault(a, r, MANIFEST_NAME, arena_strdup(a, why.message + skip));
        return;
    }
    r->step = m.step;
    r->score = m.score;
    r->uploaded = file_exists(path_join(a, dir, UPLOAD_MARK));
    for (int i = 0; i < m.n; i++) r->bytes += m.files[i].bytes;
    inspect_name(a, dir, r);
    for (int i = 0; i < m.n && (to_the_end || r->n_faults == 0); i++)
        inspect_file(a, dir, &m.files[i], r);
}

/* A folder that someone else made: its weights must at least be well formed. */
static void inspect_model(arena *a, const char *dir, checkpoint_report *r) {
    st_reader *reader;
    err why = {0};
    r->kind = CHECKPOINT_MODEL;
    if (!file_exists(path_join(a, dir, "config.json"))) {
        add_fault(a, r, "config.json", "the file is missing");
    } else if (st_open(&reader, dir, &why) != ST_OK) {
        add_fault(a, r, ".", arena_strdup(a, why.message));
    } else {
        for (int64_t i = 0; i < st_count(reader); i++) r->bytes += st_get(reader, i)->bytes;
        st_close(reader);
    }
}

static void inspect(arena *a, const char *dir, checkpoint_report *r, bool to_the_end) {
    *r = (checkpoint_report){.kind = CHECKPOINT_RESUMABLE, .step = -1, .score = (double)NAN};
    if (!file_is_dir(dir))
        add_fault(a, r, ".", arena_printf(a, "%s is no folder", dir));
    else if (file_exists(path_join(a, dir, STATE_DIR)) || errno != ENOENT)
        inspect_files(a, dir, r, to_the_end);
    else
        inspect_model(a, dir, r);
}

void checkpoint_inspect(arena *a, const char *dir, checkpoint_report *r) {
    inspect(a, dir, r, true);
}

char *checkpoint_fault_text(arena *a, const checkpoint_fault *f, int64_t most_tensors) {
    strbuf b = {0};
    if (strcmp(f->file, ".") != 0) strbuf_printf(&b, "%s: ", f->file);
    strbuf_puts(&b, f->what);
    for (int64_t i = 0; i < f->n_tensors && i < most_tensors; i++)
        strbuf_printf(&b, "%s %.200s", i ? "," : "; damaged:", f->tensors[i]);
    if (f->n_tensors > most_tensors)
        strbuf_printf(&b, " and %lld more tensors", (long long)(f->n_tensors - most_tensors));
    char *text = arena_strdup(a, strbuf_cstr(&b));
    strbuf_free(&b);
    return text;
}

status checkpoint_check(const char *dir, checkpoint_kind *kind, err *e) {
    arena *a = arena_new("checkpoint check");
    checkpoint_report r;
    inspect(a, dir, &r, false);
    *kind = r.kind;
    status st = ST_OK;
    if (r.n_faults > 0) {
        const checkpoint_fault *f = &r.faults[0];
        st = err_set(e, ST_FORMAT, "%s", checkpoint_fault_text(a, f, SHOWN_TENSORS));
        err_where(e, "%s", strcmp(f->file, ".") == 0 ? dir : path_join(a, dir, f->file));
    }
    arena_free(a);
    return st;
}
