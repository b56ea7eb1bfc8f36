/* What the recipe asks, teaches and tells to prefer, made from the text by rules, the same every time.
 *
 * A piece is a sentence or line of 6 to 16 words; its first half are half of its words.
 *
 *   cloze          held-out text. Which of four beginnings goes before a second half? One is its own
 *                  first half with up to 160 bytes before it, the others are those of other pieces. The same
 *                  words are scored after each beginning (Trinh and Le 2018, "partial" scoring), so a model
 *                  that does not look at the beginning is right in a quarter of the cases.
 *   conversations  "Continue: FIRST HALF" - the second half; "Last word: PIECE" - its last word; "How many
 *                  words: PIECE" - their number. Every third conversation has two turns.
 *   pairs          "Continue: FIRST HALF" - the second half is preferred to one that goes on with another
 *                  piece, and to its first word alone: answers shall end where they are complete. */
#include <stdlib.h>
#include <string.h>

#include "app/recipe/recipe.h"
#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"

enum {
    CLOZE = 1000,
    LEAST_CLOZE = 500,
    CHOICES = 4,
    CHATS = 5000,
    HELDOUT_CHATS = 200,
    PAIRS = 800,
    HELDOUT_PAIRS = 100,
    SEED = 20
};

typedef struct drawer {
    rng_key key;
    uint64_t n;
} drawer;

static drawer drawer_named(const char *name) {
    return (drawer){.key = rng_key_named(SEED, name)};
}

static int draw(drawer *d, int below) {
    return (int)(rng_u32(d->key, d->n++) % (uint32_t)below);
}

static void put_line(strbuf *out, json_t *o) {
    json_format(out, o, 0);
    strbuf_putc(out, '\n');
    json_decref(o);
}

static status write_list(const recipe *r, const char *name, strbuf *text, err *e) {
    status st = file_write_atomic(recipe_path(r, name), strbuf_cstr(text), text->len, e);
    strbuf_free(text);
    return st;
}

/* ---- cloze ---- */

static json_t *second_half(const recipe_piece *p) {
    return json_text(p->s + p->cut + 1, (size_t)(p->len - p->cut - 1));
}

static json_t *beginning(const recipe_piece *p) {
    return json_text(p->s - p->before, (size_t)(p->before + p->cut));
}

/* Other pieces, each another one. */
static void find_others(const recipe_pieces *p, int i, drawer *d, int others[CHOICES - 1]) {
    for (int n = 0; n < CHOICES - 1;) {
        int j = draw(d, p->n);
        bool taken = j == i;
        for (int m = 0; m < n; m++) taken |= others[m] == j;
        if (!taken) others[n++] = j;
    }
}

static json_t *cloze_item(const recipe_pieces *p, int i, drawer *d) {
    int gold = draw(d, CHOICES), next = 0, others[CHOICES - 1];
    json_t *beginnings = json_array();
    find_others(p, i, d, others);
    for (int k = 0; k < CHOICES; k++)
        json_array_append_new(beginnings, beginning(&p->piece[k == gold ? i : others[next++]]));
    return json_pack("{s:o, s:o, s:i}", "beginnings", beginnings, "ending",
                     second_half(&p->piece[i]), "gold", gold);
}

static const char CLOZE_TASK[] = "# Which of four beginnings goes before the ending? Made from the "
                                 "held-out text by `athanor recipe`.\n"
                                 "task: cloze\n"
                                 "dataset_path: json\n"
                                 "dataset_kwargs: {data_files: {test: cloze.jsonl}}\n"
                                 "test_split: test\n"
                                 "output_type: multiple_choice\n"
                                 "doc_to_text: gold\n"
                                 "doc_to_choice: beginnings\n"
                                 "doc_to_target: ending\n"
                                 "metric_list: [{metric: acc}]\n";

static status make_cloze(const recipe *r, const recipe_pieces *p, json_t *result, err *e) {
    drawer d = drawer_named("cloze");
    rng_key order = rng_key_named(SEED, "cloze order");
    strbuf text = {0};
    int n = p->n < CLOZE ? p->n : CLOZE;
    if (n < LEAST_CLOZE) {
        err_at(e, ST_USAGE, recipe_path(r, "text/heldout.txt"),
               "the held-out text has %d sentences of %d to %d words, and %d are needed", n,
               RECIPE_LEAST_WORDS, RECIPE_MOST_WORDS, LEAST_CLOZE);
        return err_hint(e, "give more text");
    }
    for (int k = 0; k < n; k++)
        put_line(&text, cloze_item(p, (int)rng_permute(order, (uint64_t)p->n, (uint64_t)k), &d));
    json_object_set_new(result, "cloze", json_integer(n));
    TRY(write_list(r, "tasks/cloze.jsonl", &text, e));
    return recipe_write_once(r, "tasks/cloze.yaml", CLOZE_TASK, e);
}

/* ---- conversations ---- */

static json_t *message(const char *role, json_t *content) {
    return json_pack("{s:s, s:o}", "role", role, "content", content);
}

static void add_question(json_t *messages, const char *before, const char *s, int len) {
    strbuf text = {0};
    strbuf_puts(&text, before);
    strbuf_append(&text, s, (size_t)len);
    json_array_append_new(messages, message("user", json_text(text.data, text.len)));
    strbuf_free(&text);
}

static void add_continue(json_t *messages, const recipe_piece *p) {
    add_question(messages, "Continue: ", p->s, p->cut);
    json_array_append_new(messages, message("assistant", second_half(p)));
}

/* Without the marks at its end. */
static void add_last_word(json_t *messages, const recipe_piece *p) {
    int end = p->len;
    while (end > 1 && strchr(".,!?;:-'\"", p->s[end - 1])) end--;
    int first = end;
    while (first > 0 && p->s[first - 1] != ' ') first--;
    if (first == end) return;
    add_question(messages, "Last word: ", p->s, p->len);
    json_array_append_new(messages,
                          message("assistant", json_text(p->s + first, (size_t)(end - first))));
}

static void add_count(json_t *messages, const recipe_piece *p) {
    char number[16];
    snprintf(number, sizeof number, "%d.", p->words);
    add_question(messages, "How many words: ", p->s, p->len);
    json_array_append_new(messages, message("assistant", json_string(number)));
}

static json_t *conversation(const recipe_pieces *p, int i, int k, drawer *d) {
    json_t *messages = json_array();
    const recipe_piece *a = &p->piece[i];
    int turns = k % 3 == 2 ? 2 : 1;
    for (int t = 0; t < turns; t++) {
        int kind = draw(d, 4);
        if (kind < 2)
            add_continue(messages, a);
        else if (kind == 2)
            add_last_word(messages, a);
        if (kind == 3 || json_array_size(messages) < (size_t)(2 * t + 2)) add_count(messages, a);
        a = &p->piece[draw(d, p->n)];
    }
    return messages;
}

/* With `prompts`, the text of each first question as the model is asked it. */
static status make_chats(const recipe *r, const recipe_pieces *p, const char *part, int most,
                         bool prompts, json_t *result, err *e) {
    drawer d = drawer_named(part);
    rng_key order = rng_key_named(SEED, arena_printf(r->a, "%s order", part));
    strbuf text = {0}, asked = {0};
    int n = p->n < most ? p->n : most;
    for (int k = 0; k < n; k++) {
        int i = (int)rng_permute(order, (uint64_t)p->n, (uint64_t)k);
        json_t *messages = conversation(p, i, k, &d);
        const char *first =
            json_string_value(json_object_get(json_array_get(messages, 0), "content"));
        if (prompts)
            put_line(&asked, json_pack("{s:o}", "prompt",
                                       json_cstr(arena_printf(r->a,
                                                              "<|im_start|>user\n%s<|im_end|>\n"
                                                              "<|im_start|>assistant\n",
                                                              first))));
        put_line(&text, json_pack("{s:o}", "messages", messages));
    }
    json_object_set_new(result, part, json_integer(n));
    TRY(write_list(r, arena_printf(r->a, "tasks/%s.jsonl", part), &text, e));
    return prompts ? write_list(r, "tasks/prompts.jsonl", &asked, e) : ST_OK;
}

/* ---- pairs ---- */

static json_t *answer(const char *s, int len, const recipe_piece *more) {
    strbuf text = {0};
    strbuf_append(&text, s, (size_t)len);
    if (more) {
        strbuf_putc(&text, ' ');
        strbuf_append(&text, more->s, (size_t)more->len);
    }
    json_t *list = json_array();
    json_array_append_new(list, message("assistant", json_text(text.data, text.len)));
    strbuf_free(&text);
    return list;
}

/* The complete answer, and one that is too long or, every other time, too short. */
static json_t *pair(const recipe_piece *p, bool longer, const recipe_piece *more) {
    const char *half = p->s + p->cut + 1;
    int len = p->len - p->cut - 1, word = (int)strcspn(half, " ");
    json_t *prompt = json_array();
    add_question(prompt, "Continue: ", p->s, p->cut);
    return json_pack("{s:o, s:o, s:o}", "prompt", prompt, "chosen", answer(half, len, NULL),
                     "rejected", longer ? answer(half, len, more) : answer(half, word, NULL));
}

static status make_pairs(const recipe *r, const recipe_pieces *p, const char *part, int most,
                         json_t *result, err *e) {
    drawer d = drawer_named(part);
    rng_key order = rng_key_named(SEED, arena_printf(r->a, "%s order", part));
    strbuf text = {0};
    int n = p->n < most ? p->n : most;
    for (int k = 0; k < n; k++) {
        const recipe_piece *a = &p->piece[rng_permute(order, (uint64_t)p->n, (uint64_t)k)];
        const recipe_piece *more = &p->piece[draw(&d, p->n)];
        put_line(&text, pair(a, k % 2 == 0, more));
    }
    json_object_set_new(result, part, json_integer(n));
    return write_list(r, arena_printf(r->a, "tasks/%s.jsonl", part), &text, e);
}

/* ---- all ---- */

static status make_all(const recipe *r, const recipe_pieces *train, const recipe_pieces *heldout,
                       json_t *result, err *e) {
    TRY(file_make_dirs(recipe_path(r, "tasks"), e));
    TRY(make_cloze(r, heldout, result, e));
    TRY(make_chats(r, train, "chats", CHATS, false, result, e));
    TRY(make_chats(r, heldout, "chats-heldout", HELDOUT_CHATS, true, result, e));
    TRY(make_pairs(r, train, "pairs", PAIRS, result, e));
    return make_pairs(r, heldout, "pairs-heldout", HELDOUT_PAIRS, result, e);
}

status recipe_make_tasks(recipe *r, json_t *result, err *e) {
    recipe_pieces train = {0}, heldout = {0};
    status st = recipe_read_pieces(r, "text/train.txt", &train, e);
    if (st == ST_OK) st = recipe_read_pieces(r, "text/heldout.txt", &heldout, e);
    if (st == ST_OK) st = make_all(r, &train, &heldout, result, e);
    recipe_pieces_free(&train);
    recipe_pieces_free(&heldout);
    return st;
}
