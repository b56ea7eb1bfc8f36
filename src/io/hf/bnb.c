/* See bnb.h. */
#include "io/hf/bnb.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

static const char STATE[] = ".quant_state.bitsandbytes__nf4";
enum { MOST_STATE_BYTES = 4096 }; /* bitsandbytes writes some 200 */

bool bnb_is_part(const char *name, size_t *matrix) {
    static const char *const ends[] = {".absmax", ".quant_map", ".nested_absmax",
                                       ".nested_quant_map", STATE};
    size_t n = strlen(name);
    for (int i = 0; i < ARRAY_LEN(ends); i++) {
        size_t m = strlen(ends[i]);
        *matrix = n - m;
        if (n > m && strcmp(name + n - m, ends[i]) == 0) return true;
    }
    return false;
}

static status refuse(const st_view *v, const char *what, err *e) {
    err_at(e, ST_FORMAT, v->path, "tensor %s is in 4 bits of bitsandbytes %s", v->name, what);
    return err_hint(e, "NF4 is read with blocks of %d, quantised twice by blocks of %d or once",
                    NF4_BLOCK, NF4_NESTED);
}

/* NULL: there is none of that name, format and length. */
static const st_view *part(const st_reader *r, const st_view *v, const char *end, dtype dt,
                           int64_t n) {
    char name[512];
    snprintf(name, sizeof name, "%s%s", v->name, end);
    const st_view *p = st_find(r, name);
    return p && p->dt == dt && (n < 0 || p->numel == n) ? p : NULL;
}

static bool same(const st_view *table, const float *ours, size_t bytes) {
    return table && memcmp(table->data, ours, bytes) == 0;
}

static bool read_state(const st_view *state, bnb_matrix *m, json_int_t *nested) {
    if (state->bytes > MOST_STATE_BYTES) return false;
    json_t *o = json_loadb((const char *)state->data, state->bytes, 0, NULL);
    const json_t *shape = json_object_get(o, "shape"), *mean = json_object_get(o, "nested_offset");
    const char *type = json_string_value(json_object_get(o, "quant_type"));
    m->rows = json_integer_value(json_array_get(shape, 0));
    m->cols = json_integer_value(json_array_get(shape, 1));
    m->mean = (float)json_number_value(mean);
    *nested = json_integer_value(json_object_get(o, "nested_blocksize"));
    bool ok = type && strcmp(type, "nf4") == 0 && json_array_size(shape) == 2 && m->rows > 0 &&
              m->cols > 0 && m->rows <= INT32_MAX && m->cols <= INT32_MAX && isfinite(m->mean) &&
              json_integer_value(json_object_get(o, "blocksize")) == NF4_BLOCK;
    ok = ok && (!*nested || json_is_number(mean));
    json_decref(o);
    return ok;
}

static float float_at(const uint8_t *bytes, int64_t i) {
    float x;
    memcpy(&x, bytes + 4 * i, sizeof x);
    return x;
}

/* Whether factors are numbers, and stay so when the map, of -1 to 1, and the mean are put to them. */
static bool all_finite(const st_view *factors, float mean) {
    for (int64_t i = 0; i < factors->numel; i++)
        if (!isfinite(fabsf(float_at(factors->data, i)) + fabsf(mean))) return false;
    return true;
}

static status check_finite(const st_view *v, const st_view *factors, float mean, err *e) {
    if (all_finite(factors, mean)) return ST_OK;
    return refuse(v, "with a factor that is no finite number", e);
}

status bnb_find(const st_reader *r, const st_view *v, bnb_matrix *out, err *e) {
    json_int_t nested;
    *out = (bnb_matrix){0};
    const st_view *state = part(r, v, STATE, DT_U8, -1);
    if (!state) return ST_OK;
    if (v->dt != DT_U8) return refuse(v, "that are not stored as U8", e);
    if (!read_state(state, out, &nested)) return refuse(v, "of another form", e);
    int64_t elems = out->rows * out->cols, blocks = (elems + NF4_BLOCK - 1) / NF4_BLOCK;
    if (v->numel != (elems + 1) / 2 ||
        !same(part(r, v, ".quant_map", DT_F32, 16), NF4_LEVEL, sizeof NF4_LEVEL))
        return refuse(v, "with other levels, or of another length", e);
    const st_view *once = part(r, v, ".absmax", DT_F32, blocks), *twice;
    out->bits = v->data;
    if (!nested && once) {
        out->absmax = once->data;
        return check_finite(v, once, 0, e);
    }
    once = part(r, v, ".absmax", DT_U8, blocks);
    twice = part(r, v, ".nested_absmax", DT_F32, (blocks + NF4_NESTED - 1) / NF4_NESTED);
    if (nested != NF4_NESTED || !once || !twice ||
        !same(part(r, v, ".nested_quant_map", DT_F32, 256), NF4_MAP, sizeof NF4_MAP))
        return refuse(v, "with other factors", e);
    out->scale = once->data;
    out->nested = twice->data;
    return check_finite(v, twice, out->mean, e);
}

static int number_at(const bnb_matrix *m, int64_t i) {
    return i % 2 ? m->bits[i / 2] & 15 : m->bits[i / 2] >> 4;
}

void bnb_read(const bnb_matrix *m, int64_t first, int64_t n, float *dst) {
    for (int64_t i = first; i < first + n; i++) {
        int64_t block = i / NF4_BLOCK;
        float d = m->absmax ? float_at(m->absmax, block)
                            : NF4_MAP[m->scale[block]] * float_at(m->nested, block / NF4_NESTED) +
                                  m->mean;
        *dst++ = NF4_LEVEL[number_at(m, i)] * d;
    }
}

bool bnb_take(const bnb_matrix *m, nf4_matrix *to) {
    int64_t elems = m->rows * m->cols, blocks = elems / NF4_BLOCK;
    uint8_t *at = (uint8_t *)to, *bits = at + to->bits_at;
    if (m->absmax) return false;
    to->mean = m->mean;
    memcpy(at + to->scale_at, m->scale, (size_t)blocks);
    memcpy(at + to->nested_at, m->nested, 4 * (size_t)((blocks + NF4_NESTED - 1) / NF4_NESTED));
    for (int64_t i = 0; i < elems; i += 32, bits += 16)
        for (int j = 0; j < 16; j++)
            bits[j] = (uint8_t)(number_at(m, i + j) | number_at(m, i + j + 16) << 4);
    return true;
}
