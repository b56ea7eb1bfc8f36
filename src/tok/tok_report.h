/* What tokenizers make of a corpus: the figures by which one is chosen.
 *
 * A document counts for a tokenizer with its tokens as one text, without special tokens, and with
 * its words, each encoded alone: fertility is tokens per word, PCW the share of words that take two
 * or more. A word is the longest run of letters, marks and numbers (Unicode L, M, N); in scripts
 * that are written without spaces (Han, Kana, Thai, Lao, Khmer, Myanmar) it is one letter with its
 * marks.
 *
 * All sums are integers: any number of threads gives the same figures. Memory is bounded by the
 * batch that is added, whatever the corpus. Reading order: report/words.c, tally.c.
 */
#ifndef TOK_TOK_REPORT_H
#define TOK_TOK_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tok/tok.h"

/* Sums over the documents of one row. Those that the tokenizer refuses, because it has neither a
 * token for a character nor an unknown token, are counted as refused and nowhere else. */
typedef struct tok_tally {
    int64_t documents, bytes, chars, words;
    int64_t tokens;
    int64_t word_tokens, split_words; /* of words encoded alone; words of two or more tokens */
    int64_t unk_bytes;                /* of the text, that became the unknown token */
    int64_t exact_documents;          /* that decode to the same bytes */
    int64_t refused_documents;
    int64_t used_tokens; /* different ids produced */
} tok_tally;

/* A document belongs to up to TOK_ROWS rows, such as its file and its language. */
enum { TOK_ROWS = 3 };
typedef struct tok_report_doc {
    const char *text;
    size_t len;
    int row[TOK_ROWS]; /* of tok_report_row; -1: none */
} tok_report_doc;

typedef struct tok_report tok_report;

/* The tokenizers must outlive the report. Without `words` only whole texts are encoded. */
tok_report *tok_report_new(const tok *const *toks, int n_toks, bool words);
void tok_report_free(tok_report *r);
/* Makes a row, returns its number: 0, 1, 2, ... */
int tok_report_row(tok_report *r);
/* Encodes the documents with every tokenizer, in parallel. */
status tok_report_add(tok_report *r, const tok_report_doc *docs, int n, err *e) ATH_MUST_USE;
tok_tally tok_report_tally(const tok_report *r, int tok_index, int row);
/* How often the corpus has each id: [tok_vocab_size]. */
const int64_t *tok_report_counts(const tok_report *r, int tok_index);

/* What can be said of a vocabulary; lists of ids are on the heap. */
typedef struct tok_vocab_report {
    int32_t size, used, special;
    tok_ids unused;      /* never produced on the corpus, special tokens aside */
    tok_ids unreachable; /* unused, whole characters, and not produced from their own text either */
    tok_ids partial;     /* two or more bytes that are not whole characters */
    tok_ids longest;     /* the longest texts first, LONGEST of them */
} tok_vocab_report;
enum { TOK_REPORT_LONGEST = 10 };
void tok_report_vocabulary(const tok_report *r, int tok_index, tok_vocab_report *out);
void tok_vocab_report_free(tok_vocab_report *v);

/* The next word of a text at or after *at; false at the end. Moves *at behind it. */
bool tok_next_word(const char *text, size_t len, size_t *at, size_t *start, size_t *end);
/* The script that most letters of a text belong to: "Latin", "Han", ...; "none" without letters. */
const char *tok_dominant_script(const char *text, size_t len);

#endif
