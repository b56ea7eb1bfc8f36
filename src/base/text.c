/* Numbers with suffixes by strtod plus a table; nearest words by optimal string alignment. */
#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static const struct {
    const char *suffix;
    double factor;
} SUFFIXES[] = {
    {"", 1.0},   {"k", 1e3},     {"K", 1e3},     {"M", 1e6},     {"B", 1e9},     {"G", 1e9},
    {"T", 1e12}, {"Ki", 1024.0}, {"ki", 1024.0}, {"Mi", 0x1p20}, {"Gi", 0x1p30}, {"Ti", 0x1p40},
};

/* strtod alone would also take hexadecimal floats, "inf" and leading space. */
size_t text_number_span(const char *s) {
    static const char digits[] = "0123456789";
    const char *p = s + (*s == '+' || *s == '-');
    size_t whole = strspn(p, digits),
           fraction = p[whole] == '.' ? strspn(p + whole + 1, digits) : 0;
    if (whole + fraction == 0) return 0;
    p += whole + (p[whole] == '.') + fraction;
    if (*p == 'e' || *p == 'E') {
        const char *q = p + 1 + (p[1] == '+' || p[1] == '-');
        size_t exponent = strspn(q, digits);
        if (exponent > 0) p = q + exponent;
    }
    return (size_t)(p - s);
}

bool text_parse_number(const char *s, double *value) {
    size_t span = text_number_span(s);
    if (span == 0) return false;
    for (int i = 0; i < ARRAY_LEN(SUFFIXES); i++) {
        if (strcmp(s + span, SUFFIXES[i].suffix) != 0) continue;
        double v = strtod(s, NULL) * SUFFIXES[i].factor;
        if (!isfinite(v)) return false;
        *value = v;
        return true;
    }
    return false;
}

bool text_parse_int(const char *s, int64_t *value) {
    double v;
    size_t span = text_number_span(s);
    if (span && s[span] == '\0' && !memchr(s, '.', span) && !strpbrk(s, "eE")) {
        char *end;
        long long n = strtoll(s, &end, 10);
        if (*end || n == INT64_MAX || n == INT64_MIN) return false;
        *value = n;
        return true;
    }
    if (!text_parse_number(s, &v)) return false;
    double whole = rint(v); /* 1.1k is 1100.0000000000002 in binary */
    if (fabs(v - whole) > fabs(whole) * 1e-15 || fabs(whole) > 0x1p53) return false;
    *value = (int64_t)whole;
    return true;
}

static status refuse(const char *name, double least, double most, err *e) {
    err_at(e, ST_USAGE, name, "%s is \"%.60s\", which is no number from %.15g to %.15g", name,
           getenv(name), least, most);
    return err_hint(e, "set %s to such a number, or unset it", name);
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

/* "auto, on or off" */
static const char *list_words(char out[256], const char *const *words, int n) {
    int len = 0;
    for (int i = 0; i < n && len < 256; i++) {
        const char *before = i == 0 ? "" : i < n - 1 ? ", " : " or ";
        len += snprintf(out + len, 256 - (size_t)len, "%s%s", before, words[i]);
    }
    return out;
}

status env_word(const char *name, const char *const *words, int n, int *which, err *e) {
    const char *text = getenv(name);
    char list[256] = "";
    if (!text || !*text) return ST_OK;
    for (int i = 0; i < n; i++) {
        if (strcmp(text, words[i]) != 0) continue;
        *which = i;
        return ST_OK;
    }
    err_at(e, ST_USAGE, name, "%s is \"%.60s\", which is not %s", name, text,
           list_words(list, words, n));
    return err_hint(e, "set %s to %s, or unset it", name, list);
}

void text_make_plain(char *s) {
    for (size_t left = strlen(s); left > 0;) {
        uint32_t c;
        int n = utf8_decode(s, left, &c);
        size_t step = n > 0 ? (size_t)n : 1;
        if (n == 0 || c < 0x20 || (c >= 0x7f && c < 0xa0)) memset(s, '?', step);
        s += step;
        left -= step;
    }
}

enum { MAX_WORD = 64 };

static int change_cost(char x, char y) {
    if (x == y) return 0;
    return tolower((unsigned char)x) == tolower((unsigned char)y) ? 1 : 2;
}

static int least(int x, int y) {
    return x < y ? x : y;
}

int text_distance(const char *a, const char *b) {
    int n = (int)strnlen(a, MAX_WORD), m = (int)strnlen(b, MAX_WORD);
    int d[3][MAX_WORD + 1]; /* rows i-2, i-1, i, used in turn */
    for (int j = 0; j <= m; j++) d[0][j] = 2 * j;
    for (int i = 1; i <= n; i++) {
        int *row = d[i % 3], *up = d[(i + 2) % 3], *up2 = d[(i + 1) % 3];
        row[0] = 2 * i;
        for (int j = 1; j <= m; j++) {
            int best = least(up[j], row[j - 1]) + 2;
            best = least(best, up[j - 1] + change_cost(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = least(best, up2[j - 2] + 2);
            row[j] = best;
        }
    }
    return d[n % 3][m];
}

int text_nearest(const char *word, const char *const *words, int n) {
    int best = -1, best_distance = 0;
    for (int i = 0; i < n; i++) {
        int d = text_distance(word, words[i]);
        if (best < 0 || d < best_distance) {
            best = i;
            best_distance = d;
        }
    }
    int allowed = 2 + 2 * ((int)strnlen(word, MAX_WORD) / 3);
    return best >= 0 && best_distance <= allowed ? best : -1;
}

const char *text_short_number(double x, char out[16]) {
    static const char units[] = {' ', 'k', 'M', 'B', 'T'};
    int u = 0;
    while (x >= 999.5 && u < (int)sizeof units - 1) x /= 1000, u++;
    bool many = x >= 999.5 && x < 1e9; /* of the last unit: all digits before the point */
    snprintf(out, 16, many ? "%.0f%c" : u ? "%.3g%c" : "%.3g", x, units[u]);
    return out;
}

bool text_ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}
