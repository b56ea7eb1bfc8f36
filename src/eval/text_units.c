#include "eval/text_units.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>
#include <utf8proc.h>

#include "base/utf8.h"

/* ---- cases ---- */

static utf8proc_category_t category_at(eval_text s, size_t i, size_t *n) {
    uint32_t cp;
    int len = utf8_decode(s.s + i, s.len - i, &cp);
    *n = len > 0 ? (size_t)len : 1;
    return len > 0 ? utf8proc_category((utf8proc_int32_t)cp) : UTF8PROC_CATEGORY_CN;
}

/* Whether there is a letter of one case, and none of the other. */
static bool has_only(eval_text s, utf8proc_category_t wanted) {
    bool found = false;
    for (size_t i = 0, n; i < s.len; i += n) {
        utf8proc_category_t k = category_at(s, i, &n);
        if (k == wanted) found = true;
        if (k != wanted && k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LT) return false;
    }
    return found;
}

bool eval_is_upper(eval_text s) {
    return has_only(s, UTF8PROC_CATEGORY_LU);
}

bool eval_is_lower(eval_text s) {
    return has_only(s, UTF8PROC_CATEGORY_LL);
}

/* ---- sentences ---- */

static const char abbreviations[] =
    " mr mrs ms dr prof st jr sr vs e.g i.e inc ltd co corp u.s u.k u.n a.m p.m fig vol al dept "
    "gen "
    "gov hon lt col sgt capt rev ph.d b.a m.a jan feb aug sept oct nov dec ";

static bool is_space(char c) {
    return strchr(" \t\n\r\f\v", c) && c;
}

static bool is_abbreviation(const char *w, size_t n) {
    for (const char *at = abbreviations; *at; at++)
        if (*at == ' ' && strncasecmp(at + 1, w, n) == 0 && at[1 + n] == ' ') return true;
    return false;
}

static bool is_number(const char *w, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!isdigit((uint8_t)w[i]) && w[i] != ',' && w[i] != '.' && w[i] != '-') return false;
    return n > 0 && isdigit((uint8_t)w[n - 1]);
}

/* A full stop at `at`, of the word that begins at `from`; what follows begins at `next`. */
static bool stop_ends(eval_text s, size_t from, size_t at, size_t next) {
    while (from < at && ispunct((uint8_t)s.s[from]) && s.s[from] != '.') from++;
    const char *w = s.s + from;
    size_t n = at - from, skip;
    if (at > 0 && s.s[at - 1] == '.') return false;
    if (is_abbreviation(w, n)) return false;
    utf8proc_category_t first = n ? category_at(s, from, &skip) : UTF8PROC_CATEGORY_CN;
    bool letter = n && skip == n && first >= UTF8PROC_CATEGORY_LU && first <= UTF8PROC_CATEGORY_LO;
    if (!letter && !is_number(w, n)) return true;
    utf8proc_category_t k = category_at(s, next, &skip);
    if (k == UTF8PROC_CATEGORY_LL || strchr(";:,.!?", s.s[next])) return false;
    return !(letter && k == UTF8PROC_CATEGORY_LU);
}

/* Whether a mark that may end a sentence does; *next is where the next one would begin. */
static bool ends_at(eval_text s, size_t from, size_t at, size_t *next) {
    *next = at + 1;
    if (*next >= s.len) return false;
    bool closes = strchr(")\";}]*:@'({[!?", s.s[*next]) != NULL;
    while (*next < s.len && is_space(s.s[*next])) ++*next;
    if (*next >= s.len || (*next == at + 1 && !closes)) return false;
    return s.s[at] != '.' || stop_ends(s, from, at, *next);
}

/* Where the text goes on after closing marks that white space or the end follows. */
static size_t after_closing(eval_text s, size_t at) {
    size_t end = at;
    while (end < s.len && strchr("\"')]}", s.s[end])) end++;
    if (end == at || (end < s.len && !is_space(s.s[end]))) return at;
    while (end < s.len && is_space(s.s[end])) end++;
    return end;
}

/* Of each word the last mark counts that may end a sentence. */
int64_t eval_count_sentences(eval_text s) {
    int64_t n = 0;
    size_t at = 0, begun = 0; /* begun: of the sentence */
    while (at < s.len) {
        size_t from = at, break_at = 0, next;
        for (; at < s.len && !is_space(s.s[at]); at++)
            if (strchr(".?!", s.s[at]) && at + 1 < s.len &&
                (is_space(s.s[at + 1]) || strchr(")\";}]*:@'({[!?", s.s[at + 1])))
                break_at = at + 1;
        if (break_at && ends_at(s, from, break_at - 1, &next)) {
            n++;
            begun = after_closing(s, next);
        }
        while (at < s.len && is_space(s.s[at])) at++;
    }
    while (begun < s.len && is_space(s.s[begun])) begun++;
    return n + (begun < s.len);
}

/* ---- capital words ---- */

/* The length of a mark that is a token of its own; 0: it is none. */
static size_t mark_at(eval_text s, size_t i) {
    static const char *const wide[] = {"“", "”", "‘", "’", "«", "»", "…", "--"};
    char next = i + 1 < s.len ? s.s[i + 1] : ' ';
    for (int k = 0; k < ARRAY_LEN(wide); k++) {
        size_t n = strlen(wide[k]);
        if (s.len - i >= n && memcmp(s.s + i, wide[k], n) == 0) return n;
    }
    if (strchr(";@#$%&?!()[]{}<>\"", s.s[i])) return 1;
    if ((s.s[i] == ',' || s.s[i] == ':') && !isdigit((uint8_t)next)) return 1;
    return s.s[i] == '.' && next == '.';
}

/* Where the end of a word that is a token of its own begins: of "DON'T" it is "N'T". */
static size_t contraction_in(eval_text w) {
    static const char *const ends[] = {"N'T", "'LL", "'RE", "'VE", "'S", "'M", "'D", "'"};
    for (int k = 0; k < ARRAY_LEN(ends); k++) {
        size_t n = strlen(ends[k]);
        if (w.len > n && strncasecmp(w.s + w.len - n, ends[k], n) == 0) return w.len - n;
    }
    return w.len;
}

static int64_t capitals_in(eval_text w) {
    size_t cut = contraction_in(w);
    return eval_is_upper((eval_text){w.s, cut}) +
           eval_is_upper((eval_text){w.s + cut, w.len - cut});
}

int64_t eval_count_capitals(eval_text s) {
    int64_t n = 0;
    size_t from = 0;
    for (size_t i = 0; i < s.len;) {
        size_t mark = is_space(s.s[i]) ? 1 : mark_at(s, i);
        if (mark) n += capitals_in((eval_text){s.s + from, i - from});
        i += mark ? mark : 1;
        if (mark) from = i;
    }
    return n + capitals_in((eval_text){s.s + from, s.len - from});
}
