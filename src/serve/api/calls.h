/* What a model writes in a chat, taken apart while it comes: what it thought, what it says, and which
 * tools it calls.
 *
 * Models write calls as JSON in marks of their family, and thoughts between two marks; which ones, is
 * found in the text of the chat template:
 *
 *   CALLS_TAGGED   <tool_call>{"name": ..., "arguments": {...}}</tool_call>, any number of them
 *                  (Hermes, Qwen, SmolLM; a list of such objects within the tags, too)
 *   CALLS_LISTED   [TOOL_CALLS] and a list of such objects, or name{...}, or name[ARGS]{...} (Mistral)
 *   CALLS_BARE     the whole answer is {"name": ..., "parameters": {...}}, perhaps behind
 *                  <|python_tag|>, several with ; between them (Llama 3)
 *
 * What looks like a call but is no JSON, or has no name, is told as text, marks and all. A bare object is
 * taken for a call only if its name is that of a tool that was offered. */
#ifndef SERVE_API_CALLS_H
#define SERVE_API_CALLS_H

#include "base/json.h"
#include "tok/chat/template.h"

typedef enum call_form { CALLS_NONE, CALLS_TAGGED, CALLS_LISTED, CALLS_BARE } call_form;
call_form call_form_of(const chat_template *t);
/* The word by which a template of the form is known, which its calls may begin with. */
const char *call_form_sign(call_form form);

/* How a call is written: before_name NAME before_arguments ARGUMENTS behind. */
typedef struct call_words {
    const char *before_name, *before_arguments, *behind;
    bool name_is_json; /* in quotes */
    int most;          /* calls of one answer that can follow each other so */
} call_words;
call_words call_words_of(const chat_template *t, call_form form);

typedef struct thought_marks {
    const char *open, *close;
} thought_marks;
/* NULL: the template knows none. */
const thought_marks *thought_marks_of(const chat_template *t);

/* Pieces are whole characters if those are that are pushed. Each may be called any number of times. */
typedef struct answer_parts {
    void (*thought)(void *ctx, const char *text, size_t len);
    void (*says)(void *ctx, const char *text, size_t len);
    void (*call)(void *ctx, const char *name, const json_t *arguments); /* an object */
    void *ctx;
} answer_parts;

typedef struct answer_reader answer_reader;
/* form: CALLS_NONE where no tools were offered. marks: NULL: thoughts are text. thinks: the prompt has
 * opened a thought. tools: those offered, as chat_read_tools gives them; kept. */
answer_reader *answer_reader_new(call_form form, const thought_marks *marks, bool thinks,
                                 const json_t *tools, const answer_parts *parts);
void answer_reader_push(answer_reader *r, const char *text, size_t len);
void answer_reader_end(answer_reader *r);  /* nothing follows: tells what was held back */
void answer_reader_free(answer_reader *r); /* NULL is fine */

#endif
