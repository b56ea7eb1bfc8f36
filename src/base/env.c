#include "base/env.h"

#include <stdlib.h>

#include "base/text.h"

static status refuse(const char *name, double least, double most, err *e) {
    err_set(e, ST_USAGE, "%s is \"%.60s\", which is no number from %.15g to %.15g", name,
            getenv(name), least, most);
    err_hint(e, "set %s to such a number, or unset it", name);
    return err_where(e, "%s", name);
}

status env_int(const char *name, int64_t least, int64_t most, int64_t *value, err *e) {
    const char *text = getenv(name);
    int64_t v;
    if (!text) return ST_OK;
    if (!text_parse_int(text, &v) || v < least || v > most)
        return refuse(name, (double)least, (double)most, e);
    *value = v;
    return ST_OK;
}

status env_num(const char *name, double least, double most, double *value, err *e) {
    const char *text = getenv(name);
    double v;
    if (!text) return ST_OK;
    if (!text_parse_number(text, &v) || !(v >= least && v <= most))
        return refuse(name, least, most, e);
    *value = v;
    return ST_OK;
}
