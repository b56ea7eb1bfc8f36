#include "train/teaching.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "infer/settings.h"
#include "tok/chat/template.h"

/* The first set of conversations. Sets that were rendered in other ways are learned, too, but only
 * one template can be written. */
static const shards *conversations(const loader *l, bool leads) {
    const shards *first = NULL;
    for (int i = 0; i < loader_n_sources(l); i++) {
        const shards *s = loader_source_shards(l, i);
        if (!s->chat.marks) continue;
        if (!first) first = s;
        if (leads && s->chat.template_hash != first->chat.template_hash)
            log_warn("%s was rendered by another chat template than %s: the checkpoints have that "
                     "of the latter",
                     s->dir, first->dir);
    }
    return first;
}

static status read_template(const setup *u, const char *path, const char **text, err *e) {
    char *file;
    size_t n;
    TRY(file_read_part(path, FILE_PART_MAX_BYTES, &file, &n, e));
    *text = arena_strndup(u->a, file, n);
    free(file);
    return ST_OK;
}

/* By the template that lies in the folder of the set, else by the tokenizer's own. */
static status find_stop(teaching *t, const setup *u, const char *dir, err *e) {
    const char *path = path_join(u->a, dir, "chat_template.jinja"), *tokenizer = u->c->tokenizer;
    chat_template *c = NULL;
    struct tm now;
    time_t clock = (time_t)clock_wall_s();
    err none;
    if (file_exists(path)) {
        TRY(read_template(u, path, &t->template, e));
        TRY(chat_template_load_other(&c, tokenizer, path, e));
    } else if (chat_template_load(&c, tokenizer, &none) != ST_OK)
        return ST_OK;
    t->stop = chat_find_stop(c, u->tok, localtime_r(&clock, &now));
    chat_template_free(c);
    return ST_OK;
}

/* What ended texts of the model that the run starts from. */
static status keep_ends(teaching *t, const setup *u, err *e) {
    generation_settings before = {0};
    if (u->lora.gguf.a)
        gguf_model_end_ids(&u->lora.gguf, &before.end);
    else if (u->models[0].from)
        TRY(generation_settings_read(&before, u->models[0].from, e));
    generation_add_end(&t->end, t->stop);
    generation_add_end(&t->end, tok_eos(u->tok));
    for (int64_t i = 0; i < before.end.n; i++)
        if (before.end.id[i] < u->models[0].vocab_size)
            generation_add_end(&t->end, before.end.id[i]);
    generation_settings_free(&before);
    return ST_OK;
}

status teaching_open(teaching *t, const setup *u, const loader *data, err *e) {
    const shards *s = conversations(data, setup_leads(u));
    teaching_close(t);
    if (s) TRY(find_stop(t, u, s->dir, e));
    return keep_ends(t, u, e);
}

void teaching_close(teaching *t) {
    tok_ids_free(&t->end);
    *t = (teaching){.stop = -1};
}
