/* The byte alphabet of GPT-2: printable Latin-1 bytes stand for themselves, the other 68 bytes are
 * U+0100 and up in order. */
#include "tok/internal.h"
#include "base/utf8.h"

static bool stands_for_itself(uint32_t b) {
    return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

uint32_t byte_alphabet_char(uint8_t byte) {
    if (stands_for_itself(byte)) return byte;
    if (byte <= 0x20) return 0x100u + byte;
    if (byte <= 0xA0) return 0x121u + byte - 0x7F;
    return 0x143; /* 0xAD */
}

int byte_alphabet_byte(uint32_t cp) {
    if (cp < 0x100) return stands_for_itself(cp) ? (int)cp : -1;
    if (cp <= 0x120) return (int)cp - 0x100;
    if (cp <= 0x142) return (int)cp - 0x121 + 0x7F;
    return cp == 0x143 ? 0xAD : -1;
}

bool byte_alphabet_read(strbuf *bytes, const char *s, size_t n) {
    size_t before = bytes->len;
    uint32_t cp;
    for (size_t i = 0; i < n;) {
        int len = utf8_decode(s + i, n - i, &cp), byte = len > 0 ? byte_alphabet_byte(cp) : -1;
        if (byte < 0) {
            strbuf_truncate(bytes, before);
            return false;
        }
        strbuf_putc(bytes, (char)byte);
        i += (size_t)len;
    }
    return true;
}

void byte_alphabet_append(strbuf *b, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char c[4];
        strbuf_append(b, c, (size_t)utf8_encode(byte_alphabet_char((uint8_t)bytes[i]), c));
    }
}
