/* The thread of the engines: it alone starts answers, steps the engines of all models in turn, and ends
 * and frees answers. Other threads hand it answers through a list under a lock, which is never held
 * while a reply or an engine is used. */
#ifndef SERVE_API_WORKER_H
#define SERVE_API_WORKER_H

#include "serve/api/answer.h"

typedef struct worker worker;

/* Of the grammars of all answers that run and wait. */
enum { WORKER_GRAMMAR_BYTES = 256 << 20 };

/* most: texts that may run and wait at a time, of all models. ST_FAILED: the system has no thread. */
status worker_start(worker **out, const served_list *models, metrics *m, int most,
                    err *e) ATH_MUST_USE;
/* How many texts one answer may have beside others: a quarter of the places. */
int worker_share(int most);
/* The answer is the worker's from now on. False: there is no place for its texts, or for its grammar; it
 * stays the caller's. One that has more texts than its share is taken when it is alone. */
bool worker_put(worker *w, answer *a);
/* Cancels what runs, ends all replies, and the thread. NULL is fine. */
void worker_stop(worker *w);

#endif
