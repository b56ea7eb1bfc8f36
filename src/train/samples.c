/* Samples during training, through the plan's own prefill and decode programs. */
#include <string.h>

#include "infer/generate.h"
#include "train/events.h"

status samples_encode(setup *u, err *e) {
    const config_texts *prompts = &u->c->sample.prompts;
    u->prompts = ARENA_ARRAY(u->a, tok_ids, prompts->n + 1);
    for (int i = 0; i < prompts->n; i++) {
        status st =
            tok_encode(u->tok, prompts->items[i], strlen(prompts->items[i]), 0, &u->prompts[i], e);
        if (st == ST_OK && u->prompts[i].n == 0)
            st = config_error(u->c, e, "sample.prompts", "prompt %d is empty", i + 1);
        if (st != ST_OK) {
            err_context(e, "sample.prompts[%d]", i);
            return st;
        }
    }
    return ST_OK;
}

static status write_one(session *s, generator *g, int i, err *e) {
    setup *u = &s->setup;
    const config *c = u->c;
    int32_t end = tok_eos(u->tok);
    generate_request rq = {.prompt = u->prompts[i].id,
                           .n_prompt = u->prompts[i].n,
                           .max_new = c->sample.max_new,
                           .sample = {.temperature = c->sample.temperature,
                                      .top_k = (int)c->sample.top_k,
                                      .top_p = c->sample.top_p,
                                      .repetition_penalty = 1.0,
                                      .seed = sample_seed((uint64_t)c->train.seed, i + 1)},
                           .end = &end,
                           .n_end = end >= 0,
                           .tok = u->tok,
                           .goes_on = true};
    tok_ids ids = {0};
    strbuf text = {0};
    generate_result result;
    status st = generate_run(g, &rq, &ids, &text, &result, e);
    if (st == ST_OK) st = events_sample(s, c->sample.prompts.items[i], &text, e);
    tok_ids_free(&ids);
    strbuf_free(&text);
    return st;
}

status samples_write(session *s, err *e) {
    setup *u = &s->setup;
    if (!plan_prog(u->plan, USE_DECODE, 0)) return ST_OK;
    status st = ST_OK;
    if (!execute_needs_all(u) && !setup_leads(u)) return ST_OK;
    generator g = plan_generator(u->plan, u->tok);
    g.replay = execute_replay;
    g.replay_ctx = s;
    for (int i = 0; st == ST_OK && i < u->c->sample.prompts.n; i++) {
        generator_reset(&g); /* each as if it were alone */
        st = write_one(s, &g, i, e);
    }
    generator_free(&g);
    return st;
}
