/* What the program and the MPI plugin know of each other: a table of the few calls that a wire is
 * made of. The plugin is linked with nothing of the program. All calls but the first come from one
 * thread at a time. */
#ifndef COMM_MPI_PLUGIN_H
#define COMM_MPI_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MPI_PLUGIN_FILE "athanor-mpi.so"
#define MPI_PLUGIN_CALLS "athanor_mpi_calls"

enum { MPI_PLUGIN_VERSION = 2, MPI_PLUGIN_TAGS = 32768, MPI_PLUGIN_HOST = 64 };

typedef struct mpi_request mpi_request;

/* What has arrived. */
typedef struct mpi_arrival {
    int64_t bytes;
    int tag;
} mpi_arrival;

typedef struct mpi_calls {
    int version;
    /* False when MPI cannot be used, with a sentence. */
    bool (*begin)(int *rank, int *size, char why[256]);
    /* Zeroed memory shared by the ranks of this node; all ranks call it. */
    void *(*node_memory)(size_t bytes);
    /* The name of every rank's host, from this rank's own; all ranks call it. */
    void (*gather_hosts)(const char own[MPI_PLUGIN_HOST], char (*all)[MPI_PLUGIN_HOST]);
    mpi_request *(*send)(const void *data, int64_t bytes, int peer, int tag);
    /* The next message of peer, with any tag and up to these bytes. */
    mpi_request *(*receive)(void *room, int64_t bytes, int peer);
    /* Whether it is done; then it is freed. *arrival is filled for a receive; NULL is fine. bytes
     * is -1 when the message did not fit. */
    bool (*is_done)(mpi_request *request, mpi_arrival *arrival);
    void (*end)(void);
    void (*abort)(int code);
} mpi_calls;

#endif
