/* Stages in order, commands as child processes, and recipe.json. See recipe.h. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "app/frame/child.h"
#include "app/frame/progress.h"
#include "app/recipe/recipe.h"
#include "app/train/train_signals.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "run/metrics.h"

static const char STATE_FILE[] = "recipe.json", LOCK_FILE[] = ".recipe.lock";
enum { STATE_MOST_BYTES = 16 << 20 };

const char *recipe_path(const recipe *r, const char *name) {
    return path_join(r->a, r->run, name);
}

/* ---- recipe.json ---- */

static json_t *stages_of(const recipe *r) {
    return json_object_get(r->state, "stages");
}

const json_t *recipe_result(const recipe *r, const char *stage) {
    return json_object_get(json_object_get(stages_of(r), stage), "result");
}

double recipe_seconds(const recipe *r, const char *stage) {
    return json_number_value(json_object_get(json_object_get(stages_of(r), stage), "seconds"));
}

static status write_state(const recipe *r, err *e) {
    strbuf text = {0};
    json_format(&text, r->state, 2);
    strbuf_putc(&text, '\n');
    status st = file_write_atomic(recipe_path(r, STATE_FILE), text.data, text.len, e);
    strbuf_free(&text);
    return st;
}

static status no_state(const recipe *r, err *e) {
    err_at(e, ST_FORMAT, recipe_path(r, STATE_FILE), "%s is no state of the recipe %s",
           recipe_path(r, STATE_FILE), r->class->name);
    return err_hint(e, "give another folder with -o");
}

/* A folder that holds anything but a recipe is not written into. */
static status read_state(recipe *r, err *e) {
    const char *path = recipe_path(r, STATE_FILE);
    if (file_exists(path)) {
        TRY(json_read_file(&r->state, path, STATE_MOST_BYTES, e));
        const char *name = json_string_value(json_object_get(r->state, "recipe"));
        bool ours = name && strcmp(name, r->class->name) == 0;
        return ours && json_is_object(stages_of(r)) ? ST_OK : no_state(r, e);
    }
    r->state = json_pack("{s:s, s:o, s:{}}", "recipe", r->class->name, "text", json_cstr(r->text),
                         "stages");
    return ST_OK;
}

/* The text with which the recipe began; another one would be another model. */
static status check_text(recipe *r, err *e) {
    const char *before = json_string_value(json_object_get(r->state, "text"));
    if (!r->text) r->text = before;
    bool same = before ? r->text && strcmp(before, r->text) == 0 : !r->text;
    if (same) return ST_OK;
    err_at(e, ST_USAGE, r->run, "%s was begun with %s", r->run,
           before ? before : "the text of the recipe");
    return err_hint(e, "give another folder with -o, or --from text");
}

static int find_stage(const recipe *r, const char *name) {
    for (int i = 0; i < r->class->n_stages; i++)
        if (strcmp(r->class->stages[i].name, name) == 0) return i;
    return -1;
}

/* The stage whose training the override is for; -1: none. */
static int stage_of_override(const recipe *r, const char *override) {
    for (int k = 0; k < r->class->n_stages; k++) {
        const recipe_stage *stage = &r->class->stages[k];
        size_t len = strlen(stage->name);
        if (stage->trains && strncmp(override, stage->name, len) == 0 && override[len] == '.')
            return k;
    }
    return -1;
}

static bool is_in_list(const json_t *list, const char *text) {
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)list, i, v) {
        const char *own = json_string_value(v);
        if (own && strcmp(own, text) == 0) return true;
    }
    return false;
}

/* first: the stage from which on all is done anew. One that is done already would not hear of it. */
static status check_override(const recipe *r, const char *override, int first, err *e) {
    int k = stage_of_override(r, override);
    if (k < 0) {
        err_at(e, ST_USAGE, "command line", "%s names no stage that trains", override);
        return err_hint(e, "write STAGE.key=value, such as pretrain.train.steps=2000");
    }
    const char *name = r->class->stages[k].name;
    const json_t *before = json_object_get(r->state, "overrides");
    if (k >= first || !recipe_result(r, name) || is_in_list(before, override)) return ST_OK;
    err_at(e, ST_USAGE, "command line", "%s comes too late: the stage %s is done", override, name);
    return err_hint(e, "--from %s does it and all after it again", name);
}

/* "teach.optim.lr=1e-3": for the training of a stage. Those of an earlier start stay, unless new ones are
 * given. */
static status check_overrides(recipe *r, const char *from, err *e) {
    int first = from ? find_stage(r, from) : r->class->n_stages;
    json_t *list = json_array();
    status st = ST_OK;
    for (int i = 0; i < r->n_overrides && st == ST_OK; i++) {
        json_array_append_new(list, json_cstr(r->overrides[i]));
        st = check_override(r, r->overrides[i], first, e);
    }
    if (r->n_overrides && st == ST_OK) json_object_set(r->state, "overrides", list);
    json_decref(list);
    return st;
}

/* Waits until processes of an earlier start have ended: they have the lock open, too. */
static status take_lock(recipe *r, err *e) {
    const char *path = recipe_path(r, LOCK_FILE);
    r->lock = open(path, O_RDWR | O_CREAT, 0666); /* children inherit it */
    if (r->lock < 0) return err_errno(e, path, "cannot open %s", path);
    if (flock(r->lock, LOCK_EX | LOCK_NB) == 0) return ST_OK;
    fprintf(r->out, "waiting for the process that still writes %s\n", r->run);
    while (flock(r->lock, LOCK_EX) != 0)
        if (errno != EINTR || *train_stop_flag())
            return err_set(e, ST_STOPPED, "stopped before anything was done");
    return ST_OK;
}

/* A folder that is empty, or in which a recipe was begun: the lock comes first. */
static status is_free_folder(const recipe *r, err *e) {
    char **names;
    int n = 0;
    if (file_exists(recipe_path(r, LOCK_FILE))) return ST_OK;
    if (file_is_dir(r->run)) TRY(file_list_dir(r->a, r->run, &names, &n, e));
    if (n == 0) return ST_OK;
    err_at(e, ST_USAGE, r->run, "%s is not empty and holds no recipe", r->run);
    return err_hint(e, "give another folder with -o");
}

/* ---- doing a part again ---- */

static status unknown_stage(const recipe *r, const char *name, err *e) {
    strbuf names = {0};
    for (int i = 0; i < r->class->n_stages; i++)
        strbuf_printf(&names, "%s%s", i ? ", " : "", r->class->stages[i].name);
    err_at(e, ST_USAGE, "--from", "the recipe %s has no stage %s", r->class->name, name);
    err_hint(e, "its stages are %s", strbuf_cstr(&names));
    strbuf_free(&names);
    return ST_USAGE;
}

/* First what is known of the stages goes, then their files: cut short, they are done again. */
static status forget_from(recipe *r, const char *name, err *e) {
    int first = find_stage(r, name);
    if (first < 0) return unknown_stage(r, name, e);
    for (int i = first; i < r->class->n_stages; i++)
        json_object_del(stages_of(r), r->class->stages[i].name);
    if (first == 0 && r->text) json_object_set_new(r->state, "text", json_cstr(r->text));
    TRY(write_state(r, e));
    for (int i = first; i < r->class->n_stages; i++)
        for (const char *const *p = r->class->stages[i].made; *p; p++)
            TRY(file_remove_tree(recipe_path(r, *p), e));
    return ST_OK;
}

status recipe_open(recipe *r, const char *from, err *e) {
    TRY(is_free_folder(r, e));
    TRY(file_make_dirs(r->run, e));
    TRY(take_lock(r, e));
    TRY(read_state(r, e));
    TRY(check_overrides(r, from, e));
    if (from) TRY(forget_from(r, from, e));
    return check_text(r, e);
}

void recipe_close(recipe *r) {
    json_decref(r->state);
    json_decref(r->commands);
    if (r->lock >= 0) close(r->lock);
}

status recipe_write_once(const recipe *r, const char *name, const char *text, err *e) {
    const char *path = recipe_path(r, name);
    if (file_exists(path)) return ST_OK;
    TRY(file_make_dirs(arena_strndup(r->a, path, (size_t)(path_base(path) - path)), e));
    return file_write_atomic(path, text, strlen(text), e);
}

/* ---- commands ---- */

typedef struct hearing {
    progress view;
    recipe_hear_fn hear;
    void *ctx;
    json_t *last;
    bool told; /* the child was told to stop */
} hearing;

/* Training shows its steps; validations and what is saved would be noise here. */
static void show(hearing *h, const json_t *line) {
    if (metrics_is(line, "start")) {
        h->view.total_steps = metrics_int(line, "steps", 0);
        h->view.first_step = metrics_int(line, "step", 0);
        h->view.began_ns = clock_now_ns();
    }
    if (metrics_is(line, "step") && h->view.live) progress_event(&h->view, line);
    if (metrics_is(line, "alarm")) progress_event(&h->view, line);
}

static status hear_all(child *c, hearing *h, err *e) {
    json_t *line;
    for (;;) {
        status st = child_read(c, &line, e);
        if (*train_stop_flag() && !h->told) {
            child_signal(c, SIGTERM);
            h->told = true;
        }
        if (st == ST_STOPPED) continue;
        TRY(st);
        if (!line) return ST_OK;
        show(h, line);
        if (h->hear) h->hear(h->ctx, line);
        json_decref(h->last);
        h->last = line;
    }
}

/* The child's last line says what was wrong. */
static status adopt_error(const recipe *r, const json_t *last, int exit_status, err *e) {
    const json_t *o = json_object_get(last, "error");
    const char *log = recipe_path(r, "recipe.log");
    if (!o) {
        err_at(e, ST_FAILED, log, "a command ended with status %d and said nothing", exit_status);
        return err_hint(e, "its standard error is in %s", log);
    }
    const char *hint = json_string_value(json_object_get(o, "hint"));
    const char *where = json_string_value(json_object_get(o, "where"));
    err_at(e, (status)exit_status, where ? where : "", "%s",
           json_string_value(json_object_get(o, "message")));
    return err_hint(e, "%s", hint ? hint : "");
}

const char *const *recipe_train_args(const recipe *r, const char *name, const char *const *more) {
    enum { MOST = 60, ROOM = 16 };
    const char **args = ARENA_ARRAY(r->a, const char *, MOST + ROOM);
    const json_t *list = json_object_get(r->state, "overrides");
    size_t len = strlen(name), i;
    json_t *v;
    int n = 0;
    args[n++] = "train";
    args[n++] = recipe_path(r, arena_printf(r->a, "configs/%s.yaml", name));
    json_array_foreach((json_t *)list, i, v) {
        const char *s = json_string_value(v);
        if (s && n < MOST && strncmp(s, name, len) == 0 && s[len] == '.') args[n++] = s + len + 1;
    }
    for (; *more; more++) args[n++] = *more;
    return args;
}

static bool is_plain_word(const char *s) {
    return *s &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,") ==
               strlen(s);
}

/* As people type it. */
static void note_command(recipe *r, const char *const *args) {
    strbuf text = {0};
    strbuf_puts(&text, "athanor");
    for (; *args; args++) {
        strbuf_putc(&text, ' ');
        if (is_plain_word(*args)) {
            strbuf_puts(&text, *args);
            continue;
        }
        strbuf_putc(&text, '\'');
        for (const char *p = *args; *p; p++)
            strbuf_puts(&text, *p == '\'' ? "'\\''" : (char[]){*p, 0});
        strbuf_putc(&text, '\'');
    }
    json_array_append_new(r->commands, json_text(text.data, text.len));
    strbuf_free(&text);
}

status recipe_command_heard(recipe *r, const char *const *args, recipe_hear_fn hear, void *ctx,
                            json_t **last, err *e) {
    const char *words[80] = {"athanor"};
    int n = 1;
    child *c;
    for (; args[n - 1]; n++) words[n] = args[n - 1];
    words[n] = "--json";
    note_command(r, args);
    hearing h = {.hear = hear, .ctx = ctx};
    progress_init(&h.view, r->out);
    TRY(child_start(&c, words, NULL, recipe_path(r, "recipe.log"), e));
    status st = hear_all(c, &h, e);
    progress_end(&h.view);
    int exit_status = ST_OK;
    if (st == ST_OK)
        exit_status = child_end(c);
    else
        child_abandon(c);
    if (st == ST_OK && *train_stop_flag()) st = err_set(e, ST_STOPPED, "stopped by a signal");
    if (st == ST_OK && exit_status != ST_OK) st = adopt_error(r, h.last, exit_status, e);
    if (st == ST_OK && last)
        *last = h.last;
    else
        json_decref(h.last);
    return st;
}

status recipe_command(recipe *r, const char *const *args, json_t **last, err *e) {
    return recipe_command_heard(r, args, NULL, NULL, last, e);
}

/* ---- stages ---- */

static void print_stage(const recipe *r, const recipe_stage *k, const char *mark, double seconds) {
    char time[24];
    bool color = progress_has_colours(r->out);
    progress_format_duration(seconds, time);
    fprintf(r->out, "%s%s%s %-9s  %s  %s\n", color ? "\033[32m" : "", mark, color ? "\033[0m" : "",
            k->name, k->what, time);
    fflush(r->out);
}

static status run_stage(recipe *r, const recipe_stage *k, err *e) {
    int64_t began = clock_now_ns();
    json_t *result = json_object();
    r->commands = json_array();
    if (progress_is_live(r->out)) fprintf(r->out, "  %-9s  %s ...\r", k->name, k->what);
    fflush(r->out);
    status st = k->run(r, result, e);
    if (st == ST_OK) {
        json_t *o = json_pack("{s:o, s:O, s:O}", "seconds", json_f64(clock_since_s(began)),
                              "commands", r->commands, "result", result);
        json_object_set_new(stages_of(r), k->name, o);
        st = write_state(r, e);
    } else if (st != ST_STOPPED)
        err_context(e, "stage %s", k->name);
    json_decref(result);
    json_decref(r->commands);
    r->commands = NULL;
    if (st == ST_OK) print_stage(r, k, "✓", clock_since_s(began));
    return st;
}

static status stopped(const recipe *r, const char *stage, err *e) {
    err_set(e, ST_STOPPED, "stopped in stage %s", stage);
    return err_hint(e, "start it again, and it goes on: athanor recipe %s -o %s", r->class->name,
                    r->run);
}

status recipe_run_stages(recipe *r, err *e) {
    TRY(write_state(r, e));
    for (int i = 0; i < r->class->n_stages; i++) {
        const recipe_stage *k = &r->class->stages[i];
        if (recipe_result(r, k->name)) {
            print_stage(r, k, "·", recipe_seconds(r, k->name));
            continue;
        }
        status st = *train_stop_flag() ? ST_STOPPED : run_stage(r, k, e);
        if (st == ST_STOPPED) return stopped(r, k->name, e);
        TRY(st);
        TRY(recipe_write_page(r, e));
    }
    return ST_OK;
}
