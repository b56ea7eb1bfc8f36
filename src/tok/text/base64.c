/* Base64; see base64.h. */
#include "tok/text/base64.h"

#include <string.h>

static const char ALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_append(strbuf *out, const void *bytes, size_t n) {
    const uint8_t *b = bytes;
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i < 3 ? n - i : 3;
        uint32_t v = (uint32_t)b[i] << 16;
        if (left > 1) v |= (uint32_t)b[i + 1] << 8;
        if (left > 2) v |= b[i + 2];
        char four[4] = {ALPHABET[v >> 18], ALPHABET[v >> 12 & 63], ALPHABET[v >> 6 & 63],
                        ALPHABET[v & 63]};
        memset(four + left + 1, '=', 3 - left);
        strbuf_append(out, four, 4);
    }
}

static int digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int64_t base64_decode(const char *s, size_t n, uint8_t *out) {
    while (n > 0 && n % 4 == 0 && s[n - 1] == '=' && s[n - 2] != '=') n--;
    if (n > 2 && n % 4 == 0 && s[n - 1] == '=' && s[n - 2] == '=') n -= 2;
    if (n % 4 == 1) return -1;
    int64_t written = 0;
    uint32_t bits = 0;
    for (size_t i = 0; i < n; i++) {
        int d = digit(s[i]);
        if (d < 0) return -1;
        bits = bits << 6 | (uint32_t)d;
        if (i % 4 != 0) out[written++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    return written;
}
