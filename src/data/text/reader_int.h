/* The state of a reader, shared by reader.c (opening, the whole loop, questions), cut.c (files into
 * chunks) and tally.c (what was found in chunks). */
#ifndef DATA_READER_INT_H
#define DATA_READER_INT_H

#include "base/arena.h"
#include "base/strbuf.h"
#include "data/text/chunk.h"
#include "data/text/inputs.h"
#include "data/text/source.h"

struct reader {
    arena *mem;
    input_list inputs;
    record_fields fields;
    const char *charset; /* NULL: to be found out */
    double max_bad;
    size_t limit; /* bytes of a document that lies in memory in one piece */
    uint64_t options_hash;

    /* where cutting stands */
    int at;         /* the file being cut, or the next one */
    source *source; /* of records; NULL: the file is not open */
    csv_columns *columns;
    strbuf carry; /* read, but in no chunk yet: it begins with a record */
    uint64_t offset;
    uint32_t line; /* line ends before it */
    uint64_t disk_bytes;

    /* what reader_done has added up */
    reader_report report;
    const char *hint; /* of the first bad record */
    struct {
        uint32_t file;
        uint64_t records, bad;
        bool whole; /* counted from its beginning */
        uint32_t line;
        const char *why, *hint; /* of its first bad record */
    } tally;                    /* of one file of records */

    chunk *current; /* of reader_next */
};

/* Ends the file being cut, if one is open. */
void reader_close_file(reader *r);
/* Opens the file of records r->at and goes to a position in it. */
status reader_skip_to(reader *r, uint64_t offset, uint32_t line, err *e) ATH_MUST_USE;

#endif
