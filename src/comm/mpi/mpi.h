/* MPI, in a plugin of its own so that the program needs none: athanor-mpi.so beside the program,
 * opened only where mpirun or srun started this process. */
#ifndef COMM_MPI_H
#define COMM_MPI_H

#include "comm/comm.h"

/* Whether the environment is that of one of several ranks of MPI. */
bool mpi_is_offered(void);
status mpi_open(comm_world **out, err *e) ATH_MUST_USE;

#endif
