/* The program: see cli.h for the frame and commands.def for what it can do. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "app/frame/child.h"
#include "app/frame/cli.h"
#include "base/arena.h"
#include "dev/dev.h"

/* Threads that wait for others spin shortly, then sleep. libgomp's default is to spin for
 * milliseconds, which on a machine that does anything else holds back the very thread that is
 * waited for: a step of a 0.8M model beside other jobs took 1,500 ms so, and 60 ms with a spin of
 * 1000; alone 26 and 27 ms. Decoding one token at a time, where waits are many and short, was about
 * a tenth faster with 5000. It reads its environment before main, so the program starts itself
 * again, once; what the user has set wins. */
static void let_waiting_threads_sleep(char **argv) {
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
    dev_unbind();
    if (setenv("GOMP_SPINCOUNT", "5000", 1) == 0) execv("/proc/self/exe", argv);
}

/* Where standard input or output is closed, its number is not to become that of a file, which would get what is printed.
 * What stands there instead fails as a closed one does. */
static void keep_standard_numbers(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv) {
    keep_standard_numbers();
    /* A file that may not become so large (ulimit -f) is like a full disk. */
    signal(SIGXFSZ, SIG_IGN);
    child_follow_parent();
    let_waiting_threads_sleep(argv);
    json_set_alloc_funcs(xmalloc, free);
    return cli_main(argc, argv);
}
