/* Post-processors: what stands around the ids of a text, and white space trimmed off their spans.
 *
 * A chain of them comes to this: ids before and after the text (those of later processors outside),
 * and trimmings in order. Texts are encoded one at a time; templates of pairs are checked and not
 * used. */
#ifndef TOK_POST_POST_H
#define TOK_POST_POST_H

#include "tok/tok.h"

/* Tokens are trimmed by the white space in their content, as Hugging Face tokenizers does it, each
 * time anew. */
typedef struct post_trim {
    bool add_prefix_space; /* the first token keeps one space: the pre-tokenizer put it there */
    bool after_special;    /* ids were put before the text by then, so that none is the first */
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
