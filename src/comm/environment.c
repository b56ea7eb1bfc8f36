/* The world that whoever started this process describes in the environment.
 *
 * Variables of a rank are removed once they are read: a child of a rank is no rank. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "comm/meet/joined.h"
#include "comm/mpi/mpi.h"
#include "comm/world.h"

static const char RANK[] = "ATHANOR_RANK", SIZE[] = "ATHANOR_WORLD_SIZE",
                  SEGMENT[] = "ATHANOR_SEGMENT_FD", TIMEOUT[] = "ATHANOR_TIMEOUT";
static const char JOINED_RANK[] = "RANK", JOINED_SIZE[] = "WORLD_SIZE", ADDRESS[] = "MASTER_ADDR",
                  PORT[] = "MASTER_PORT";
static const double MEETING_S = 300; /* until the last rank has come */

/* `first` is the variable for which the others are wanted. */
static status read_int(const char *name, const char *first, int *out, err *e) {
    const char *text = getenv(name);
    int64_t value = -1;
    enum { MOST = 65535 }; /* no port is higher, nor any rank or descriptor */
    *out = -1;
    if (!text) {
        err_set(e, ST_USAGE, "%s is set, but %s is not", first, name);
    } else if (!text_parse_int(text, &value) || value < 0 || value > MOST) {
        err_set(e, ST_USAGE, "%s is \"%s\", which is no number from 0 to %d", name, text, MOST);
    } else {
        *out = (int)value;
        return ST_OK;
    }
    err_where(e, "%s", name);
    return err_hint(e, "%s sets these variables; unset %s for one rank alone",
                    first == RANK ? "athanor launch" : "torchrun", first);
}

/* Seconds, where the variable is set. */
static status read_timeout(double *seconds, err *e) {
    const char *text = getenv(TIMEOUT);
    if (!text || (text_parse_number(text, seconds) && *seconds >= 0)) return ST_OK;
    err_set(e, ST_USAGE, "%s is \"%s\", which is no number of seconds", TIMEOUT, text);
    return err_where(e, "%s", TIMEOUT);
}

static status open_launched(comm_world **out, err *e) {
    int rank, size, fd;
    TRY(read_int(RANK, RANK, &rank, e));
    TRY(read_int(SIZE, RANK, &size, e));
    TRY(read_int(SEGMENT, RANK, &fd, e));
    TRY(comm_open_segment(out, fd, rank, e));
    close(fd); /* what was mapped stays */
    unsetenv(RANK);
    unsetenv(SIZE);
    unsetenv(SEGMENT);
    if (comm_world_size(*out) == size) return ST_OK;
    err_set(e, ST_USAGE, "%s is %d, but the segment has %d ranks", SIZE, size,
            comm_world_size(*out));
    comm_close(*out);
    *out = NULL;
    return err_where(e, "%s", SIZE);
}

/* ---- ranks that were told where rank 0 is ---- */

static bool says(const char *name, const char *word) {
    const char *text = getenv(name);
    return text && strcmp(text, word) == 0;
}

/* torchrun may keep MASTER_PORT for itself: its agent listens there and expects ranks to be guests.
 * Then they meet at a port that is as far from it for every run. */
static int meeting_port(int port) {
    enum { APART = 4096 };
    if (!says("TORCHELASTIC_USE_AGENT_STORE", "True")) return port;
    return port < 65536 - APART ? port + APART : port - APART;
}

static status read_plan(rendezvous_plan *plan, err *e) {
    int port;
    *plan = (rendezvous_plan){.timeout_s = MEETING_S, .version = ATHANOR_VERSION};
    TRY(read_int(JOINED_RANK, JOINED_RANK, &plan->rank, e));
    TRY(read_int(JOINED_SIZE, JOINED_RANK, &plan->size, e));
    if (plan->rank >= plan->size) {
        err_set(e, ST_USAGE, "there is no rank %d among %d ranks", plan->rank, plan->size);
        err_where(e, "%s", JOINED_RANK);
        return err_hint(e, "%s counts from 0 and stays below %s", JOINED_RANK, JOINED_SIZE);
    }
    if (plan->size == 1) return ST_OK;
    TRY(read_timeout(&plan->timeout_s, e));
    TRY(read_int(PORT, JOINED_RANK, &port, e));
    plan->at = (tcp_place){.host = getenv(ADDRESS), .port = meeting_port(port)};
    if (!plan->at.host) {
        err_set(e, ST_USAGE, "%s and %s are set, but %s is not", JOINED_RANK, JOINED_SIZE, ADDRESS);
    } else if (port == 0) {
        err_set(e, ST_USAGE, "%s is 0, which is no port where ranks could meet", PORT);
    } else {
        return ST_OK;
    }
    return err_where(e, "%s", plan->at.host ? PORT : ADDRESS);
}

int comm_core_share(int ranks) {
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return cores > ranks ? cores / ranks : 1;
}

static void share_cores(int ranks) {
    char text[16];
    snprintf(text, sizeof text, "%d", comm_core_share(ranks));
    setenv("OMP_NUM_THREADS", text, 0);
}

static status open_joined(comm_world **out, err *e) {
    rendezvous_plan plan;
    TRY(read_plan(&plan, e));
    if (plan.size == 1) {
        *out = comm_open_self();
    } else {
        TRY(joined_open(out, &plan, e));
        share_cores(plan.size);
    }
    unsetenv(JOINED_RANK);
    unsetenv(JOINED_SIZE);
    return ST_OK;
}

/* ---- who started this process ---- */

static status set_timeout(comm_world *w, err *e) {
    double seconds = -1;
    TRY(read_timeout(&seconds, e));
    if (seconds >= 0) comm_set_timeout(w, seconds);
    return ST_OK;
}

/* The ranks of a torchrun that MPI or Slurm has started carry the variables of both. */
status comm_open_environment(comm_world **out, err *e) {
    *out = NULL;
    status st = ST_OK;
    if (getenv(RANK))
        st = open_launched(out, e);
    else if (mpi_is_offered() && !getenv("TORCHELASTIC_RUN_ID"))
        st = mpi_open(out, e);
    else if (getenv(JOINED_RANK) && getenv(JOINED_SIZE))
        st = open_joined(out, e);
    else
        *out = comm_open_self();
    if (st == ST_OK) st = set_timeout(*out, e);
    if (st == ST_OK) return ST_OK;
    comm_close(*out);
    *out = NULL;
    return st;
}
