/* Weights in the files of small training programs: a header of integers, then the tensors one
 * after the other. They lie as in memory here ([out,in], rotary pairs as the config says). */
#ifndef IO_FOREIGN_H
#define IO_FOREIGN_H

#include <jansson.h>

#include "base/arena.h"
#include "io/safetensors/safetensors.h"

typedef struct foreign_model {
    json_t *config;     /* a config.json; the caller's reference */
    st_tensor *tensors; /* by the names of Hugging Face, data in the file's bytes */
    int64_t n;
} foreign_model;

/* Takes tensors from a file in their order. Begins with the bytes after the header. */
typedef struct foreign_cursor {
    arena *a;
    const uint8_t *at;
    size_t left; /* bytes */
    dtype dt;
    st_tensor *tensors;
    int32_t n, cap;
} foreign_cursor;

/* The next rows x cols elements (cols 0: a vector) as a tensor of that name. False: the file ends
 * before, or the sizes overflow. */
bool foreign_take(foreign_cursor *c, const char *name, int64_t rows, int64_t cols);
/* The same for a tensor of every layer; `pattern` has a %d. */
bool foreign_take_layers(foreign_cursor *c, const char *pattern, int64_t layers, int64_t rows,
                         int64_t cols);
bool foreign_skip(foreign_cursor *c, int64_t elems);

#endif
