/* Puts the right length before the text up to the first line feed, as a safetensors file has it before its header, so that
 * mutations get past the prefix; what follows is the data. */
#ifndef TESTS_FUZZ_FRAMED_H
#define TESTS_FUZZ_FRAMED_H

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

static inline void fuzz_framed(const uint8_t *data, size_t size,
                               void (*use)(const uint8_t *file, size_t size)) {
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    if (!end) return;
    size_t header = (size_t)(end - data), rest = size - header - 1;
    uint8_t *file = xcalloc(1, 8 + header + rest);
    for (int i = 0; i < 8; i++) file[i] = (uint8_t)((uint64_t)header >> (8 * i));
    memcpy(file + 8, data, header);
    memcpy(file + 8 + header, end + 1, rest);
    use(file, 8 + header + rest);
    free(file);
}

#endif
