/* Bytes of tokens, and what stands for them. */
#include "app/data/inspect.h"
#include "base/utf8.h"

/* A chain of tokens each of which ends within a character that the next completes may be long; a
 * cell of more is cut. */
enum { MOST_IN_CELL = 32 };

void inspect_bytes(const inspection *x, const inspect_row *r, int first, int end, strbuf *out) {
    for (int i = first; i < end; i++) {
        size_t n = 0;
        const char *bytes = tok_bytes(x->t, r->ids[i], &n);
        if (bytes) strbuf_append(out, bytes, n);
    }
}

int inspect_cell(const inspection *x, const inspect_row *r, int first, int limit) {
    strbuf b = {0};
    int end = first;
    if (limit > first + MOST_IN_CELL) limit = first + MOST_IN_CELL;
    do {
        inspect_bytes(x, r, end, end + 1, &b);
        end++;
    } while (end < limit && utf8_open_tail(strbuf_cstr(&b), b.len) > 0);
    bool whole = utf8_valid_prefix(strbuf_cstr(&b), b.len) == b.len;
    strbuf_free(&b);
    return whole ? end : first + 1;
}

/* White space other than a plain one, and what has no width or turns the direction: a reader would
 * take the text for another. */
static bool is_hidden(uint32_t cp) {
    static const uint32_t ranges[][2] = {
        {0, 0x1f},        {0x7f, 0xa0},     {0xad, 0xad},      {0x34f, 0x34f},   {0x61c, 0x61c},
        {0x2000, 0x200c}, {0x200e, 0x200f}, {0x2028, 0x202f},  {0x205f, 0x206f}, {0x3000, 0x3000},
        {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
    for (int i = 0; i < ARRAY_LEN(ranges); i++)
        if (cp >= ranges[i][0] && cp <= ranges[i][1]) return true;
    return false;
}

glyph glyph_at(const char *s, size_t n) {
    uint32_t cp = 0;
    int len = utf8_decode(s, n, &cp);
    if (len == 0) return (glyph){GLYPH_BYTE, 1, (unsigned char)*s};
    if (cp == '\n') return (glyph){GLYPH_LINE, 1, cp};
    if (cp == '\t') return (glyph){GLYPH_TAB, 1, cp};
    return (glyph){is_hidden(cp) ? GLYPH_HIDDEN : GLYPH_TEXT, len, cp};
}
