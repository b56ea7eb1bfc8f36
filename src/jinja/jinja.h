/* Templates of the Jinja language over JSON values: the part of it that chat templates use, rendered to the same
 * bytes as Python's jinja2 in the environment of transformers (trim and lstrip blocks, loop controls,
 * `{% generation %}`, the immutable sandbox). The module knows nothing of tokenizers or chats: who has a template
 * and variables calls jinja_parse once, then jinja_render as often as needed, from any thread; the parsed template
 * is not changed by rendering.
 *
 *   statements   if, for (unpacking, filter, else, break, continue), set and set blocks, with,
 *                filter, macro, generation, raw, comments, whitespace control
 *   values       None, booleans, integers of 64 bits, floats, strings, lists, tuples, mappings,
 *                namespaces, macros, undefined; printed, compared and made JSON as in Python
 *
 * Not supported, and refused by name: include, import, extends, call blocks, recursive loops,
 * custom filters.
 *
 * A template is outside data, perhaps hostile. It cannot reach files, the clock or other memory; parsing and
 * rendering take bounded time and memory, and end with an error beyond.
 *
 * Reading order: lex.h, ast.h, parse.h, value.h, run.h; then the tables of what templates call:
 * filters.c, filters_seq.c, tests.c, methods.c, methods_str.c. */
#ifndef JINJA_JINJA_H
#define JINJA_JINJA_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/status.h"
#include "base/strbuf.h"

typedef struct jinja_template jinja_template;

/* Bounds of one render; zero is the default of each, which is given. A step is an expression, a statement or an item
 * looked at, and work that grows with bytes costs steps, too (run.h), so steps bound the time: the default takes a
 * second or two of one core, and is a thousand times what published templates need for twenty messages. */
typedef struct jinja_limits {
    int64_t steps;        /* 20 million */
    int64_t output_bytes; /* 64 MiB */
    int64_t memory_bytes; /* of values: 512 MiB */
    int32_t depth;        /* of nested evaluations: 1000 */
    const struct tm *now; /* for strftime_now; NULL: the template may not ask for the time */
} jinja_limits;

/* Stretches of the output, in bytes, in rising order. Initialise with {0}, free `span`. */
typedef struct jinja_span {
    size_t start, end;
} jinja_span;
typedef struct jinja_spans {
    jinja_span *span;
    int64_t n, cap;
} jinja_spans;

/* ST_FORMAT, with line and column in e->where. Free the template with jinja_free. */
status jinja_parse(jinja_template **out, const char *text, size_t len, err *e) ATH_MUST_USE;
/* The same in the environment of lm-evaluation-harness: white space stays as it is written, the last newline too; an
 * undefined value is an error wherever it is more than asked for (`is defined`, default), but for that of a choice
 * without else; tojson sorts keys and escapes for HTML. */
status jinja_parse_strict(jinja_template **out, const char *text, size_t len, err *e) ATH_MUST_USE;
void jinja_free(jinja_template *t); /* NULL is fine */
/* Whether the template has a generation block. */
bool jinja_has_generation(const jinja_template *t);
/* Whether text stands in the template as it was parsed. */
bool jinja_mentions(const jinja_template *t, const char *text);

/* s without white space at its start or end, as str.strip() of Python: for callers that compare texts with what a
 * template has trimmed. */
void jinja_strip(const char **s, size_t *n, bool left, bool right);

/* Appends the rendered text to `out`; nothing is appended on failure. The variables are the members
 * of `context`. `generation` (may be NULL) gets what the generation blocks wrote, counted from the
 * first byte appended. ST_FORMAT: the template does what Jinja forbids, asks for something that is
 * not supported, calls raise_exception, or goes beyond a limit; where is the line. */
status jinja_render(const jinja_template *t, const json_t *context, const jinja_limits *limits,
                    strbuf *out, jinja_spans *generation, err *e) ATH_MUST_USE;

#endif
