/* Applies a post-processor, see post.h. */
#include "tok/post/post.h"

#include "base/utf8.h"
#include "tok/internal.h"
#include "tok/text/unicode.h"

static void push_all(const int32_t *id, int n, tok_ids *out, tok_spans *spans) {
    for (int i = 0; i < n; i++) {
        tok_ids_push(out, id[i]);
        if (spans) VEC_PUSH(spans->span, spans->n, spans->cap, ((tok_span){0, 0}));
    }
}

void post_before(const tok_post *p, tok_ids *out, tok_spans *spans) {
    push_all(p->prefix, p->n_prefix, out, spans);
}

void post_after(const tok_post *p, tok_ids *out, tok_spans *spans) {
    push_all(p->suffix, p->n_suffix, out, spans);
}

/* ---- trimming ---- */

/* U+0120 is the space of the byte alphabet. */
static bool is_space(uint32_t cp) {
    return cp == 0x120 || uni_class_of(cp) == UNI_SPACE;
}

static size_t char_length(const char *s, size_t n) {
    uint32_t cp;
    int len = utf8_decode(s, n, &cp);
    return len > 0 ? (size_t)len : 1;
}

/* Length of the character that ends at `end` (> 0). */
static size_t length_before(const char *s, size_t end) {
    for (size_t n = 2; n <= 4 && n <= end; n++) {
        if (char_length(s + end - n, n) == n) return n;
    }
    return 1;
}

static void count_spaces(const char *s, size_t n, int *leading, int *trailing) {
    *leading = *trailing = 0;
    bool only = true;
    uint32_t cp;
    for (size_t i = 0; i < n; i += char_length(s + i, n - i)) {
        bool space = utf8_decode(s + i, n - i, &cp) > 0 && is_space(cp);
        only = only && space;
        *leading += only;
        *trailing = space ? *trailing + 1 : 0;
    }
}

static int32_t forward(const char *text, tok_span s, int chars) {
    size_t at = (size_t)s.start, end = (size_t)s.end;
    for (; chars > 0 && at < end; chars--) at += char_length(text + at, end - at);
    return (int32_t)at;
}

/* The end stays if the text has not that many characters before it. */
static int32_t backward(const char *text, tok_span s, int chars) {
    size_t at = (size_t)s.end;
    for (; chars > 0 && at > 0; chars--) at -= length_before(text, at);
    if (chars > 0) return s.end;
    return (int32_t)at > s.start ? (int32_t)at : s.start;
}

/* White space at the ends of a token: that of its text, but what lstrip and rstrip take in stands around
 * the content of an added one. */
static void token_spaces(const tok *t, int32_t id, const char *text, tok_span span, int *leading,
                         int *trailing) {
    const tok_token *k = &t->token[id];
    if (k->added && id != t->unk) {
        count_spaces(text + span.start, (size_t)(span.end - span.start), leading, trailing);
    } else {
        count_spaces(k->text, k->n_text, leading, trailing);
    }
}

void post_trim_spans(const tok *t, bool special, const char *text, const int32_t *ids,
                     tok_span *spans, int64_t n) {
    const tok_post *p = &t->post;
    for (int64_t i = 0; p->n_trims > 0 && i < n; i++) {
        tok_span *span = &spans[i];
        int leading, trailing;
        token_spaces(t, ids[i], text, *span, &leading, &trailing);
        if (leading == 0 && trailing == 0) continue;
        for (int k = 0; k < p->n_trims; k++) {
            bool first = span->start == 0 || (i == 0 && !(special && p->trim[k].after_special));
            bool keep = first && p->trim[k].add_prefix_space && leading == 1;
            span->start = forward(text, *span, keep ? 0 : leading);
            span->end = backward(text, *span, trailing);
        }
    }
}
