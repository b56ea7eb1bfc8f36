/* The inputs and outputs of a program in its first frame, read and written where they lie: on the
 * CPU, whose memory is the host's. */
#ifndef TESTS_PROG_MEMORY_H
#define TESTS_PROG_MEMORY_H

#include "prog/prog.h"

/* NULL: there is none of that name. */
static inline void *prog_at(const prog *p, const char *name) {
    return prog_port_at(p, 0, prog_find_port(p, name));
}

static inline tensor prog_named(const prog *p, const char *name) {
    prog_port port = prog_find_port(p, name);
    return (tensor){.data = prog_port_at(p, 0, port),
                    .dt = port.dt,
                    .rows = port.rows,
                    .cols = port.cols,
                    .ld = port.cols};
}

#endif
