/* See job.h. */
#include "data/build/job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void job_init(job *j) {
    *j = (job){.mem = arena_new("data build job")};
}

void job_free(job *j) {
    for (int i = 0; i < j->n_chunks; i++) chunk_free(j->chunk[i]);
    tok_ids_free(&j->ids);
    free(j->piece);
    arena_free(j->mem);
}

void job_clear(job *j) {
    arena_reset(j->mem);
    j->state = JOB_FREE;
    j->n_chunks = 0;
    j->text_bytes = 0;
    j->is_part = j->ends_parts = false;
    j->ids.n = 0;
    j->n_pieces = 0;
    j->st = ST_OK;
}

size_t job_cut(const job_rules *rules, const document *doc) {
    if (rules->valid_fraction <= 0 || rules->split == DATA_SPLIT_DOCUMENTS) return doc->len;
    return data_split_point(doc->text, doc->len, rules->valid_fraction, rules->split);
}

job_side job_side_of(const job_rules *rules, bool after_cut) {
    if (rules->valid_fraction > 0 && rules->split == DATA_SPLIT_DOCUMENTS) return JOB_BY_NUMBER;
    return after_cut ? JOB_VALID : JOB_TRAIN;
}

/* Names the document, and the byte from which on the tokenizer counts. */
static void name_failure(job *j, const document *doc, size_t from) {
    char place[480];
    if (doc->line)
        snprintf(place, sizeof place, "%.400s:%u", doc->source, doc->line);
    else
        snprintf(place, sizeof place, "%.400s", doc->source);
    if (from > 0)
        err_context(&j->e, "%s, counted from byte %zu on", place, from);
    else
        err_context(&j->e, "%s", place);
    err_where(&j->e, "%s", place);
}

/* The tokens that were added since `before` become a piece. */
static void push_piece(job *j, const document *doc, int64_t before, size_t text_bytes,
                       job_side side, bool begins, bool more) {
    job_piece p = {.record = {.n = j->ids.n - before,
                              .source = doc->source,
                              .line = doc->line,
                              .text_offset = doc->offset,
                              .text_bytes = text_bytes,
                              .id = doc->id ? arena_strdup(j->mem, doc->id) : NULL,
                              .score = (float)doc->score,
                              .more = more},
                   .side = side,
                   .begins = begins};
    VEC_PUSH(j->piece, j->n_pieces, j->cap_pieces, p);
}

static void take_label(job *j, const job_rules *rules, document *doc) {
    float label = 0;
    if (!rules->labels.are_wanted) return;
    j->st = text_label_read(&rules->labels, doc->label, &label, &j->e);
    if (j->st != ST_OK) name_failure(j, doc, 0);
    doc->score = (double)label;
}

static void encode_range(job *j, const job_rules *rules, const document *doc, size_t from,
                         size_t to, bool after_cut) {
    int64_t before = j->ids.n;
    document labelled = *doc;
    if (from == to || j->st != ST_OK) return;
    take_label(j, rules, &labelled);
    if (j->st != ST_OK) return;
    unsigned flags = rules->labels.are_wanted ? TOK_ADD_SPECIAL : 0;
    j->st = tok_encode(rules->tok, doc->text + from, to - from, flags, &j->ids, &j->e);
    if (j->st != ST_OK) {
        name_failure(j, doc, from);
        return;
    }
    push_piece(j, &labelled, before, to - from, job_side_of(rules, after_cut), from == 0, false);
}

static void encode_part(job *j, const job_rules *rules) {
    const job_part *p = &j->part;
    bool first = p->from == p->range_from, last = p->to == p->range_to;
    const char *text = p->doc.text + p->from;
    size_t n = p->to - p->from;
    document labelled =
        p->doc; /* a file of text: it has no label, which is an error where one is wanted */
    take_label(j, rules, &labelled);
    if (j->st != ST_OK) return;
    if (first && last)
        j->st = tok_encode(rules->tok, text, n, 0, &j->ids, &j->e);
    else
        j->st = tok_encode_part(rules->tok, text, n, first, &j->ids, &j->e);
    if (j->st != ST_OK) {
        name_failure(j, &p->doc, p->from);
        return;
    }
    push_piece(j, &p->doc, 0, p->range_to - p->range_from, p->side, p->from == 0, !last);
}

void job_encode(job *j, const job_rules *rules) {
    if (j->st != ST_OK || j->ends_parts) return;
    if (j->is_part) {
        encode_part(j, rules);
        return;
    }
    document doc;
    for (int i = 0; i < j->n_chunks; i++)
        while (j->st == ST_OK && chunk_next(j->chunk[i], &doc)) {
            size_t cut = job_cut(rules, &doc);
            encode_range(j, rules, &doc, 0, cut, false);
            encode_range(j, rules, &doc, cut, doc.len, true);
        }
}
