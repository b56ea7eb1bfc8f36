/* athanor recipe: a model through its whole life by commands that users have.
 *
 * A recipe is a list of stages. Each stage runs commands of this program as child processes, with files in
 * the recipe's folder, so that a user can change a config there and run one stage alone. RUN/recipe.json
 * says which stages are done and what came of them; what is done is not done again, and the commands
 * themselves go on where they were killed. RUN/recipe.html is the report, written anew after each stage.
 *
 *     RUN/text/       train.txt, heldout.txt                 RUN/configs/    a file for each training
 *     RUN/tok.json     the tokenizer                          RUN/pretrain/, teach/, prefer/   runs
 *     RUN/shards/     train, valid                           RUN/eval/       answers and scores
 *     RUN/tasks/      cloze, conversations, pairs            RUN/export/     hf, model.gguf
 *
 * Reading order: this file, miniature.c (the stages), recipe_run.c (how stages and commands are run),
 * recipe_text.c and recipe_tasks.c (what is made of the text), recipe_configs.c, recipe_page.c. */
#ifndef APP_RECIPE_H
#define APP_RECIPE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "app/frame/progress.h"
#include "base/arena.h"

typedef struct recipe recipe;

typedef struct recipe_stage {
    const char *name;
    const char *what;        /* for people */
    const char *const *made; /* what --from removes of RUN; ended by NULL */
    /* Fills `result`, which recipe.json then keeps. */
    status (*run)(recipe *r, json_t *result, err *e);
} recipe_stage;

typedef struct recipe_class {
    const char *name, *summary;
    const recipe_stage *stages;
    int n_stages;
} recipe_class;

struct recipe {
    arena *a;
    const recipe_class *class;
    FILE *out; /* what people read: standard error under --json */
    const char *run, *text;
    json_t *state;    /* recipe.json: {recipe, text, stages: {name: {seconds, commands, result}}} */
    json_t *commands; /* of the stage that runs, for state */
    int lock;
};

extern const recipe_class recipe_miniature;

/* ---- recipe_run.c ---- */

/* Takes the folder, reads recipe.json; from: a stage that is done anew with all after it (NULL: none). */
status recipe_open(recipe *r, const char *from, err *e) ATH_MUST_USE;
void recipe_close(recipe *r);
/* All stages that are not done. ST_STOPPED: a signal came; started again, it goes on. */
status recipe_run_stages(recipe *r, err *e) ATH_MUST_USE;
/* What came of a stage; NULL: it is not done. Borrowed. */
const json_t *recipe_result(const recipe *r, const char *stage);
double recipe_seconds(const recipe *r, const char *stage);
/* RUN/NAME, in the arena. */
const char *recipe_path(const recipe *r, const char *name);
/* Writes RUN/NAME, unless it is there: a config may have been changed by the user. */
status recipe_write_once(const recipe *r, const char *name, const char *text, err *e) ATH_MUST_USE;

/* Runs this program with `args` (which end with NULL and leave out "athanor" and "--json"), shows training
 * events. *last: its last JSON line, the caller's (may be NULL: not wanted). The error is the child's. */
status recipe_command(recipe *r, const char *const *args, json_t **last, err *e) ATH_MUST_USE;
/* The same; `hear` gets each line. */
typedef void (*recipe_hear_fn)(void *ctx, const json_t *line);
status recipe_command_heard(recipe *r, const char *const *args, recipe_hear_fn hear, void *ctx,
                            json_t **last, err *e) ATH_MUST_USE;

/* ---- recipe_text.c ---- */

/* RUN/text: train.txt and, the last tenth of it or each tenth document, heldout.txt. */
status recipe_split_text(recipe *r, json_t *result, err *e) ATH_MUST_USE;

enum { RECIPE_LEAST_WORDS = 6, RECIPE_MOST_WORDS = 16 }; /* of a piece */

/* A piece of a text that exercises are made of: a sentence, or a part of one, of a line. */
typedef struct recipe_piece {
    const char *s;
    int len;
    int words, cut; /* cut: bytes before the space at which it is halved */
    int before;     /* bytes of the text before it that belong to it as context */
} recipe_piece;

typedef struct recipe_pieces {
    char *text; /* heap */
    recipe_piece *piece;
    int n, cap;
} recipe_pieces;
status recipe_read_pieces(const recipe *r, const char *name, recipe_pieces *out,
                          err *e) ATH_MUST_USE;
void recipe_pieces_free(recipe_pieces *p);

/* ---- recipe_tasks.c ---- */

/* RUN/tasks: what the model is asked, taught and told to prefer. */
status recipe_make_tasks(recipe *r, json_t *result, err *e) ATH_MUST_USE;

/* ---- recipe_configs.c ---- */

status recipe_write_pretrain(const recipe *r, err *e) ATH_MUST_USE;
status recipe_write_teach(const recipe *r, err *e) ATH_MUST_USE;
status recipe_write_prefer(const recipe *r, err *e) ATH_MUST_USE;

/* ---- miniature.c, recipe_page.c ---- */

/* A promise of the recipe, and whether it was kept: {name, ok, detail}. */
json_t *recipe_promises(const recipe *r);
status recipe_write_page(const recipe *r, err *e) ATH_MUST_USE;

#endif
