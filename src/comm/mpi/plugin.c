/* The MPI plugin: mpi_plugin.h in MPI's own words. This is all that is compiled with MPI. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/mpi/mpi_plugin.h"

struct mpi_request {
    MPI_Request request;
};

/* Calls come from the thread of the side stream, and from the first one before and after it. */
static bool begin(int *rank, int *size, char why[256]) {
    int level;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS) {
        snprintf(why, 256, "MPI_Init_thread failed");
        return false;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    if (level >= MPI_THREAD_SERIALIZED) return true;
    snprintf(why, 256, "it was built without threads (it offers level %d)", level);
    return false;
}

static void *node_memory(size_t bytes) {
    MPI_Comm node;
    MPI_Win window;
    int rank, unit;
    void *memory;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &rank);
    MPI_Aint own = rank == 0 ? (MPI_Aint)bytes : 0, length;
    MPI_Win_allocate_shared(own, 1, MPI_INFO_NULL, node, &memory, &window);
    MPI_Win_shared_query(window, 0, &length, &unit, &memory);
    if (rank == 0) memset(memory, 0, bytes);
    MPI_Barrier(node);
    return memory; /* it lives until MPI ends */
}

static void gather_hosts(const char own[MPI_PLUGIN_HOST], char (*all)[MPI_PLUGIN_HOST]) {
    MPI_Allgather(own, MPI_PLUGIN_HOST, MPI_CHAR, all, MPI_PLUGIN_HOST, MPI_CHAR, MPI_COMM_WORLD);
}

static mpi_request *new_request(void) {
    mpi_request *r = malloc(sizeof *r);
    if (!r) MPI_Abort(MPI_COMM_WORLD, 4);
    return r;
}

static mpi_request *send(const void *data, int64_t bytes, int peer, int tag) {
    mpi_request *r = new_request();
    MPI_Isend(data, (int)bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &r->request);
    return r;
}

static mpi_request *receive(void *room, int64_t bytes, int peer) {
    mpi_request *r = new_request();
    MPI_Irecv(room, (int)bytes, MPI_BYTE, peer, MPI_ANY_TAG, MPI_COMM_WORLD, &r->request);
    return r;
}

static bool is_done(mpi_request *r, mpi_arrival *arrival) {
    MPI_Status st;
    int done = 0, count = 0;
    int result = MPI_Test(&r->request, &done, &st);
    if (result == MPI_SUCCESS && !done) return false;
    if (arrival) {
        MPI_Get_count(&st, MPI_BYTE, &count);
        *arrival = (mpi_arrival){.bytes = result == MPI_SUCCESS ? count : -1, .tag = st.MPI_TAG};
    }
    free(r);
    return true;
}

static void end(void) {
    MPI_Finalize();
}

static void abort_all(int code) {
    MPI_Abort(MPI_COMM_WORLD, code);
}

const mpi_calls athanor_mpi_calls = {
    .version = MPI_PLUGIN_VERSION,
    .begin = begin,
    .node_memory = node_memory,
    .gather_hosts = gather_hosts,
    .send = send,
    .receive = receive,
    .is_done = is_done,
    .end = end,
    .abort = abort_all,
};
