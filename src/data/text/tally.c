/* What was found in chunks (see reader_int.h): counts, the first bad records, charsets; and when
 * there are too many bad ones. Read reader_done. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/text/reader_int.h"

enum { CHECKED_AFTER_RECORDS = 1000 };

/* Copies what fits; a character is never cut. */
static void put_text(char *out, size_t room, const char *text) {
    size_t n = text ? strlen(text) : 0;
    if (n >= room) n = utf8_cut(text, room - 1);
    if (n > 0) memcpy(out, text, n);
    out[n] = '\0';
}

void reader_report_charset(reader_report *p, const char *name, int files) {
    int i = 0;
    while (i < p->n_charsets && strcasecmp(p->charset[i].name, name) != 0) i++;
    if (i == ARRAY_LEN(p->charset)) return;
    if (i == p->n_charsets) {
        put_text(p->charset[i].name, sizeof p->charset[i].name, name);
        p->charset[i].files = 0;
        p->n_charsets++;
    }
    p->charset[i].files += files;
}

void reader_report_replaced(reader_report *p, const char *path, int64_t at, uint64_t characters,
                            uint64_t texts) {
    if (p->replaced.texts == 0) {
        put_text(p->replaced.source, sizeof p->replaced.source, path);
        p->replaced.at = at;
    }
    p->replaced.characters += characters;
    p->replaced.texts += texts;
}

void reader_report_sample(reader_report *p, const char *path, uint32_t line, const char *why,
                          const char *start) {
    if (p->n_samples == ARRAY_LEN(p->sample)) return;
    int i = p->n_samples++;
    put_text(p->sample[i].source, sizeof p->sample[i].source, path);
    put_text(p->sample[i].why, sizeof p->sample[i].why, why);
    put_text(p->sample[i].start, sizeof p->sample[i].start, start);
    p->sample[i].line = line;
}

const reader_report *reader_get_report(const reader *r) {
    return &r->report;
}

void reader_warn_of_broken_text(const reader_report *p) {
    int64_t n = (int64_t)p->replaced.characters, texts = (int64_t)p->replaced.texts;
    char at[32] = "";
    if (n == 0) return;
    if (p->replaced.at >= 0) snprintf(at, sizeof at, "byte %ld of ", (long)p->replaced.at);
    log_warn("%ld broken character%s in %ld text%s became U+FFFD; the first is %s%s", (long)n,
             text_s(n), (long)texts, text_s(texts), *at ? at : "in ", p->replaced.source);
}

void reader_warn_of_bad_records(const reader_report *p) {
    char line[16] = "";
    if (p->bad == 0 || p->n_samples == 0) return;
    if (p->sample[0].line) snprintf(line, sizeof line, ":%u", (unsigned)p->sample[0].line);
    log_warn("%ld of %ld records %s left out; the first is %s%s, which %s", (long)p->bad,
             (long)p->records, p->bad == 1 ? "was" : "were", p->sample[0].source, line,
             p->sample[0].why);
}

static void add_sample(reader *r, const chunk *c, const bad_record *b) {
    if (r->report.n_samples == 0 && b->hint) r->hint = arena_strdup(r->mem, b->hint);
    reader_report_sample(&r->report, c->source, c->format == READER_TEXT ? 0 : b->line, b->why,
                         b->start);
}

/* ---- errors ---- */

static void name_place(char *out, size_t n, const char *path, uint32_t line) {
    if (line)
        snprintf(out, n, "%s:%u", path, line);
    else
        snprintf(out, n, "%s", path);
}

static status too_many(const reader *r, err *e) {
    const reader_report *p = &r->report;
    char place[544] = "the inputs", tail[512] = "";
    const char *why = p->n_samples ? p->sample[0].why : "cannot all be read";
    if (p->n_samples) name_place(place, sizeof place, p->sample[0].source, p->sample[0].line);
    if (r->max_bad > 0 || p->bad > 1)
        snprintf(tail, sizeof tail,
                 "; %" PRIu64 " of %" PRIu64
                 " records are bad (%.3g %%), max_bad=%g allows %.3g %%",
                 p->bad, p->records, 100.0 * (double)p->bad / (double)p->records, r->max_bad,
                 100 * r->max_bad);
    err_at(e, ST_FORMAT, place, "%s %s%s", place, why, tail);
    if (r->max_bad > 0)
        err_hint(e, "%s%sor pass over more of them: max_bad=SHARE", r->hint ? r->hint : "",
                 r->hint ? "; " : "mend them, ");
    else if (r->hint)
        err_hint(e, "%s", r->hint);
    return ST_FORMAT;
}

static status whole_file_bad(const reader *r, err *e) {
    const char *path = r->inputs.file[r->tally.file].path;
    char place[544], all[64] = "";
    name_place(place, sizeof place, path, r->tally.line);
    if (r->tally.bad > 1)
        snprintf(all, sizeof all, ", and so all %" PRIu64 " records of the file are bad",
                 r->tally.bad);
    err_at(e, ST_FORMAT, place, "%s %s%s", place, r->tally.why, all);
    return err_hint(e, "%s", r->tally.hint ? r->tally.hint : "leave the file out");
}

static status no_text(const reader *r, err *e) {
    const char *first = r->inputs.file[0].path;
    err_at(e, ST_USAGE, first,
           r->inputs.n > 1 ? "%s and the other inputs hold no text"
                           : "%s holds no text: the corpus is empty",
           first);
    return err_hint(
        e, "give a text file, a .jsonl, .csv or .parquet file or a folder that holds some");
}

static status check_share(const reader *r, bool last, err *e) {
    const reader_report *p = &r->report;
    bool enough = last || r->max_bad == 0 || p->records >= CHECKED_AFTER_RECORDS;
    bool over = (double)p->bad > r->max_bad * (double)p->records;
    return enough && over ? too_many(r, e) : ST_OK;
}

/* ---- one file ---- */

static status check_file(const reader *r, err *e) {
    bool all =
        r->max_bad < 1 && r->tally.whole && r->tally.bad > 0 && r->tally.bad == r->tally.records;
    return all ? whole_file_bad(r, e) : ST_OK;
}

/* Reading is ahead of what is done, and may have to go back to this file: so its charset is counted when
 * all of the file is done. */
static void count_charset(reader *r) {
    if (r->tally.charset) reader_report_charset(&r->report, r->tally.charset, 1);
    r->tally.charset = NULL;
}

/* Of text files each is a single record: one that is bad among many is a matter of the share. */
static status tally_file(reader *r, const chunk *c, err *e) {
    if (c->format == READER_TEXT) return ST_OK;
    if (c->file != r->tally.file) {
        TRY(check_file(r, e));
        r->tally.file = c->file;
        r->tally.records = r->tally.bad = 0;
        r->tally.whole = true;
    }
    if (r->tally.bad == 0 && c->n_samples > 0) {
        const bad_record *b = &c->sample[0];
        r->tally.line = b->line;
        r->tally.why = arena_strdup(r->mem, b->why);
        r->tally.hint = b->hint ? arena_strdup(r->mem, b->hint) : NULL;
    }
    r->tally.records += c->records;
    r->tally.bad += c->bad;
    return ST_OK;
}

/* ---- chunks ---- */

static reader_position position_after(const reader *r, const chunk *c) {
    const reader_report *p = &r->report;
    reader_position at = {.file = c->file + (c->format == READER_TEXT),
                          .documents = p->documents,
                          .bad = p->bad,
                          .records = p->records};
    if (c->format != READER_TEXT) {
        at.offset = c->offset + c->len;
        at.line = c->first_line - 1 + c->n_lines;
    }
    return at;
}

status reader_done(reader *r, chunk *c, reader_position *after, err *e) {
    reader_report *p = &r->report;
    if (c->failure.code != ST_OK) {
        if (e) *e = c->failure;
        return c->failure.code;
    }
    p->records += c->records;
    p->documents += c->documents;
    p->bad += c->bad;
    for (int i = 0; i < c->n_samples; i++) add_sample(r, c, &c->sample[i]);
    if (c->file != r->tally.file) count_charset(r);
    if (c->format == READER_TEXT && c->charset) reader_report_charset(p, c->charset, 1);
    if (c->format != READER_TEXT) r->tally.charset = c->charset;
    if (c->replaced && c->documents)
        reader_report_replaced(p, c->source, c->replaced_at, c->replaced, 1);
    if (after) *after = position_after(r, c);
    TRY(tally_file(r, c, e));
    return check_share(r, false, e);
}

status reader_finish(reader *r, err *e) {
    count_charset(r);
    TRY(check_file(r, e));
    TRY(check_share(r, true, e));
    return r->report.documents > 0 ? ST_OK : no_text(r, e);
}
