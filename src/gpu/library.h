/* NVIDIA's libraries, opened at run time. */
#ifndef GPU_LIBRARY_H
#define GPU_LIBRARY_H

/* The first of n names that can be opened, each looked for in the folders of ATHANOR_CUDA_LIBS
 * (separated by ':') and then where the loader looks. NULL: none. It is closed by dlclose. */
void *gpu_find_library(const char *const names[], int n);

#endif
