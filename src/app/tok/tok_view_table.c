/* `tok report` for people: a block of rows a file, one of groups, one of vocabularies. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "app/tok/tok_view.h"
#include "base/text.h"
#include "base/utf8.h"

enum { NAME_COLUMNS = 20 };

/* ---- columns ---- */

typedef enum better { NO_BEST, LOW, HIGH } better;

typedef struct column {
    const char *head;
    int width;
    better better;
    view_figure figure;
    double scale;
    const char *format;
} column;

enum { FERTILITY = 2, BYTES_PER_TOKEN = 4 };
static const column COLUMNS[] = {
    {"vocab", 7, NO_BEST, VIEW_VOCAB, 1, "%.0f"},
    {"tokens", 10, LOW, VIEW_TOKENS, 1, "%.0f"},
    [FERTILITY] = {"fertility", 9, LOW, VIEW_FERTILITY, 1, "%.3f"},
    {"PCW", 6, LOW, VIEW_PCW, 100, "%.1f%%"},
    [BYTES_PER_TOKEN] = {"bytes/tok", 9, HIGH, VIEW_BYTES_PER_TOKEN, 1, "%.3f"},
    {"tok/char", 8, LOW, VIEW_TOKENS_PER_CHAR, 1, "%.3f"},
    {"unk", 6, NO_BEST, VIEW_UNKNOWN, 100, "%.2f%%"},
    {"used", 6, NO_BEST, VIEW_USED, 100, "%.1f%%"},
    {"exact", 5, NO_BEST, VIEW_EXACT, 100, "%.0f%%"},
};

/* A name that fills its columns: cut when too long, by characters that take one column each. It is of a file or of
 * the data, and no command to a terminal. */
static void put_left(strbuf *out, const char *name, int columns) {
    strbuf visible = {0};
    strbuf_append_visible(&visible, name, strlen(name));
    const char *text = strbuf_cstr(&visible);
    int n = 0;
    size_t i = 0;
    while (text[i] && n < columns) {
        do i++;
        while (utf8_continues(text[i]));
        n++;
    }
    strbuf_append(out, text, i);
    for (; n < columns; n++) strbuf_putc(out, ' ');
    strbuf_free(&visible);
}

static bool is_best(const tok_view *v, const column *c, int tok_index, int row) {
    double mine = view_value(v, c->figure, tok_index, row);
    bool differs = false;
    if (c->better == NO_BEST || !isfinite(mine)) return false;
    if (!view_comparable(view_tally(v, tok_index, row))) return false;
    for (int i = 0; i < v->n_toks; i++) {
        double other = view_value(v, c->figure, i, row);
        if (!view_comparable(view_tally(v, i, row)) || !isfinite(other)) continue;
        if (c->better == LOW ? other < mine : other > mine) return false;
        differs |= other > mine || other < mine;
    }
    return differs;
}

/* The columns that can have a best value have room for its mark. */
static void put_value(strbuf *out, const tok_view *v, const column *c, int tok_index, int row,
                      bool color) {
    char text[32] = "-";
    double value = view_value(v, c->figure, tok_index, row);
    bool best = is_best(v, c, tok_index, row);
    if (isfinite(value)) snprintf(text, sizeof text, c->format, c->scale * value);
    int pad = c->width - (int)strlen(text);
    strbuf_printf(out, " %*s%s%s", pad > 0 ? pad : 0, "", best && color ? "\033[1m" : "", text);
    if (c->better != NO_BEST) strbuf_putc(out, best ? '*' : ' ');
    if (best && color) strbuf_puts(out, "\033[0m");
}

/* ---- blocks ---- */

static void put_bytes(strbuf *out, int64_t n) {
    if (n < 1000000)
        strbuf_printf(out, "%.1f kB", (double)n * 1e-3);
    else
        strbuf_printf(out, "%.1f MB", (double)n * 1e-6);
}

/* The text as the first tokenizer that took all of it counted it. */
static const tok_tally *text_of(const tok_view *v, int row) {
    for (int i = 0; i < v->n_toks; i++)
        if (view_tally(v, i, row)->refused_documents == 0) return view_tally(v, i, row);
    return view_tally(v, 0, row);
}

static void put_title(strbuf *out, const char *name, bool color) {
    strbuf_puts(out, color ? "\n\033[1m" : "\n");
    strbuf_append_visible(out, name, strlen(name));
    strbuf_puts(out, color ? "\033[0m: " : ": ");
}

static void put_row_title(strbuf *out, const tok_view *v, int row, bool color) {
    const tok_tally *s = text_of(v, row);
    put_title(out, v->row[row].name, color);
    put_bytes(out, s->bytes);
    strbuf_printf(out, ", %" PRId64 " document%s, %" PRId64 " word%s\n", s->documents,
                  text_s(s->documents), s->words, text_s(s->words));
}

static void put_heads(strbuf *out, bool color) {
    strbuf_puts(out, color ? "\033[2m" : "");
    put_left(out, "tokenizer", NAME_COLUMNS);
    for (int c = 0; c < ARRAY_LEN(COLUMNS); c++)
        strbuf_printf(out, " %*s%s", COLUMNS[c].width, COLUMNS[c].head,
                      COLUMNS[c].better == NO_BEST ? "" : " ");
    strbuf_puts(out, color ? "\033[0m\n" : "\n");
}

static void put_row(strbuf *out, const tok_view *v, int row, bool color) {
    put_row_title(out, v, row, color);
    put_heads(out, color);
    for (int i = 0; i < v->n_toks; i++) {
        const tok_tally *s = view_tally(v, i, row);
        put_left(out, v->tok[i].name, NAME_COLUMNS);
        for (int c = 0; c < ARRAY_LEN(COLUMNS); c++) put_value(out, v, &COLUMNS[c], i, row, color);
        strbuf_putc(out, '\n');
        if (s->refused_documents)
            strbuf_printf(out,
                          "  refused %" PRId64 " of %" PRId64 " documents, which hold "
                          "characters that it has no token for\n",
                          s->refused_documents, s->documents + s->refused_documents);
    }
}

/* Fertility and bytes per token of each group, a pair of columns a tokenizer. */
static void put_groups(strbuf *out, const tok_view *v, bool color) {
    enum { PAIR = 22, FIT = 3 };
    if (view_count_rows(v, VIEW_GROUP) < 2) return;
    for (int from = 0; from < v->n_toks; from += FIT) {
        int to = from + FIT < v->n_toks ? from + FIT : v->n_toks;
        strbuf_printf(out, "\n%sfertility and bytes per token by %s%s\n", color ? "\033[1m" : "",
                      v->group, color ? "\033[0m" : "");
        strbuf_puts(out, color ? "\033[2m" : "");
        put_left(out, v->group, NAME_COLUMNS);
        strbuf_printf(out, "%10s", "words");
        for (int i = from; i < to; i++) {
            strbuf_puts(out, "   ");
            put_left(out, v->tok[i].name, PAIR - 3);
        }
        strbuf_puts(out, color ? "\033[0m\n" : "\n");
        for (int k = 0; k < v->n_rows; k++) {
            if (v->row[k].kind != VIEW_GROUP) continue;
            put_left(out, v->row[k].name, NAME_COLUMNS);
            strbuf_printf(out, "%10" PRId64, text_of(v, k)->words);
            for (int i = from; i < to; i++) {
                put_value(out, v, &COLUMNS[FERTILITY], i, k, color);
                put_value(out, v, &COLUMNS[BYTES_PER_TOKEN], i, k, color);
            }
            strbuf_putc(out, '\n');
        }
    }
}

/* ---- vocabularies ---- */

/* Text on one line: a dot for each character that cannot be shown, and for each byte that is none.
 */
static void put_token(strbuf *out, const tok *t, int32_t id, int most) {
    size_t len;
    const char *s = tok_bytes(t, id, &len);
    int shown = 0;
    for (size_t i = 0; i < len && shown < most; shown++) {
        uint32_t cp = 0;
        int n = utf8_decode(s + i, len - i, &cp);
        bool plain = n > 0 && cp >= ' ' && !(cp >= 0x7F && cp <= 0xA0) && cp != 0xAD &&
                     !(cp >= 0x200B && cp <= 0x200F) && !(cp >= 0x2028 && cp <= 0x206F);
        strbuf_append(out, plain ? s + i : "\xC2\xB7", plain ? (size_t)n : 2);
        i += n > 0 ? (size_t)n : 1;
        if (shown + 1 == most && i < len) strbuf_puts(out, "...");
    }
}

static void put_examples(strbuf *out, const view_tok *t, const char *what, const tok_ids *ids) {
    enum { SHOWN = 4, BYTES = 12 };
    strbuf_printf(out, "  %-34s %" PRId64, what, ids->n);
    for (int64_t i = 0; i < ids->n && i < SHOWN; i++) {
        strbuf_printf(out, "%s%d '", i ? ", " : ": ", (int)ids->id[i]);
        put_token(out, t->t, ids->id[i], BYTES);
        strbuf_putc(out, '\'');
    }
    strbuf_puts(out, ids->n > SHOWN ? ", ...\n" : "\n");
}

static void put_vocabulary(strbuf *out, const view_tok *t, bool color) {
    const tok_vocab_report *w = &t->vocab;
    put_title(out, t->name, color);
    strbuf_printf(out, "%d tokens, %d of them special, %d used here (%.1f%%)\n", (int)w->size,
                  (int)w->special, (int)w->used,
                  w->size ? 100.0 * (double)w->used / (double)w->size : 0);
    put_examples(out, t, "never used here", &w->unused);
    put_examples(out, t, "unreachable by their own text", &w->unreachable);
    put_examples(out, t, "parts of characters", &w->partial);
    strbuf_printf(out, "  %-34s", "longest");
    for (int64_t i = 0; i < w->longest.n && i < 2; i++) {
        size_t len;
        tok_bytes(t->t, w->longest.id[i], &len);
        strbuf_puts(out, i ? ", '" : " '");
        put_token(out, t->t, w->longest.id[i], 12);
        strbuf_printf(out, "' (%zu byte%s)", len, text_s((int64_t)len));
    }
    strbuf_printf(out, "\n  %-34s %" PRId64 " token%s: ", VIEW_DIGITS, t->digits.n,
                  text_s(t->digits.n));
    for (int64_t i = 0; i < t->digits.n; i++) {
        strbuf_puts(out, i ? "|" : "");
        put_token(out, t->t, t->digits.id[i], 12);
    }
    strbuf_putc(out, '\n');
}

static const char FOOTNOTE[] =
    "\n* best of those with at most 0.1% unknown. fertility: tokens per word, words encoded one "
    "by\n"
    "one; PCW: words of two or more tokens; unk: share of the text that became the unknown token;\n"
    "used: share of the vocabulary that the text uses; exact: documents that decode to the same\n"
    "bytes. A word is a run of letters, marks and numbers; in Han, Kana, Thai, Lao, Khmer and\n"
    "Myanmar it is one letter with its marks.\n";

void tok_view_table(strbuf *out, const tok_view *v, bool color) {
    for (int k = 0; k < v->n_rows; k++)
        if (v->row[k].kind != VIEW_GROUP) put_row(out, v, k, color);
    put_groups(out, v, color);
    for (int i = 0; i < v->n_toks; i++) put_vocabulary(out, &v->tok[i], color);
    strbuf_puts(out, FOOTNOTE);
}
