/* The 25 checks of IFEval (see ifeval.h). Words and section marks of instructions are patterns of
 * Python's re, as in the authors' program. */
#include "eval/ifeval_checks.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "eval/answer.h"
#include "eval/language.h"
#include "eval/text_units.h"
#include "jinja/jinja.h"

/* ---- texts ---- */

static eval_text strip(eval_text s) {
    jinja_strip(&s.s, &s.len, true, true);
    return s;
}

static bool same(eval_text a, eval_text b) {
    return a.len == b.len && memcmp(a.s, b.s, a.len) == 0;
}

static bool begins(eval_text s, const char *word) {
    return s.len >= strlen(word) && memcmp(s.s, word, strlen(word)) == 0;
}

static bool ends(eval_text s, const char *word) {
    size_t n = strlen(word);
    return s.len >= n && memcmp(s.s + s.len - n, word, n) == 0;
}

static bool compare(const eval_instruction *k, int64_t n) {
    return k->less ? n < k->n : n >= k->n;
}

/* Matches of before + text + after. */
static status count(const char *before, const char *text, const char *after, eval_text s,
                    int64_t *n, err *e) {
    strbuf pattern = {0};
    strbuf_printf(&pattern, "%s%s%s", before, text, after);
    status st = eval_count_matches(strbuf_cstr(&pattern), s, n, e);
    strbuf_free(&pattern);
    return st;
}

/* The text between matches of a pattern, as Python's re.split. */
typedef struct pieces {
    eval_text s;
    size_t at;
    eval_text *item;
    int n, cap;
} pieces;

static bool add_piece(void *ctx, size_t start, size_t end) {
    pieces *p = ctx;
    VEC_PUSH(p->item, p->n, p->cap, ((eval_text){p->s.s + p->at, start - p->at}));
    p->at = end;
    return true;
}

/* Free item, also after a failure. */
static status split(const char *pattern, eval_text s, pieces *p, err *e) {
    *p = (pieces){.s = s};
    TRY(eval_each_match(pattern, s, add_piece, p, e));
    add_piece(p, s.len, s.len);
    return ST_OK;
}

/* ---- keywords ---- */

static status has_keywords(const eval_instruction *k, eval_text s, bool *out, err *e) {
    *out = true;
    for (int i = 0; i < k->n_texts; i++) {
        int64_t n;
        TRY(count("(?i)", k->text[i], "", s, &n, e));
        *out &= n > 0;
    }
    return ST_OK;
}

static status keyword_frequency(const eval_instruction *k, eval_text s, bool *out, err *e) {
    int64_t n;
    TRY(count("(?i)", k->text[0], "", s, &n, e));
    *out = compare(k, n);
    return ST_OK;
}

static status lacks_words(const eval_instruction *k, eval_text s, bool *out, err *e) {
    *out = true;
    for (int i = 0; i < k->n_texts; i++) {
        int64_t n;
        TRY(count("(?i)\\b", k->text[i], "\\b", s, &n, e));
        *out &= n == 0;
    }
    return ST_OK;
}

static status letter_frequency(const eval_instruction *k, eval_text s, bool *out, err *e) {
    strbuf text = {0}, letter = {0};
    int64_t n = 0;
    (void)e;
    eval_lower(s, &text);
    eval_lower((eval_text){k->text[0], strlen(k->text[0])}, &letter);
    for (size_t i = 0; letter.len && i + letter.len <= text.len; i++)
        n += memcmp(text.data + i, letter.data, letter.len) == 0;
    strbuf_free(&text);
    strbuf_free(&letter);
    *out = compare(k, n);
    return ST_OK;
}

/* ---- language, lengths ---- */

/* A text without letters is of any language. */
static bool is_language(eval_text s, const char *wanted) {
    const char *language = eval_language_of(s);
    return !language || strcmp(language, wanted) == 0;
}

static status response_language(const eval_instruction *k, eval_text s, bool *out, err *e) {
    (void)e;
    *out = is_language(s, k->text[0]);
    return ST_OK;
}

static status number_sentences(const eval_instruction *k, eval_text s, bool *out, err *e) {
    (void)e;
    *out = compare(k, eval_count_sentences(s));
    return ST_OK;
}

static status number_words(const eval_instruction *k, eval_text s, bool *out, err *e) {
    int64_t n;
    TRY(eval_count_matches("\\w+", s, &n, e));
    *out = compare(k, n);
    return ST_OK;
}

/* Paragraphs between lines of asterisks: only the first and the last may be blank, which do not
 * count. */
static status number_paragraphs(const eval_instruction *k, eval_text s, bool *out, err *e) {
    pieces p;
    status st = split("\\s?\\*\\*\\*\\s?", s, &p, e);
    int64_t n = p.n;
    bool gap = false;
    for (int i = 0; i < p.n; i++) {
        if (!eval_is_blank(p.item[i])) continue;
        gap |= i > 0 && i < p.n - 1;
        n--;
    }
    *out = !gap && n == k->n;
    free(p.item);
    return st;
}

/* The first word of a paragraph, in small letters, up to a punctuation mark. */
static void first_word(eval_text paragraph, strbuf *out) {
    eval_text w = strip(paragraph);
    size_t n = 0;
    while (n < w.len && !eval_is_blank((eval_text){w.s + n, utf8_size(w.s[n])}))
        n += utf8_size(w.s[n]);
    w.len = n < w.len ? n : w.len;
    while (w.len && *w.s == '\'') w.s++, w.len--;
    while (w.len && *w.s == '"') w.s++, w.len--;
    for (n = 0; n < w.len && !strchr(".,?!'\"", w.s[n]);) n++;
    eval_lower((eval_text){w.s, n}, out);
}

static status nth_paragraph(const eval_instruction *k, eval_text s, bool *out, err *e) {
    pieces p;
    strbuf word = {0}, wanted = {0};
    status st = split("\\n\\n", s, &p, e);
    int64_t n = p.n;
    for (int i = 0; i < p.n; i++) n -= eval_is_blank(p.item[i]);
    *out = k->nth >= 1 && k->nth <= n && n == k->n && !eval_is_blank(p.item[k->nth - 1]);
    if (*out) {
        first_word(p.item[k->nth - 1], &word);
        eval_lower((eval_text){k->text[0], strlen(k->text[0])}, &wanted);
        *out = word.len == wanted.len && strcmp(strbuf_cstr(&word), strbuf_cstr(&wanted)) == 0;
    }
    strbuf_free(&word);
    strbuf_free(&wanted);
    free(p.item);
    return st;
}

/* ---- content ---- */

static status placeholders(const eval_instruction *k, eval_text s, bool *out, err *e) {
    int64_t n;
    TRY(eval_count_matches("\\[.*?\\]", s, &n, e));
    *out = n >= k->n;
    return ST_OK;
}

static status postscript(const eval_instruction *k, eval_text s, bool *out, err *e) {
    const char *mark = k->text[0];
    strbuf lower = {0}, small = {0};
    int64_t n;
    eval_lower(s, &lower);
    eval_lower((eval_text){mark, strlen(mark)}, &small);
    const char *pattern = strbuf_cstr(&small);
    if (strcmp(mark, "P.P.S") == 0) pattern = "p\\.\\s?p\\.\\s?s";
    if (strcmp(mark, "P.S.") == 0) pattern = "p\\.\\s?s\\.";
    eval_text l = {strbuf_cstr(&lower), lower.len};
    status st = count("(?m)\\s*", pattern, ".*$", l, &n, e);
    *out = st == ST_OK && n > 0;
    strbuf_free(&lower);
    strbuf_free(&small);
    return st;
}

/* ---- format ---- */

static status bullets(const eval_instruction *k, eval_text s, bool *out, err *e) {
    int64_t stars, dashes;
    TRY(eval_count_matches("(?m)^\\s*\\*[^\\*].*$", s, &stars, e));
    TRY(eval_count_matches("(?m)^\\s*-.*$", s, &dashes, e));
    *out = stars + dashes == k->n;
    return ST_OK;
}

static status constrained(const eval_instruction *k, eval_text s, bool *out, err *e) {
    static const char *const answers[] = {"My answer is yes.", "My answer is no.",
                                          "My answer is maybe."};
    (void)k, (void)e;
    *out = false;
    for (int i = 0; i < ARRAY_LEN(answers); i++)
        *out |= memmem(s.s, s.len, answers[i], strlen(answers[i])) != NULL;
    return ST_OK;
}

/* Stretches between marks that are not blank. */
typedef struct marked {
    eval_text s;
    char open, close;
    int64_t n;
} marked;

static bool count_marked(void *ctx, size_t start, size_t end) {
    marked *m = ctx;
    while (start < end && m->s.s[start] == m->open) start++;
    while (end > start && m->s.s[end - 1] == m->close) end--;
    m->n += !eval_is_blank((eval_text){m->s.s + start, end - start});
    return true;
}

/* What stands in double asterisks counts twice where it does there. */
static status highlights(const eval_instruction *k, eval_text s, bool *out, err *e) {
    marked m = {.s = s, .open = '*', .close = '*'};
    TRY(eval_each_match("\\*[^\\n\\*]*\\*", s, count_marked, &m, e));
    TRY(eval_each_match("\\*\\*[^\\n\\*]*\\*\\*", s, count_marked, &m, e));
    *out = m.n >= k->n;
    return ST_OK;
}

static status sections(const eval_instruction *k, eval_text s, bool *out, err *e) {
    int64_t n;
    TRY(count("\\s?", k->text[0], "\\s?\\d+\\s?", s, &n, e));
    *out = n >= k->n;
    return ST_OK;
}

static status json_format(const eval_instruction *k, eval_text s, bool *out, err *e) {
    static const char *const fences[] = {"```json", "```Json", "```JSON", "```"};
    (void)k, (void)e;
    s = strip(s);
    for (int i = 0; i < ARRAY_LEN(fences); i++) {
        size_t n = begins(s, fences[i]) ? strlen(fences[i]) : 0;
        s.s += n, s.len -= n;
    }
    if (ends(s, "```")) s.len -= 3;
    s = strip(s);
    json_t *o = json_loadb(s.s, s.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    *out = o != NULL;
    json_decref(o);
    return ST_OK;
}

static status title(const eval_instruction *k, eval_text s, bool *out, err *e) {
    marked m = {.s = s, .open = '<', .close = '>'};
    (void)k;
    TRY(eval_each_match("<<[^\\n]+>>", s, count_marked, &m, e));
    *out = m.n > 0;
    return ST_OK;
}

/* ---- combinations, beginning and end ---- */

static status two_responses(const eval_instruction *k, eval_text s, bool *out, err *e) {
    pieces p;
    eval_text found[2];
    int n = 0;
    bool gap = false;
    (void)k;
    status st = split("\\*\\*\\*\\*\\*\\*", s, &p, e);
    for (int i = 0; i < p.n; i++) {
        bool blank = eval_is_blank(p.item[i]);
        gap |= blank && i > 0 && i < p.n - 1;
        if (!blank && n++ < 2) found[n - 1] = strip(p.item[i]);
    }
    *out = !gap && n == 2 && !same(found[0], found[1]);
    free(p.item);
    return st;
}

/* Whether the text begins, or ends, with the phrase, letters in any case. */
static bool has_phrase(const char *phrase, eval_text s, bool at_end) {
    strbuf text = {0}, small = {0};
    eval_lower(s, &text);
    eval_lower((eval_text){phrase, strlen(phrase)}, &small);
    eval_text t = {strbuf_cstr(&text), text.len};
    const char *wanted = strbuf_cstr(&small);
    bool has = at_end ? ends(t, wanted) : begins(t, wanted);
    strbuf_free(&text);
    strbuf_free(&small);
    return has;
}

static status repeat_prompt(const eval_instruction *k, eval_text s, bool *out, err *e) {
    (void)e;
    *out = has_phrase(k->text[0], strip(s), false);
    return ST_OK;
}

static status end_phrase(const eval_instruction *k, eval_text s, bool *out, err *e) {
    (void)e;
    s = strip(s);
    while (s.len && s.s[0] == '"') s.s++, s.len--;
    while (s.len && s.s[s.len - 1] == '"') s.len--;
    *out = has_phrase(k->text[0], s, true);
    return ST_OK;
}

static status quotation(const eval_instruction *k, eval_text s, bool *out, err *e) {
    (void)k, (void)e;
    s = strip(s);
    *out = s.len > 1 && s.s[0] == '"' && s.s[s.len - 1] == '"';
    return ST_OK;
}

/* ---- case, punctuation ---- */

static status capital_words(const eval_instruction *k, eval_text s, bool *out, err *e) {
    (void)e;
    *out = compare(k, eval_count_capitals(s));
    return ST_OK;
}

static status all_capital(const eval_instruction *k, eval_text s, bool *out, err *e) {
    (void)k, (void)e;
    *out = eval_is_upper(s) && is_language(s, "en");
    return ST_OK;
}

static status all_small(const eval_instruction *k, eval_text s, bool *out, err *e) {
    (void)k, (void)e;
    *out = eval_is_lower(s) && is_language(s, "en");
    return ST_OK;
}

static status no_comma(const eval_instruction *k, eval_text s, bool *out, err *e) {
    (void)k, (void)e;
    *out = memchr(s.s, ',', s.len) == NULL;
    return ST_OK;
}

/* ---- the table ---- */

static const ifeval_check checks[] = {
    {"keywords:existence", .texts = "keywords", .follows = has_keywords},
    {"keywords:frequency", "frequency", "relation", .texts = "keyword",
     .follows = keyword_frequency},
    {"keywords:forbidden_words", .texts = "forbidden_words", .follows = lacks_words},
    {"keywords:letter_frequency", "let_frequency", "let_relation", .texts = "letter",
     .follows = letter_frequency},
    {"language:response_language", .texts = "language", .follows = response_language},
    {"length_constraints:number_sentences", "num_sentences", "relation",
     .follows = number_sentences},
    {"length_constraints:number_paragraphs", "num_paragraphs", .follows = number_paragraphs},
    {"length_constraints:number_words", "num_words", "relation", .follows = number_words},
    {"length_constraints:nth_paragraph_first_word", "num_paragraphs", .nth = "nth_paragraph",
     .texts = "first_word", .follows = nth_paragraph},
    {"detectable_content:number_placeholders", "num_placeholders", .follows = placeholders},
    {"detectable_content:postscript", .texts = "postscript_marker", .follows = postscript},
    {"detectable_format:number_bullet_lists", "num_bullets", .follows = bullets},
    {"detectable_format:constrained_response", .follows = constrained},
    {"detectable_format:number_highlighted_sections", "num_highlights", .follows = highlights},
    {"detectable_format:multiple_sections", "num_sections", .texts = "section_spliter",
     .follows = sections},
    {"detectable_format:json_format", .follows = json_format},
    {"detectable_format:title", .follows = title},
    {"combination:two_responses", .follows = two_responses},
    {"combination:repeat_prompt", .texts = "prompt_to_repeat", .follows = repeat_prompt},
    {"startend:end_checker", .texts = "end_phrase", .follows = end_phrase},
    {"startend:quotation", .follows = quotation},
    {"change_case:capital_word_frequency", "capital_frequency", "capital_relation",
     .follows = capital_words},
    {"change_case:english_capital", .follows = all_capital},
    {"change_case:english_lowercase", .follows = all_small},
    {"punctuation:no_comma", .follows = no_comma},
};

int ifeval_find(const char *name) {
    for (int i = 0; i < ARRAY_LEN(checks); i++)
        if (strcmp(checks[i].name, name) == 0) return i;
    return -1;
}

const ifeval_check *ifeval_get(int number) {
    return &checks[number];
}
