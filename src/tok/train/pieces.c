/* Stretches that no piece crosses; see pieces.h. Scripts are told apart by blocks of code points:
 * exact for the scripts in use, and all that is asked here is that unlike letters differ. */
#include "tok/train/pieces.h"

#include <stdint.h>
#include <utf8proc.h>

#include "base/status.h"
#include "base/utf8.h"
#include "tok/text/unicode.h"
#include "tok/text/unicode_sets.h"

enum { SPACE_MARK = 0x2581 }; /* ▁ */
enum { SCRIPT_ANY = -1, SCRIPT_COMMON, LATIN, GREEK, CYRILLIC, ARABIC, HANGUL, HAN, OTHER_BLOCKS };

/* In order; blocks that are not here are a script of their own per 128 code points. Kana counts as
 * Han, as in SentencePiece: Japanese words mix them. */
static const uni_range BLOCKS[] = {
    {0x00AA, 0x024F, LATIN},    {0x0250, 0x02FF, LATIN},    {0x0370, 0x03FF, GREEK},
    {0x0400, 0x052F, CYRILLIC}, {0x0600, 0x06FF, ARABIC},   {0x0750, 0x077F, ARABIC},
    {0x08A0, 0x08FF, ARABIC},   {0x1100, 0x11FF, HANGUL},   {0x1C80, 0x1C8F, CYRILLIC},
    {0x1D00, 0x1DBF, LATIN},    {0x1E00, 0x1EFF, LATIN},    {0x1F00, 0x1FFF, GREEK},
    {0x2C60, 0x2C7F, LATIN},    {0x2DE0, 0x2DFF, CYRILLIC}, {0x2E80, 0x2FDF, HAN},
    {0x3005, 0x30FF, HAN},      {0x3130, 0x318F, HANGUL},   {0x31F0, 0x31FF, HAN},
    {0x3400, 0x9FFF, HAN},      {0xA640, 0xA69F, CYRILLIC}, {0xA720, 0xA7FF, LATIN},
    {0xA960, 0xA97F, HANGUL},   {0xAB30, 0xAB6F, LATIN},    {0xAC00, 0xD7FF, HANGUL},
    {0xF900, 0xFAFF, HAN},      {0xFB00, 0xFB06, LATIN},    {0xFB50, 0xFDFF, ARABIC},
    {0xFE70, 0xFEFF, ARABIC},   {0xFF21, 0xFF5A, LATIN},    {0xFF66, 0xFF9F, HAN},
    {0xFFA0, 0xFFDC, HANGUL},   {0x20000, 0x3FFFF, HAN},
};

static int script_of_letter(uint32_t cp) {
    return uni_range_value(BLOCKS, ARRAY_LEN(BLOCKS), cp, OTHER_BLOCKS + (int)(cp >> 7));
}

static bool is_mark(uint32_t cp) {
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
}

static int script_of(uint32_t cp) {
    if (cp < 0x80) return ((cp | 0x20) >= 'a' && (cp | 0x20) <= 'z') ? LATIN : SCRIPT_COMMON;
    if (cp == 0x30FC) return HAN;
    if (uni_class_of(cp) == UNI_LETTER) return script_of_letter(cp);
    return is_mark(cp) ? SCRIPT_ANY : SCRIPT_COMMON;
}

static bool stands_alone(uint32_t cp, bool digits) {
    return cp == '\n' || (digits && uni_class_of(cp) == UNI_NUMBER);
}

size_t pieces_end(const char *s, size_t len, size_t at, bool digits) {
    uint32_t cp;
    size_t end = at + (size_t)utf8_decode(s + at, len - at, &cp);
    if (stands_alone(cp, digits)) return end;
    int script = cp == SPACE_MARK ? SCRIPT_ANY : script_of(cp);
    while (end < len) {
        int n = utf8_decode(s + end, len - end, &cp);
        if (cp == SPACE_MARK || stands_alone(cp, digits)) break;
        int next = script_of(cp);
        if (script != SCRIPT_ANY && next != SCRIPT_ANY && next != script) break;
        if (next != SCRIPT_ANY) script = next;
        end += (size_t)n;
    }
    return end;
}
