/* The tags of a template, what stands in them, and the text between them. */
#include "jinja/lex.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/utf8.h"
#include "jinja/jinja.h"

void jlex_where(const char *src, uint32_t at, int *line, int *column) {
    *line = 1;
    *column = 1;
    for (uint32_t i = 0; i < at; i++) {
        if (src[i] == '\n') {
            (*line)++;
            *column = 1;
        } else if (((uint8_t)src[i] & 0xC0) != 0x80) {
            (*column)++;
        }
    }
}

bool jtext_is_space(uint32_t cp) {
    if (cp < 0x80) return cp == ' ' || (cp >= '\t' && cp <= '\r') || (cp >= 0x1C && cp <= 0x1F);
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return cp == 0x85 || (c >= UTF8PROC_CATEGORY_ZS && c <= UTF8PROC_CATEGORY_ZP);
}

/* Whether a name may have the character: letters, marks, digits, connectors such as '_'. */
static bool is_name_char(uint32_t cp) {
    if (cp < 0x80) return (cp | 32) - 'a' < 26 || cp - '0' < 10 || cp == '_';
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_PC;
}

void jinja_strip(const char **s, size_t *n, bool left, bool right) {
    while (left && *n > 0) {
        size_t len;
        if (!jtext_is_space(utf8_next(*s, &len))) break;
        *s += len;
        *n -= len;
    }
    while (right && *n > 0) {
        size_t at = utf8_before(*s, *n), len;
        if (!jtext_is_space(utf8_next(*s + at, &len))) break;
        *n = at;
    }
}

static status fail(jlex *x, uint32_t at, const char *what) {
    int line, column;
    jlex_where(x->src, at, &line, &column);
    err_set(x->e, ST_FORMAT, "%s", what);
    return err_where(x->e, "line %d, column %d", line, column);
}

static jtok *push(jlex *x, jtok_kind kind, uint32_t at) {
    x->token = arena_grow(x->mem, x->token, x->n, &x->cap, sizeof(jtok));
    jtok *t = &x->token[x->n++];
    *t = (jtok){.kind = (uint8_t)kind, .at = at};
    return t;
}

/* Where white space from `at` on ends. */
static uint32_t skip_blanks(const jlex *x, uint32_t at) {
    const char *s = x->src + at;
    size_t n = x->len - at;
    jinja_strip(&s, &n, true, false);
    return x->len - (uint32_t)n;
}

/* The end of a tag at `at` ("%}", "#}" or "}}", two bytes), with the sign before it: where the text after it
 * begins. */
static uint32_t after_end(jlex *x, uint32_t at, char sign) {
    uint32_t next = at + 2;
    if (sign == '-')
        next = skip_blanks(x, next);
    else if (sign != '+' && !x->verbatim && next < x->len && x->src[next] == '\n')
        next++;
    x->line_starting = x->src[next - 1] == '\n';
    return next;
}

/* ---- numbers in a tag ---- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static int digit_value(char c) {
    if (is_digit(c)) return c - '0';
    char low = (char)(c | 32);
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : 99;
}

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
            return fail(x, at, "the number does not fit in 64 bits");
        }
    }
    push(x, JT_INT, at)->u.i = value;
    return ST_OK;
}

static status push_float(jlex *x, uint32_t at, uint32_t end) {
    char text[512];
    size_t n = 0;
    for (uint32_t i = at; i < end; i++) {
        if (x->src[i] == '_') continue;
        if (n + 1 == sizeof(text)) return fail(x, at, "the number is too long");
        text[n++] = x->src[i];
    }
    text[n] = 0;
    push(x, JT_FLOAT, at)->u.f = strtod(text, NULL);
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
        return fail(x, start, "a number does not begin with 0");
    }
    return push_int(x, start, start, end, 10);
}

/* ---- strings in a tag ---- */

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
    if (end >= x->len) return fail(x, start, "the string has no end");
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
                return fail(x, (uint32_t)(s - x->src), "an escape that is not understood");
            }
            n += (uint32_t)len;
        }
    }
    jtok *t = push(x, JT_STRING, start);
    t->s = out;
    t->len = n;
    *at = end + 1;
    return ST_OK;
}

/* ---- names and operators; a whole tag ---- */

/* The length of the character of a name at `at`, 0 when it is none. */
static uint32_t name_char(const jlex *x, uint32_t at) {
    size_t len;
    return is_name_char(utf8_next(x->src + at, &len)) ? (uint32_t)len : 0;
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
        if (b->n == JINJA_MAX_NESTING) return fail(x, at, "brackets are nested too deeply");
        b->open[b->n++] = (uint8_t)(kind + 1);
    } else if (kind == JT_RPAREN || kind == JT_RBRACKET || kind == JT_RBRACE) {
        if (b->n == 0 || b->open[b->n - 1] != kind) {
            return fail(x, at, "a bracket is closed that is not open");
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
        push(x, operators[i].kind, *at);
        *at += (uint32_t)n;
        return ST_OK;
    }
    return fail(x, *at, "a character that no expression has");
}

static status lex_word(jlex *x, uint32_t *at, brackets *b) {
    char c = x->src[*at];
    if (is_digit(c)) return lex_number(x, at);
    if (c == '"' || c == '\'') return lex_string(x, at);
    uint32_t end = *at, n;
    while (end < x->len && (n = name_char(x, end)) > 0) end += n;
    if (end == *at) return lex_operator(x, at, b);
    jtok *t = push(x, JT_NAME, *at);
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
    at += sign != 0;
    return after_end(x, at, prints && !sign ? '+' : sign);
}

/* Tokens of the tag that begins at *at, whose inside begins at `inside`; *at becomes where text goes on. */
static status lex_tag(jlex *x, uint32_t *at, bool prints, uint32_t inside) {
    brackets b = {.n = 0};
    push(x, prints ? JT_VAR_BEGIN : JT_BLOCK_BEGIN, *at);
    for (uint32_t i = skip_blanks(x, inside); i < x->len; i = skip_blanks(x, i)) {
        uint32_t next = b.n == 0 ? tag_end(x, i, prints) : 0;
        if (next > 0) {
            push(x, prints ? JT_VAR_END : JT_BLOCK_END, i);
            *at = next;
            return ST_OK;
        }
        TRY(lex_word(x, &i, &b));
    }
    return fail(x, *at, prints ? "the tag {{ has no end }}" : "the tag {% has no end %}");
}

/* ---- text and tags ---- */

/* Text from `from` to a tag at `to`. `sign` stands in the tag; `strips`: the tag is none that
 * prints, so blanks before it on its line go. */
static void push_text(jlex *x, uint32_t from, uint32_t to, char sign, bool strips) {
    const char *s = x->src + from;
    size_t n = to - from;
    if (sign == '-') {
        jinja_strip(&s, &n, false, true);
    } else if (sign != '+' && strips && !x->verbatim) {
        size_t line = n;
        while (line > 0 && s[line - 1] != '\n') line--;
        const char *rest = s + line;
        size_t left = n - line;
        jinja_strip(&rest, &left, true, false);
        if (left == 0 && (line > 0 || x->line_starting)) n = line;
    }
    if (n == 0) return;
    jtok *t = push(x, JT_TEXT, from);
    t->s = s;
    t->len = (uint32_t)n;
}

static char sign_at(const jlex *x, uint32_t at) {
    return at < x->len && (x->src[at] == '-' || x->src[at] == '+') ? x->src[at] : 0;
}

static status skip_comment(jlex *x, uint32_t *at) {
    uint32_t start = *at + 2 + (sign_at(x, *at + 2) != 0);
    for (uint32_t i = start; i + 1 < x->len; i++) {
        if (x->src[i] != '#' || x->src[i + 1] != '}') continue;
        char last = i > start ? x->src[i - 1] : 0;
        *at = after_end(x, i, last == '-' || last == '+' ? last : 0);
        return ST_OK;
    }
    return fail(x, *at, "the comment {# has no end #}");
}

/* "{% WORD %}" at `at`: where its "%}" stands and the signs, 0 when it is something else. */
static uint32_t tag_of_word(const jlex *x, uint32_t at, const char *word, char *open, char *close) {
    size_t n = strlen(word);
    *open = sign_at(x, at + 2);
    uint32_t p = skip_blanks(x, at + 2 + (*open != 0));
    if (p + n > x->len || memcmp(x->src + p, word, n) != 0) return 0;
    p = skip_blanks(x, p + (uint32_t)n);
    *close = sign_at(x, p);
    p += *close != 0;
    return p + 1 < x->len && x->src[p] == '%' && x->src[p + 1] == '}' ? p : 0;
}

static status push_raw(jlex *x, uint32_t *at, uint32_t end, char close) {
    char open, last;
    uint32_t from = end + 2;
    if (close == '-') from = skip_blanks(x, from);
    x->line_starting = x->src[from - 1] == '\n';
    for (uint32_t i = from; i + 1 < x->len; i++) {
        if (x->src[i] != '{' || x->src[i + 1] != '%') continue;
        uint32_t stop = tag_of_word(x, i, "endraw", &open, &last);
        if (stop == 0) continue;
        push_text(x, from, i, open, true);
        *at = after_end(x, stop, last);
        return ST_OK;
    }
    return fail(x, *at, "the raw block has no {% endraw %}");
}

/* The next "{{", "{%" or "{#" from `at`; the length of the source when there is none. */
static uint32_t find_tag(const jlex *x, uint32_t at) {
    while (at + 1 < x->len) {
        const char *p = memchr(x->src + at, '{', x->len - at - 1);
        if (!p) break;
        if (p[1] == '{' || p[1] == '%' || p[1] == '#') return (uint32_t)(p - x->src);
        at = (uint32_t)(p - x->src) + 1;
    }
    return x->len;
}

static status lex_tag_at(jlex *x, uint32_t from, uint32_t *at) {
    char kind = x->src[*at + 1], open, close = 0;
    uint32_t raw = kind == '%' ? tag_of_word(x, *at, "raw", &open, &close) : 0;
    open = sign_at(x, *at + 2);
    push_text(x, from, *at, open, kind != '{');
    if (raw && close != '+') return push_raw(x, at, raw, close);
    if (kind == '#') return skip_comment(x, at);
    return lex_tag(x, at, kind == '{', *at + 2 + (open != 0));
}

/* Newlines of all kinds are one; the last one of the template does not count. */
static void normalise(jlex *x, const char *text, size_t len) {
    x->src = arena_alloc(x->mem, len + 1);
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\r' && i + 1 < len && text[i + 1] == '\n') continue;
        x->src[x->len++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (!x->verbatim && x->len > 0 && x->src[x->len - 1] == '\n') x->len--;
    x->src[x->len] = 0;
}

status jlex_run(jlex *x, const char *text, size_t len) {
    x->len = 0;
    x->n = x->cap = 0;
    if (len > JINJA_MAX_BYTES) {
        return err_set(x->e, ST_FORMAT, "the template has %zu bytes, more than %d", len,
                       JINJA_MAX_BYTES);
    }
    size_t valid = utf8_valid_prefix(text, len);
    normalise(x, text, valid);
    if (valid < len) return fail(x, x->len, "the template is not UTF-8");
    x->line_starting = true;
    uint32_t at = 0;
    while (at < x->len) {
        uint32_t tag = find_tag(x, at);
        if (tag == x->len) {
            push_text(x, at, tag, '+', false);
            break;
        }
        uint32_t from = at;
        at = tag;
        TRY(lex_tag_at(x, from, &at));
    }
    push(x, JT_END, x->len);
    return ST_OK;
}
