/* The files that inputs name: files, folders, globs and "-", in a fixed order, with their format.
 */
#ifndef DATA_INPUTS_H
#define DATA_INPUTS_H

#include "base/arena.h"
#include "data/text/reader.h"

typedef struct input_file {
    const char *path;
    uint64_t bytes;       /* as it lies on disk; 0: unknown */
    int64_t modified_ns;  /* 0: unknown */
    bool regular;         /* and not a pipe or standard input */
    reader_format format; /* never READER_AUTO */
} input_file;

typedef struct input_list {
    input_file *file; /* on the heap */
    int n, cap;
} input_list;

/* ST_FAILED: cannot be read; ST_FORMAT: by its name a file is no text, and no format was given;
 * ST_USAGE: no file at all. */
status input_list_find(input_list *l, arena *a, const char *const *inputs, int n,
                       reader_format format, err *e) ATH_MUST_USE;
void input_list_free(input_list *l);

#endif
