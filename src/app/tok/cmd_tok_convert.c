/* athanor tok convert: a tokenizer in another format, with a check that ids stay as they are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/frame/cli.h"
#include "app/frame/cli_ids.h"
#include "base/arena.h"
#include "tok/tok_format.h"

/* ---- the probe ---- */

/* Texts in which tokenizers like to differ: spaces and line breaks in all places, numbers, scripts
 * with and without spaces, marks, emoji, code, control characters, texts of special tokens. */
static const char *const PROBE[] = {
    "",
    "Hello world",
    " leading and trailing ",
    "  two  spaces   and\ttabs\t\tand\n\nlines\r\n  indented\n\n\n",
    "It's 3 o'clock; we've 12345678 things, don't we? I'LL SHOUT.",
    "naïve café – “quotes” … ½ Ⅷ ﬁ ™ x² Å ｆｕｌｌ　ｗｉｄｔｈ",
    "Straße Ελλάδα Привет мир 1 234,5",
    "مرحبا بالعالم ١٢٣ كِتَاب",
    "हिन्दी में पाठ और स्वर",
    "ภาษาไทยไม่มีช่องว่าง",
    "日本語のテキストと漢字カタカナ。中文，没有空格！ 한국어 문장",
    "😀 👩‍👩‍👧 🇩🇪 👍🏽 e\xCC\x81 \xE2\x80\x8Bzero width\xEF\xBB\xBF",
    "def f(x):\n    return {\"a\": x**2, 'b': [0x1F, 1e-3]}  # comment\n",
    "https://example.org/a_b?c=d&e=f#g user@example.com C:\\path\\file.txt",
    "<s> </s> <|endoftext|> [CLS] <unk> <0x0A> \xE2\x96\x81mark",
    "\x01\x02\x7F control \xC2\x85 \xC2\xA0 characters",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabababababababab................--------",
};

typedef struct probe_result {
    int same, texts;
    const char *first; /* the first text with other ids */
} probe_result;

static status same_ids(const tok *a, const tok *b, const char *text, bool *same, err *e) {
    tok_ids x = {0}, y = {0};
    status st = tok_encode(a, text, strlen(text), 0, &x, e);
    /* What the first refuses, the second may do as it likes. */
    bool refused = st != ST_OK;
    st = refused ? ST_OK : tok_encode(b, text, strlen(text), 0, &y, NULL);
    *same = refused || (st == ST_OK && x.n == y.n &&
                        (x.n == 0 || memcmp(x.id, y.id, sizeof(*x.id) * (size_t)x.n) == 0));
    tok_ids_free(&x);
    tok_ids_free(&y);
    return ST_OK;
}

static bool has_special(const tok *t, const char *text) {
    for (int32_t id = 0; id < tok_vocab_size(t); id++) {
        const char *s = tok_special(t, id);
        if (s && strstr(text, s)) return true;
    }
    return false;
}

static status run_probe(const tok *before, const tok *after, bool specials, probe_result *r,
                        err *e) {
    for (int i = 0; i < ARRAY_LEN(PROBE); i++) {
        bool same;
        if (!specials && has_special(before, PROBE[i])) continue;
        TRY(same_ids(before, after, PROBE[i], &same, e));
        r->texts++;
        r->same += same;
        if (!same && !r->first) r->first = PROBE[i];
    }
    return ST_OK;
}

/* ---- the command ---- */

/* Reads the result and compares. Ranks are read with the pattern of the tokenizer they came from;
 * one without a name cannot be read back. */
static status check_result(const tok *t, const char *path, tok_format f, probe_result *r, err *e) {
    arena *a = arena_new("tok convert");
    bool ranks = f == TOK_FORMAT_TIKTOKEN;
    tok_load_options o = {.pattern = ranks ? tok_pattern_name(t, a) : NULL};
    tok *back = NULL;
    status st = ranks && !o.pattern ? ST_OK : tok_load_with(&back, path, &o, e);
    arena_free(a);
    if (st == ST_OK && back) st = run_probe(t, back, !ranks, r, e);
    tok_free(back);
    return st;
}

static status read_options(const cli_args *args, arena *a, tok_load_options *o, tok_format *f,
                           err *e) {
    if (!args->output) {
        err_set(e, ST_USAGE, "tok convert needs a place for its result");
        return err_hint(e, "add -o, e.g. -o tokenizer.json or -o tokenizer.model");
    }
    TRY(cli_check_tok_apart(args->output, args->inputs[0], e));
    o->pattern = cli_value(args, "pattern");
    if (cli_has(args, "special")) {
        o->special = cli_split_tokens(a, cli_value(args, "special"), &o->n_special);
    }
    *f = tok_format_of_path(args->output);
    return cli_has(args, "to") ? tok_format_parse(cli_value(args, "to"), f, e) : ST_OK;
}

static void print_result(const cli_args *args, const tok *t, tok_format f, const probe_result *r) {
    strbuf notes = {0};
    tok_export_notes(t, f, &notes);
    const char *from = tok_format_name(tok_format_of(t)), *to = tok_format_name(f);
    if (args->json) {
        json_t *j =
            json_pack("{s:s, s:s, s:i, s:i, s:i}", "from", from, "to", to, "vocab_size",
                      (int)tok_vocab_size(t), "probe_texts", r->texts, "probe_same", r->same);
        if (r->first) json_object_set_new(j, "first_difference", json_string(r->first));
        if (notes.len > 0) json_object_set_new(j, "note", json_string(strbuf_cstr(&notes)));
        cli_print_json(j);
    } else {
        printf("%s: %s, %d tokens, from %s\n", args->output, to, (int)tok_vocab_size(t), from);
        printf("probe: %d of %d texts have the same ids when read back\n", r->same, r->texts);
        if (r->first) printf("first difference: %s\n", r->first);
        if (notes.len > 0) printf("note: %s\n", strbuf_cstr(&notes));
    }
    strbuf_free(&notes);
}

static status run_convert(const cli_args *args, err *e) {
    arena *a = arena_new("tok convert");
    tok_load_options o = {0};
    tok_format f;
    tok *t = NULL;
    probe_result r = {0};
    status st;
    TRY_GOTO(st, read_options(args, a, &o, &f, e), out);
    TRY_GOTO(st, tok_load_with(&t, args->inputs[0], &o, e), out);
    TRY_GOTO(st, tok_export(t, args->output, f, e), out);
    TRY_GOTO(st, check_result(t, args->output, f, &r, e), out);
    print_result(args, t, f, &r);
out:
    tok_free(t);
    arena_free(a);
    return st;
}

/* ---- the table ---- */

static const cli_option option_table[] = {
    {"to", "FORMAT",
     "json, sentencepiece, tiktoken, gpt2, bert or llama2c (default: by OUT's name)"},
    {"pattern", "NAME", "how tiktoken ranks cut text, where the file's name does not tell"},
    {"special", "A,B", "special tokens that the input does not name"},
    {NULL, NULL, NULL},
};

const cli_command command_tok_convert = {
    .name = "tok convert",
    .summary = "a tokenizer in another format; checks that ids stay the same",
    .usage = "TOKENIZER -o OUT [--to FORMAT] [--pattern NAME] [--special A,B]",
    .run = run_convert,
    .options = option_table,
    .min_inputs = 1,
    .max_inputs = 1,
    .takes_output = true,
};
