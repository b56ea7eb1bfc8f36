/* Bodies of requests, and what is answered when one is wrong. */
#ifndef SERVE_API_BODY_H
#define SERVE_API_BODY_H

#include "base/json.h"
#include "base/status.h"

/* Why a request is refused. Initialise with {0}. */
typedef struct api_fault {
    int http;         /* the status; 0: what e.code says, 400 or 500 */
    const char *code; /* a word for programs, such as "model_not_found"; may be NULL */
    err e;            /* where: the field of the body, if it is one */
} api_fault;

/* Says what the err of the fault does not: the HTTP status and the word. Returns e.code. */
status api_fault_as(api_fault *f, int http, const char *code);
int api_fault_status(const api_fault *f);
/* {"error": {"message", "type", "param", "code"}}, as OpenAI answers. */
json_t *api_fault_json(const api_fault *f);

/* Parsed, a value takes ten times its bytes, and a list or object a hundred times. */
enum {
    API_MAX_DEPTH = 100,    /* of lists and objects within each other */
    API_MAX_NODES = 50000,  /* lists and objects */
    API_MAX_VALUES = 1 << 20 /* in all */
};

/* The body as an object; ST_USAGE says where it is none. The caller owns *out. */
status api_body_parse(json_t **out, const char *body, size_t len, err *e) ATH_MUST_USE;

/* JSON on one line, as replies have it. */
void api_put_json(strbuf *out, json_t *value); /* takes the reference */

#endif
