/* Encodes, decodes and reads the manifest of a checkpoint.
 *
 * Invariant: the checksum covers the manifest's own content in canonical form (keys sorted, no
 * spaces), so a damaged manifest is found out even where it is still good JSON. */
#include "io/checkpoint/checkpoint_manifest.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

#define MANIFEST_VERSION 1
#define MAX_MANIFEST_BYTES ((int64_t)64 << 20) /* parsed, it may take 50 times as much */

static bool plain_name(const char *s) {
    if (!s[0] || s[0] == '.' || strlen(s) > 200) return false;
    for (; *s; s++)
        if (*s == '/' || (unsigned char)*s < 0x20 || *s == 0x7f) return false;
    return true;
}

bool manifest_name_ok(const char *name) {
    size_t n = strlen(STATE_DIR "/");
    return plain_name(strncmp(name, STATE_DIR "/", n) == 0 ? name + n : name);
}

/* XXH3-64 of the canonical text without the checksum. */
static void checksum(const json_t *root, char out[17]) {
    json_t *rest = json_copy((json_t *)root);
    json_object_del(rest, "checksum");
    char *text = json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS);
    CHECK(text, "the checkpoint's manifest cannot be written as JSON");
    hash_format(hash_bytes(text, strlen(text)), out);
    free(text);
    json_decref(rest);
}

static void set(json_t *object, const char *key, json_t *value) {
    int failed = json_object_set_new(object, key, value);
    CHECK(failed == 0, "the name '%s' is not UTF-8", key);
}

static json_t *files_json(const manifest *m) {
    json_t *files = json_object();
    for (int i = 0; i < m->n; i++) {
        const manifest_file *f = &m->files[i];
        set(files, f->name,
            json_pack("{s:I, s:o}", "bytes", (json_int_t)f->bytes, "xxh3", json_hash(f->hash)));
    }
    return files;
}

static json_t *tensors_json(const manifest *m) {
    json_t *files = json_object();
    for (int i = 0; i < m->n; i++) {
        const manifest_file *f = &m->files[i];
        if (f->n_tensors == 0) continue;
        json_t *tensors = json_object();
        for (int64_t k = 0; k < f->n_tensors; k++)
            set(tensors, f->tensors[k].name, json_hash(f->tensors[k].hash));
        set(files, f->name, tensors);
    }
    return files;
}

char *manifest_encode(const manifest *m) {
    json_t *root =
        json_pack("{s:i, s:I}", "version", MANIFEST_VERSION, "step", (json_int_t)m->step);
    if (isfinite(m->score)) set(root, "val_loss", json_f64(m->score));
    set(root, "files", files_json(m));
    set(root, "tensors", tensors_json(m));
    char hex[17];
    checksum(root, hex);
    set(root, "checksum", json_string(hex));
    strbuf text = {0};
    json_format(&text, root, 2);
    strbuf_putc(&text, '\n');
    json_decref(root);
    return text.data;
}

static status decode_files(arena *a, manifest *m, const json_t *files, err *e) {
    m->files = ARENA_ARRAY(a, manifest_file, json_object_size(files) + 1);
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)files, name, entry) {
        manifest_file *f = &m->files[m->n++];
        const json_t *bytes = json_object_get(entry, "bytes");
        if (!manifest_name_ok(name))
            return err_set(e, ST_FORMAT, "it lists a file outside the checkpoint");
        if (!json_is_integer(bytes) || json_integer_value(bytes) < 0 ||
            !hash_parse(json_string_value(json_object_get(entry, "xxh3")), &f->hash))
            return err_set(e, ST_FORMAT, "its entry for '%s' is damaged", name);
        f->name = arena_strdup(a, name);
        f->bytes = (uint64_t)json_integer_value(bytes);
    }
    return m->n ? ST_OK : err_set(e, ST_FORMAT, "it lists no files");
}

static manifest_file *find_file(manifest *m, const char *name) {
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->files[i].name, name) == 0) return &m->files[i];
    return NULL;
}

static bool printable(const char *s) {
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f) return false;
    return true;
}

static status decode_tensors(arena *a, manifest_file *f, const json_t *tensors, err *e) {
    f->tensors = ARENA_ARRAY(a, manifest_tensor, json_object_size(tensors) + 1);
    const char *name;
    json_t *hash;
    json_object_foreach((json_t *)tensors, name, hash) {
        manifest_tensor *t = &f->tensors[f->n_tensors++];
        t->name = arena_strdup(a, name);
        if (!printable(name) || !hash_parse(json_string_value(hash), &t->hash))
            return err_set(e, ST_FORMAT, "its entry for a tensor of '%s' is damaged", f->name);
    }
    return ST_OK;
}

/* Both are absent from manifests of older versions. */
static status decode_optional(arena *a, manifest *m, const json_t *root, err *e) {
    const json_t *loss = json_object_get(root, "val_loss");
    if (loss && !json_is_number(loss)) return err_set(e, ST_FORMAT, "its val_loss is no number");
    m->score = loss ? json_number_value(loss) : (double)NAN;
    const char *name;
    json_t *tensors;
    json_object_foreach(json_object_get(root, "tensors"), name, tensors) {
        manifest_file *f = find_file(m, name);
        if (!f || !json_is_object(tensors))
            return err_set(e, ST_FORMAT, "it lists tensors of a file that it does not list");
        TRY(decode_tensors(a, f, tensors, e));
    }
    return ST_OK;
}

static status decode_root(arena *a, manifest *m, const json_t *root, err *e) {
    const json_t *version = json_object_get(root, "version"), *step = json_object_get(root, "step");
    const json_t *files = json_object_get(root, "files");
    const char *stored = json_string_value(json_object_get(root, "checksum"));
    char computed[17];
    if (!json_is_integer(version) || !json_is_integer(step) || !json_is_object(files) || !stored)
        return err_set(e, ST_FORMAT, "it lacks version, step, files or checksum");
    checksum(root, computed);
    if (strcmp(stored, computed) != 0)
        return err_set(e, ST_FORMAT, "its own checksum differs (file damaged)");
    if (json_integer_value(version) != MANIFEST_VERSION)
        return err_set(e, ST_FORMAT, "it has version %lld, this program reads %d",
                       (long long)json_integer_value(version), MANIFEST_VERSION);
    m->step = json_integer_value(step);
    TRY(decode_files(a, m, files, e));
    return decode_optional(a, m, root, e);
}

status manifest_decode(arena *a, manifest *m, const char *text, size_t len, err *e) {
    *m = (manifest){0};
    json_error_t je;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    if (!root) return err_set(e, ST_FORMAT, "line %d is no valid JSON (file damaged)", je.line);
    status st = decode_root(a, m, root, e);
    json_decref(root);
    return st;
}

static status read_text(const char *path, char **text, size_t *len, err *e) {
    if (!file_exists(path) && errno == ENOENT) return err_set(e, ST_FORMAT, "the file is missing");
    return file_read_part(path, MAX_MANIFEST_BYTES, text, len, e);
}

status manifest_read(arena *a, manifest *m, const char *dir, err *e) {
    const char *path = path_join(a, dir, MANIFEST_NAME);
    char *text = NULL;
    size_t len;
    status st = read_text(path, &text, &len, e);
    if (st == ST_OK) st = manifest_decode(a, m, text, len, e);
    free(text);
    if (st != ST_OK) {
        err_context(e, MANIFEST_NAME);
        err_where(e, "%s", path);
    }
    return st;
}
