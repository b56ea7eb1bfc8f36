/* The parts of a pattern that stand for characters: escapes and classes. */
#include "tok/pretok/regex_parse.h"

/* ---- escapes ---- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Up to `max` hexadecimal digits; -1 when there is none or the value is no character. */
static int64_t hex_number(rx_parser *x, int max) {
    int64_t v = -1;
    for (int i = 0; i < max && x->p < x->end && hex_digit(*x->p) >= 0; i++, x->p++) {
        v = (v < 0 ? 0 : v) * 16 + hex_digit(*x->p);
    }
    return v < 0x110000 && !(v >= 0xD800 && v < 0xE000) ? v : -1;
}

/* \x{...}, \xHH: the latter is a byte, of which several make a character. */
static status hex_escape(rx_parser *x, uint32_t *cp) {
    if (rx_skip(x, "{")) {
        int64_t v = hex_number(x, 8);
        if (v < 0 || !rx_skip(x, "}")) return rx_wrong(x, "\\x{...} is not a character");
        *cp = (uint32_t)v;
        return ST_OK;
    }
    int64_t v = hex_number(x, 2);
    if (v >= 0 && v < 0x80) {
        *cp = (uint32_t)v;
        return ST_OK;
    }
    char bytes[4] = {(char)v};
    int n = 1;
    while (v >= 0 && n < 4 && utf8_decode(bytes, (size_t)n, cp) == 0 && rx_skip(x, "\\x")) {
        v = hex_number(x, 2);
        bytes[n++] = (char)v;
    }
    if (v < 0 || utf8_decode(bytes, (size_t)n, cp) != n) {
        return rx_wrong(x, "the bytes \\x.. are not a character");
    }
    return ST_OK;
}

/* The escape of one character whose letter has been read; false: it is not one. */
static bool plain_escape(char c, uint32_t *cp) {
    static const char LETTERS[] = "nrtfvae";
    static const char VALUES[] = "\n\r\t\f\v\a\x1b";
    const char *at = strchr(LETTERS, c);
    if (c && at) {
        *cp = (uint8_t)VALUES[at - LETTERS];
        return true;
    }
    bool word =
        (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (uint8_t)c >= 0x80;
    *cp = (uint8_t)c;
    return !word;
}

/* An escape that stands for one character, after its backslash. */
status rx_char_escape(rx_parser *x, uint32_t *cp) {
    if (x->p == x->end) return rx_wrong(x, "it ends with a backslash");
    if ((uint8_t)*x->p >= 0x80) {
        *cp = rx_next_char(x);
        return ST_OK;
    }
    char c = *x->p++;
    if (c == 'x') return hex_escape(x, cp);
    if (c == 'u') {
        int64_t v = hex_number(x, 4);
        if (v < 0) return rx_wrong(x, "\\u is not a character");
        *cp = (uint32_t)v;
        return ST_OK;
    }
    if (plain_escape(c, cp)) return ST_OK;
    return rx_wrong(x, "\\%c is not supported", c);
}

/* \p{...} and \P{...}, after the p. */
static status property(rx_parser *x, bool negate, rx_ranges *r) {
    rx_ranges own = rx_new_ranges(x);
    if (!rx_skip(x, "{")) return rx_wrong(x, "\\p has no {...}");
    const char *name = x->p, *close = memchr(x->p, '}', (size_t)(x->end - x->p));
    if (!close) return rx_wrong(x, "\\p{ has no }");
    x->p = close + 1;
    if (name < close && *name == '^') {
        negate = !negate;
        name++;
    }
    if (!rx_add_property(&own, name, (size_t)(close - name))) {
        return rx_wrong(x, "the property %.*s is not known", (int)(close - name), name);
    }
    if (negate) rx_negate(&own);
    rx_add_all(r, &own);
    return ST_OK;
}

/* An escape that stands for a class, if there is one at the backslash. */
status rx_class_escape(rx_parser *x, rx_ranges *r, bool in_class, bool *found) {
    char c = x->end - x->p > 1 ? x->p[1] : '\0', lower = (char)(c | 0x20);
    *found = c && strchr("dhsw", lower);
    if (c == 'p' || c == 'P') {
        *found = true;
        x->p += 2;
        return property(x, c == 'P', r);
    }
    if (!*found) return ST_OK;
    rx_ranges own = rx_new_ranges(x);
    x->p += 2;
    rx_add_escape(&own, lower, in_class);
    if (c != lower) rx_negate(&own);
    rx_add_all(r, &own);
    return ST_OK;
}

/* ---- classes ---- */

static status parse_class(rx_parser *x, bool nested, rx_ranges *out);

/* [:name:] inside a class, if there is one. */
static status posix_class(rx_parser *x, rx_ranges *r, bool *found) {
    *found = rx_at(x, "[:");
    if (!*found) return ST_OK;
    const char *name = x->p + 2, *end = name;
    bool negate = name < x->end && *name == '^';
    name += negate;
    end = name;
    while (end < x->end && *end != ':' && *end != ']') end++;
    rx_ranges own = rx_new_ranges(x);
    size_t n = (size_t)(end - name);
    if (x->end - end < 2 || memcmp(end, ":]", 2) != 0 || !rx_add_property(&own, name, n)) {
        return rx_wrong(x, "[: begins no class that is known");
    }
    /* unlike \p{Punct} */
    if (n == 5 && memcmp(name, "punct", n) == 0) rx_add_property(&own, "s", 1);
    if (negate) rx_negate(&own);
    rx_add_all(r, &own);
    x->p = end + 2;
    return ST_OK;
}

/* One character of a class. */
static status class_char(rx_parser *x, uint32_t *cp) {
    if (!rx_skip(x, "\\")) {
        *cp = rx_next_char(x);
        return ST_OK;
    }
    if (rx_skip(x, "b")) {
        *cp = '\b';
        return ST_OK;
    }
    return rx_char_escape(x, cp);
}

/* A character or a range. */
static status class_range(rx_parser *x, rx_ranges *r) {
    uint32_t first, last;
    TRY(class_char(x, &first));
    last = first;
    bool range = rx_at(x, "-") && !rx_at(x, "-]");
    if (range && (rx_at(x, "--") || rx_at(x, "-[") || rx_at(x, "-&&"))) {
        if (!rx_at(x, "--]")) return rx_wrong(x, "a range in a class has no end");
    }
    if (range) {
        bool escape;
        rx_ranges unused = rx_new_ranges(x);
        x->p++;
        TRY(rx_class_escape(x, &unused, true, &escape));
        if (escape) return rx_wrong(x, "a range in a class ends with a class");
        if (x->p == x->end) return rx_wrong(x, "a class has no ]");
        TRY(class_char(x, &last));
        if (last < first) return rx_wrong(x, "a range in a class runs backwards");
    }
    rx_add(r, first, last);
    return ST_OK;
}

static status class_item(rx_parser *x, rx_ranges *r) {
    bool found = false;
    if (rx_at(x, "[")) {
        TRY(posix_class(x, r, &found));
        if (found) return ST_OK;
        rx_ranges inner = rx_new_ranges(x);
        x->p++;
        TRY(parse_class(x, true, &inner));
        rx_add_all(r, &inner);
        return ST_OK;
    }
    if (rx_at(x, "\\")) TRY(rx_class_escape(x, r, true, &found));
    if (!found) return class_range(x, r);
    if (rx_at(x, "--")) return rx_wrong(x, "-- in a class is not supported");
    return ST_OK;
}

/* A class after its [. The && operator binds least. */
static status parse_class(rx_parser *x, bool nested, rx_ranges *out) {
    rx_ranges part = rx_new_ranges(x), all = rx_new_ranges(x);
    bool negate = rx_skip(x, "^"), intersected = false;
    if (++x->depth > RX_MAX_DEPTH) return rx_wrong(x, "classes are nested too deep");
    for (bool first = true;; first = false) {
        if (x->p == x->end) return rx_wrong(x, "a class has no ]");
        if (!first && rx_skip(x, "]")) break;
        if (rx_skip(x, "&&")) {
            if (intersected) rx_intersect(&all, &part);
            if (!intersected) rx_add_all(&all, &part);
            intersected = true;
            part.n = 0;
            continue;
        }
        if (first && rx_at(x, "]")) {
            rx_add(&part, ']', ']');
            x->p++;
            continue;
        }
        TRY(class_item(x, &part));
    }
    x->depth--;
    if (intersected) rx_intersect(&part, &all);
    if (x->fold && !nested) rx_fold(&part, &x->t->cases);
    rx_add_all(out, &part);
    if (negate) rx_negate(out);
    return ST_OK;
}

status rx_parse_class(rx_parser *x, rx_ranges *out) {
    return parse_class(x, false, out);
}
