/* See report.h. */
#include "data/build/report.h"

#include <string.h>

#include "base/json.h"

json_t *data_report_json(const reader_report *r) {
    json_t *charsets = json_object(), *samples = json_array();
    for (int i = 0; i < r->n_charsets; i++)
        json_object_set_new(charsets, r->charset[i].name, json_integer(r->charset[i].files));
    for (int i = 0; i < r->n_samples; i++) {
        json_t *o = json_object();
        const char *source = r->sample[i].source;
        json_object_set_new(o, "source", json_text(source, strlen(source)));
        json_object_set_new(o, "line", json_integer(r->sample[i].line));
        json_object_set_new(o, "why", json_text(r->sample[i].why, strlen(r->sample[i].why)));
        json_object_set_new(o, "start", json_text(r->sample[i].start, strlen(r->sample[i].start)));
        json_array_append_new(samples, o);
    }
    return json_pack("{s:I,s:I,s:I,s:o,s:o}", "records", (json_int_t)r->records, "documents",
                     (json_int_t)r->documents, "bad", (json_int_t)r->bad, "charsets", charsets,
                     "bad_samples", samples);
}

bool data_report_parse(reader_report *out, const json_t *o) {
    json_int_t records, documents, bad;
    json_t *charsets, *samples, *files, *row;
    const char *name;
    size_t i;
    *out = (reader_report){0};
    if (json_unpack((json_t *)o, "{s:I,s:I,s:I,s:o,s:o}", "records", &records, "documents",
                    &documents, "bad", &bad, "charsets", &charsets, "bad_samples", &samples) != 0)
        return false;
    out->records = (uint64_t)records;
    out->documents = (uint64_t)documents;
    out->bad = (uint64_t)bad;
    json_object_foreach(charsets, name, files)
        reader_report_charset(out, name, (int)json_integer_value(files));
    json_array_foreach(samples, i, row)
        reader_report_sample(out, json_string_value(json_object_get(row, "source")),
                             (uint32_t)json_integer_value(json_object_get(row, "line")),
                             json_string_value(json_object_get(row, "why")),
                             json_string_value(json_object_get(row, "start")));
    return true;
}
