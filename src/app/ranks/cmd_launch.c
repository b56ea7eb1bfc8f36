/* athanor launch: one command as several ranks on this machine. */
#include <stdlib.h>
#include <string.h>

#include "app/frame/cli.h"
#include "app/ranks/launch_ranks.h"
#include "base/arena.h"

enum { MOST_RANKS = 256 };

static status check_nesting(const cli_args *args, err *e) {
    if (getenv("ATHANOR_RANK")) {
        err_set(e, ST_USAGE, "this process is rank %s of a launch already", getenv("ATHANOR_RANK"));
        return err_where(e, "ATHANOR_RANK");
    }
    if (strcmp(args->inputs[0], "launch") != 0) return ST_OK;
    err_set(e, ST_USAGE, "'athanor launch' does not launch itself");
    return err_hint(e, "name the command of the ranks: athanor launch --ranks 2 -- train CONFIG");
}

static status launch(const cli_args *args, err *e) {
    int64_t ranks;
    launch_plan plan = {.args = args->inputs, .n_args = args->n_inputs};
    TRY(check_nesting(args, e));
    if (!cli_has(args, "ranks")) {
        err_set(e, ST_USAGE, "how many ranks?");
        err_where(e, "command line");
        return err_hint(e, "athanor launch --ranks 2 -- %s ...", args->inputs[0]);
    }
    TRY(cli_int(args, "ranks", 1, 1, MOST_RANKS, &ranks, e));
    TRY(cli_num(args, "timeout", -1, 0, 1e9, &plan.timeout_s, e));
    plan.ranks = (int)ranks;
    return launch_ranks(&plan, e);
}

static const cli_option options[] = {
    {"ranks", "N", "how many processes"},
    {"timeout", "S", "seconds that a rank may wait for another; 0: for ever (default 600)"},
    {0}};

const cli_command command_launch = {
    .name = "launch",
    .summary = "one command as several ranks on this machine",
    .usage = "--ranks N [--timeout S] -- COMMAND ...",
    .run = launch,
    .options = options,
    .min_inputs = 1,
    .max_inputs = -1,
    .about =
        "Starts COMMAND as N processes that train together; what follows -- is what would follow\n"
        "athanor alone. Each rank gets its share of the cores, unless OMP_NUM_THREADS is set.\n"
        "Rank 0 speaks; of the others only standard error is passed on, with [rank R] before each\n"
        "line. SIGINT, SIGTERM, SIGHUP and SIGUSR1 go to all ranks. When one dies, the others end\n"
        "within seconds. A rank that waits for another longer than --timeout fails with a report\n"
        "of where each rank is. Ranks may also be started by mpirun, srun or torchrun: see\n"
        "docs/launching.md.\n"
        "\n"
        "Exit status: that of the ranks when they agree; 6 when one was killed, hung or "
        "differs.\n",
};
