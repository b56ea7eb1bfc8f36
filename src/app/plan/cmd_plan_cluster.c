/* athanor plan cluster NAME: a cluster as a file, to be changed. */
#include <stdio.h>

#include "app/frame/cli.h"
#include "base/file.h"
#include "plan/clock/cluster.h"

static status cmd_plan_cluster(const cli_args *args, err *e) {
    cluster c;
    strbuf text = {0};
    status st = cluster_find(&c, args->inputs[0], e);
    if (st == ST_OK) {
        cluster_put_yaml(&text, &c);
        if (args->output)
            st = file_write_atomic(args->output, text.data, text.len, e);
        else
            printf("%s", strbuf_cstr(&text));
    }
    strbuf_free(&text);
    return st;
}

static char *list_presets(void) {
    strbuf text = {0};
    strbuf_puts(&text, "Presets:");
    for (const char *const *name = cluster_preset_names(); *name; name++)
        strbuf_printf(&text, " %s", *name);
    strbuf_puts(&text, ". NAME-N has N devices.\n");
    char *copy = xstrdup(strbuf_cstr(&text));
    strbuf_free(&text);
    return copy;
}

const cli_command command_plan_cluster = {.name = "plan cluster",
                                          .summary = "a cluster as a file, to be changed",
                                          .usage = "NAME [-o FILE]",
                                          .run = cmd_plan_cluster,
                                          .takes_output = true,
                                          .details = list_presets};
