/* athanor data show, of conversations before they are built: what a build would make of them, and at
 * which hard stops it would end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/data/data_view.h"
#include "base/file.h"

static const uint32_t EVERY_STOP = (1u << CHAT_CHECKS) - 1;

static status make_set(const cli_args *args, const tok *t, const char *dir, uint32_t allowed,
                       err *e) {
    chat_build_options opt = {0};
    chat_build_result r = {0};
    json_t *variables = NULL;
    status st = data_chat_options(args, &opt, &variables, e);
    opt.allowed |= allowed;
    opt.valid_fraction = 0;
    if (st == ST_OK)
        st = chat_build(args->inputs, args->n_inputs, dir, cli_override(args, "tokenizer"), t, &opt,
                        &r, e);
    json_decref(r.report);
    json_decref(variables);
    return st;
}

static status show_in(const cli_args *args, const tok *t, const char *dir, const data_look *look,
                      err *e) {
    err unused;
    shards *s;
    /* Where nothing is left to be shown, the stop itself is the answer. */
    if (make_set(args, t, dir, EVERY_STOP, &unused) != ST_OK) TRY(make_set(args, t, dir, 0, e));
    TRY(shards_open(&s, &(shards_spec){.path = dir, .eos = -1}, e));
    status st = data_show_set(s, t, look, e);
    shards_close(s);
    return st;
}

static status in_folder(const cli_args *args, const tok *t, const data_look *look, err *e) {
    arena *a = arena_new("data show");
    char *dir = arena_printf(a, "%s/athanor-show-XXXXXX", file_temp_dir());
    status st = ST_OK;
    if (!mkdtemp(dir)) {
        st = err_set(e, ST_FAILED, "cannot make a folder beside %s", dir);
    } else {
        st = show_in(args, t, dir, look, e);
        if (file_remove_tree(dir, NULL) != ST_OK) fprintf(stderr, "%s is left behind\n", dir);
    }
    arena_free(a);
    return st;
}

status data_show_chats(const cli_args *args, data_look *look, err *e) {
    const char *tokenizer = cli_override(args, "tokenizer");
    tok *t;
    if (!tokenizer) {
        err_at(e, ST_USAGE, "tokenizer", "conversations are shown as a tokenizer cuts them");
        return err_hint(e, "give tokenizer=FILE");
    }
    TRY(tok_load(&t, tokenizer, e));
    look->title = args->inputs[0];
    status st = in_folder(args, t, look, e);
    tok_free(t);
    return st;
}
