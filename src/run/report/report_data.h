/* What a report says, collected from the run folder in one pass over the metrics. */
#ifndef RUN_REPORT_DATA_H
#define RUN_REPORT_DATA_H

#include <jansson.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"
#include "run/summary.h"
#include "run/report/svg.h"

typedef enum report_column {
    COLUMN_STEP,
    COLUMN_LOSS,
    COLUMN_GRAD_NORM,
    COLUMN_LR,
    COLUMN_TOK_PER_S,
    COLUMN_MFU,           /* in percent */
    COLUMN_HFU,           /* in percent */
    COLUMN_REWARD_CHOSEN, /* of preference objectives; else NaN */
    COLUMN_REWARD_REJECTED,
    COLUMN_MARGIN,
    COLUMN_ACCURACY, /* in percent */
    COLUMN_LOGP_CHOSEN,
    COLUMN_LOGP_REJECTED,
    COLUMN_KL,
    COLUMN_COUNT
} report_column;

typedef struct report_table {
    double *column[COLUMN_COUNT];
    double *smooth[COLUMN_COUNT]; /* running means, except of the steps */
    int64_t n, cap;
} report_table;

typedef struct report_data {
    arena *memory;
    run_summary summary;
    json_t *config, *plan;                               /* plan may be NULL */
    json_t *start, *end;                                 /* the last ones; NULL: none */
    json_t *samples, *alarms, *stages, *evals, *experts; /* lists of events */
    const char *reference;                               /* name of another run; NULL: none */
    json_t *reference_evals;                             /* its events */
    int64_t began;           /* steps before the first start: of a fork */
    int64_t last_checkpoint; /* step; -1: none */
    double train_s;          /* of all steps */
    double mean_tok_per_s;   /* NaN: not known */
    report_table steps;
    report_table valid;            /* only step, loss, margin and accuracy */
    svg_mark marks[SVG_MAX_MARKS]; /* for the curves: stages, then alarms */
    int n_marks, n_stage_marks;
} report_data;

/* reference: a run that stands beside this one; NULL: that of the config, if it names one. */
status report_data_load(report_data *d, const char *run_dir, const char *reference,
                        err *e) ATH_MUST_USE;
void report_data_free(report_data *d);

/* Quantities in words: "1.1 MB", "2 min 28 s"; counts are svg_put_number's. */
void report_put_bytes(strbuf *out, double n);
void report_put_seconds(strbuf *out, double s);
/* Text as one word of a shell, escaped for HTML. */
void report_put_shell_word(strbuf *out, const char *word);

/* Fills d->marks from stages and alarms. */
void report_set_marks(report_data *d);

/* report_events.c: sections of the page; each appends a whole element, or nothing where there is
 * nothing to say. */
void report_put_alarms(strbuf *out, const report_data *d);
void report_put_stages(strbuf *out, const report_data *d);
void report_put_tasks(strbuf *out, const report_data *d);   /* report_tasks.c */
void report_put_experts(strbuf *out, const report_data *d); /* report_experts.c */

/* A chart with its title and legend. css: "wide" or "small". */
void report_put_chart(strbuf *out, const svg_chart *c, const char *css);

extern const char report_css[];
extern const char report_js[];

#endif
