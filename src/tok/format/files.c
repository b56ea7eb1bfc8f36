/* Writing a tokenizer as tokenizer.json, which is kept as it was read and written back byte for
 * byte. */
#include "base/file.h"
#include "tok/format/format.h"

status tok_save_file(const tok *t, const char *path, err *e) {
    return file_write_atomic(path, t->json, t->json_len, e);
}

status tok_save_dir(const tok *t, const char *dir, int64_t model_max_length, err *e) {
    TRY(file_make_dirs(dir, e));
    arena *a = arena_new("tokenizer paths");
    status st = tok_save_file(t, path_join(a, dir, "tokenizer.json"), e);
    arena_free(a);
    return st == ST_OK ? tok_config_write(t, dir, model_max_length, NULL, e) : st;
}
