/* Post-processors: what stands around the ids of a text, and white space trimmed off their spans.
 *
 * However many there are, together they do this: put ids before and after those of the text (a later
 * processor's outside an earlier one's), and trim spans, in their order. Texts are encoded one at a
 * time, so templates for pairs of texts are checked but not used. */
#ifndef TOK_POST_POST_H
#define TOK_POST_POST_H

#include "tok/tok.h"

/* One trimming. A span loses as many characters at its ends as its token has white space there. A
 * second trimming does the same again, as in Hugging Face tokenizers. */
typedef struct post_trim {
    bool add_prefix_space; /* the first token keeps one space: the pre-tokenizer put it there */
    bool after_special;    /* ids stand before the text already: no token of it is the first */
} post_trim;

enum { POST_MAX_TRIMS = 8 };
typedef struct tok_post {
    int32_t *prefix, *suffix;
    int n_prefix, n_suffix;
    bool has_template;
    post_trim trim[POST_MAX_TRIMS];
    int n_trims;
} tok_post;

/* What goes before and after the ids of a text, with spans {0, 0}; spans may be NULL. */
void post_before(const tok_post *p, tok_ids *out, tok_spans *spans);
void post_after(const tok_post *p, tok_ids *out, tok_spans *spans);
/* Trims the spans of a text's n ids. `special`: post_before was called. */
void post_trim_spans(const tok *t, bool special, const char *text, const int32_t *ids,
                     tok_span *spans, int64_t n);

#endif
