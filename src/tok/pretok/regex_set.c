/* Sets of code points: algebra on ranges, the properties by name, and the form for matching. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "tok/pretok/regex.h"
#include "tok/text/unicode.h"
#include "tok/text/unicode_sets.h"

enum { LIMIT = 0x110000 };

void rx_add(rx_ranges *r, uint32_t first, uint32_t last) {
    /* n and cap are even: where one edge has room, two have */
    r->edge = arena_grow(r->mem, r->edge, r->n, &r->cap, sizeof(*r->edge));
    r->edge[r->n++] = first;
    r->edge[r->n++] = last + 1;
}

void rx_add_all(rx_ranges *r, const rx_ranges *more) {
    for (int32_t i = 0; i < more->n; i += 2) rx_add(r, more->edge[i], more->edge[i + 1] - 1);
}

static int by_start(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void rx_sort(rx_ranges *r) {
    if (r->n == 0) return;
    qsort(r->edge, (size_t)r->n / 2, 2 * sizeof(*r->edge), by_start);
    int32_t to = 0;
    for (int32_t i = 2; i < r->n; i += 2) {
        if (r->edge[i] > r->edge[to + 1]) {
            to += 2;
            r->edge[to] = r->edge[i];
            r->edge[to + 1] = r->edge[i + 1];
        } else if (r->edge[i + 1] > r->edge[to + 1]) {
            r->edge[to + 1] = r->edge[i + 1];
        }
    }
    r->n = to + 2;
}

/* The edges of the rest are the same ones, shifted by one. */
void rx_negate(rx_ranges *r) {
    rx_ranges out = {.mem = r->mem};
    uint32_t at = 0;
    rx_sort(r);
    for (int32_t i = 0; i < r->n; i += 2) {
        if (r->edge[i] > at) rx_add(&out, at, r->edge[i] - 1);
        at = r->edge[i + 1];
    }
    if (at < LIMIT) rx_add(&out, at, LIMIT - 1);
    *r = out;
}

void rx_intersect(rx_ranges *r, const rx_ranges *with) {
    rx_ranges both = {.mem = r->mem};
    rx_add_all(&both, with);
    rx_negate(&both);
    rx_negate(r);
    rx_add_all(r, &both);
    rx_negate(r);
}

bool rx_has(const rx_ranges *r, uint32_t cp) {
    uni_set set = {.edge = r->edge, .n = r->n / 2};
    return uni_set_has(&set, cp);
}

/* ---- case ---- */

static uint32_t fold(uint32_t cp) {
    utf8proc_int32_t to[4];
    if (cp == 0x130) return cp; /* I with a dot: only to i and a dot */
    int boundary = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)cp, to, 4, UTF8PROC_CASEFOLD, &boundary);
    return (uint32_t)(n == 1 ? to[0] : utf8proc_tolower((utf8proc_int32_t)cp));
}

static void find_cases(rx_cases *c, arena *mem) {
    enum { CASED_LIMIT = 0x1E944 }; /* beyond the last letters with case, Adlam */
    for (uint32_t cp = 0; cp < CASED_LIMIT; cp++) {
        if (!(uni_bits(cp) & (UNI_LETTERS | UNI_MARK | UNI_DIGIT | UNI_SYMBOL))) continue;
        uint32_t to = fold(cp);
        if (to == cp) continue;
        c->pair = arena_grow(mem, c->pair, c->n, &c->cap, sizeof(*c->pair));
        c->pair[c->n][0] = cp;
        c->pair[c->n++][1] = to;
    }
}

void rx_fold(rx_ranges *r, rx_cases *c) {
    rx_ranges folded = {.mem = r->mem};
    if (c->n == 0) find_cases(c, r->mem);
    rx_sort(r);
    for (int32_t i = 0; i < c->n; i++) {
        uint32_t to = c->pair[i][1];
        if (rx_has(r, c->pair[i][0]) || rx_has(r, to)) rx_add(&folded, to, to);
    }
    rx_sort(&folded);
    rx_add_all(r, &folded);
    for (int32_t i = 0; i < c->n; i++) {
        if (rx_has(&folded, c->pair[i][1])) rx_add(r, c->pair[i][0], c->pair[i][0]);
    }
    rx_sort(r);
}

/* ---- properties ---- */

/* The code points whose value in a table of starts is in [first, last]. */
static void add_values(rx_ranges *r, const uint32_t *starts, int n, unsigned first, unsigned last) {
    for (int i = 0; i < n; i++) {
        unsigned value = starts[i] & 0xFF;
        uint32_t end = i + 1 < n ? starts[i + 1] >> 8 : LIMIT;
        if (value >= first && value <= last) rx_add(r, starts[i] >> 8, end - 1);
    }
}

static void add_categories(rx_ranges *r, unsigned first, unsigned last) {
    add_values(r, uni_category_starts, uni_category_starts_n, first, last);
}

typedef struct category_name {
    const char *brief, *name;
    uni_category first, last;
} category_name;

static const category_name CATEGORIES[] = {
    {"l", "letter", UNI_LU, UNI_LO},
    {"lu", "uppercaseletter", UNI_LU, UNI_LU},
    {"ll", "lowercaseletter", UNI_LL, UNI_LL},
    {"lt", "titlecaseletter", UNI_LT, UNI_LT},
    {"lm", "modifierletter", UNI_LM, UNI_LM},
    {"lo", "otherletter", UNI_LO, UNI_LO},
    {"lc", "casedletter", UNI_LU, UNI_LT},
    {"m", "mark", UNI_MN, UNI_ME},
    {"mn", "nonspacingmark", UNI_MN, UNI_MN},
    {"mc", "spacingmark", UNI_MC, UNI_MC},
    {"me", "enclosingmark", UNI_ME, UNI_ME},
    {"n", "number", UNI_ND, UNI_NO},
    {"nd", "decimalnumber", UNI_ND, UNI_ND},
    {"nl", "letternumber", UNI_NL, UNI_NL},
    {"no", "othernumber", UNI_NO, UNI_NO},
    {"p", "punctuation", UNI_PC, UNI_PO},
    {"pc", "connectorpunctuation", UNI_PC, UNI_PC},
    {"pd", "dashpunctuation", UNI_PD, UNI_PD},
    {"ps", "openpunctuation", UNI_PS, UNI_PS},
    {"pe", "closepunctuation", UNI_PE, UNI_PE},
    {"pi", "initialpunctuation", UNI_PI, UNI_PI},
    {"pf", "finalpunctuation", UNI_PF, UNI_PF},
    {"po", "otherpunctuation", UNI_PO, UNI_PO},
    {"s", "symbol", UNI_SM, UNI_SO},
    {"sm", "mathsymbol", UNI_SM, UNI_SM},
    {"sc", "currencysymbol", UNI_SC, UNI_SC},
    {"sk", "modifiersymbol", UNI_SK, UNI_SK},
    {"so", "othersymbol", UNI_SO, UNI_SO},
    {"z", "separator", UNI_ZS, UNI_ZP},
    {"zs", "spaceseparator", UNI_ZS, UNI_ZS},
    {"zl", "lineseparator", UNI_ZL, UNI_ZL},
    {"zp", "paragraphseparator", UNI_ZP, UNI_ZP},
    {"cc", "control", UNI_CC, UNI_CC},
    {"cf", "format", UNI_CF, UNI_CF},
    {"co", "privateuse", UNI_CO, UNI_CO},
    {"cn", "unassigned", UNI_CN, UNI_CN},
};

static void add_set(rx_ranges *r, const uni_set *set) {
    for (int i = 0; i < set->n; i++) rx_add(r, set->edge[2 * i], set->edge[2 * i + 1] - 1);
}

static void add_spaces(rx_ranges *r) {
    static const uint32_t SPACE[][2] = {
        {'\t', '\r'},     {' ', ' '},       {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
        {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
    for (int i = 0; i < ARRAY_LEN(SPACE); i++) rx_add(r, SPACE[i][0], SPACE[i][1]);
}

static const uni_set *named_set(const char *name) {
    for (int i = 0; i < uni_sets_n; i++) {
        if (strcmp(uni_sets[i].name, name) == 0) return &uni_sets[i];
    }
    return NULL;
}

/* Oniguruma's \w has outside of classes, by mistake, also ² ³ ¹ ¼ ½ ¾. */
static void add_word(rx_ranges *r, bool in_class) {
    rx_ranges word = {.mem = r->mem}, mistake = {.mem = r->mem};
    add_set(&word, named_set("word"));
    if (in_class) {
        rx_add(&mistake, 0xB2, 0xB3);
        rx_add(&mistake, 0xB9, 0xB9);
        rx_add(&mistake, 0xBC, 0xBE);
        rx_negate(&mistake);
        rx_intersect(&word, &mistake);
    }
    rx_add_all(r, &word);
}

/* Names that are neither categories, scripts nor sets of the tables. */
static bool add_other(rx_ranges *r, const char *name) {
    if (strcmp(name, "any") == 0) {
        rx_add(r, 0, LIMIT - 1);
    } else if (strcmp(name, "ascii") == 0) {
        rx_add(r, 0, 127);
    } else if (strcmp(name, "assigned") == 0) {
        add_categories(r, UNI_LU, UNI_CO);
    } else if (strcmp(name, "c") == 0 || strcmp(name, "other") == 0) {
        add_categories(r, UNI_CC, UNI_CO);
        add_categories(r, UNI_CN, UNI_CN);
    } else if (strcmp(name, "cntrl") == 0) {
        add_categories(r, UNI_CC, UNI_CC);
    } else if (strcmp(name, "alnum") == 0) {
        add_set(r, named_set("alphabetic"));
        add_categories(r, UNI_ND, UNI_ND);
    } else if (strcmp(name, "digit") == 0) {
        add_categories(r, UNI_ND, UNI_ND);
    } else if (strcmp(name, "xdigit") == 0) {
        rx_add_escape(r, 'h', false);
    } else if (strcmp(name, "space") == 0 || strcmp(name, "whitespace") == 0) {
        add_spaces(r);
    } else if (strcmp(name, "blank") == 0) {
        rx_add(r, '\t', '\t');
        add_categories(r, UNI_ZS, UNI_ZS);
    } else if (strcmp(name, "word") == 0) {
        add_word(r, false);
    } else {
        return false;
    }
    return true;
}

static bool add_category(rx_ranges *r, const char *name) {
    for (int i = 0; i < ARRAY_LEN(CATEGORIES); i++) {
        const category_name *c = &CATEGORIES[i];
        if (strcmp(name, c->brief) != 0 && strcmp(name, c->name) != 0) continue;
        add_categories(r, c->first, c->last);
        return true;
    }
    return false;
}

static bool add_script(rx_ranges *r, const char *name) {
    for (int i = 1; i < uni_script_names_n; i++) {
        if (strcmp(name, uni_script_names[i]) != 0) continue;
        add_values(r, uni_script_starts, uni_script_starts_n, (unsigned)i, (unsigned)i);
        return true;
    }
    return false;
}

bool rx_add_property(rx_ranges *r, const char *name, size_t n) {
    static const char *const SHORT[][2] = {
        {"alpha", "alphabetic"}, {"upper", "uppercase"}, {"lower", "lowercase"},
        {"punct", "p"},          {"arab", "arabic"},     {"cyrl", "cyrillic"},
        {"deva", "devanagari"},  {"grek", "greek"},      {"hang", "hangul"},
        {"hani", "han"},         {"hebr", "hebrew"},     {"hira", "hiragana"},
        {"kana", "katakana"},    {"latn", "latin"},      {"zinh", "inherited"},
        {"zyyy", "common"}};
    char plain[64];
    size_t to = 0;
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        if (c == ' ' || c == '_' || c == '-') continue;
        if (to == sizeof(plain) - 1) return false;
        plain[to++] = c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
    }
    plain[to] = '\0';
    const char *s = plain;
    for (int i = 0; i < ARRAY_LEN(SHORT); i++) {
        if (strcmp(s, SHORT[i][0]) == 0) s = SHORT[i][1];
    }
    if (add_other(r, s) || add_category(r, s) || add_script(r, s)) return true;
    const uni_set *set = named_set(s);
    if (set) add_set(r, set);
    return set != NULL;
}

void rx_add_escape(rx_ranges *r, char letter, bool in_class) {
    switch (letter) {
        case 'd': add_categories(r, UNI_ND, UNI_ND); break;
        case 's': add_spaces(r); break;
        case 'w': add_word(r, in_class); break;
        default: /* \h */
            rx_add(r, '0', '9');
            rx_add(r, 'A', 'F');
            rx_add(r, 'a', 'f');
    }
}

/* ---- for matching ---- */

static const unsigned CATEGORY_BITS[UNI_N_CATEGORIES] = {
    [UNI_CN] = RX_NO_CLASS, [UNI_CC] = RX_NO_CLASS,  [UNI_CF] = RX_NO_CLASS,
    [UNI_CO] = RX_NO_CLASS, [UNI_LU] = UNI_UPPER,    [UNI_LT] = UNI_UPPER,
    [UNI_LL] = UNI_LOWER,   [UNI_LM] = UNI_CASELESS, [UNI_LO] = UNI_CASELESS,
    [UNI_MN] = UNI_MARK,    [UNI_MC] = UNI_MARK,     [UNI_ME] = UNI_MARK,
    [UNI_ND] = UNI_DIGIT,   [UNI_NL] = UNI_DIGIT,    [UNI_NO] = UNI_DIGIT,
    [UNI_PC] = UNI_PUNCT,   [UNI_PD] = UNI_PUNCT,    [UNI_PS] = UNI_PUNCT,
    [UNI_PE] = UNI_PUNCT,   [UNI_PI] = UNI_PUNCT,    [UNI_PF] = UNI_PUNCT,
    [UNI_PO] = UNI_PUNCT,   [UNI_SM] = UNI_SYMBOL,   [UNI_SC] = UNI_SYMBOL,
    [UNI_SK] = UNI_SYMBOL,  [UNI_SO] = UNI_SYMBOL,   [UNI_ZS] = UNI_BLANK,
    [UNI_ZL] = UNI_BLANK,   [UNI_ZP] = UNI_BLANK,
};

/* The classes that make up the set above 255; 0 if it cuts one of them. */
static unsigned class_mask(const rx_ranges *r) {
    unsigned in = 0, out = 0;
    int32_t at = 0; /* the first range that ends behind the one at hand */
    for (int i = 0; i < uni_category_starts_n; i++) {
        uint32_t first = uni_category_starts[i] >> 8;
        uint32_t end = i + 1 < uni_category_starts_n ? uni_category_starts[i + 1] >> 8 : LIMIT;
        if (end <= 256) continue;
        if (first < 256) first = 256;
        unsigned bit = CATEGORY_BITS[uni_category_starts[i] & 0xFF];
        while (at < r->n && r->edge[at + 1] <= first) at += 2;
        if (at == r->n || r->edge[at] >= end) {
            out |= bit;
        } else if (r->edge[at] <= first && r->edge[at + 1] >= end) {
            in |= bit;
        } else {
            return 0;
        }
    }
    return in & out ? 0 : in;
}

void rx_set_make(rx_set *s, const rx_ranges *r, arena *mem) {
    *s = (rx_set){.mask = class_mask(r)};
    for (uint32_t cp = 0; cp < 256; cp++) s->low[cp] = rx_has(r, cp);
    if (s->mask) return;
    uint32_t *edge = ARENA_ARRAY(mem, uint32_t, r->n);
    if (r->n > 0) memcpy(edge, r->edge, (size_t)r->n * sizeof(*edge));
    s->edge = edge;
    s->n = r->n;
}

bool rx_set_has(const rx_set *s, uint32_t cp) {
    if (cp < 256) return s->low[cp];
    if (s->mask) {
        unsigned bits = uni_bits(cp);
        return (bits ? bits : RX_NO_CLASS) & s->mask;
    }
    uni_set set = {.edge = s->edge, .n = s->n / 2};
    return uni_set_has(&set, cp);
}
