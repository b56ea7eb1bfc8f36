/* The chat template of a tokenizer, and conversations rendered with it as transformers'
 * apply_chat_template does. */
#ifndef TOK_CHAT_TEMPLATE_H
#define TOK_CHAT_TEMPLATE_H

#include "jinja/jinja.h"
#include "tok/tok.h"

/* Templates by name, and the special tokens that they may print (bos_token and its like). */
typedef struct chat_template chat_template;

/* From a folder (chat_template.jinja with additional_chat_templates, else the chat_template of
 * tokenizer_config.json, a text or a list with names), a file of such a folder, a GGUF file, or a
 * file that is the template itself (.jinja). ST_FORMAT: there is none, or it cannot be read. */
status chat_template_load(chat_template **out, const char *path, err *e) ATH_MUST_USE;
/* The special tokens of `path`, with another template: a file, or a word for one that is built in:
 * chatml (a turn is <|im_start|>ROLE, a new line, the content and <|im_end|>), or plain (the content and
 * the end of text). */
status chat_template_load_other(chat_template **out, const char *path, const char *file,
                                err *e) ATH_MUST_USE;
/* The same (file NULL: its own template) for a GGUF file whose tokenizer is open already, or NULL.
 */
status chat_template_load_open(chat_template **out, const char *path, const tok *open,
                               const char *file, err *e) ATH_MUST_USE;
/* The same; *out is NULL where there is none, as for a base model, which is no error. */
status chat_template_find(chat_template **out, const char *path, const tok *open, const char *file,
                          err *e) ATH_MUST_USE;
/* ST_USAGE: `file` is chatml, and the tokenizer (of `path`) has no tokens for its turns: letters in their
 * place would be text, and no answer would end. t NULL: that is told elsewhere. */
status chat_template_check(const char *file, const tok *t, const char *path, err *e) ATH_MUST_USE;
/* From a text. `config` (may be NULL) has the special tokens, as tokenizer_config.json has. */
status chat_template_parse(chat_template **out, const char *text, size_t len, const json_t *config,
                           err *e) ATH_MUST_USE;
void chat_template_free(chat_template *t); /* NULL is fine */
/* The text of the template that a conversation without tools gets; NULL: there is none of that name. */
const char *chat_template_text(const chat_template *t);
/* Whether any of the templates says this, such as "strftime_now". */
bool chat_template_mentions(const chat_template *t, const char *text);
/* Names what is rendered: all templates and special tokens. */
uint64_t chat_template_hash(const chat_template *t);
/* Sets the text of a special token ("eos_token"); NULL removes it. */
void chat_template_set_token(chat_template *t, const char *name, const char *text);

/* A conversation. All but `messages` may be NULL. */
typedef struct chat_request {
    const json_t *messages;     /* a list of objects */
    const json_t *tools;        /* a list of JSON schemas */
    const json_t *documents;    /* a list of objects */
    const json_t *extra;        /* further variables, such as enable_thinking; an object */
    const char *name;           /* of the template; NULL: "tool_use" with tools, else "default" */
    const char *continue_field; /* leave the last message open after this field ("content") */
    bool add_generation_prompt; /* begin the answer */
    const struct tm *now;       /* for strftime_now; NULL: unknown */
} chat_request;

/* Appends the text of a conversation to `out`, and to `generation` (may be NULL) the stretches that
 * the assistant wrote, in bytes of it. ST_USAGE: the request is wrong; ST_FORMAT: the template
 * refuses it. */
status chat_render(const chat_template *t, const chat_request *q, strbuf *out,
                   jinja_spans *generation, err *e) ATH_MUST_USE;
/* The special token that the template writes after what an assistant says, and which therefore ends an
 * answer: a trial conversation is rendered to find it. -1: none. now: as in chat_request. */
int32_t chat_find_stop(const chat_template *t, const tok *k, const struct tm *now);
/* Whether the template that would be used marks what the assistant writes. */
bool chat_marks_generation(const chat_template *t, const chat_request *q);
/* Whether the text stands in one of the templates. */
bool chat_mentions(const chat_template *t, const char *text);

#endif
