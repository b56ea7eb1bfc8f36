/* What the reader found, as JSON: for the state of a build and for people. */
#ifndef DATA_BUILD_REPORT_H
#define DATA_BUILD_REPORT_H

#include <jansson.h>

#include "data/text/reader.h"

json_t *data_report_json(const reader_report *r);
/* False when the object is not such a report. */
bool data_report_parse(reader_report *out, const json_t *o);

#endif
