/* What the program asks of OpenMP, in a browser: one thread. */
#ifndef WEB_OMP_H
#define WEB_OMP_H

static inline int omp_get_max_threads(void) {
    return 1;
}
static inline int omp_get_num_threads(void) {
    return 1;
}
static inline int omp_get_thread_num(void) {
    return 0;
}
static inline void omp_set_num_threads(int n) {
    (void)n;
}
static inline int omp_in_parallel(void) {
    return 0;
}
static inline int omp_get_num_procs(void) {
    return 1;
}
static inline int omp_get_num_places(void) {
    return 0;
}
static inline int omp_get_place_num_procs(int place) {
    (void)place;
    return 0;
}
static inline void omp_get_place_proc_ids(int place, int *ids) {
    (void)place, (void)ids;
}

#endif
