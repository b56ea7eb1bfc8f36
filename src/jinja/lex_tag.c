/* Names, numbers, strings and operators inside a tag. */
#include "jinja/lex.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static int digit_value(char c) {
    if (is_digit(c)) return c - '0';
    char low = (char)(c | 32);
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : 99;
}

/* ---- numbers ---- */

/* The end of digits that may have single underscores between them. */
static uint32_t digits_end(const jlex *x, uint32_t at, int base) {
    while (digit_value(x->src[at]) < base) {
        at++;
        if (x->src[at] == '_' && digit_value(x->src[at + 1]) < base) at++;
    }
    return at;
}

static status push_int(jlex *x, uint32_t at, uint32_t from, uint32_t end, int base) {
    int64_t value = 0;
    for (uint32_t i = from; i < end; i++) {
        if (x->src[i] == '_') continue;
        if (__builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit_value(x->src[i]), &value)) {
            return jlex_fail(x, at, "the number does not fit in 64 bits");
        }
    }
    jlex_push(x, JT_INT, at)->u.i = value;
    return ST_OK;
}

static status push_float(jlex *x, uint32_t at, uint32_t end) {
    char text[512];
    size_t n = 0;
    for (uint32_t i = at; i < end; i++) {
        if (x->src[i] == '_') continue;
        if (n + 1 == sizeof(text)) return jlex_fail(x, at, "the number is too long");
        text[n++] = x->src[i];
    }
    text[n] = 0;
    jlex_push(x, JT_FLOAT, at)->u.f = strtod(text, NULL);
    return ST_OK;
}

/* The end of the fraction and exponent that follow the digits at `at`; `at` when it is no float. */
static uint32_t float_end(const jlex *x, uint32_t at) {
    uint32_t end = at;
    if (x->src[end] == '.' && is_digit(x->src[end + 1])) end = digits_end(x, end + 1, 10);
    if ((x->src[end] | 32) == 'e') {
        uint32_t exponent = end + 1 + (x->src[end + 1] == '+' || x->src[end + 1] == '-');
        if (is_digit(x->src[exponent])) end = digits_end(x, exponent, 10);
    }
    return end;
}

static status lex_number(jlex *x, uint32_t *at) {
    uint32_t start = *at;
    char mark = (char)(x->src[start + 1] | 32);
    int base = x->src[start] != '0' ? 10
               : mark == 'x'        ? 16
               : mark == 'o'        ? 8
               : mark == 'b'        ? 2
                                    : 10;
    if (base != 10 && digit_value(x->src[start + 2]) < base) {
        *at = digits_end(x, start + 2, base);
        return push_int(x, start, start + 2, *at, base);
    }
    uint32_t end = digits_end(x, start, 10), more = float_end(x, end);
    if (more > end && (start == 0 || x->src[start - 1] != '.')) {
        *at = more;
        return push_float(x, start, more);
    }
    *at = end;
    if (x->src[start] == '0' && end > start + 1) {
        return jlex_fail(x, start, "a number does not begin with 0");
    }
    return push_int(x, start, start, end, 10);
}

/* ---- strings ---- */

/* Reads `n` digits of a base after an escape; false when there are fewer. */
static bool escape_digits(const char *s, const char *end, int n, int base, uint32_t *value) {
    *value = 0;
    if (end - s < n) return false;
    for (int i = 0; i < n; i++) {
        if (digit_value(s[i]) >= base) return false;
        *value = *value * (uint32_t)base + (uint32_t)digit_value(s[i]);
    }
    return true;
}

static const char simple_escapes[][2] = {
    {'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'\\', '\\'}, {'\'', '\''},
    {'"', '"'},  {'a', '\a'}, {'b', '\b'}, {'f', '\f'},  {'v', '\v'},
};

/* The escape whose letter is at *s, into `out` (4 bytes at most): its length, -1 when it is none.
 */
static int decode_escape(const char **s, const char *end, char *out) {
    char c = **s;
    uint32_t cp = 0;
    int n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (n > 0) {
        if (!escape_digits(*s + 1, end, n, 16, &cp)) return -1;
        *s += n + 1;
    } else if (c >= '0' && c <= '7') {
        for (n = 1; n < 3 && *s + n < end && (*s)[n] >= '0' && (*s)[n] <= '7';) n++;
        escape_digits(*s, end, n, 8, &cp);
        *s += n;
    } else {
        for (int i = 0; i < ARRAY_LEN(simple_escapes); i++) {
            if (simple_escapes[i][0] != c) continue;
            (*s)++;
            out[0] = simple_escapes[i][1];
            return 1;
        }
        if (c == 'N') return -1;
        out[0] = '\\'; /* no escape: the backslash stays */
        return 1;
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) return -1;
    return utf8_encode(cp, out);
}

static status lex_string(jlex *x, uint32_t *at) {
    uint32_t start = *at, end = start + 1;
    char quote = x->src[start];
    while (end < x->len && x->src[end] != quote) end += x->src[end] == '\\' ? 2 : 1;
    if (end >= x->len) return jlex_fail(x, start, "the string has no end");
    char *out = arena_alloc(x->mem, 2 * (size_t)(end - start));
    const char *s = x->src + start + 1, *stop = x->src + end;
    uint32_t n = 0;
    while (s < stop) {
        if (*s != '\\') {
            out[n++] = *s++;
        } else if (s[1] == '\n') {
            s += 2;
        } else {
            s++;
            int len = decode_escape(&s, stop, out + n);
            if (len < 0) {
                return jlex_fail(x, (uint32_t)(s - x->src), "an escape that is not understood");
            }
            n += (uint32_t)len;
        }
    }
    jtok *t = jlex_push(x, JT_STRING, start);
    t->s = out;
    t->len = n;
    *at = end + 1;
    return ST_OK;
}

/* ---- names and operators ---- */

/* The length of the character of a name at `at`, 0 when it is none. */
static uint32_t name_char(const jlex *x, uint32_t at) {
    size_t len;
    return jlex_is_name(utf8_next(x->src + at, &len)) ? (uint32_t)len : 0;
}

static const struct {
    char text[3];
    uint8_t kind;
} operators[] = {
    /* two bytes first */
    {"==", JT_EQ},       {"!=", JT_NE},    {">=", JT_GE},    {"<=", JT_LE},    {"//", JT_FLOORDIV},
    {"**", JT_POW},      {"+", JT_ADD},    {"-", JT_SUB},    {"*", JT_MUL},    {"/", JT_DIV},
    {"%", JT_MOD},       {"~", JT_TILDE},  {"(", JT_LPAREN}, {")", JT_RPAREN}, {"[", JT_LBRACKET},
    {"]", JT_RBRACKET},  {"{", JT_LBRACE}, {"}", JT_RBRACE}, {"<", JT_LT},     {">", JT_GT},
    {"=", JT_ASSIGN},    {".", JT_DOT},    {":", JT_COLON},  {"|", JT_PIPE},   {",", JT_COMMA},
    {";", JT_SEMICOLON},
};

/* Brackets that are open in a tag. */
typedef struct brackets {
    uint8_t open[JINJA_MAX_NESTING];
    int n;
} brackets;

static status balance(jlex *x, brackets *b, uint32_t at, jtok_kind kind) {
    if (kind == JT_LPAREN || kind == JT_LBRACKET || kind == JT_LBRACE) {
        if (b->n == JINJA_MAX_NESTING) return jlex_fail(x, at, "brackets are nested too deeply");
        b->open[b->n++] = (uint8_t)(kind + 1);
    } else if (kind == JT_RPAREN || kind == JT_RBRACKET || kind == JT_RBRACE) {
        if (b->n == 0 || b->open[b->n - 1] != kind) {
            return jlex_fail(x, at, "a bracket is closed that is not open");
        }
        b->n--;
    }
    return ST_OK;
}

static status lex_operator(jlex *x, uint32_t *at, brackets *b) {
    for (int i = 0; i < ARRAY_LEN(operators); i++) {
        size_t n = strlen(operators[i].text);
        if (memcmp(x->src + *at, operators[i].text, n) != 0) continue;
        TRY(balance(x, b, *at, operators[i].kind));
        jlex_push(x, operators[i].kind, *at);
        *at += (uint32_t)n;
        return ST_OK;
    }
    return jlex_fail(x, *at, "a character that no expression has");
}

static status lex_word(jlex *x, uint32_t *at, brackets *b) {
    char c = x->src[*at];
    if (is_digit(c)) return lex_number(x, at);
    if (c == '"' || c == '\'') return lex_string(x, at);
    uint32_t end = *at, n;
    while (end < x->len && (n = name_char(x, end)) > 0) end += n;
    if (end == *at) return lex_operator(x, at, b);
    jtok *t = jlex_push(x, JT_NAME, *at);
    t->s = x->src + *at;
    t->len = end - *at;
    *at = end;
    return ST_OK;
}

/* The end of the tag at `at`: where text goes on, 0 when it does not end here. */
static uint32_t tag_end(jlex *x, uint32_t at, bool prints) {
    const char *s = x->src + at;
    char close = prints ? '}' : '%', sign = *s == '-' || (*s == '+' && !prints) ? *s : 0;
    s += sign != 0;
    if (s[0] != close || s[1] != '}') return 0;
    uint32_t next = at + 2 + (sign != 0);
    if (sign == '-')
        next = jlex_blanks(x, next);
    else if (!sign && !prints && next < x->len && x->src[next] == '\n')
        next++;
    x->line_starting = x->src[next - 1] == '\n';
    return next;
}

status jlex_tag(jlex *x, uint32_t *at, bool prints, uint32_t inside) {
    brackets b = {.n = 0};
    jlex_push(x, prints ? JT_VAR_BEGIN : JT_BLOCK_BEGIN, *at);
    for (uint32_t i = jlex_blanks(x, inside); i < x->len; i = jlex_blanks(x, i)) {
        uint32_t next = b.n == 0 ? tag_end(x, i, prints) : 0;
        if (next > 0) {
            jlex_push(x, prints ? JT_VAR_END : JT_BLOCK_END, i);
            *at = next;
            return ST_OK;
        }
        TRY(lex_word(x, &i, &b));
    }
    return jlex_fail(x, *at, prints ? "the tag {{ has no end }}" : "the tag {% has no end %}");
}
