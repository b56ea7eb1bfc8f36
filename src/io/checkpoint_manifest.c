/* Encodes and decodes the manifest of a checkpoint.
 *
 * Invariant: the checksum covers the manifest's own content in canonical form (keys sorted, no
 * spaces), so a damaged manifest is found out even where it is still good JSON. */
#include "io/checkpoint_manifest.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define MANIFEST_VERSION 1

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

char *manifest_encode(const manifest *m) {
    json_t *files = json_object();
    for (int i = 0; i < m->n; i++) {
        char hex[17];
        hash_format(m->files[i].hash, hex);
        json_t *entry =
            json_pack("{s:I, s:s}", "bytes", (json_int_t)m->files[i].bytes, "xxh3", hex);
        int failed = json_object_set_new(files, m->files[i].name, entry);
        CHECK(failed == 0, "the file name '%s' is not UTF-8", m->files[i].name);
    }
    json_t *root = json_pack("{s:i, s:I, s:o}", "version", MANIFEST_VERSION, "step",
                             (json_int_t)m->step, "files", files);
    char hex[17];
    checksum(root, hex);
    json_object_set_new(root, "checksum", json_string(hex));
    char *text = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    return text;
}

static bool parse_hash(const char *hex, uint64_t *hash) {
    if (!hex || strlen(hex) != 16 || strspn(hex, "0123456789abcdef") != 16) return false;
    *hash = strtoull(hex, NULL, 16);
    return true;
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
            !parse_hash(json_string_value(json_object_get(entry, "xxh3")), &f->hash))
            return err_set(e, ST_FORMAT, "its entry for '%s' is damaged", name);
        f->name = arena_strdup(a, name);
        f->bytes = (uint64_t)json_integer_value(bytes);
    }
    return m->n ? ST_OK : err_set(e, ST_FORMAT, "it lists no files");
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
    return decode_files(a, m, files, e);
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
