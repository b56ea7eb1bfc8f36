/* What /metrics tells, in the text format of Prometheus (version 0.0.4). Any thread may add and print. */
#ifndef SERVE_API_METRICS_H
#define SERVE_API_METRICS_H

#include "infer/engine.h"
#include "serve/http/http.h"

typedef struct metrics metrics;
metrics *metrics_new(void);
void metrics_free(metrics *m);

/* A text has its first token, so many seconds after its request came. */
void metrics_add_first(metrics *m, double seconds);
/* A text has ended; seconds: since its first token. */
void metrics_add_text(metrics *m, int64_t n_prompt, const generate_result *r, double seconds);
/* A reply has ended. why: "done", "failed" or "gone". */
void metrics_add_answer(metrics *m, bool chat, const char *why, double seconds);
/* A request had no place. */
void metrics_add_refused(metrics *m);
/* What the engine of a model holds now. */
void metrics_set_load(metrics *m, int model, const engine_load *load);

/* names: of the models, n of them. */
void metrics_print(metrics *m, const char *const *names, int n, const http_counters *http,
                   strbuf *out);

#endif
