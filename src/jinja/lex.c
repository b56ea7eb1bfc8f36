/* The tags of a template and the text between them; lex_tag.c reads what stands in a tag. */
#include "jinja/lex.h"

#include <string.h>

#include <utf8proc.h>

#include "jinja/jinja.h"
#include "base/utf8.h"

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

bool jlex_is_name(uint32_t cp) {
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

status jlex_fail(jlex *x, uint32_t at, const char *what) {
    int line, column;
    jlex_where(x->src, at, &line, &column);
    err_set(x->e, ST_FORMAT, "%s", what);
    return err_where(x->e, "line %d, column %d", line, column);
}

jtok *jlex_push(jlex *x, jtok_kind kind, uint32_t at) {
    x->token = arena_grow(x->mem, x->token, x->n, &x->cap, sizeof(jtok));
    jtok *t = &x->token[x->n++];
    *t = (jtok){.kind = (uint8_t)kind, .at = at};
    return t;
}

uint32_t jlex_blanks(const jlex *x, uint32_t at) {
    const char *s = x->src + at;
    size_t n = x->len - at;
    jinja_strip(&s, &n, true, false);
    return x->len - (uint32_t)n;
}

/* Text from `from` to a tag at `to`. `sign` stands in the tag; `strips`: the tag is none that
 * prints, so blanks before it on its line go. */
static void push_text(jlex *x, uint32_t from, uint32_t to, char sign, bool strips) {
    const char *s = x->src + from;
    size_t n = to - from;
    if (sign == '-') {
        jinja_strip(&s, &n, false, true);
    } else if (sign != '+' && strips) {
        size_t line = n;
        while (line > 0 && s[line - 1] != '\n') line--;
        const char *rest = s + line;
        size_t left = n - line;
        jinja_strip(&rest, &left, true, false);
        if (left == 0 && (line > 0 || x->line_starting)) n = line;
    }
    if (n == 0) return;
    jtok *t = jlex_push(x, JT_TEXT, from);
    t->s = s;
    t->len = (uint32_t)n;
}

/* The end of a block, comment or raw tag at `at` ("%}" or "#}", two bytes), with the sign before
 * it: where the text after it begins. */
static uint32_t after_end(jlex *x, uint32_t at, char sign) {
    uint32_t next = at + 2;
    if (sign == '-')
        next = jlex_blanks(x, next);
    else if (sign != '+' && next < x->len && x->src[next] == '\n')
        next++;
    x->line_starting = x->src[next - 1] == '\n';
    return next;
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
    return jlex_fail(x, *at, "the comment {# has no end #}");
}

/* "{% WORD %}" at `at`: where its "%}" stands and the signs, 0 when it is something else. */
static uint32_t tag_of_word(const jlex *x, uint32_t at, const char *word, char *open, char *close) {
    size_t n = strlen(word);
    *open = sign_at(x, at + 2);
    uint32_t p = jlex_blanks(x, at + 2 + (*open != 0));
    if (p + n > x->len || memcmp(x->src + p, word, n) != 0) return 0;
    p = jlex_blanks(x, p + (uint32_t)n);
    *close = sign_at(x, p);
    p += *close != 0;
    return p + 1 < x->len && x->src[p] == '%' && x->src[p + 1] == '}' ? p : 0;
}

static status push_raw(jlex *x, uint32_t *at, uint32_t end, char close) {
    char open, last;
    uint32_t from = end + 2;
    if (close == '-') from = jlex_blanks(x, from);
    x->line_starting = x->src[from - 1] == '\n';
    for (uint32_t i = from; i + 1 < x->len; i++) {
        if (x->src[i] != '{' || x->src[i + 1] != '%') continue;
        uint32_t stop = tag_of_word(x, i, "endraw", &open, &last);
        if (stop == 0) continue;
        push_text(x, from, i, open, true);
        *at = after_end(x, stop, last);
        return ST_OK;
    }
    return jlex_fail(x, *at, "the raw block has no {% endraw %}");
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
    return jlex_tag(x, at, kind == '{', *at + 2 + (open != 0));
}

/* Newlines of all kinds are one; the last one of the template does not count. */
static void normalise(jlex *x, const char *text, size_t len) {
    x->src = arena_alloc(x->mem, len + 1);
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\r' && i + 1 < len && text[i + 1] == '\n') continue;
        x->src[x->len++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (x->len > 0 && x->src[x->len - 1] == '\n') x->len--;
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
    if (valid < len) return jlex_fail(x, x->len, "the template is not UTF-8");
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
    jlex_push(x, JT_END, x->len);
    return ST_OK;
}
