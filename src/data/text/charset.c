/* See charset.h. charset_detect asks one judge after the other, surest first; each looks at the
 * whole sample once. Thresholds: tests/oracle/compare_readers.py prints the confusion table. */
#include "data/text/charset.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "base/utf8.h"

/* ---- UTF-8 ---- */

/* Some broken characters do not make a text of many good ones another charset. */
static bool judge_utf8(const uint8_t *p, size_t n) {
    size_t good = 0, bad = 0;
    n -= (size_t)utf8_open_tail((const char *)p, n);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode((const char *)p + i, n - i, &cp);
        good += len > 1;
        bad += len == 0;
        i += len ? (size_t)len : 1;
    }
    return bad == 0 || good >= 10 * bad;
}

/* ---- UTF-16 ---- */

static bool in_living_script(uint32_t u) {
    static const uint16_t RANGE[][2] = {{0x20, 0x7e},     {0xa0, 0x24f},    {0x370, 0x52f},
                                        {0x590, 0x6ff},   {0x900, 0xe7f},   {0x1e00, 0x1eff},
                                        {0x2010, 0x203a}, {0x20ac, 0x20ac}, {0x3000, 0x30ff},
                                        {0x4e00, 0x9fff}, {0xac00, 0xd7a3}, {0xff00, 0xffef}};
    for (int i = 0; i < ARRAY_LEN(RANGE); i++)
        if (u >= RANGE[i][0] && u <= RANGE[i][1]) return true;
    return u == '\t' || u == '\n' || u == '\r';
}

typedef struct utf16_view {
    size_t units, living, ascii, wrong; /* wrong: controls, half pairs */
} utf16_view;

static utf16_view view_utf16(const uint8_t *p, size_t n, bool big) {
    utf16_view v = {.units = n / 2};
    for (size_t i = 0; i + 1 < n; i += 2) {
        uint32_t u = big ? p[i] << 8 | p[i + 1] : p[i + 1] << 8 | p[i];
        bool high = u >= 0xd800 && u < 0xdc00, low = u >= 0xdc00 && u < 0xe000;
        if (high && i + 3 < n) {
            uint8_t next = p[i + 2 + !big];
            bool pair = next >= 0xdc && next < 0xe0;
            v.living += 2 * pair;
            v.wrong += !pair;
            i += 2 * pair;
        } else if (in_living_script(u)) {
            v.living++;
            v.ascii += u < 0x7f;
        } else if (low || u < 0x20 || u >= 0xfffe) {
            v.wrong++;
        }
    }
    return v;
}

static bool explains(const utf16_view *v) {
    return v->units > 0 && v->wrong * 100 <= v->units && v->living * 10 >= v->units * 9;
}

/* Printable ASCII byte by byte: as UTF-16 that would be Chinese of odd characters. */
static bool is_plain(const uint8_t *p, size_t n) {
    size_t printable = 0;
    for (size_t i = 0; i < n; i++) printable += p[i] >= 0x20 && p[i] < 0x7f;
    return printable * 4 > n * 3;
}

/* In the wrong order spaces and punctuation leave the scripts that are in use, and there is next
 * to nothing of ASCII. */
static const char *judge_utf16(const uint8_t *p, size_t n) {
    if (is_plain(p, n)) return NULL;
    utf16_view le = view_utf16(p, n, false), be = view_utf16(p, n, true);
    bool little = explains(&le), big = explains(&be);
    if (!little && !big) return NULL;
    if (little && big) little = 2 * le.living + le.ascii >= 2 * be.living + be.ascii;
    return little ? "UTF-16LE" : "UTF-16BE";
}

/* ---- GB18030 ---- */

/* Characters that are frequent in simplified and traditional writing alike, a fifth of any text. */
static bool is_frequent(unsigned pair) {
    static const uint16_t CODES[] = {
        0xb5c4, 0xd2bb, 0xcac7, 0xb2bb, 0xd4da, 0xc8cb, 0xd3d0, 0xced2, 0xcbfb, 0xd6d0, 0xb4f3,
        0xc9cf, 0xbacd, 0xb5d8, 0xb5bd, 0xd2d4, 0xbfc9, 0xd2b2, 0xc4e3, 0xc9fa, 0xc4dc, 0xb6f8,
        0xd7d3, 0xb5c3, 0xcac2, 0xd7d6, 0xceb4, 0xceaa, 0xd3c3, 0xcbb5, 0xb7bd, 0xb3c9};
    for (int i = 0; i < ARRAY_LEN(CODES); i++)
        if (pair == CODES[i]) return true;
    return false;
}

typedef struct pair_view {
    size_t pairs, bad;
    size_t common, upper; /* of the 3,755 common characters; with a first byte from C9 on */
    size_t marks, kana, frequent;
} pair_view;

static size_t view_pair(pair_view *v, uint8_t a, uint8_t b) {
    bool plain = b > 0xa0;
    v->pairs++;
    v->common += plain && a >= 0xb0 && a <= 0xd7;
    v->upper += plain && a >= 0xc9 && a <= 0xd7;
    v->marks += plain && a >= 0xa1 && a <= 0xa3;
    v->kana += plain && (a == 0xa4 || a == 0xa5);
    v->frequent += is_frequent((unsigned)a << 8 | b);
    return 2;
}

static bool is_four(const uint8_t *p, size_t left) {
    return left < 4 || (p[1] < 0x3a && p[2] > 0x80 && p[2] != 0xff && p[3] >= 0x30 && p[3] < 0x3a);
}

static pair_view view_pairs(const uint8_t *p, size_t n) {
    pair_view v = {0};
    for (size_t i = 0; i + 1 < n;) {
        uint8_t a = p[i], b = p[i + 1];
        if (a < 0x80) {
            i++;
        } else if (a == 0x80 || a == 0xff || b < 0x30 || b == 0x7f || b == 0xff) {
            v.bad++;
            i++;
        } else if (b < 0x40) {
            bool four = is_four(p + i, n - i);
            v.bad += !four;
            i += four ? 4 : 1;
        } else {
            i += view_pair(&v, a, b);
        }
    }
    return v;
}

/* Simplified Chinese is nearly all of the 3,755 common characters, whose first bytes run through
 * all of B0 to D7, and punctuation; traditional Chinese is known by its frequent characters; every
 * run of high bytes has even length. Korean (EUC-KR) leaves out the upper half of these first
 * bytes, Japanese (EUC-JP) has kana, Big5 other second bytes, and Cyrillic words are as often odd
 * as even. */
static bool judge_gb18030(const uint8_t *p, size_t n, size_t *n_pairs) {
    pair_view v = view_pairs(p, n);
    *n_pairs = v.pairs;
    if (v.pairs == 0 || v.bad * 100 > v.pairs || v.kana * 10 > v.pairs) return false;
    if (v.common >= 8 && v.upper * 100 < v.common * 12) return false;
    if (v.pairs >= 20 && v.frequent * 100 >= v.pairs * 6) return true;
    return (v.common + v.marks) * 10 >= v.pairs * (v.common < 30 ? 6 : 7);
}

/* ---- Windows-1252 and Latin-1 ---- */

typedef enum latin_kind {
    LATIN_NONE,
    LATIN_MARK,
    LATIN_JOINER,
    LATIN_UPPER,
    LATIN_LOWER
} latin_kind;

/* What a byte means. A joiner may stand between two letters of a word. */
static latin_kind latin_of(uint8_t c) {
    if (c < 0x80)
        return c >= 'a' && c <= 'z' ? LATIN_LOWER : c >= 'A' && c <= 'Z' ? LATIN_UPPER : LATIN_MARK;
    if (c >= 0xc0)
        return c == 0xd7 || c == 0xf7 ? LATIN_MARK : c < 0xdf ? LATIN_UPPER : LATIN_LOWER;
    switch (c) {
        case 0x81:
        case 0x8d:
        case 0x8f:
        case 0x90:
        case 0x9d: return LATIN_NONE;
        case 0x8a:
        case 0x8c:
        case 0x8e:
        case 0x9f: return LATIN_UPPER;
        case 0x9a:
        case 0x9c:
        case 0x9e: return LATIN_LOWER;
        case 0x85:
        case 0x91:
        case 0x92:
        case 0x93:
        case 0x94:
        case 0x96:
        case 0x97: /* ... ' " - */
        case 0xa0:
        case 0xaa:
        case 0xab:
        case 0xad:
        case 0xb4:
        case 0xb7:
        case 0xba:
        case 0xbb: return LATIN_JOINER;
        default: return LATIN_MARK;
    }
}

/* The accented letters of a language, each as bit `byte & 31`. All have an e acute in foreign
 * words; sharp s and y diaeresis share a bit. */
#define L(c) (UINT32_C(1) << (0x##c & 31))
static const uint32_t ALPHABETS[] = {
    L(E4) | L(F6) | L(FC) | L(FF), /* German */
    L(E0) | L(E2) | L(E7) | L(E8) | L(EA) | L(EB) | L(EE) | L(EF) | L(F4) | L(F9) | L(FB) | L(FC) |
        L(E6) | L(FF),                             /* French */
    L(E1) | L(ED) | L(F3) | L(FA) | L(FC) | L(F1), /* Spanish */
    L(E3) | L(F5) | L(E7) | L(E1) | L(ED) | L(F3) | L(FA) | L(E2) | L(EA) | L(F4) |
        L(E0),                                                              /* Portuguese */
    L(E0) | L(E8) | L(EC) | L(F2) | L(F9) | L(EE),                          /* Italian */
    L(E0) | L(E8) | L(ED) | L(EF) | L(F2) | L(F3) | L(FA) | L(FC) | L(E7),  /* Catalan */
    L(EB) | L(EF) | L(F6) | L(FC) | L(E8) | L(E1) | L(F3),                  /* Dutch */
    L(E5) | L(E4) | L(F6) | L(E0),                                          /* Swedish, Finnish */
    L(E6) | L(F8) | L(E5) | L(F3) | L(F2) | L(F4),                          /* Danish, Norwegian */
    L(E1) | L(ED) | L(F3) | L(FA) | L(FD) | L(FE) | L(F0) | L(E6) | L(F6),  /* Icelandic */
    L(E1) | L(ED) | L(F3) | L(FA) | L(FD) | L(F0) | L(E6) | L(F8),          /* Faroese */
    L(E4) | L(F6) | L(F5) | L(FC),                                          /* Estonian */
    L(E0) | L(E1) | L(E8) | L(EC) | L(ED) | L(F2) | L(F3) | L(F9) | L(FA)}; /* Irish, Gaelic */
/* Words of several of them side by side need other letters than these seldom; Hungarian, Czech,
 * Turkish and Cyrillic use their bytes all the time: a and o tilde, i and o grave, eth, y acute,
 * thorn. */
static const uint32_t RARE = L(E3) | L(EC) | L(F0) | L(F2) | L(F5) | L(FD) | L(FE);
#undef L

enum { WINDOW_LETTERS = 24 };

/* How many accented letters the language that knows most of them knows, summed over short windows:
 * a file may hold many languages, but each sentence is in one. */
typedef struct letter_view {
    int window[32], n;
    size_t known, all, rare;
} letter_view;

static void close_window(letter_view *v) {
    int best = 0;
    for (int a = 0; a < ARRAY_LEN(ALPHABETS); a++) {
        int known = 0;
        for (int i = 0; i < 32; i++)
            if ((ALPHABETS[a] >> i & 1) || i == (0xe9 & 31)) known += v->window[i];
        best = known > best ? known : best;
    }
    v->known += (size_t)best;
    memset(v->window, 0, sizeof v->window);
    v->n = 0;
}

static void add_letter(letter_view *v, uint8_t c) {
    v->window[c & 31]++;
    v->all++;
    v->rare += RARE >> (c & 31) & 1;
    if (++v->n == WINDOW_LETTERS) close_window(v);
}

/* Each sentence keeps to the letters of one language, or all to those that are common. */
static bool knows_letters(const letter_view *v) {
    return v->known * 100 >= v->all * 93 || v->rare * 50 <= v->all;
}

/* Western European text: a quarter of the letters at most are accented, they stand in their case,
 * signs do not stand inside words, and where accented letters are more than those of a few names,
 * they are those of its languages. (Czech, Hungarian, Turkish have others.) */
static const char *judge_latin(const uint8_t *p, size_t n) {
    size_t plain = 0, accented = 0, high = 0, odd = 0, controls = 0, c1 = 0;
    latin_kind before = LATIN_MARK;
    letter_view v = {0};
    for (size_t i = 0; i < n; i++) {
        uint8_t c = p[i];
        latin_kind k = latin_of(c);
        latin_kind after = i + 1 < n ? latin_of(p[i + 1]) : LATIN_MARK;
        if (c < 0x80) {
            plain += k >= LATIN_UPPER;
            controls += (c < 0x20 && !(c >= '\t' && c <= '\r') && c != 0x1b) || c == 0x7f;
        } else {
            high++;
            c1 += c < 0xa0;
            accented += k >= LATIN_UPPER;
            if (k >= LATIN_UPPER && c >= 0xc0) add_letter(&v, c);
            odd += k == LATIN_NONE;
            odd += k == LATIN_MARK && before >= LATIN_UPPER && after >= LATIN_UPPER;
            odd += k == LATIN_UPPER && before == LATIN_LOWER && after == LATIN_LOWER;
        }
        before = k;
    }
    close_window(&v);
    if (controls * 200 > n || odd * 10 > high || accented * 3 > plain) return NULL;
    if (accented * 100 > plain && !knows_letters(&v)) return NULL;
    return c1 ? "WINDOWS-1252" : "ISO-8859-1";
}

/* ---- all ---- */

static const char *marked(const uint8_t *p, size_t n) {
    if (n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) return "UTF-8";
    if (n >= 4 && memcmp(p, "\xff\xfe\0\0", 4) == 0) return "UTF-32LE";
    if (n >= 4 && memcmp(p, "\0\0\xfe\xff", 4) == 0) return "UTF-32BE";
    if (n >= 2 && memcmp(p, "\xff\xfe", 2) == 0) return "UTF-16LE";
    if (n >= 2 && memcmp(p, "\xfe\xff", 2) == 0) return "UTF-16BE";
    return NULL;
}

enum { LEAST_OPEN = '\t' };

/* Bytes that are in no text of single bytes, but in UTF-16, Chinese too: NUL, and up to `last`. */
static size_t count_controls(const uint8_t *p, size_t n, uint8_t last) {
    size_t controls = 0;
    for (size_t i = 0; i < n; i++) controls += p[i] <= last;
    return controls;
}

/* A stray NUL spoils its record, not the file. */
const char *charset_detect(const char *text, size_t n) {
    const uint8_t *p = (const uint8_t *)text;
    size_t pairs;
    if (n > CHARSET_SAMPLE_BYTES) n = CHARSET_SAMPLE_BYTES;
    const char *name = marked(p, n);
    if (name) return name;
    if (count_controls(p, n, LEAST_OPEN - 1) > 0) name = judge_utf16(p, n);
    if (name || count_controls(p, n, '\0') * 200 > n) return name;
    if (judge_utf8(p, n)) return "UTF-8";
    bool chinese = judge_gb18030(p, n, &pairs);
    name = judge_latin(p, n);
    return chinese && (pairs >= 4 || !name) ? "GB18030" : name;
}

bool charset_is_open(const char *p, size_t n) {
    const uint64_t high = UINT64_C(0x8080808080808080);
    size_t i = 0;
    for (uint64_t w; i + 8 <= n; i += 8) { /* a byte below 9 borrows, one above 127 is marked */
        memcpy(&w, p + i, 8);
        if ((w | (w - high / 128 * LEAST_OPEN)) & high) return false;
    }
    for (; i < n; i++)
        if ((p[i] & 0x80) || p[i] < LEAST_OPEN) return false;
    return true;
}

/* ---- conversion ---- */

/* "latin-1" and "utf_16" are written that way, iconv knows LATIN1 and UTF16. */
static iconv_t open_named(const char *name) {
    char squeezed[64];
    size_t n = 0;
    iconv_t cd = iconv_open("UTF-8", name);
    if (cd != (iconv_t)-1) return cd;
    for (const char *p = name; *p && n + 1 < sizeof squeezed; p++)
        if (*p != '-' && *p != '_' && *p != ' ') squeezed[n++] = *p;
    squeezed[n] = '\0';
    return iconv_open("UTF-8", squeezed);
}

bool charset_is_utf8(const char *name) {
    return !strcasecmp(name, "utf-8") || !strcasecmp(name, "utf8") || !strcasecmp(name, "ascii") ||
           !strcasecmp(name, "us-ascii");
}

status charset_check(const char *name, err *e) {
    /* A slash would begin one of iconv's options. */
    iconv_t cd = *name && !strchr(name, '/') ? open_named(name) : (iconv_t)-1;
    if (cd != (iconv_t)-1) {
        iconv_close(cd);
        return ST_OK;
    }
    err_set(e, ST_USAGE, "charset=%s is not a charset that is known here", name);
    err_where(e, "charset");
    err_hint(e,
             "use a name from `iconv -l`, such as latin1, gb18030, koi8-r, utf-16le; or leave it "
             "out");
    return ST_USAGE;
}

void charset_converter_open(charset_converter *c, const char *name) {
    c->cd = open_named(name);
    CHECK(c->cd != (iconv_t)-1, "iconv does not know %s", name);
    c->unit = strstr(name, "16") ? 2 : strstr(name, "32") ? 4 : 1;
}

void charset_converter_close(charset_converter *c) {
    iconv_close(c->cd);
}

size_t charset_convert(charset_converter *c, const char *p, size_t n, bool final, strbuf *out) {
    char *from = (char *)(uintptr_t)p;
    size_t left = n;
    while (left > 0) {
        size_t len = out->len, room = left * 2 + 64, spare = room;
        char *to = strbuf_extend(out, room);
        size_t rc = iconv(c->cd, &from, &left, &to, &spare);
        int why = errno;
        strbuf_truncate(out, len + room - spare);
        if (rc != (size_t)-1 || why == E2BIG) continue;
        if (why == EINVAL && !final) break; /* the last character is not whole */
        size_t skipped = left < c->unit ? left : c->unit;
        strbuf_putc(out, (char)0xff);
        from += skipped;
        left -= skipped;
    }
    return n - left;
}

size_t charset_repair(const char *p, size_t n, strbuf *out) {
    size_t repaired = 0;
    for (size_t i = 0; i < n;) {
        size_t good = utf8_valid_prefix(p + i, n - i);
        strbuf_append(out, p + i, good);
        i += good;
        if (i == n) break;
        strbuf_puts(out, "\xef\xbf\xbd");
        repaired++;
        do i++; /* the rest of the broken character goes with it */
        while (i < n && utf8_continues(p[i]));
    }
    return repaired;
}
