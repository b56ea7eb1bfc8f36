/* The models that are served: each with its name, engine, chat template and what it advises. They do
 * not change after the server has begun; only the thread of the engines calls engines. */
#ifndef SERVE_API_MODELS_H
#define SERVE_API_MODELS_H

#include "infer/grammar/token_trie.h"
#include "interchange/drafting.h"
#include "serve/api/body.h"
#include "serve/api/calls.h"
#include "serve/serve.h"
#include "tok/chat/template.h"

typedef struct served {
    char *name;
    char *route; /* /v1/models/NAME */
    open_model model;
    engine *engine;
    drafting draft;          /* tries tokens for it */
    chat_template *template; /* NULL: it has none, and cannot chat */
    generation_settings settings;
    tok_ids chat_end;  /* ids that end an answer in a chat; settings.end those of a text */
    token_trie *words; /* of its tokenizer, for what is written under a schema */
    call_form calls;   /* how its template writes calls of tools */
    const thought_marks *thought; /* what it puts around what it thinks; NULL: it does not */
} served;

typedef struct served_list {
    served *item;
    int n;
    int64_t began; /* seconds since 1970 */
} served_list;

/* Opens and loads all. On failure what was opened is freed by served_close_all, as always. */
status served_open_all(served_list *list, const serve_options *opt, err *e) ATH_MUST_USE;
void served_close_all(served_list *list);
/* The model of a field "model": NULL or "": the first. Faults: 404, with the names there are. */
served *served_find(const served_list *list, const json_t *name, api_fault *f);
/* What /v1/models answers, and of one model /v1/models/NAME. */
json_t *served_json(const served_list *list);
json_t *served_one_json(const served *s, int64_t began);

#endif
