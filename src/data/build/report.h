/* What the reader found, over all attempts of a build: charsets and bad records. */
#ifndef DATA_BUILD_REPORT_H
#define DATA_BUILD_REPORT_H

#include <jansson.h>

#include "data/build/build.h"

/* `before` is what was found up to the place where the reader began; the reader counts records on
 * from there, charsets and samples anew. */
void data_report_take(data_report *out, const data_report *before, const reader_report *found);
json_t *data_report_json(const data_report *r);
/* False when the object is not such a report. */
bool data_report_parse(data_report *out, const json_t *o);

#endif
