/* The text of --help, from the table of commands. */
#include "app/frame/cli_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_row(const cli_command *c) {
    printf("  %-17s %s\n", c->name, c->summary);
}

void cli_print_help(void) {
    printf("athanor %s: trains language models, from text to a model that writes\n\n"
           "usage: athanor COMMAND INPUT... [-o OUT] [key.path=value...] [--option value] "
           "[--json]\n\ncommands:\n",
           ATHANOR_VERSION);
    for (int i = 0; i < cli_n_commands; i++) print_row(cli_commands[i]);
    printf("\nathanor COMMAND --help says more about each. Exit status: 0 done, 1 failed, 2 wrong "
           "usage or\nconfig, 3 bad file, 4 does not fit in memory, 5 NaN or divergence, 6 a rank "
           "failed, 75 stopped\non a signal with its state saved.\n");
}

static void print_option(const char *name, const char *value, const char *help) {
    char left[64];
    snprintf(left, sizeof left, "--%s%s%s", name, value ? " " : "", value ? value : "");
    printf("  %-22s %s\n", left, help);
}

void cli_print_command_help(const cli_command *c) {
    printf("athanor %s: %s\n\nusage: athanor %s %s\n\noptions:\n", c->name, c->summary, c->name,
           c->usage);
    for (int i = 0; c->options && c->options[i].name; i++)
        print_option(c->options[i].name, c->options[i].value, c->options[i].help);
    if (c->takes_output) printf("  %-22s %s\n", "-o OUT", "where the result goes");
    print_option("json", NULL, "standard output carries only JSON");
    print_option("help", NULL, "this text");
    if (!c->details) return;
    char *text = c->details();
    printf("\n%s", text);
    free(text);
}

bool cli_print_group_help(const char *word) {
    size_t n = strlen(word);
    bool any = false;
    for (int i = 0; i < cli_n_commands; i++) {
        const char *name = cli_commands[i]->name;
        if (strncmp(name, word, n) != 0 || name[n] != ' ') continue;
        if (!any) printf("commands:\n");
        any = true;
        print_row(cli_commands[i]);
    }
    return any;
}
