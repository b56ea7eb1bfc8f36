/* Reads and walks the rules; see charsmap.h. */
#include "tok/normalize/charsmap.h"

#include <string.h>

#include "base/utf8.h"

/* sentencepiece keeps at most this many prefixes of one place, the shortest. */
enum { MAX_PREFIXES = 32, MAX_REPLACEMENT_BYTES = 4096 };

/* ---- units of the trie ---- */

static uint32_t offset_of(uint32_t unit) {
    return (unit >> 10) << ((unit & 1u << 9) >> 6);
}

static bool has_leaf(uint32_t unit) {
    return unit >> 8 & 1;
}

/* The node behind the edge `byte`, whose children are at *base ^ byte; 0 when there is none. */
static uint32_t follow(const norm_charsmap *m, size_t *base, uint8_t byte) {
    size_t at = *base ^ byte;
    if (at >= m->n_units) return 0;
    uint32_t unit = m->unit[at];
    if ((unit & (1u << 31 | 0xFF)) != byte) return 0;
    *base = at ^ offset_of(unit);
    return unit;
}

/* ---- reading ---- */

static uint32_t get_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void find_plain(norm_charsmap *m) {
    size_t root = offset_of(m->unit[0]);
    for (int c = 1; c < 256; c++) {
        size_t base = root;
        uint32_t unit = follow(m, &base, (uint8_t)c);
        m->begins[c] = unit != 0;
        if (c >= 128) continue;
        bool plain = unit == 0 || !has_leaf(unit);
        for (int d = 1; plain && unit && d < 128; d++) {
            size_t child = base;
            plain = follow(m, &child, (uint8_t)d) == 0;
        }
        m->plain[c] = plain;
    }
}

status charsmap_read(norm_charsmap **out, arena *mem, const void *bytes, size_t n, err *e) {
    const uint8_t *p = bytes;
    size_t trie = n >= 4 ? get_u32(p) : 0;
    if (trie < 4 || trie > n - 4) {
        return err_set(e, ST_FORMAT,
                       "the precompiled charsmap of %zu bytes has no room for its trie", n);
    }
    const char *text = (const char *)p + 4 + trie;
    size_t n_text = n - 4 - trie;
    size_t valid = utf8_valid_prefix(text, n_text);
    if (valid < n_text) {
        return err_set(e, ST_FORMAT, "byte %zu of the precompiled charsmap is not UTF-8",
                       4 + trie + valid);
    }
    norm_charsmap *m = ARENA_NEW(mem, norm_charsmap);
    uint32_t *unit = ARENA_ARRAY(mem, uint32_t, trie / 4);
    for (size_t i = 0; i < trie / 4; i++) unit[i] = get_u32(p + 4 + 4 * i);
    m->unit = unit;
    m->n_units = trie / 4;
    char *copy = arena_alloc(mem, n_text + 1);
    memcpy(copy, text, n_text);
    m->text = copy;
    m->n_text = n_text;
    find_plain(m);
    *out = m;
    return ST_OK;
}

/* ---- looking up ---- */

static status read_rule(const norm_charsmap *m, uint32_t value, size_t len, norm_rule *rule,
                        err *e) {
    size_t at = value & ~(1u << 31);
    if (at > m->n_text || utf8_continues(m->text[at])) {
        return err_set(e, ST_FORMAT,
                       "the precompiled charsmap has a rule that points outside its texts");
    }
    const char *to = m->text + at, *end = memchr(to, '\0', m->n_text - at + 1);
    if (!end || end - to > MAX_REPLACEMENT_BYTES) {
        return err_set(e, ST_FORMAT,
                       "the precompiled charsmap has a replacement of more than %d bytes",
                       MAX_REPLACEMENT_BYTES);
    }
    *rule = (norm_rule){len, to, (size_t)(end - to)};
    return ST_OK;
}

status charsmap_find(const norm_charsmap *m, const char *s, size_t n, bool longest, norm_rule *rule,
                     err *e) {
    size_t base = offset_of(m->unit[0]), len = 0;
    uint32_t value = 0;
    int n_prefixes = 0;
    for (size_t i = 0; i < n && s[i] != '\0' && n_prefixes < MAX_PREFIXES; i++) {
        uint32_t unit = follow(m, &base, (uint8_t)s[i]);
        if (unit == 0) break;
        if (!has_leaf(unit)) continue;
        if (base >= m->n_units) break;
        value = m->unit[base];
        len = i + 1;
        n_prefixes++;
        if (!longest) break;
    }
    *rule = (norm_rule){0};
    if (len == 0) return ST_OK;
    if (len < n && utf8_continues(s[len])) {
        return err_set(e, ST_FORMAT,
                       "the precompiled charsmap has a rule that ends inside a character");
    }
    return read_rule(m, value, len, rule, e);
}
