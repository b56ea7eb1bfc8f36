/* Random numbers and literals of Python (see python.h). CPython 3.11: Lib/random.py,
 * Modules/_randommodule.c. */
#include "eval/python.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/strbuf.h"
#include "base/text.h"
#include "base/utf8.h"

/* ---- the Mersenne Twister ---- */

enum { MT_N = 624, MT_M = 397 };

static void init_genrand(py_random *r, uint32_t seed) {
    r->mt[0] = seed;
    for (uint32_t i = 1; i < MT_N; i++)
        r->mt[i] = 1812433253u * (r->mt[i - 1] ^ (r->mt[i - 1] >> 30)) + i;
    r->index = MT_N;
}

void py_random_init(py_random *r, uint64_t seed) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, *mt = r->mt;
    uint32_t length = key[1] ? 2 : 1, i = 1, j = 0;
    init_genrand(r, 19650218u);
    for (int k = 0; k < MT_N; k++) {
        mt[i] = (mt[i] ^ ((mt[i - 1] ^ (mt[i - 1] >> 30)) * 1664525u)) + key[j] + j;
        j = (j + 1) % length;
        if (++i == MT_N) mt[0] = mt[MT_N - 1], i = 1;
    }
    for (int k = 0; k < MT_N - 1; k++) {
        mt[i] = (mt[i] ^ ((mt[i - 1] ^ (mt[i - 1] >> 30)) * 1566083941u)) - i;
        if (++i == MT_N) mt[0] = mt[MT_N - 1], i = 1;
    }
    mt[0] = 0x80000000u;
}

static void refill(py_random *r) {
    uint32_t *mt = r->mt;
    for (int k = 0; k < MT_N; k++) {
        uint32_t y = (mt[k] & 0x80000000u) | (mt[(k + 1) % MT_N] & 0x7fffffffu);
        mt[k] = mt[(k + MT_M) % MT_N] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    r->index = 0;
}

static uint32_t next_32(py_random *r) {
    if (r->index == MT_N) refill(r);
    uint32_t y = r->mt[r->index++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

/* _randbelow_with_getrandbits, for n below 2^32. */
static int64_t below(py_random *r, int64_t n) {
    int bits = 0;
    while (n >> bits) bits++;
    int64_t v;
    do v = next_32(r) >> (32 - bits);
    while (v >= n);
    return v;
}

/* A few of many are drawn until they differ; else they are taken out of a pool. */
static bool uses_pool(int64_t n, int64_t k) {
    int64_t size = 21, power = 4;
    if (k > 5) {
        while (power < k * 3) power *= 4;
        size += power;
    }
    return n <= size;
}

static bool is_drawn(const int64_t *out, int64_t n, int64_t v) {
    for (int64_t i = 0; i < n; i++)
        if (out[i] == v) return true;
    return false;
}

void py_random_sample(py_random *r, int64_t n, int64_t k, int64_t *out) {
    CHECK(k >= 0 && k <= n && n < INT32_MAX, "a sample of %ld out of %ld", (long)k, (long)n);
    if (!uses_pool(n, k)) {
        for (int64_t i = 0; i < k; i++) do
                out[i] = below(r, n);
            while (is_drawn(out, i, out[i]));
        return;
    }
    int64_t *pool = xmalloc(sizeof *pool * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++) pool[i] = i;
    for (int64_t i = 0; i < k; i++) {
        int64_t j = below(r, n - i);
        out[i] = pool[j];
        pool[j] = pool[n - i - 1];
    }
    free(pool);
}

/* ---- literals ---- */

typedef struct literal {
    const char *s, *end;
    int depth;
    err *e;
} literal;

static status no_literal(const literal *l) {
    return err_set(l->e, ST_FORMAT, "what the template gives is no Python list: \"%.60s\"", l->s);
}

static void skip_space(literal *l) {
    while (l->s < l->end && strchr(" \t\n\r", *l->s)) l->s++;
}

/* The code after a backslash: \n, \', \x41, \u4f60, \U0001f600. */
static bool read_escape(literal *l, strbuf *out) {
    static const char from[] = "ntr0abfv\\'\"", to[] = "\n\t\r\0\a\b\f\v\\'\"";
    char c = *l->s++, hex[9] = "", cp[4], *stop;
    const char *at = strchr(from, c);
    if (at) {
        strbuf_putc(out, to[at - from]);
        return true;
    }
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0 || (size_t)(l->end - l->s) < digits) return false;
    memcpy(hex, l->s, digits);
    unsigned long value = strtoul(hex, &stop, 16);
    if (*stop || value > 0x10FFFF) return false;
    strbuf_append(out, cp, (size_t)utf8_encode((uint32_t)value, cp));
    l->s += digits;
    return true;
}

static status read_text(literal *l, json_t **out) {
    char quote = *l->s++;
    strbuf text = {0};
    bool good = true;
    while (good && l->s < l->end && *l->s != quote) {
        if (*l->s == '\\' && l->s + 1 < l->end) {
            l->s++;
            good = read_escape(l, &text);
        } else {
            strbuf_putc(&text, *l->s++);
        }
    }
    good = good && l->s < l->end;
    *out = good ? json_stringn(strbuf_cstr(&text), text.len) : NULL;
    strbuf_free(&text);
    if (!*out) return no_literal(l);
    l->s++;
    return ST_OK;
}

static status read_value(literal *l, json_t **out);

static status read_list(literal *l, json_t **out) {
    char close = *l->s++ == '[' ? ']' : ')';
    status st = ++l->depth > 16 ? no_literal(l) : ST_OK;
    *out = json_array();
    for (skip_space(l); st == ST_OK && l->s < l->end && *l->s != close;) {
        json_t *item = NULL;
        st = read_value(l, &item);
        if (st == ST_OK) json_array_append_new(*out, item);
        skip_space(l);
        if (st == ST_OK && l->s < l->end && *l->s != close && *l->s++ != ',') st = no_literal(l);
        skip_space(l);
    }
    if (st == ST_OK && l->s == l->end) st = no_literal(l);
    if (st == ST_OK) l->s++, l->depth--;
    if (st != ST_OK) json_decref(*out), *out = NULL;
    return st;
}

static status read_number(literal *l, json_t **out) {
    char number[64];
    double v;
    size_t span = text_number_span(l->s);
    if (span == 0 || span >= sizeof number) return no_literal(l);
    memcpy(number, l->s, span);
    number[span] = 0;
    if (!text_parse_number(number, &v)) return no_literal(l);
    *out = strspn(number, "+-0123456789") == span && span < 16 ? json_integer((json_int_t)v)
                                                               : json_real(v);
    l->s += span;
    return ST_OK;
}

static status read_value(literal *l, json_t **out) {
    skip_space(l);
    if (l->s == l->end) return no_literal(l);
    if (*l->s == '[' || *l->s == '(') return read_list(l, out);
    if (*l->s == '\'' || *l->s == '"') return read_text(l, out);
    return read_number(l, out);
}

status py_literal(const char *s, size_t n, json_t **out, err *e) {
    char *text = xmalloc(n + 1); /* with an end for those who look ahead */
    memcpy(text, s, n);
    text[n] = 0;
    literal l = {.s = text, .end = text + n, .e = e};
    *out = NULL;
    status st = read_value(&l, out);
    skip_space(&l);
    if (st == ST_OK && l.s < l.end) {
        json_decref(*out);
        *out = NULL;
        st = no_literal(&l);
    }
    free(text);
    return st;
}
