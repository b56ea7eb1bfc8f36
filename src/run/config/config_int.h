/* Shared by the files of the config: the option table as data. */
#ifndef RUN_CONFIG_INT_H
#define RUN_CONFIG_INT_H

#include <stddef.h>

#include "run/config/config.h"

typedef enum option_type {
    OPTION_BOOL,
    OPTION_INT,
    OPTION_NUM,
    OPTION_TEXT,
    OPTION_CHOICE,
    OPTION_AUTO,
    OPTION_TEXTS,
    OPTION_INTS,
    OPTION_NUMS,
    OPTION_SOURCES,
    OPTION_STAGES,
    OPTION_SOURCE, /* an element of SOURCES or STAGES; no row has these */
    OPTION_STAGE,
} option_type;

/* One row of options.def. */
typedef struct option {
    const char *path;  /* "optim.lr"; of an item the rest, below the list's element */
    const char *owner; /* path of the list whose elements have this member; NULL for options */
    option_type type;
    size_t offset;          /* of its value in the config, or in the list's element */
    const char *fallback;   /* the default as YAML; "null": none */
    double lo, hi;          /* range of a number */
    const char *const *set; /* words of a CHOICE, ended by NULL; else NULL */
    bool free_on_resume;    /* may differ when a run goes on */
    const char *help;
} option;

extern const option config_options[]; /* in the order of the table; items are not among them */
extern const int config_n_options;
extern const option config_items[];
extern const int config_n_items;
extern const char *const config_groups[]; /* "data", "train", "train.precision", ... */
extern const int config_n_groups;

const option *config_find_option(const char *path);
bool config_is_group(const char *path);
/* Whether `path` lies below `parent`; returns the rest after the dot, or NULL. */
const char *config_path_below(const char *path, const char *parent);
/* The group whose scalar form (`precision: bf16`) stands for its first member. */
extern const char config_short_group[];  /* "train.precision" */
extern const char config_short_member[]; /* "compute" */

/* The value at a key path of a JSON tree, list elements by index; NULL when absent. Borrowed. */
json_t *config_walk(const json_t *root, const char *path);

/* Every list of a config has this shape (CONFIG_LIST). */
typedef struct option_list {
    void *items;
    int n;
} option_list;
/* The elements of a list as an option at offset 0, and their size; 0: `o` is no list. */
size_t config_elements(const option *o, option *element);

/* What an option accepts, in words: "an integer from 1 to 4096". */
void config_describe(const option *o, char *out, size_t size);

/* Reads one value into the field of `o` in the struct at `base`. `path` names the value. */
status config_read_value(config *c, const option *o, void *base, const char *path,
                         const json_t *value, err *e) ATH_MUST_USE;
/* Writes the value of an option of the struct at `base` to its place in a tree. */
void config_write_value(const option *o, const void *base, json_t *tree);
/* The default of an option as JSON. The caller owns it. */
json_t *config_fallback(const option *o);
/* Errors at the first key of the raw tree that no row knows, or that should hold an object. */
status config_check_keys(const config *c, const json_t *root, err *e) ATH_MUST_USE;
/* Enters `where` as the origin of `value` at `path` and of everything in it. */
void config_set_origins(json_t *origins, const char *path, const json_t *value, const char *where);
/* Whether an option may differ between stages. */
bool config_stage_may_change(const char *path);
/* Ends in order, and each stage's config as a whole. */
status config_check_stages(const config *c, err *e) ATH_MUST_USE;
/* Checks that concern more than one value. */
status config_check_pairs(const config *c, err *e) ATH_MUST_USE;
/* Adds a sentence to the notes. */
void config_add_note(config *c, const char *fmt, ...) ATH_PRINTF(2, 3);
/* config_idle.c: notes the keys that the user gave and that do nothing. */
status config_note_idle(config *c, err *e) ATH_MUST_USE;
/* config_from.c: looks up what `model.from` names. */
status config_resolve_from(config *c, bool take_tokenizer, err *e) ATH_MUST_USE;
void config_tell_from(const config *c);

#endif
