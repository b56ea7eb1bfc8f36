/* SIGTERM, SIGUSR1 and SIGINT ask a training run to save and stop. */
#ifndef APP_TRAIN_SIGNALS_H
#define APP_TRAIN_SIGNALS_H

#include <signal.h>

void train_catch_signals(void);
const volatile sig_atomic_t *train_stop_flag(void);

#endif
