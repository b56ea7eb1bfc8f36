/* Numbers with suffixes by strtod plus a table; nearest words by optimal string alignment. */
#include "base/text.h"

#include <ctype.h>
#include <math.h>
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

/* The span of [+-]digits[.digits][e[+-]digits] at s; 0 when there is no number. strtod alone would
 * also take hexadecimal floats, "inf" and leading space. */
static size_t number_span(const char *s) {
    const char *p = s;
    int digits = 0;
    if (*p == '+' || *p == '-') p++;
    for (; isdigit((unsigned char)*p); p++) digits++;
    if (*p == '.')
        for (p++; isdigit((unsigned char)*p); p++) digits++;
    if (digits == 0) return 0;
    if (*p == 'e' || *p == 'E') {
        const char *q = p + 1;
        if (*q == '+' || *q == '-') q++;
        if (isdigit((unsigned char)*q)) {
            while (isdigit((unsigned char)*q)) q++;
            p = q;
        }
    }
    return (size_t)(p - s);
}

bool text_parse_number(const char *s, double *value) {
    size_t span = number_span(s);
    if (span == 0) return false;
    for (int i = 0; i < (int)(sizeof SUFFIXES / sizeof SUFFIXES[0]); i++) {
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
    size_t span = number_span(s);
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
