/* See json_record.h. json_record_scan runs over values and what follows them; a stack holds for
 * each open object which of the wanted fields lie below it. Read scan_string (where the time goes),
 * then take_value and after_value. */
#include "data/text/json_record.h"

#include <string.h>

#include "base/utf8.h"

#define EVERY_BYTE UINT64_C(0x0101010101010101)
#define HIGH_BITS UINT64_C(0x8080808080808080)
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "skip_plain takes the lowest byte first");

typedef struct scanner {
    const char *p, *end;
    const char *why;
    const record_fields *fields;
    field_value *value;
    uint32_t pending; /* fields that the key just read leads to */
    int depth;
    struct {
        uint32_t below; /* fields that may lie in this object */
        bool object;
    } open[JSON_MAX_DEPTH];
} scanner;

static bool fail(scanner *s, const char *at, const char *why) {
    s->p = at;
    s->why = why;
    return false;
}

/* ---- strings ---- */

/* High bit set in the bytes that end a run of plain characters: quotes, backslashes, controls, and
 * what is not ASCII. The lowest such bit is right; those above it may be too many. */
static inline uint64_t special_bytes(uint64_t w) {
    uint64_t quote = w ^ EVERY_BYTE * '"', slash = w ^ EVERY_BYTE * '\\';
    uint64_t below = (w - EVERY_BYTE * 0x20) | (quote - EVERY_BYTE) | (slash - EVERY_BYTE);
    return (below | w) & HIGH_BITS;
}

static inline const char *skip_plain(const char *p, const char *end) {
    while (end - p >= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        uint64_t special = special_bytes(w);
        if (special) return p + __builtin_ctzll(special) / 8;
        p += 8;
    }
    while (p < end && (uint8_t)(*p - 0x20) < 0x60 && *p != '"' && *p != '\\') p++;
    return p;
}

/* A table, because some text is nothing but escapes: Python writes it so by default. */
static inline int hex_digit(char c) {
    static const uint8_t VALUE[256] = {
        ['0'] = 1, 2,  3,  4,  5,  6,          7,  8,  9,  10, ['A'] = 11,
        12,        13, 14, 15, 16, ['a'] = 11, 12, 13, 14, 15, 16};
    return VALUE[(uint8_t)c] - 1;
}

static inline int hex4(const char *p) {
    int a = hex_digit(p[0]), b = hex_digit(p[1]), c = hex_digit(p[2]), d = hex_digit(p[3]);
    return (a | b | c | d) < 0 ? -1 : a << 12 | b << 8 | c << 4 | d;
}

static inline bool is_high_surrogate(int v) {
    return v >= 0xd800 && v < 0xdc00;
}
static inline bool is_low_surrogate(int v) {
    return v >= 0xdc00 && v < 0xe000;
}

/* p is at a backslash. Its end, NULL when it is wrong. */
static const char *skip_escape(scanner *s, const char *p) {
    const char *end = s->end;
    char kind = end - p < 2 ? '\0' : p[1];
    if (kind != 'u') {
        if (kind != '\0' && strchr("\"\\/bfnrt", kind)) return p + 2;
        fail(s, p, "there is no such escape");
        return NULL;
    }
    int v = end - p < 6 ? -1 : hex4(p + 2);
    if (v < 0) {
        fail(s, p, "an escape needs four hexadecimal digits");
        return NULL;
    }
    if (!is_high_surrogate(v) && !is_low_surrogate(v)) return p + 6;
    bool pair = is_high_surrogate(v) && end - p >= 12 && p[6] == '\\' && p[7] == 'u' &&
                is_low_surrogate(hex4(p + 8));
    if (pair) return p + 12;
    fail(s, p, "half of a surrogate pair stands alone");
    return NULL;
}

/* Characters that are not ASCII, with single spaces between them. */
static const char *skip_multibyte(scanner *s, const char *p) {
    const char *end = s->end;
    while (end - p >= 4) {
        uint8_t c = (uint8_t)*p;
        if (c >= 0xc2 && c < 0xe0 && utf8_continues(p[1]))
            p += 2;
        else if (c > 0xe0 && c < 0xed && utf8_continues(p[1]) && utf8_continues(p[2]))
            p += 3;
        else if (c == ' ' && (p[1] & 0x80))
            p++;
        else
            break;
    }
    while (p < end && (*p & 0x80)) {
        uint32_t cp;
        int n = utf8_decode(p, (size_t)(end - p), &cp);
        if (n == 0) {
            fail(s, p, "there are bytes that are not UTF-8");
            return NULL;
        }
        p += n;
    }
    return p;
}

/* p is after the opening quote; the closing one, NULL when there is something wrong. */
static const char *scan_string(scanner *s, const char *p, bool *escaped) {
    *escaped = false;
    for (;;) {
        p = skip_plain(p, s->end);
        if (p == s->end) break;
        if (*p == '"') return p;
        if (*p & 0x80) {
            p = skip_multibyte(s, p);
        } else if (*p == '\\') {
            *escaped = true;
            do p = skip_escape(s, p);
            while (p && p < s->end && *p == '\\');
        } else {
            fail(s, p, "a string holds a control character");
            return NULL;
        }
        if (!p) return NULL;
    }
    fail(s, p, "a string is not closed");
    return NULL;
}

static size_t unescape_one(const char *s, char *out, size_t *used) {
    static const char FROM[] = "bfnrt", TO[] = "\b\f\n\r\t";
    *used = 2;
    if (s[1] != 'u') {
        const char *known = strchr(FROM, s[1]);
        *out = known ? TO[known - FROM] : s[1];
        return 1;
    }
    int cp = hex4(s + 2);
    *used = 6;
    if (cp >= 0x80 && cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (is_high_surrogate(cp)) {
        cp = 0x10000 + ((cp - 0xd800) << 10) + (hex4(s + 8) - 0xdc00);
        *used = 12;
    }
    char bytes[4]; /* `out` may have room for no more than the character */
    size_t n = (size_t)utf8_encode((uint32_t)cp, bytes);
    memcpy(out, bytes, n);
    return n;
}

size_t json_record_unescape(const char *s, size_t n, char *out) {
    const char *end = s + n;
    char *to = out;
    while (s < end) {
        if (*s == '\\') {
            size_t used;
            to += unescape_one(s, to, &used);
            s += used;
            continue;
        }
        const char *slash = memchr(s, '\\', (size_t)(end - s));
        size_t plain = (size_t)((slash ? slash : end) - s);
        memcpy(to, s, plain);
        to += plain;
        s += plain;
    }
    return (size_t)(to - out);
}

/* ---- fields ---- */

static void capture(scanner *s, value_kind kind, const char *text, size_t len, bool escaped) {
    for (uint32_t m = s->pending; m; m &= m - 1) {
        int i = __builtin_ctz(m);
        if (s->fields->field[i].n_parts == s->depth)
            s->value[i] = (field_value){kind, text, len, escaped};
    }
}

static void match_key(scanner *s, const char *key, size_t len, bool escaped) {
    char plain[256];
    uint32_t candidates = s->open[s->depth - 1].below;
    s->pending = 0;
    if (!candidates || (escaped && len > sizeof plain)) return;
    if (escaped) {
        len = json_record_unescape(key, len, plain);
        key = plain;
    }
    for (uint32_t m = candidates; m; m &= m - 1) {
        int i = __builtin_ctz(m), level = s->depth - 1;
        const field_path *f = &s->fields->field[i];
        if (f->part_len[level] != len || memcmp(f->part[level], key, len) != 0) continue;
        s->pending |= 1u << i;
        s->value[i] = (field_value){0}; /* what an earlier key of that name held counts no more */
    }
}

/* ---- values ---- */

static inline void skip_blank(scanner *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

static bool take_string(scanner *s) {
    bool escaped;
    const char *from = s->p + 1, *close = scan_string(s, from, &escaped);
    if (!close) return false;
    if (s->pending) capture(s, VALUE_TEXT, from, (size_t)(close - from), escaped);
    s->p = close + 1;
    return true;
}

static bool take_key(scanner *s) {
    bool escaped;
    skip_blank(s);
    if (s->p == s->end || *s->p != '"') return fail(s, s->p, "a key in quotes is missing");
    const char *from = s->p + 1, *close = scan_string(s, from, &escaped);
    if (!close) return false;
    match_key(s, from, (size_t)(close - from), escaped);
    s->p = close + 1;
    skip_blank(s);
    if (s->p == s->end || *s->p != ':') return fail(s, s->p, "a colon is missing after a key");
    s->p++;
    return true;
}

static inline const char *skip_digits(const char *p, const char *end) {
    while (p < end && *p >= '0' && *p <= '9') p++;
    return p;
}

static bool take_number(scanner *s) {
    const char *p = s->p, *end = s->end, *digits;
    if (*p == '-') p++;
    digits = p;
    p = skip_digits(p, end);
    if (p == digits || (*digits == '0' && p - digits > 1))
        return fail(s, s->p, p == digits ? "a value is missing" : "a number begins with 0");
    if (p < end && *p == '.') {
        digits = ++p;
        p = skip_digits(p, end);
        if (p == digits) return fail(s, s->p, "digits are missing in a number");
    }
    if (p < end && (*p | 0x20) == 'e') {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        digits = p;
        p = skip_digits(p, end);
        if (p == digits) return fail(s, s->p, "digits are missing in a number");
    }
    if (s->pending) capture(s, VALUE_SCALAR, s->p, (size_t)(p - s->p), false);
    s->p = p;
    return true;
}

static bool take_word(scanner *s, const char *word, value_kind kind) {
    size_t n = strlen(word);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
        return fail(s, s->p, "a value is missing");
    if (s->pending) capture(s, kind, s->p, n, false);
    s->p += n;
    return true;
}

/* The bracket is at p. */
static bool open_bracket(scanner *s, bool object) {
    if (s->depth == JSON_MAX_DEPTH) return fail(s, s->p, "brackets are nested too deep");
    if (s->pending) capture(s, VALUE_OTHER, s->p, 1, false);
    uint32_t below = 0;
    for (uint32_t m = object ? s->pending : 0; m; m &= m - 1) {
        int i = __builtin_ctz(m);
        if (s->fields->field[i].n_parts > s->depth) below |= 1u << i;
    }
    s->open[s->depth].below = below;
    s->open[s->depth++].object = object;
    s->p++;
    s->pending = 0;
    return true;
}

/* One value; *opened: it is an object or a list that goes on. */
static bool take_value(scanner *s, bool *opened) {
    *opened = false;
    skip_blank(s);
    if (s->p == s->end) return fail(s, s->p, "a value is missing");
    switch (*s->p) {
        case '"': return take_string(s);
        case 't': return take_word(s, "true", VALUE_SCALAR);
        case 'f': return take_word(s, "false", VALUE_SCALAR);
        case 'n': return take_word(s, "null", VALUE_NULL);
        case '{':
        case '[': break;
        default: return take_number(s);
    }
    bool object = *s->p == '{';
    if (!open_bracket(s, object)) return false;
    skip_blank(s);
    *opened = s->p == s->end || *s->p != (object ? '}' : ']');
    if (!*opened) {
        s->p++;
        s->depth--;
        return true;
    }
    return object ? take_key(s) : true;
}

/* Closes what ends here and steps over a comma, with the key after it; s->depth 0 at the end. */
static bool after_value(scanner *s) {
    while (s->depth > 0) {
        bool object = s->open[s->depth - 1].object;
        skip_blank(s);
        if (s->p == s->end) return fail(s, s->p, "it ends inside an object or a list");
        if (*s->p == ',') {
            s->p++;
            s->pending = 0;
            return object ? take_key(s) : true;
        }
        if (*s->p != (object ? '}' : ']'))
            return fail(s, s->p, "a comma or a closing bracket is missing");
        s->p++;
        s->depth--;
    }
    skip_blank(s);
    return s->p == s->end || fail(s, s->p, "there is more after its end");
}

bool json_record_scan(const char *text, size_t n, const record_fields *f, field_value *value,
                      bool *is_object, json_problem *problem) {
    scanner s;
    s.p = text;
    s.end = text + n;
    s.fields = f;
    s.value = value;
    s.depth = 0;
    s.pending = f->n == 32 ? UINT32_MAX : (1u << f->n) - 1;
    for (int i = 0; i < f->n; i++) value[i] = (field_value){0};
    skip_blank(&s);
    *is_object = s.p < s.end && *s.p == '{';
    for (bool ok = true, opened; ok;) {
        ok = take_value(&s, &opened) && (opened || after_value(&s));
        if (ok && s.depth == 0) return true;
    }
    *problem = (json_problem){s.why, (size_t)(s.p - text)};
    return false;
}

const char *json_record_first_key(const char *s, size_t n, size_t *len) {
    const char *end = s + n, *from = memchr(s, '"', n), *to;
    if (!from) return NULL;
    to = memchr(from + 1, '"', (size_t)(end - from - 1));
    *len = to ? (size_t)(to - from - 1) : 0;
    return to ? from + 1 : NULL;
}
