/* Upper and lower case of whole characters, as Python has them: a few characters become several. */
#include <string.h>

#include <utf8proc.h>

#include "base/utf8.h"
#include "jinja/lex.h"
#include "jinja/run.h"

/* Characters whose upper case is several characters (SpecialCasing.txt, without conditions), and
 * their title case where it is another than that of the table. */
static const struct {
    uint32_t cp;
    const char *upper, *title;
} several[] = {
    {0xDF, "SS", "Ss"},
    {0x149, "ʼN", "ʼN"},
    {0x1F0, "J̌", "J̌"},
    {0x390, "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
    {0x3B0, "\u03A5\u0308\u0301", "\u03A5\u0308\u0301"},
    {0x587, "ԵՒ", "Եւ"},
    {0x1E96, "H̱", "H̱"},
    {0x1E97, "T̈", "T̈"},
    {0x1E98, "W̊", "W̊"},
    {0x1E99, "Y̊", "Y̊"},
    {0x1E9A, "Aʾ", "Aʾ"},
    {0xFB00, "FF", "Ff"},
    {0xFB01, "FI", "Fi"},
    {0xFB02, "FL", "Fl"},
    {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"},
    {0xFB05, "ST", "St"},
    {0xFB06, "ST", "St"},
};

static void add_cp(jrun *r, uint32_t cp) {
    char buf[4];
    jtext_add(r, buf, (size_t)utf8_encode(cp, buf));
}

static void add_upper(jrun *r, uint32_t cp, bool title) {
    for (int i = 0; i < ARRAY_LEN(several) && cp >= 0x80; i++) {
        if (several[i].cp != cp) continue;
        jtext_puts(r, title ? several[i].title : several[i].upper);
        return;
    }
    add_cp(r, (uint32_t)(title ? utf8proc_totitle((utf8proc_int32_t)cp)
                               : utf8proc_toupper((utf8proc_int32_t)cp)));
}

/* Whether the category of a character lies between two of utf8proc, which stand in groups: L, M, N, P, S, Z. */
static bool category_in(uint32_t cp, utf8proc_category_t first, utf8proc_category_t last) {
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c >= first && c <= last;
}

static bool is_lower(uint32_t cp) {
    return category_in(cp, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LL);
}
static bool is_cased(uint32_t cp) {
    return category_in(cp, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LT);
}
static bool is_upper(uint32_t cp) {
    return is_cased(cp) && !is_lower(cp);
}

/* Whether a capital sigma at s[at] ends a word: a letter before it and none behind. */
static bool final_sigma(jv s, size_t at) {
    size_t n;
    bool before = at > 0 && is_cased(utf8_next(s.u.s + utf8_before(s.u.s, at), &n));
    return before && (at + 2 >= s.n || !is_cased(utf8_next(s.u.s + at + 2, &n)));
}

static void add_lower(jrun *r, jv s, size_t at, uint32_t cp) {
    if (cp == 0x130)
        jtext_puts(r, "i̇");
    else if (cp == 0x3A3)
        add_cp(r, final_sigma(s, at) ? 0x3C2 : 0x3C3);
    else
        add_cp(r, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp));
}

typedef enum new_case { UPPER, LOWER, CAPITALIZE, SWAP, TITLE, TITLE_WORDS } new_case;

/* Characters behind which the filter title begins a word. */
static bool is_gap(uint32_t cp) {
    return (cp > 0 && cp < 0x80 && strchr("-({[<", (int)cp)) || jtext_is_space(cp);
}

/* TITLE: a letter is a capital unless a letter stands before it. TITLE_WORDS: the first character of a word is one,
 * and what follows is lower case as a text of its own, from byte `word` on. */
static status change_case(jrun *r, jv s, new_case to, jv *out) {
    size_t start = jtext_begin(r), word = 0;
    bool inside = false;
    TRY(jrun_spend(r, jcost_walk(s.n)));
    for (size_t at = 0, n; at < s.n; at += n) {
        uint32_t cp = utf8_next(s.u.s + at, &n);
        bool upper = to == UPPER || (to == CAPITALIZE && at == 0) ||
                     (to == SWAP && !is_upper(cp)) || (to >= TITLE && !inside);
        if (upper)
            add_upper(r, cp, to == CAPITALIZE || to == TITLE);
        else
            add_lower(r, jv_part(s, word, s.n), at - word, cp);
        if (to == TITLE_WORDS && !inside) word = at + n;
        inside = to == TITLE ? is_cased(cp) : !is_gap(cp);
    }
    TRY(jtext_take(r, start, out));
    out->safe = s.safe && to != SWAP && to < TITLE;
    return ST_OK;
}

#define CASE_METHOD(name, to)                                                                      \
    status jstr_##name(jrun *r, const jcall *c, jv *out) {                                         \
        return change_case(r, c->self, to, out);                                                   \
    }
CASE_METHOD(upper, UPPER)
CASE_METHOD(lower, LOWER)
CASE_METHOD(capitalize, CAPITALIZE)
CASE_METHOD(swapcase, SWAP)
CASE_METHOD(title, TITLE)
CASE_METHOD(title_words, TITLE_WORDS)

/* For comparing without case: "ß" is "ss" here, and its capital is, too. */
status jstr_casefold(jrun *r, const jcall *c, jv *out) {
    size_t start = jtext_begin(r);
    TRY(jrun_spend(r, jcost_walk(c->self.n)));
    for (size_t at = 0, n; at < c->self.n; at += n) {
        utf8proc_int32_t folded[4];
        int class = 0;
        uint32_t cp = utf8_next(c->self.u.s + at, &n);
        utf8proc_ssize_t many = utf8proc_decompose_char(
            (utf8proc_int32_t)cp, folded, ARRAY_LEN(folded), UTF8PROC_CASEFOLD, &class);
        for (int i = 0; i < many; i++) add_cp(r, (uint32_t)folded[i]);
    }
    return jtext_take(r, start, out);
}

/* ---- what a text consists of ---- */

typedef bool char_test(uint32_t cp);

static bool is_alpha(uint32_t cp) {
    return category_in(cp, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO);
}
static bool is_numeric(uint32_t cp) {
    return category_in(cp, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}
bool jtext_is_alnum(uint32_t cp) {
    return is_alpha(cp) || is_numeric(cp);
}
static bool is_ascii(uint32_t cp) {
    return cp < 0x80;
}
static bool is_decimal(uint32_t cp) {
    return category_in(cp, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_ND);
}

static status all_chars(jrun *r, const jcall *c, char_test *test, bool when_empty, jv *out) {
    bool yes = c->self.n > 0 || when_empty;
    TRY(jrun_spend(r, jcost_walk(c->self.n)));
    for (size_t at = 0, n; yes && at < c->self.n; at += n) {
        yes = test(utf8_next(c->self.u.s + at, &n));
    }
    *out = jv_bool(yes);
    return ST_OK;
}

#define CHARS_TEST(name, test, when_empty)                                                         \
    status jstr_##name(jrun *r, const jcall *c, jv *out) {                                         \
        return all_chars(r, c, test, when_empty, out);                                             \
    }
CHARS_TEST(isalpha, is_alpha, false)
CHARS_TEST(isalnum, jtext_is_alnum, false)
CHARS_TEST(isnumeric, is_numeric, false)
CHARS_TEST(isdecimal, is_decimal, false)
CHARS_TEST(isspace, jtext_is_space, false)
CHARS_TEST(isascii, is_ascii, true)

/* Letters of one case only, one at least. */
static status one_case(jrun *r, const jcall *c, char_test *wanted, jv *out) {
    bool some = false, other = false;
    TRY(jrun_spend(r, jcost_walk(c->self.n)));
    for (size_t at = 0, n; at < c->self.n && !other; at += n) {
        uint32_t cp = utf8_next(c->self.u.s + at, &n);
        if (!is_cased(cp)) continue;
        some = some || wanted(cp);
        other = !wanted(cp);
    }
    *out = jv_bool(some && !other);
    return ST_OK;
}
status jstr_islower(jrun *r, const jcall *c, jv *out) {
    return one_case(r, c, is_lower, out);
}
status jstr_isupper(jrun *r, const jcall *c, jv *out) {
    return one_case(r, c, is_upper, out);
}
