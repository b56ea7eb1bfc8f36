/* SIGINT and SIGTERM for a command that serves: the first asks its server to stop, the second to stop
 * at once. Before there is a server, the first ends the program.
 *
 * A thread waits for them, and no other takes them: so no call is cut short, and there is no
 * handler. */
#ifndef APP_STOPPER_H
#define APP_STOPPER_H

#include <pthread.h>
#include <stdatomic.h>

#include "serve/http/http.h"

typedef struct stopper {
    pthread_t thread;
    _Atomic(http_server *) server; /* NULL: not yet, or no more */
    atomic_bool over;
} stopper;

/* Before any other thread is started: threads inherit what signals they take. */
status stopper_begin(stopper *s, err *e) ATH_MUST_USE;
void stopper_serve(stopper *s, http_server *server);
/* Before the server is closed. */
void stopper_end(stopper *s);

#endif
