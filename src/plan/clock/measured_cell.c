/* A cell of a published table: a number with what people write around it (measured_int.h). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "plan/clock/measured_int.h"

static bool is_blank(const char *cell) {
    static const char *const words[] = {"-",       "--",    "?", "/", "n/a",  "na", "null",
                                        "unknown", "dense", "—", "–", "none", "nan"};
    for (int i = 0; i < ARRAY_LEN(words); i++)
        if (strcasecmp(cell, words[i]) == 0) return true;
    return false;
}

void cell_tidy(char *cell) {
    size_t before = 0, n;
    while (isspace((unsigned char)cell[before])) before++;
    n = strlen(cell + before);
    while (n > 0 && isspace((unsigned char)cell[before + n - 1])) n--;
    memmove(cell, cell + before, n);
    cell[n] = '\0';
    if (is_blank(cell)) *cell = '\0';
}

/* Behind "about", "more than", and the marks of links and bold letters. */
static const char *behind_marks(const char *s) {
    static const char *const marks[] = {"~", "≈", "≥", "≤", ">", "<", "*", "[", " "};
    for (int i = 0; i < ARRAY_LEN(marks); i++) {
        size_t n = strlen(marks[i]);
        if (strncmp(s, marks[i], n) != 0) continue;
        s += n;
        i = -1;
    }
    return s;
}

/* The number without commas between thousands: its bytes in the cell; 0: there is none. */
static size_t read_digits(const char *s, double *out) {
    char plain[64];
    size_t n = 0, at = 0;
    for (; s[at] && n < sizeof plain - 1; at++) {
        bool thousands = s[at] == ',' && at && isdigit((unsigned char)s[at - 1]) &&
                         strspn(s + at + 1, "0123456789") == 3;
        if (!thousands) plain[n++] = s[at];
    }
    plain[n] = '\0';
    size_t span = text_number_span(plain), commas = 0;
    for (at = 0; at < span + commas; at++) commas += s[at] == ',';
    *out = strtod(plain, NULL);
    return span ? span + commas : 0;
}

/* "4k" of a sequence is 4,096 tokens; of all else it is a thousand. */
static double scale_of(char letter, const char *name) {
    switch (letter) {
        case 'k':
        case 'K': return strcmp(name, "seq") == 0 ? 1024 : 1e3;
        case 'M': return 1e6;
        case 'B': return 1e9;
        default: return 0;
    }
}

/* What may follow a number, and what it is multiplied with in a column of seconds or milliseconds. */
static bool take_unit(const char *s, size_t n, const char *name, double *x) {
    static const char *const units[] = {"gb",     "gib",      "gpus",      "gpu",      "x",
                                        "tf",     "tflops",   "tflop/s",   "tflops/s", "tok/s",
                                        "tokens", "tokens/s", "sequences", "samples"};
    static const struct {
        const char *word;
        double seconds;
    } times[] = {{"s", 1}, {"sec", 1}, {"seconds", 1}, {"ms", 1e-3}};
    for (int i = 0; i < ARRAY_LEN(times); i++)
        if (strlen(times[i].word) == n && strncasecmp(s, times[i].word, n) == 0) {
            double of_column = strcmp(name, "iter_time_ms") == 0 ? 1e-3 : 1;
            *x *= times[i].seconds / of_column;
            return strncmp(name, "iter_time", 9) == 0;
        }
    for (int i = 0; i < ARRAY_LEN(units); i++)
        if (strlen(units[i]) == n && strncasecmp(s, units[i], n) == 0) return true;
    return n == 0;
}

/* Whether what is left is none of the number: a note, a second value, how it varies. */
static bool is_remark(const char *s) {
    static const char *const marks[] = {"(", "[", "]", "*", "^", "±", "†", "‡", "/ "};
    s += strspn(s, " ");
    for (int i = 0; i < ARRAY_LEN(marks); i++)
        if (strncmp(s, marks[i], strlen(marks[i])) == 0) return true;
    return !*s;
}

bool cell_number(const char *cell, const char *name, double *out) {
    const char *s = behind_marks(cell);
    size_t n = read_digits(s, out), word;
    if (n == 0) return false;
    s += n;
    double scale = scale_of(*s, name);
    if (scale > 0 && !isalnum((unsigned char)s[1])) {
        *out *= scale;
        s++;
    }
    s += strspn(s, " ");
    if (*s == '%') {
        s++;
    } else {
        for (word = 0; isalpha((unsigned char)s[word]) ||
                       (word && s[word] == '/' && isalpha((unsigned char)s[word + 1]));)
            word++;
        if (!take_unit(s, word, name, out)) return false;
        s += word;
    }
    return is_remark(s) && *out > -1e15 && *out < 1e15;
}
