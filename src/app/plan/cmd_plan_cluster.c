/* athanor plan cluster NAME: a cluster as a file, to be changed. */
#include <stdio.h>

#include "app/frame/cli.h"
#include "base/file.h"
#include "base/json.h"
#include "plan/clock/cluster.h"

static status cmd_plan_cluster(const cli_args *args, err *e) {
    cluster c;
    strbuf text = {0};
    TRY(cluster_find(&c, args->inputs[0], e));
    cluster_put_yaml(&text, &c);
    status st = ST_OK;
    if (args->output)
        st = file_write_atomic(args->output, text.data, text.len, e);
    else
        printf("%s", strbuf_cstr(&text)); /* which is JSON */
    if (st == ST_OK && args->output && args->json)
        cli_print_json(json_pack("{s:o,s:o,s:i,s:i}", "path", json_cstr(args->output), "name",
                                 json_cstr(c.name), "devices", cluster_devices(&c), "per_node",
                                 c.per_node));
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
                                          .prints_output = true,
                                          .details = list_presets};
