# The MPI plugin, where there is an MPI: a shared object beside the program, which opens it when
# mpirun or srun has started it. Nothing else is linked with MPI.
find_package(MPI QUIET COMPONENTS C)
if(MPI_C_FOUND)
    add_library(athanor-mpi MODULE src/comm/mpi/plugin.c)
    set_target_properties(athanor-mpi PROPERTIES PREFIX "" SUFFIX ".so")
    target_link_libraries(athanor-mpi PRIVATE ath_flags MPI::MPI_C)
    add_dependencies(athanor athanor-mpi)
else()
    message(STATUS "No MPI: ranks are threads and processes of one machine (make deps-mpi)")
endif()
