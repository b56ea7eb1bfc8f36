/* What asks a training run to save and stop: SIGTERM, SIGUSR1, SIGINT; SIGHUP, of a terminal that was
 * closed, unless nohup had it ignored; SIGPIPE, when nobody reads the output any more. The write that
 * met the closed pipe just fails. */
#ifndef APP_TRAIN_SIGNALS_H
#define APP_TRAIN_SIGNALS_H

#include <signal.h>

void train_catch_signals(void);
const volatile sig_atomic_t *train_stop_flag(void);

#endif
