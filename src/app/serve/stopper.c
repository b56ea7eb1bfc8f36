#include "app/serve/stopper.h"

#include <signal.h>
#include <unistd.h>

#include "base/log.h"

static sigset_t signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    return set;
}

static void *wait_for_signals(void *arg) {
    stopper *s = arg;
    sigset_t set = signals();
    for (int n = 0, number;;) {
        if (sigwait(&set, &number) != 0 || atomic_load(&s->over)) return NULL;
        http_server *server = atomic_load(&s->server);
        if (!server) _exit(128 + number);
        if (n++ == 0) log_info("stopping when running answers have ended; again: at once");
        http_server_stop(server);
    }
}

status stopper_begin(stopper *s, err *e) {
    sigset_t set = signals();
    *s = (stopper){0};
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    int failed = pthread_create(&s->thread, NULL, wait_for_signals, s);
    return failed ? err_set(e, ST_FAILED, "cannot start a thread") : ST_OK;
}

void stopper_serve(stopper *s, http_server *server) {
    atomic_store(&s->server, server);
}

void stopper_end(stopper *s) {
    atomic_store(&s->over, true);
    pthread_kill(s->thread, SIGTERM);
    pthread_join(s->thread, NULL);
}
