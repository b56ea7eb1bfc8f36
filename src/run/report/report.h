/* The report of a run: RUN/report.html, and a loss curve for the terminal.
 *
 * The page stands alone (no other file, no network), says everything without JavaScript, is light
 * or dark as the reader's system is, prints, and is the same bytes for the same run folder.
 * Reading order: report_data.h (what is known of a run), report.c and report_events.c (the page and
 * its sections), report_style.c (style and script), svg.h (charts), report_terminal.c. */
#ifndef RUN_REPORT_H
#define RUN_REPORT_H

#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"

/* Reads RUN/config.json, RUN/metrics.jsonl and, where present, RUN/plan.json; writes
 * RUN/report.html in one step. A run without any event yet has a report, too.
 * reference: a run whose curves of tasks stand beside those of this one; NULL: eval.reference. */
status report_write(const char *run_dir, const char *reference, err *e) ATH_MUST_USE;

/* Appends a picture of n values in order, `width` by `height` characters with the axis: a braille
 * curve, highest and lowest value at its left. Values that are not finite are gaps. */
void report_terminal_curve(strbuf *out, const double *values, int64_t n, int width, int height);

#endif
