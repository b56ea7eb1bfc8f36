/* See scalar.h. Formulas of dates are the C library's; LogicalTypes.md of apache/parquet-format
 * says what each means. */
#include "data/parquet/scalar.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/dtype.h"
#include "base/json.h"

enum { DAY_SECONDS = 86400, JULIAN_DAY_OF_1970 = 2440588, MAX_DECIMAL_BYTES = 64 };

/* ---- text ---- */

static void put_escape(strbuf *out, char c) {
    static const char FROM[] = "\"\\\b\f\n\r\t", TO[] = "\"\\bfnrt";
    const char *known = strchr(FROM, c);
    if (c && known)
        strbuf_append(out, (char[]){'\\', TO[known - FROM]}, 2);
    else
        strbuf_printf(out, "\\u%04x", (unsigned)(uint8_t)c);
}

void scalar_put_text(strbuf *out, const char *s, size_t n) {
    strbuf_putc(out, '"');
    for (size_t from = 0, i = 0;; i++) {
        bool plain = i < n && (uint8_t)s[i] >= 0x20 && s[i] != '"' && s[i] != '\\';
        if (plain) continue;
        strbuf_append(out, s + from, i - from);
        if (i == n) break;
        put_escape(out, s[i]);
        from = i + 1;
    }
    strbuf_putc(out, '"');
}

static void put_uuid(strbuf *out, const uint8_t *p) {
    strbuf_putc(out, '"');
    for (int i = 0; i < 16; i++)
        strbuf_printf(out, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", p[i]);
    strbuf_putc(out, '"');
}

/* ---- numbers ---- */

static void put_real(strbuf *out, json_t *real) {
    json_format(out, real, 0);
    json_decref(real);
}

/* Negates a number in two's complement, big endian. */
static void negate(uint8_t *p, size_t n) {
    unsigned carry = 1;
    for (size_t i = n; i-- > 0;) {
        carry += (uint8_t)~p[i];
        p[i] = (uint8_t)carry;
        carry >>= 8;
    }
}

/* Divides by ten; returns the remainder, and whether anything is left. */
static int divide_by_ten(uint8_t *p, size_t n, bool *left) {
    unsigned rest = 0;
    *left = false;
    for (size_t i = 0; i < n; i++) {
        unsigned x = rest << 8 | p[i];
        p[i] = (uint8_t)(x / 10);
        *left |= p[i] != 0;
        rest = x % 10;
    }
    return (int)rest;
}

static bool put_decimal(strbuf *out, const uint8_t *value, size_t n, int scale) {
    uint8_t p[MAX_DECIMAL_BYTES];
    char digits[3 * MAX_DECIMAL_BYTES];
    int k = 0;
    bool left = true, negative = n > 0 && (value[0] & 0x80);
    if (n > sizeof p) return false;
    memcpy(p, value, n);
    if (negative) negate(p, n);
    while (left || k <= scale) digits[k++] = (char)('0' + divide_by_ten(p, n, &left));
    if (negative) strbuf_putc(out, '-');
    while (k-- > 0) {
        strbuf_putc(out, digits[k]);
        if (k == scale && k > 0) strbuf_putc(out, '.');
    }
    return true;
}

static bool put_integer_decimal(strbuf *out, int64_t v, int scale) {
    uint64_t big_endian = __builtin_bswap64((uint64_t)v);
    uint8_t p[8];
    memcpy(p, &big_endian, 8);
    return put_decimal(out, p, 8, scale);
}

/* ---- time ---- */

/* Seconds since 1970 in a form of strftime, with the year before it where it begins with '-', and a
 * fraction of `scale` digits where that is not 0. A year that the C library cannot count gives the
 * number of seconds. */
static void put_time(strbuf *out, const char *form, int64_t seconds, int64_t fraction, int scale,
                     bool utc) {
    char text[64];
    time_t t = (time_t)seconds;
    struct tm tm;
    if (!gmtime_r(&t, &tm)) {
        strbuf_printf(out, "%" PRId64, seconds);
        return;
    }
    strftime(text, sizeof text, form, &tm);
    strbuf_putc(out, '"');
    if (*form == '-') strbuf_printf(out, "%04lld", tm.tm_year + 1900LL);
    strbuf_puts(out, text);
    if (fraction) strbuf_printf(out, ".%0*" PRId64, scale, fraction);
    strbuf_puts(out, utc ? "Z\"" : "\"");
}

static void put_units(strbuf *out, const char *form, int64_t v, int scale, bool utc) {
    int64_t unit = 1;
    for (int i = 0; i < scale; i++) unit *= 10;
    int64_t seconds = v / unit, fraction = v % unit;
    if (fraction < 0) {
        seconds--;
        fraction += unit;
    }
    put_time(out, form, seconds, fraction, scale, utc);
}

static const char DATE_AND_TIME[] = "-%m-%dT%H:%M:%S";

static void put_int96(strbuf *out, const uint8_t *p) {
    const int64_t second = INT64_C(1000000000);
    int64_t nanos;
    int32_t day;
    memcpy(&nanos, p, 8);
    memcpy(&day, p + 8, 4);
    int64_t seconds = nanos / second, fraction = nanos % second;
    if (fraction < 0) {
        seconds--;
        fraction += second;
    }
    put_time(out, DATE_AND_TIME, ((int64_t)day - JULIAN_DAY_OF_1970) * DAY_SECONDS + seconds,
             fraction, 9, false);
}

/* ---- all ---- */

static bool put_integer(strbuf *out, const parquet_node *n, int64_t v) {
    uint64_t natural = n->type == PARQUET_INT32 ? (uint32_t)v : (uint64_t)v;
    switch (n->meaning) {
        case PARQUET_UNSIGNED: strbuf_printf(out, "%" PRIu64, natural); break;
        case PARQUET_DECIMAL: return put_integer_decimal(out, v, n->scale);
        case PARQUET_DATE: put_time(out, "-%m-%d", v * DAY_SECONDS, 0, 0, false); break;
        case PARQUET_TIME: put_units(out, "%H:%M:%S", v, n->scale, false); break;
        case PARQUET_TIMESTAMP: put_units(out, DATE_AND_TIME, v, n->scale, n->utc); break;
        default: strbuf_printf(out, "%" PRId64, v); break;
    }
    return true;
}

static bool put_bytes(strbuf *out, const parquet_node *n, const uint8_t *p, size_t len) {
    uint16_t half;
    switch (n->meaning) {
        case PARQUET_DECIMAL: return put_decimal(out, p, len, n->scale);
        case PARQUET_UUID: put_uuid(out, p); break;
        case PARQUET_FLOAT16:
            memcpy(&half, p, 2);
            put_real(out, json_f32(f16_to_f32(half)));
            break;
        default: scalar_put_text(out, (const char *)p, len); break;
    }
    return true;
}

bool scalar_put(strbuf *out, const parquet_node *n, const uint8_t *value, size_t len) {
    int32_t i32;
    int64_t i64;
    float f32;
    double f64;
    switch (n->type) {
        case PARQUET_BOOLEAN: strbuf_puts(out, value[0] ? "true" : "false"); return true;
        case PARQUET_INT32: memcpy(&i32, value, 4); return put_integer(out, n, i32);
        case PARQUET_INT64: memcpy(&i64, value, 8); return put_integer(out, n, i64);
        case PARQUET_INT96: put_int96(out, value); return true;
        case PARQUET_FLOAT:
            memcpy(&f32, value, 4);
            put_real(out, json_f32((double)f32));
            return true;
        case PARQUET_DOUBLE:
            memcpy(&f64, value, 8);
            put_real(out, json_f64(f64));
            return true;
        default: return put_bytes(out, n, value, len);
    }
}
