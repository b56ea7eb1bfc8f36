#include "data/build/labels.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

status text_label_read(const text_labels *l, const char *text, float *out, err *e) {
    double x = 0;
    for (int64_t i = 0; text && l->names && i < l->classes; i++) {
        *out = (float)i;
        if (strcmp(text, l->names[i]) == 0) return ST_OK;
    }
    char *end = NULL;
    if (text && *text) x = strtod(text, &end);
    bool number = end && *end == '\0' && isfinite(x) && fabs(x) <= (double)FLT_MAX;
    *out = (float)x;
    if (number && (!l->classes || (x == floor(x) && x >= 0 && x < (double)l->classes)))
        return ST_OK;
    if (!text) return err_set(e, ST_USAGE, "it has no label");
    err_set(e, ST_USAGE, "its label is '%.80s', and %s", text,
            l->classes ? "no class has that name or number" : "a label is a number here");
    return err_hint(e, l->names ? "model.labels names the classes"
                                : "labels are numbers from 0 on, or words that model.labels names");
}
