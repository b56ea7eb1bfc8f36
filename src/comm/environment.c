/* Opens the world that the environment of this process describes.
 *
 * Variables that make a process a rank are removed when they have been read, since a child process
 * of a rank is no rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/text.h"
#include "comm/world.h"
#include "dev/dev.h"

static const char RANK[] = "ATHANOR_RANK", SIZE[] = "ATHANOR_WORLD_SIZE",
                  SEGMENT[] = "ATHANOR_SEGMENT_FD", TIMEOUT[] = "ATHANOR_TIMEOUT";
static const char JOINED_RANK[] = "RANK", JOINED_SIZE[] = "WORLD_SIZE", ADDRESS[] = "MASTER_ADDR",
                  PORT[] = "MASTER_PORT", TOKEN[] = "ATHANOR_TOKEN", LINK[] = "ATHANOR_LINK";
static const double MEETING_S = 300;             /* until the last rank has come */
static const double MOST_TIMEOUT_S = 1e9;        /* as parallel.timeout_s */
enum { MOST_NUMBER = 65535, MOST_TOKEN = 4096 }; /* no port is higher, nor any rank or descriptor */

/* `first` is the variable for which the others are wanted. */
static status read_int(const char *name, const char *first, int *out, err *e) {
    int64_t value = -1;
    status st = env_int(name, 0, MOST_NUMBER, &value, e);
    *out = (int)value;
    if (st == ST_OK && value >= 0) return ST_OK;
    if (st == ST_OK) err_set(e, ST_USAGE, "%s is set, but %s is not", first, name);
    err_where(e, "%s", name);
    return err_hint(e, "%s sets these variables; unset %s for one rank alone",
                    first == RANK ? "athanor launch" : "torchrun", first);
}

/* Of a rank: its number and how many there are. */
static status read_rank(const char *rank_name, const char *size_name, int *rank, int *size,
                        err *e) {
    TRY(read_int(rank_name, rank_name, rank, e));
    TRY(read_int(size_name, rank_name, size, e));
    TRY(comm_check_ranks(*size, size_name, e));
    if (*rank < *size) return ST_OK;
    err_at(e, ST_USAGE, rank_name, "there is no rank %d among %d ranks", *rank, *size);
    return err_hint(e, "%s counts from 0 and stays below %s", rank_name, size_name);
}

static status open_launched(comm_world **out, err *e) {
    int rank, size, fd;
    TRY(read_rank(RANK, SIZE, &rank, &size, e));
    TRY(read_int(SEGMENT, RANK, &fd, e));
    TRY(comm_open_segment(out, fd, rank, size, e));
    close(fd); /* what was mapped stays */
    unsetenv(RANK);
    unsetenv(SIZE);
    unsetenv(SEGMENT);
    return ST_OK;
}

/* ---- processors ---- */

int comm_core_share(int ranks) {
    int cores = dev_processors();
    return cores > ranks ? cores / ranks : 1;
}

void comm_list_processors(cpu_set_t *own) {
    int *cpu = xcalloc(CPU_SETSIZE, sizeof *cpu), n = dev_list_processors(cpu, CPU_SETSIZE);
    for (int i = 0; i < n; i++) CPU_SET((size_t)cpu[i], own);
    free(cpu);
}

/* Who starts ranks may bind each to processors of its own, or let all of them run anywhere. */
double comm_share_of(const cpu_set_t *sets, int rank, int ranks) {
    double share = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        int users = 0;
        for (int r = 0; r < ranks; r++) users += CPU_ISSET(cpu, &sets[r]) != 0;
        if (CPU_ISSET(cpu, &sets[rank])) share += 1.0 / users;
    }
    return share;
}

/* A quota may grant less than there are. */
void comm_share_processors(const cpu_set_t *sets, int rank, int ranks) {
    int listed = CPU_COUNT(&sets[rank]);
    double granted = listed > 0 ? (double)dev_processors() / listed : 1;
    int threads = (int)(comm_share_of(sets, rank, ranks) * granted + 1e-6);
    char text[16];
    snprintf(text, sizeof text, "%d", threads > 1 ? threads : 1);
    setenv("OMP_NUM_THREADS", text, 0);
}

/* ---- ranks that were told where rank 0 is ---- */

/* torchrun may keep MASTER_PORT for itself: its agent listens there and expects ranks to be guests.
 * Then they meet at a port that is as far from it for every run. */
static int meeting_port(int port) {
    enum { APART = 4096 };
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    if (!agent || strcmp(agent, "True") != 0) return port;
    return port < 65536 - APART ? port + APART : port - APART;
}

/* What only the ranks of this run should know. Where nobody has set a token, the number of the job
 * keeps two runs apart, but many may know it; else there is none. */
static status read_token(const char **token, err *e) {
    static const char *const jobs[] = {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"};
    *token = getenv(TOKEN);
    for (int i = 0; i < ARRAY_LEN(jobs) && !*token; i++) *token = getenv(jobs[i]);
    if (!*token) *token = "";
    if (!getenv(TOKEN) || (**token && strlen(*token) <= MOST_TOKEN)) return ST_OK;
    err_at(e, ST_USAGE, TOKEN, "%s is %s", TOKEN, **token ? "longer than 4096 bytes" : "empty");
    return err_hint(e, "set it to the same secret for all ranks: %s=$(openssl rand -hex 16)",
                    TOKEN);
}

static status read_plan(rendezvous_plan *plan, err *e) {
    int port;
    *plan = (rendezvous_plan){.timeout_s = MEETING_S, .version = ATHANOR_VERSION};
    TRY(read_rank(JOINED_RANK, JOINED_SIZE, &plan->rank, &plan->size, e));
    if (plan->size == 1) return ST_OK;
    TRY(env_num(TIMEOUT, 0, MOST_TIMEOUT_S, &plan->timeout_s, e));
    TRY(read_token(&plan->token, e));
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

static status open_joined(comm_world **out, err *e) {
    rendezvous_plan plan;
    TRY(read_plan(&plan, e));
    if (plan.size == 1) {
        *out = comm_open_self();
    } else {
        TRY(joined_open(out, &plan, e));
    }
    unsetenv(JOINED_RANK);
    unsetenv(JOINED_SIZE);
    unsetenv(TOKEN);
    return ST_OK;
}

/* ---- who started this process ---- */

static status set_timeout(comm_world *w, err *e) {
    double seconds = -1;
    TRY(env_num(TIMEOUT, 0, MOST_TIMEOUT_S, &seconds, e));
    if (seconds >= 0) comm_set_timeout(w, seconds);
    return ST_OK;
}

/* "MICROSECONDS,GB/S", for tests and measurements: links as slow as those between machines. */
static status set_link(comm_world *w, err *e) {
    const char *text = getenv(LINK);
    double latency_us, gb_per_s;
    if (!text) return ST_OK;
    const char *comma = strchr(text, ',');
    char *first = comma ? strndup(text, (size_t)(comma - text)) : NULL;
    bool good = first && text_parse_number(first, &latency_us) && latency_us >= 0 &&
                latency_us <= 1e9 && text_parse_number(comma + 1, &gb_per_s) && gb_per_s >= 0 &&
                gb_per_s <= 1e6;
    free(first);
    if (good) {
        comm_set_link(w,
                      (comm_link){.latency_s = latency_us * 1e-6, .bytes_per_s = gb_per_s * 1e9});
        return ST_OK;
    }
    err_at(e, ST_USAGE, LINK, "%s is \"%.60s\", which is not MICROSECONDS,GB/S", LINK, text);
    return err_hint(e, "for example %s=200,0.1 (0: no limit), or unset it", LINK);
}

/* The ranks of a torchrun that MPI or Slurm has started carry the variables of both. NCCL is to take the memory of
 * its collectives when it is opened, not with the first of them: what a GPU has free is known then. It is told
 * here, before there are threads that read the environment. */
status comm_open_environment(comm_world **out, err *e) {
    *out = NULL;
    status st = ST_OK;
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    if (getenv(RANK))
        st = open_launched(out, e);
    else if (comm_is_by_mpi() && !getenv("TORCHELASTIC_RUN_ID"))
        st = mpi_open(out, e);
    else if (getenv(JOINED_RANK) && getenv(JOINED_SIZE))
        st = open_joined(out, e);
    else
        *out = comm_open_self();
    if (st == ST_OK) st = set_timeout(*out, e);
    if (st == ST_OK) st = set_link(*out, e);
    if (st == ST_OK) return ST_OK;
    comm_close(*out);
    *out = NULL;
    return st;
}
