#include "app/train/train_signals.h"

#include "base/status.h"

/* The signal flag is process-wide by nature. */
static volatile sig_atomic_t stop_requested;

static void request_stop(int signal_number) {
    (void)signal_number;
    stop_requested = 1;
}

/* nohup has SIGHUP ignored, and so it stays. */
static bool is_ignored(int signal_number) {
    struct sigaction now;
    return sigaction(signal_number, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

void train_catch_signals(void) {
    struct sigaction sa = {.sa_handler = request_stop};
    sigemptyset(&sa.sa_mask);
    static const int caught[] = {SIGTERM, SIGUSR1, SIGINT, SIGPIPE};
    for (int i = 0; i < ARRAY_LEN(caught); i++) sigaction(caught[i], &sa, NULL);
    if (!is_ignored(SIGHUP)) sigaction(SIGHUP, &sa, NULL);
}

const volatile sig_atomic_t *train_stop_flag(void) {
    return &stop_requested;
}
