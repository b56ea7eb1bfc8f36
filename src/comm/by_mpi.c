#include "comm/by_mpi.h"

#include <stdlib.h>

#include "base/text.h"
#include "comm/comm.h"

static const char *const SIZES[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"};

/* Slurm sets its variables for a batch script, too, which is no rank, and for what mpirun starts there: only a step of
 * several tasks has those of a PMI beside them. */
int64_t mpi_ranks_told(const char **by) {
    int known = getenv("PMIX_RANK") || getenv("PMI_RANK") ? ARRAY_LEN(SIZES) : ARRAY_LEN(SIZES) - 1;
    int64_t n = 0;
    for (int i = 0; i < known; i++) {
        *by = SIZES[i];
        if (getenv(*by)) return env_int(*by, 0, INT64_MAX, &n, NULL) == ST_OK ? n : 0;
    }
    return 0;
}

bool comm_is_by_mpi(void) {
    const char *by;
    return mpi_ranks_told(&by) > 1;
}

int mpi_slots(int ranks) {
    return 2 * ranks;
}

int64_t comm_outbox_bytes(int ranks) {
    int64_t slots = mpi_slots(ranks);
    return slots * (MPI_PIECE_BYTES + slots * MPI_SENDING_BYTES);
}
