/* libFuzzer target: manifests of checkpoints. Each input is tried as it is, and, where it is JSON,
 * with the right checksum, so that what is behind that check is reached. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "io/checkpoint/checkpoint_manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* What decodes must encode to something that decodes to the same. */
static void decode(const char *text, size_t len) {
    arena *a = arena_new("fuzz");
    manifest m, again;
    err e = {0};
    if (manifest_decode(a, &m, text, len, &e) == ST_OK) {
        char *encoded = manifest_encode(&m);
        status st = manifest_decode(a, &again, encoded, strlen(encoded), &e);
        CHECK(st == ST_OK && again.n == m.n && again.step == m.step, "%s", e.message);
        for (int i = 0; i < m.n; i++)
            CHECK(again.files[i].hash == m.files[i].hash &&
                      again.files[i].n_tensors == m.files[i].n_tensors,
                  "file %d", i);
        free(encoded);
    }
    arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    decode((const char *)data, len);
    json_t *root = json_loadb((const char *)data, len, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(root)) {
        char hex[17];
        json_object_del(root, "checksum");
        char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
        hash_format(hash_bytes(text, strlen(text)), hex);
        free(text);
        json_object_set_new(root, "checksum", json_string(hex));
        text = json_dumps(root, 0);
        decode(text, strlen(text));
        free(text);
    }
    json_decref(root);
    return 0;
}
