/* Words, and the scripts they are written in. */
#include <string.h>
#include <utf8proc.h>

#include "base/status.h"
#include "base/utf8.h"
#include "tok/text/unicode_sets.h"
#include "tok/tok_report.h"

/* ---- scripts ---- */

/* By blocks: exact enough to say what a text is written in, and simple enough to be repeated. */
typedef enum script {
    NONE,
    LATIN,
    GREEK,
    CYRILLIC,
    ARMENIAN,
    HEBREW,
    ARABIC,
    DEVANAGARI,
    BENGALI,
    OTHER_INDIC,
    THAI,
    LAO,
    TIBETAN,
    MYANMAR,
    GEORGIAN,
    HANGUL,
    ETHIOPIC,
    KHMER,
    KANA,
    HAN,
    OTHER,
    N_SCRIPTS
} script;

static const char *const SCRIPT_NAMES[N_SCRIPTS] = {
    "none",       "Latin",   "Greek",       "Cyrillic", "Armenian", "Hebrew",  "Arabic",
    "Devanagari", "Bengali", "other Indic", "Thai",     "Lao",      "Tibetan", "Myanmar",
    "Georgian",   "Hangul",  "Ethiopic",    "Khmer",    "Japanese", "Han",     "other"};

static const uni_range BLOCKS[] = {
    {0x00041, 0x0024F, LATIN},      {0x00250, 0x002AF, LATIN},    {0x00370, 0x003FF, GREEK},
    {0x00400, 0x0052F, CYRILLIC},   {0x00530, 0x0058F, ARMENIAN}, {0x00590, 0x005FF, HEBREW},
    {0x00600, 0x006FF, ARABIC},     {0x00750, 0x0077F, ARABIC},   {0x008A0, 0x008FF, ARABIC},
    {0x00900, 0x0097F, DEVANAGARI}, {0x00980, 0x009FF, BENGALI},  {0x00A00, 0x00DFF, OTHER_INDIC},
    {0x00E00, 0x00E7F, THAI},       {0x00E80, 0x00EFF, LAO},      {0x00F00, 0x00FFF, TIBETAN},
    {0x01000, 0x0109F, MYANMAR},    {0x010A0, 0x010FF, GEORGIAN}, {0x01100, 0x011FF, HANGUL},
    {0x01200, 0x0139F, ETHIOPIC},   {0x01780, 0x017FF, KHMER},    {0x01C90, 0x01CBF, GEORGIAN},
    {0x01E00, 0x01EFF, LATIN},      {0x01F00, 0x01FFF, GREEK},    {0x02C60, 0x02C7F, LATIN},
    {0x02DE0, 0x02DFF, CYRILLIC},   {0x03005, 0x03007, HAN},      {0x03021, 0x03029, HAN},
    {0x03038, 0x0303B, HAN},        {0x03040, 0x030FF, KANA},     {0x03130, 0x0318F, HANGUL},
    {0x031F0, 0x031FF, KANA},       {0x03400, 0x04DBF, HAN},      {0x04E00, 0x09FFF, HAN},
    {0x0A640, 0x0A69F, CYRILLIC},   {0x0A720, 0x0A7FF, LATIN},    {0x0A8E0, 0x0A8FF, DEVANAGARI},
    {0x0A960, 0x0A97F, HANGUL},     {0x0A9E0, 0x0A9FF, MYANMAR},  {0x0AA60, 0x0AA7F, MYANMAR},
    {0x0AC00, 0x0D7FF, HANGUL},     {0x0F900, 0x0FAFF, HAN},      {0x0FB1D, 0x0FB4F, HEBREW},
    {0x0FB50, 0x0FDFF, ARABIC},     {0x0FE70, 0x0FEFF, ARABIC},   {0x0FF21, 0x0FF5A, LATIN},
    {0x0FF66, 0x0FF9F, KANA},       {0x1AFF0, 0x1B16F, KANA},     {0x20000, 0x3FFFF, HAN},
};

static script script_of(uint32_t cp) {
    return (script)uni_range_value(BLOCKS, ARRAY_LEN(BLOCKS), cp, OTHER);
}

static bool is_written_without_spaces(script s) {
    return s == HAN || s == KANA || s == THAI || s == LAO || s == KHMER || s == MYANMAR;
}

/* ---- words ---- */

typedef enum word_class {
    NO_WORD,
    LETTER, /* or number */
    MARK,
    ALONE /* a letter that is a word */
} word_class;

static word_class class_of(uint32_t cp) {
    if (cp < 0x80) {
        bool word =
            (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z') || (cp >= '0' && cp <= '9');
        return word ? LETTER : NO_WORD;
    }
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    if (c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME) return MARK;
    if (c < UTF8PROC_CATEGORY_LU || c > UTF8PROC_CATEGORY_NO) return NO_WORD;
    return is_written_without_spaces(script_of(cp)) ? ALONE : LETTER;
}

/* Class and length of the character at text[at]; a byte that is not UTF-8 is in no word. */
static word_class class_at(const char *text, size_t len, size_t at, size_t *n) {
    uint32_t cp;
    int k = utf8_decode(text + at, len - at, &cp);
    *n = k > 0 ? (size_t)k : 1;
    return k > 0 ? class_of(cp) : NO_WORD;
}

bool tok_next_word(const char *text, size_t len, size_t *at, size_t *start, size_t *end) {
    size_t i = *at, n = 0;
    word_class first = NO_WORD;
    for (; i < len; i += n) {
        first = class_at(text, len, i, &n);
        if (first != NO_WORD) break;
    }
    *start = i;
    for (i += n; i < len; i += n) {
        word_class c = class_at(text, len, i, &n);
        bool joins = c == MARK || (c == LETTER && first != ALONE);
        if (!joins) break;
    }
    *at = *end = i < len ? i : len;
    return *start < len;
}

const char *tok_dominant_script(const char *text, size_t len) {
    int64_t letters[N_SCRIPTS] = {0};
    size_t n;
    for (size_t i = 0; i < len; i += n) {
        uint32_t cp;
        int k = utf8_decode(text + i, len - i, &cp);
        n = k > 0 ? (size_t)k : 1;
        word_class c = k > 0 ? class_of(cp) : NO_WORD;
        if ((c == LETTER || c == ALONE) && cp > '9') letters[script_of(cp)]++;
    }
    /* Japanese writes Han and Kana, Chinese no Kana. */
    if (letters[KANA] > 0 && letters[KANA] * 10 >= letters[HAN]) {
        letters[KANA] += letters[HAN];
        letters[HAN] = 0;
    }
    int best = NONE;
    for (int s = 0; s < N_SCRIPTS; s++)
        if (letters[s] > letters[best]) best = s;
    return SCRIPT_NAMES[best];
}
