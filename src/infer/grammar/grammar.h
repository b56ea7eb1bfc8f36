/* Grammars: what a model may write, made into constraints (constraint.h) for a vocabulary.
 *
 *   JSON Schema --schema.h--> network of rules --acceptor.h--> sets of places --token_trie.h--> tokens that may follow
 *
 * A grammar is a choice of forms, each a sequence of texts and JSON values: one value for an answer in
 * JSON, or what a template writes around a tool call and its arguments.
 *
 * A text under a grammar can always be completed: where the tokens that are left come to be few, only what ends in
 * time may follow (constraint_class.allow). If they are too few from the start, the shortest way is taken
 * and the text ends where they do, without an end.
 *
 * A grammar and its constraints belong to one thread at a time. The vocabulary (token_trie.h) is shared by all.
 *
 * Reading order: network.h, acceptor.h, grammar.c; json_rules.h, schema.h and its files. */
#ifndef INFER_GRAMMAR_GRAMMAR_H
#define INFER_GRAMMAR_GRAMMAR_H

#include <jansson.h>

#include "infer/grammar/constraint.h"
#include "infer/grammar/token_trie.h"

/* One of the three. */
typedef struct grammar_part {
    const char *text;     /* written as it is; added tokens of the vocabulary may spell it */
    const json_t *schema; /* a value of this JSON Schema (schema.h) */
    bool object;          /* any JSON object */
} grammar_part;

typedef struct grammar_form {
    const grammar_part *part;
    int n_parts;
} grammar_form;

typedef struct grammar_spec {
    const grammar_form *form;
    int n_forms;
    int most;            /* so many forms follow each other at most; 0 is 1 */
    const char *between; /* what stands between them; NULL: nothing */
} grammar_spec;

typedef struct grammar grammar;
/* What spec points to is not kept; the vocabulary is. ST_USAGE: what in a schema is not supported, or
 * wrong, by name, with its JSON pointer as `where`; a schema without a value, or too large; a vocabulary that
 * lacks a character of ASCII. */
status grammar_new(grammar **out, const token_trie *vocab, const grammar_spec *spec,
                   err *e) ATH_MUST_USE;
/* The same for one value: of a schema, or with NULL any object. */
status grammar_of_schema(grammar **out, const token_trie *vocab, const json_t *schema,
                         err *e) ATH_MUST_USE;
/* The memory that it holds for as long as it lives; what texts under it come to is limited besides. */
size_t grammar_bytes(const grammar *g);
void grammar_free(grammar *g); /* NULL is fine; its constraints are freed before */

/* For one text. */
constraint *grammar_constrain(grammar *g);

#endif
