/* The journal of an evaluation (see journal.h). */
#include "eval/journal.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

static void take_line(eval_journal *j, const char *s, size_t n) {
    static const char *const whats[] = {"loglik", "nll", "written", "greedy"};
    json_t *o = json_loadb(s, n, 0, NULL), *x = NULL;
    const char *key = json_string_value(json_object_get(o, "key"));
    for (int i = 0; i < ARRAY_LEN(whats) && !x; i++) x = json_object_get(o, whats[i]);
    if (key && (json_is_number(x) || json_is_array(x))) json_object_set(j->known, key, x);
    json_decref(o);
}

/* Whole lines only. */
static status read_lines(eval_journal *j, err *e) {
    char *text;
    size_t len;
    if (!file_exists(j->path)) return ST_OK;
    TRY(file_read_all(j->path, &text, &len, e));
    for (const char *s = text, *end = text + len, *stop; s < end; s = stop + 1) {
        stop = memchr(s, '\n', (size_t)(end - s));
        if (!stop) break;
        take_line(j, s, (size_t)(stop - s));
    }
    free(text);
    return ST_OK;
}

status eval_journal_read(eval_journal *j, const char *path, uint64_t model, err *e) {
    *j = (eval_journal){.known = json_object(), .path = path, .model = model};
    return read_lines(j, e);
}

status eval_journal_open(eval_journal *j, const char *path, uint64_t model, err *e) {
    status st = eval_journal_read(j, path, model, e);
    if (st == ST_OK && !(j->out = fopen(path, "ae")))
        st = err_errno(e, path, "cannot write %s", path);
    if (st == ST_OK && ftell(j->out) > 0) fputc('\n', j->out); /* after a line that was cut off */
    return st;
}

void eval_journal_key(const eval_journal *j, const void *bytes, size_t n, char out[17]) {
    uint64_t both[2] = {j->model, hash_bytes(bytes, n)};
    hash_format(hash_bytes(both, sizeof both), out);
}

const json_t *eval_journal_find(const eval_journal *j, const char *key) {
    return json_object_get(j->known, key);
}

void eval_journal_put(eval_journal *j, const char *key, const char *what, json_t *value) {
    strbuf line = {0};
    json_t *o = json_pack("{s:s,s:o}", "key", key, what, value);
    json_format(&line, o, 0);
    strbuf_putc(&line, '\n');
    if (j->out) fwrite(line.data, 1, line.len, j->out);
    strbuf_free(&line);
    json_decref(o);
}

status eval_journal_flush(eval_journal *j, err *e) {
    if (!j->out || (fflush(j->out) == 0 && !ferror(j->out))) return ST_OK;
    return err_errno(e, j->path, "cannot write %s", j->path);
}

void eval_journal_close(eval_journal *j) {
    if (j->out) fclose(j->out);
    json_decref(j->known);
    *j = (eval_journal){0};
}
