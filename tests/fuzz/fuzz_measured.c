/* libFuzzer target: tables of measured rows from outside bytes. Every row that is used has a time that is finite and above 0. */
#include <math.h>

#include "plan/clock/measured.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    measured_rows r;
    err e = {0};
    if (measured_parse(&r, "fuzz", (const char *)data, len, NULL, &e) == ST_OK) {
        measured_model m = measured_plain(&r.c);
        measured_predict(&r, &m);
        for (int i = 0; i < r.n; i++)
            CHECK(isfinite(r.row[i].predicted) && r.row[i].predicted > 0, "row %d: %g", i,
                  r.row[i].predicted);
        measured_score s = measured_judge(&r);
        CHECK(s.used <= s.rows && isfinite(s.median), "%d of %d rows", s.used, s.rows);
    }
    measured_free(&r);
    return 0;
}
