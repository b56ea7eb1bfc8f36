/* Ranks that MPI has started, for who opens their world (mpi/mpi.c) and for who plans: the rest of MPI is not needed for that. */
#ifndef COMM_BY_MPI_H
#define COMM_BY_MPI_H

#include <stdint.h>

/* A piece that a rank sends, and the most that one send of it takes besides. */
enum { MPI_PIECE_BYTES = 256 << 10, MPI_SENDING_BYTES = 16 };

/* Pieces that a rank of so many has to send from; each may be on its way to as many peers. */
int mpi_slots(int ranks);
/* How many ranks the launcher says that it has started, and by which variable; 0: it is none of MPI. */
int64_t mpi_ranks_told(const char **by);

#endif
