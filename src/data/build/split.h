/* Which text is kept for validation. */
#ifndef DATA_BUILD_SPLIT_H
#define DATA_BUILD_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum data_split {
    DATA_SPLIT_AUTO,      /* few text files: DATA_SPLIT_LINES, else DATA_SPLIT_DOCUMENTS */
    DATA_SPLIT_DOCUMENTS, /* whole documents, chosen by a hash of (seed, document number) */
    DATA_SPLIT_LINES,     /* the tail of each document, cut at a line end when one is near */
    DATA_SPLIT_TAIL,      /* the tail from byte floor(n * (1 - fraction)) on, as nanoGPT cuts */
} data_split;

bool data_split_parse(const char *name, data_split *out); /* auto, documents, lines, tail */
const char *data_split_name(data_split split);
/* Where a document of n bytes is cut: the length of its training part. */
size_t data_split_point(const char *text, size_t n, double valid_fraction, data_split split);
/* The bytes [from, to) that data_split_point looks at. */
void data_split_range(size_t n, double valid_fraction, size_t *from, size_t *to);
/* Whether a document, by its number in the inputs, is one of those for validation. */
bool data_split_is_valid(uint64_t seed, uint64_t document, double valid_fraction);

#endif
