/* Serving many texts at a time (see engine.h). */
#include "infer/engine.h"

#include <stdlib.h>

#include "base/arena.h"

struct engine {
    dev *dev;
    engine_size size;
    generate_limits limits;
};

engine *engine_new(dev *d, const engine_size *size, const generate_limits *limits) {
    engine *en = xcalloc(1, sizeof *en);
    *en = (engine){.dev = d, .size = *size, .limits = *limits};
    return en;
}

void engine_set_program(engine *en, int number, bool body, const prog *p) {
    (void)en, (void)number, (void)body, (void)p;
}

void engine_free(engine *en) {
    free(en);
}
