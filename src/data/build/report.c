/* See report.h. */
#include "data/build/report.h"

#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

/* Copies what fits; a character is never cut. */
static void put_text(char *out, size_t room, const char *text) {
    size_t n = text ? strlen(text) : 0;
    if (n >= room) n = utf8_cut(text, room - 1);
    if (n > 0) memcpy(out, text, n);
    out[n] = '\0';
}

static void add_charset(data_report *r, const char *name, int files) {
    int i = 0;
    while (i < r->n_charsets && strcmp(r->charset[i].name, name) != 0) i++;
    if (i == DATA_REPORT_CHARSETS) return;
    if (i == r->n_charsets) {
        put_text(r->charset[i].name, sizeof r->charset[i].name, name);
        r->charset[i].files = 0;
        r->n_charsets++;
    }
    r->charset[i].files += files;
}

static void add_sample(data_report *r, const char *source, uint32_t line, const char *why,
                       const char *start) {
    if (r->n_samples == DATA_REPORT_SAMPLES) return;
    int i = r->n_samples++;
    put_text(r->sample[i].source, sizeof r->sample[i].source, source);
    put_text(r->sample[i].why, sizeof r->sample[i].why, why);
    put_text(r->sample[i].start, sizeof r->sample[i].start, start);
    r->sample[i].line = line;
}

void data_report_take(data_report *out, const data_report *before, const reader_report *found) {
    *out = *before;
    out->records = found->records;
    out->documents = found->documents;
    out->bad = found->bad;
    for (int i = 0; i < found->n_charsets; i++)
        add_charset(out, found->charset[i].name, found->charset[i].files);
    for (int i = 0; i < found->n_samples; i++)
        add_sample(out, found->sample[i].source, found->sample[i].line, found->sample[i].why,
                   found->sample[i].start);
}

json_t *data_report_json(const data_report *r) {
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
    return json_pack("{s:I,s:I,s:I,s:o,s:o}", "records", (json_int_t)r->records, "documents",
                     (json_int_t)r->documents, "bad", (json_int_t)r->bad, "charsets", charsets,
                     "bad_samples", samples);
}

bool data_report_parse(data_report *out, const json_t *o) {
    json_int_t records, documents, bad;
    json_t *charsets, *samples, *files, *row;
    const char *name;
    size_t i;
    *out = (data_report){0};
    if (json_unpack((json_t *)o, "{s:I,s:I,s:I,s:o,s:o}", "records", &records, "documents",
                    &documents, "bad", &bad, "charsets", &charsets, "bad_samples", &samples) != 0)
        return false;
    out->records = (uint64_t)records;
    out->documents = (uint64_t)documents;
    out->bad = (uint64_t)bad;
    json_object_foreach(charsets, name, files)
        add_charset(out, name, (int)json_integer_value(files));
    json_array_foreach(samples, i, row)
        add_sample(out, json_string_value(json_object_get(row, "source")),
                   (uint32_t)json_integer_value(json_object_get(row, "line")),
                   json_string_value(json_object_get(row, "why")),
                   json_string_value(json_object_get(row, "start")));
    return true;
}
