/* A handler may not walk over folders: it tells a thread, which does, and ends the program by the same signal. */
#include "interchange/unfinished.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/thread.h"

static const int CAUGHT[] = {SIGINT, SIGTERM, SIGHUP};

/* Process-wide by nature, as signals are. */
static struct {
    const char *const *path[2];
    struct sigaction before[ARRAY_LEN(CAUGHT)];
    int ends[2]; /* of a pipe, in which the handler puts the signal's number */
    pthread_t thread;
    pthread_mutex_t names; /* for ever with who removes what has them */
} unfinished = {.names = PTHREAD_MUTEX_INITIALIZER};

static void tell(int signal_number) {
    unsigned char number = (unsigned char)signal_number;
    int cause = errno;
    (void)!write(unfinished.ends[1], &number, 1);
    errno = cause;
}

/* The work goes on meanwhile, and may put a file into a folder that is being removed. */
static void remove_all(void) {
    for (int i = 0; i < ARRAY_LEN(unfinished.path); i++)
        for (int tries = 0; unfinished.path[i] && *unfinished.path[i] && tries < 100; tries++)
            if (file_remove_tree(*unfinished.path[i], NULL) == ST_OK) break;
}

static void *wait_for_signal(void *unused) {
    unsigned char number;
    ssize_t got;
    (void)unused;
    do got = read(unfinished.ends[0], &number, 1);
    while (got < 0 && errno == EINTR);
    if (got != 1) return NULL; /* the work has ended */
    unfinished_hold();
    remove_all();
    signal(number, SIG_DFL);
    kill(getpid(), number);
    return NULL;
}

static void catch_signals(void) {
    struct sigaction sa = {.sa_handler = tell, .sa_flags = SA_RESTART};
    sigemptyset(&sa.sa_mask);
    for (int i = 0; i < ARRAY_LEN(CAUGHT); i++) {
        sigaction(CAUGHT[i], NULL, &unfinished.before[i]);
        if (unfinished.before[i].sa_handler == SIG_DFL) sigaction(CAUGHT[i], &sa, NULL);
    }
}

void unfinished_begin(const char *const *path, const char *const *beside) {
    unfinished.path[0] = path;
    unfinished.path[1] = beside;
    CHECK(pipe2(unfinished.ends, O_CLOEXEC) == 0 &&
              thread_start(&unfinished.thread, wait_for_signal, NULL),
          "no pipe or no thread: %s", strerror(errno));
    catch_signals();
}

void unfinished_hold(void) {
    pthread_mutex_lock(&unfinished.names);
}

void unfinished_release(void) {
    pthread_mutex_unlock(&unfinished.names);
}

void unfinished_end(void) {
    for (int i = 0; i < ARRAY_LEN(CAUGHT); i++) sigaction(CAUGHT[i], &unfinished.before[i], NULL);
    close(unfinished.ends[1]);
    pthread_join(unfinished.thread, NULL);
    close(unfinished.ends[0]);
}
