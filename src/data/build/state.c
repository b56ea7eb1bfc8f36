/* See state.h. */
#include "data/build/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

enum { STATE_VERSION = 1 };

static json_t *place_json(const build_place *p) {
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "file", (json_int_t)p->at.file, "line",
                     (json_int_t)p->at.line, "offset", (json_int_t)p->at.offset, "documents",
                     (json_int_t)p->at.documents, "bad", (json_int_t)p->at.bad, "records",
                     (json_int_t)p->at.records, "document_bytes", (json_int_t)p->document_bytes);
}

static bool place_parse(const json_t *o, build_place *p) {
    json_int_t file, line, offset, documents, bad, records, bytes;
    if (json_unpack((json_t *)o, "{s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "file", &file, "line", &line,
                    "offset", &offset, "documents", &documents, "bad", &bad, "records", &records,
                    "document_bytes", &bytes) != 0)
        return false;
    if (file < 0 || file > UINT32_MAX || line < 0 || line > UINT32_MAX || offset < 0 || bytes < 0)
        return false;
    *p = (build_place){.at = {.file = (uint32_t)file,
                              .line = (uint32_t)line,
                              .offset = (uint64_t)offset,
                              .documents = (uint64_t)documents,
                              .bad = (uint64_t)bad,
                              .records = (uint64_t)records},
                       .document_bytes = (uint64_t)bytes};
    return true;
}

/* ---- the report ---- */

json_t *data_report_json(const reader_report *r) {
    json_t *charsets = json_object(), *samples = json_array();
    for (int i = 0; i < r->n_charsets; i++)
        json_object_set_new(charsets, r->charset[i].name, json_integer(r->charset[i].files));
    for (int i = 0; i < r->n_samples; i++) {
        json_t *o = json_object();
        const char *source = r->sample[i].source;
        json_object_set_new(o, "source", json_cstr(source));
        json_object_set_new(o, "line", json_integer(r->sample[i].line));
        json_object_set_new(o, "why", json_cstr(r->sample[i].why));
        json_object_set_new(o, "start", json_cstr(r->sample[i].start));
        json_array_append_new(samples, o);
    }
    json_t *o = json_pack("{s:I,s:I,s:I,s:o,s:o}", "records", (json_int_t)r->records, "documents",
                          (json_int_t)r->documents, "bad", (json_int_t)r->bad, "charsets", charsets,
                          "bad_samples", samples);
    if (r->replaced.texts > 0)
        json_object_set_new(
            o, "replaced",
            json_pack("{s:I,s:I,s:o,s:I}", "characters", (json_int_t)r->replaced.characters,
                      "texts", (json_int_t)r->replaced.texts, "first",
                      json_cstr(r->replaced.source), "at", (json_int_t)r->replaced.at));
    return o;
}

/* False when the object is not such a report. */
static bool report_parse(reader_report *out, const json_t *o) {
    json_int_t records, documents, bad, characters = 0, texts = 0, at = 0;
    json_t *charsets, *samples, *files, *row;
    const char *name, *first = "";
    size_t i;
    *out = (reader_report){0};
    if (json_unpack((json_t *)o, "{s:I,s:I,s:I,s:o,s:o,s?{s:I,s:I,s:s,s:I}}", "records", &records,
                    "documents", &documents, "bad", &bad, "charsets", &charsets, "bad_samples",
                    &samples, "replaced", "characters", &characters, "texts", &texts, "first",
                    &first, "at", &at) != 0)
        return false;
    out->records = (uint64_t)records;
    out->documents = (uint64_t)documents;
    out->bad = (uint64_t)bad;
    if (texts > 0) reader_report_replaced(out, first, at, (uint64_t)characters, (uint64_t)texts);
    json_object_foreach(charsets, name, files)
        reader_report_charset(out, name, (int)json_integer_value(files));
    json_array_foreach(samples, i, row)
        reader_report_sample(out, json_string_value(json_object_get(row, "source")),
                             (uint32_t)json_integer_value(json_object_get(row, "line")),
                             json_string_value(json_object_get(row, "why")),
                             json_string_value(json_object_get(row, "start")));
    return true;
}

/* ---- the file ---- */

status build_state_save(const char *path, const build_state *s, err *e) {
    json_t *o = json_pack("{s:i,s:O,s:b,s:o,s:I,s:o,s:o}", "version", STATE_VERSION, "made_with",
                          s->made_with, "complete", s->complete, "place", place_json(&s->place),
                          "documents", (json_int_t)s->documents, "seconds", json_f64(s->seconds),
                          "report", data_report_json(&s->report));
    if (s->writer[0]) json_object_set(o, "train", s->writer[0]);
    if (s->writer[1]) json_object_set(o, "valid", s->writer[1]);
    strbuf text = {0};
    json_format(&text, o, 0);
    json_decref(o);
    status st = file_write_atomic(path, text.data, text.len, e);
    strbuf_free(&text);
    return st;
}

static bool parse(const json_t *o, build_state *s) {
    int version, complete;
    json_int_t documents;
    json_t *made_with, *place, *report, *train = NULL, *valid = NULL;
    if (json_unpack((json_t *)o, "{s:i,s:o,s:b,s:o,s:I,s:F,s:o,s?o,s?o}", "version", &version,
                    "made_with", &made_with, "complete", &complete, "place", &place, "documents",
                    &documents, "seconds", &s->seconds, "report", &report, "train", &train, "valid",
                    &valid) != 0)
        return false;
    s->complete = complete;
    s->documents = (uint64_t)documents;
    if (version != STATE_VERSION || !json_is_object(made_with)) return false;
    if (!place_parse(place, &s->place) || !report_parse(&s->report, report)) return false;
    s->made_with = json_incref(made_with);
    s->writer[0] = json_incref(train);
    s->writer[1] = json_incref(valid);
    return true;
}

bool build_state_load(const char *path, build_state *s) {
    json_t *o;
    *s = (build_state){0};
    if (json_read_file(&o, path, JSON_FILE_MAX_BYTES, NULL) != ST_OK) return false;
    bool good = parse(o, s);
    json_decref(o);
    return good;
}

const char *build_state_difference(const build_state *s, const json_t *made_with) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)made_with, key, value) {
        /* A set that is being put in place may have replaced the one it was appended to. */
        if (s->complete && strcmp(key, "append_to") == 0) continue;
        if (!json_equal(value, json_object_get(s->made_with, key))) return key;
    }
    return NULL;
}

void build_state_free(build_state *s) {
    json_decref(s->made_with);
    json_decref(s->writer[0]);
    json_decref(s->writer[1]);
    *s = (build_state){0};
}
