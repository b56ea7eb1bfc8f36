#include "app/train/train_signals.h"

#include "base/status.h"

/* The signal flag is process-wide by nature. */
static volatile sig_atomic_t stop_requested;

static void request_stop(int signal_number) {
    (void)signal_number;
    stop_requested = 1;
}

void train_catch_signals(void) {
    struct sigaction sa = {.sa_handler = request_stop};
    sigemptyset(&sa.sa_mask);
    static const int caught[] = {SIGTERM, SIGUSR1, SIGINT};
    for (int i = 0; i < ARRAY_LEN(caught); i++) sigaction(caught[i], &sa, NULL);
}

const volatile sig_atomic_t *train_stop_flag(void) {
    return &stop_requested;
}
