/* Within the module: rows of published tables on their way from text (measured_cell.c, measured_record.c) to model and layout
 * (measured_layout.c) to rows with devices and speeds (measured_read.c). */
#ifndef PLAN_MEASURED_INT_H
#define PLAN_MEASURED_INT_H

#include <string.h>
#include <strings.h>

#include "plan/clock/measured.h"

/* Whose run it was: a number of measured_predict_published, or not known yet. */
enum { ROWS_OWN, ROWS_NANOTRON, ROWS_MEGATRON, ROWS_TORCHTITAN, ROWS_MEGATRON_CORE, ROWS_UNNAMED };

enum { RECORD_COLUMNS = 64 };
typedef struct record {
    char name[RECORD_COLUMNS][32];
    char value[RECORD_COLUMNS][64];
    int columns;
} record;

/* measured_cell.c. Without blanks around it; empty where it says that there is nothing: "-", "n/a", "none". */
void cell_tidy(char *cell);
/* The number of a cell of the column `name`, with what tables write around it: "~2400", "1,024", "43%", "16M", "137 s", "5762*",
 * "37556 (36108)". False: it is something else. */
bool cell_number(const char *cell, const char *name, double *out);

/* One record of s into `to`, which is [RECORD_COLUMNS] tidy texts of `size`; returns its bytes. */
size_t record_scan(const char *s, size_t n, char *to, size_t size, int *columns, const char **why);
/* The names as ours: "Global batch size" is gbs_seqs, unless a column has that name already. */
void record_name_columns(record *names);
bool record_has_column(const record *names, const char *name);
/* Whether nothing reads the last column: commas there, which nobody has put into quotes, are part of a remark. */
bool record_ends_in_notes(const record *names);
const char *record_text(const record *r, const char *name); /* "": there is none */
/* `without` where the column is absent or has no number. */
double record_number(const record *r, const char *name, double without);
/* -1, which nothing takes, where the cell has something else than such a number. */
int record_int(const record *r, const char *name, int without);
/* The same of ranks that share something: 1 where it is absent, or 0. */
int record_degree(const record *r, const char *name);
/* "true", "yes", or a number above 0. */
bool record_tells(const record *r, const char *name);
/* Its status is "ok" or the like, or none is told. */
bool record_went_well(const record *r);
/* ST_FORMAT: a cell is not what its column holds. What was measured counts of runs that went well. */
status record_check(const record *r, err *e) ATH_MUST_USE;
/* Without what people write differently: "LLAMA3_70B", "Llama-3 70B", and what they add in brackets. */
void record_plain_name(const char *s, char out[64]);

/* Whatever its case. */
static inline bool starts(const char *s, const char *with) {
    return strncasecmp(s, with, strlen(with)) == 0;
}
static inline bool has(const char *s, const char *word) {
    return strcasestr(s, word) != NULL;
}

/* By the sizes of the row; where it tells none, by its name. The caller owns *out. ST_FORMAT: it is none. */
status measured_model_of(const record *r, double *seq, json_t **out, err *e) ATH_MUST_USE;
/* Layout, number of GPUs and precision; whose run it was is known. */
status measured_layout_of(const record *r, measured_row *to, err *e) ATH_MUST_USE;
/* Sequences of a step as the row tells them, whether or not ranks and micro-batches divide them; 0: it does not. */
double measured_batch_of(const record *r);
/* ZeRO within groups of its ranks. */
status measured_share_in_groups(const record *r, int per_node, sketch_layout *l,
                                err *e) ATH_MUST_USE;
/* A stage as a number, "ZeRO-1", or as PyTorch and Composer call it; above 3: the cell says none of these. */
int measured_zero_of(const record *r);

#endif
