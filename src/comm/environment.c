/* The world that whoever started this process describes in the environment.
 *
 * Variables of a rank are removed once they are read: a child of a rank is no rank. */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"
#include "comm/mpi.h"
#include "comm/world.h"

static const char RANK[] = "ATHANOR_RANK", SIZE[] = "ATHANOR_WORLD_SIZE",
                  SEGMENT[] = "ATHANOR_SEGMENT_FD", TIMEOUT[] = "ATHANOR_TIMEOUT";

static status read_int(const char *name, int *out, err *e) {
    const char *text = getenv(name);
    int64_t value = -1;
    *out = -1;
    if (!text) {
        err_set(e, ST_USAGE, "%s is set, but %s is not", RANK, name);
    } else if (!text_parse_int(text, &value) || value < 0 || value > INT32_MAX) {
        err_set(e, ST_USAGE, "%s is \"%s\", which is no number of a rank", name, text);
    } else {
        *out = (int)value;
        return ST_OK;
    }
    err_where(e, "%s", name);
    return err_hint(e, "athanor launch sets these variables; unset %s for one rank alone", RANK);
}

static status open_launched(comm_world **out, err *e) {
    int rank, size, fd;
    TRY(read_int(RANK, &rank, e));
    TRY(read_int(SIZE, &size, e));
    TRY(read_int(SEGMENT, &fd, e));
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

static status refuse_torchrun(err *e) {
    err_set(e, ST_USAGE,
            "RANK, WORLD_SIZE and MASTER_ADDR are set, as torchrun does, but there is "
            "no transport that starts from them");
    err_where(e, "RANK");
    return err_hint(e,
                    "on one machine: athanor launch --ranks N -- ...; on several: mpirun or srun; "
                    "or unset RANK for one rank alone");
}

static status set_timeout(comm_world *w, err *e) {
    const char *text = getenv(TIMEOUT);
    double seconds;
    if (!text) return ST_OK;
    if (!text_parse_number(text, &seconds) || seconds < 0) {
        err_set(e, ST_USAGE, "%s is \"%s\", which is no number of seconds", TIMEOUT, text);
        return err_where(e, "%s", TIMEOUT);
    }
    comm_set_timeout(w, seconds);
    return ST_OK;
}

status comm_open_environment(comm_world **out, err *e) {
    *out = NULL;
    status st = ST_OK;
    if (getenv(RANK))
        st = open_launched(out, e);
    else if (mpi_is_offered())
        st = mpi_open(out, e);
    else if (getenv("RANK") && getenv("WORLD_SIZE") && getenv("MASTER_ADDR"))
        st = refuse_torchrun(e);
    else
        *out = comm_open_self();
    if (st == ST_OK) st = set_timeout(*out, e);
    if (st == ST_OK) return ST_OK;
    comm_close(*out);
    *out = NULL;
    return st;
}
