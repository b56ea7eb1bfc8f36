/* Shared by template.c and render.c. */
#ifndef TOK_CHAT_TEMPLATE_INT_H
#define TOK_CHAT_TEMPLATE_INT_H

#include "tok/chat/template.h"

enum { CHAT_MAX_TEMPLATES = 16 };

struct chat_template {
    struct {
        char *name;
        char *text; /* as it was given */
        jinja_template *jinja;
    } item[CHAT_MAX_TEMPLATES];
    int n;
    json_t *tokens; /* special tokens by name */
};

#endif
