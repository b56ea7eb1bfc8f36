/* See charset.h. charset_detect asks one judge after the other, the surest first. How often they
 * err: tests/oracle/compare_readers.py prints a table of what was taken for what. */
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

static bool in_living_script(unsigned u) {
    static const uint16_t RANGE[][2] = {
        {0x09, 0x0d},     {0x20, 0x7e},     {0xa0, 0x24f},    {0x370, 0x52f},   {0x590, 0x6ff},
        {0x900, 0xe7f},   {0x1e00, 0x1eff}, {0x2010, 0x203a}, {0x20ac, 0x20ac}, {0x3000, 0x30ff},
        {0x4e00, 0x9fff}, {0xac00, 0xdfff}, {0xff00, 0xffef}};
    for (int i = 0; i < ARRAY_LEN(RANGE); i++)
        if (u >= RANGE[i][0] && u <= RANGE[i][1]) return true;
    return false;
}

/* Nearly all units are of scripts that are in use; in the wrong order spaces and punctuation are
 * not, and there is next to nothing of ASCII. (Printable ASCII byte by byte would be Chinese of odd
 * characters.) */
static const char *judge_utf16(const uint8_t *p, size_t n) {
    size_t living[2] = {0}, score[2] = {0}, printable = 0;
    for (size_t i = 0; i + 1 < n; i += 2)
        for (int big = 0; big < 2; big++) {
            unsigned u = (unsigned)p[i + !big] << 8 | p[i + big];
            bool lives = in_living_script(u);
            living[big] += lives;
            score[big] += 2 * lives + (u < 0x7f && lives);
        }
    for (size_t i = 0; i < n; i++) printable += p[i] >= 0x20 && p[i] < 0x7f;
    int big = score[1] > score[0];
    if (printable * 4 > n * 3 || n < 2 || living[big] * 10 < n / 2 * 9) return NULL;
    return big ? "UTF-16BE" : "UTF-16LE";
}

/* ---- GB18030 ---- */

/* The most frequent characters, simplified and traditional, and punctuation: more than half of any
 * Chinese text. Of what other charsets make of these bytes they are a quarter at most. */
static const char CHINESE[] = "的一是不了在人有我他这這个個们們中来來上大为為和国國地到以说說时時要"
                              "就出会會可也你对對生能而子那得于於着下"
                              "自之年过過发發后後作里用道行所然家种種事成方多经經么麼去法学學如都同"
                              "现現当當没動动面起看定天分还還进進好小部"
                              "其些主样樣理心她本前开開但因只从從想实實日者意无無力它与與长長把机機"
                              "十民第公此已工使情明性知全三又关關点點"
                              "正业業外将將两兩高间間由问問很最重并物手应應向头頭文体體政美相见見被"
                              "利什二等产產或新己制身果加西月话話合回"
                              "特代内內信表化老给給世位次度门門任先海通教东東声聲提立及比员員解水名"
                              "真论論处處走义義各入几幾口认認条條平系"
                              "气氣题題尔更别打女变變四神总總何电電数數安少报報才结結反受目太量再感"
                              "建务務做接必场場件计計管期市直资資命"
                              "误誤错錯选選项項参參输輸码碼字符号號使未指令请請设設置单單取消程序式"
                              "格读讀写寫找址版许許缺失败敗档檔案目录錄"
                              "为值据据，。、；：？！“”（）《》「」…—　";

static bool judge_gb18030(const char *p, size_t n, size_t *n_pairs) {
    enum { JUDGED_BYTES = 16 << 10, LEAST_PERCENT = 42 };
    charset_converter cv;
    strbuf text = {0};
    size_t all = 0, known = 0;
    for (; n > 0 && !(*p & 0x80); n--) p++;
    charset_converter_open(&cv, "GB18030");
    charset_convert(&cv, p, n < JUDGED_BYTES ? n : JUDGED_BYTES, false, &text);
    charset_converter_close(&cv);
    for (size_t i = 0; i < text.len;) {
        char c[8] = {0};
        uint32_t cp;
        int len = utf8_decode(text.data + i, text.len - i, &cp);
        if (len > 1) known += strstr(CHINESE, memcpy(c, text.data + i, (size_t)len)) != NULL;
        all += len != 1;
        i += len ? (size_t)len : 1;
    }
    strbuf_free(&text);
    *n_pairs = all;
    return all > 0 && known * 100 >= all * LEAST_PERCENT;
}

/* ---- Windows-1252 and Latin-1 ---- */

static bool is_letter(uint8_t c) {
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z' && c < 0x80;
}

/* Of no text: others than white space and escape. */
static bool is_control(uint8_t c) {
    return (c < 0x20 && !(c >= '\t' && c <= '\r') && c != 0x1b) || c == 0x7f;
}

/* Western European text: a quarter of the letters at most are not ASCII, and these are the usual
 * ones of its languages. (Czech, Hungarian, Turkish have others in these bytes.) Signs stand between
 * words, not in them, and capitals at their beginning. */
static const char *judge_latin(const uint8_t *p, size_t n) {
    /* In Latin-1: the small letters from a grave to u diaeresis, without eth, o tilde and the signs
     * among them, then sharp s and the oe of Windows-1252. */
    static const char LETTERS[] = "\xe0\xe1\xe2\xe3\xe4\xe5\xe6\xe7\xe8\xe9\xea\xeb\xec\xed\xee\xef"
                                  "\xf1\xf2\xf3\xf4\xf6\xf8\xf9\xfa\xfb\xfc\xdf\x9c";
    static const char NO_SIGNS[] = "\x81\x8a\x8d\x8e\x8f\x90\x9a\x9d\x9e\x9f\xd7\xf7";
    size_t plain = 0, letters = 0, high = 0, good = 0, controls = 0, c1 = 0, seen[256] = {0};
    for (size_t i = 0; i < n; i++) {
        uint8_t c = p[i], before = i ? p[i - 1] : ' ', after = i + 1 < n ? p[i + 1] : ' ';
        plain += is_letter(c);
        controls += is_control(c);
        if (c < 0x80) continue;
        bool inside = is_letter(before) && is_letter(after);
        high++;
        c1 += c < 0xa0;
        letters += c >= 0xc0;
        seen[c]++;
        if (strchr(LETTERS, c))
            good++;
        else if (c >= 0xc0) /* a capital */
            good += strchr(LETTERS, c + 0x20) && !(before >= 'a' && before <= 'z');
        else
            good += !strchr(NO_SIGNS, c) && (!inside || c == 0x92 || c == 0xad || c == 0xb7);
    }
    /* Portuguese has o tilde beside a tilde, French u circumflex beside e grave; Hungarian has these
     * bytes for its long vowels and nothing beside them. */
    if (seen[0xf5] <= 2 * seen[0xe3]) good += seen[0xf5];
    if (seen[0xfb] > 2 * seen[0xe8]) good -= seen[0xfb];
    if (controls * 200 > n || letters * 3 > plain || good * 100 < high * 94) return NULL;
    return c1 ? "WINDOWS-1252" : "ISO-8859-1";
}

/* ---- all ---- */

static const char *marked(const uint8_t *p, size_t n) {
    if (utf8_mark((const char *)p, n)) return "UTF-8";
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
    size_t nuls = count_controls(p, n, '\0');
    if (nuls == 0 && judge_utf8(p, n)) return "UTF-8";
    if (count_controls(p, n, LEAST_OPEN - 1) > 0) name = judge_utf16(p, n);
    if (name || nuls * 200 > n) return name;
    if (nuls > 0 && judge_utf8(p, n)) return "UTF-8";
    bool chinese = judge_gb18030(text, n, &pairs);
    name = judge_latin(p, n);
    return chinese && (pairs >= 4 || !name) ? "GB18030" : name;
}

size_t charset_open_prefix(const char *p, size_t n) {
    const uint64_t high = UINT64_C(0x8080808080808080);
    size_t i = 0;
    for (uint64_t w; i + 8 <= n; i += 8) { /* a byte below 9 borrows, one above 127 is marked */
        memcpy(&w, p + i, 8);
        if ((w | (w - high / 128 * LEAST_OPEN)) & high) break;
    }
    while (i < n && !(p[i] & 0x80) && p[i] >= LEAST_OPEN) i++;
    return i;
}

bool charset_is_open(const char *p, size_t n) {
    return charset_open_prefix(p, n) == n;
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
    err_at(e, ST_USAGE, "charset", "charset=%s is not a charset that is known here", name);
    return err_hint(
        e, "use a name from `iconv -l`, such as latin1, gb18030, koi8-r, utf-16le; or leave it "
           "out");
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

/* ---- is it text? ---- */

enum { CHECKED_BYTES = 1 << 20, MAX_BAD_PERCENT = 30 };

static status not_text(err *e, const char *path, size_t offset, const char *what) {
    err_set(e, ST_FORMAT, "%s is not text: %s at byte %zu", path, what, offset);
    err_where(e, "%s:%zu", path, offset);
    return err_hint(
        e, "leave it out (a glob such as 'DIR/*.txt' does), or name its charset: charset=NAME");
}

status text_check(const char *path, const char *data, size_t len, err *e) {
    const char *nul = len ? memchr(data, 0, len) : NULL;
    if (nul) return not_text(e, path, (size_t)(nul - data), "there is a NUL byte");
    const uint8_t *p = (const uint8_t *)data;
    size_t n = len < CHECKED_BYTES ? len : CHECKED_BYTES, bad = 0, first_bad = 0;
    n -= (size_t)utf8_open_tail(data, n); /* what the end of the sample cuts is not bad */
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int step = utf8_decode(data + i, n - i, &cp);
        if (step == 0 || is_control(p[i])) {
            if (bad++ == 0) first_bad = i;
            step = 1;
        }
        i += (size_t)step;
    }
    if (bad * 100 <= n * MAX_BAD_PERCENT) return ST_OK;
    return not_text(e, path, first_bad,
                    "over 30 % of it is control characters or not UTF-8, the first");
}
