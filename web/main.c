/* The planner in a browser: the command line with the commands of web/commands.def, called again and again. */
#include "app/frame/cli.h"
#include "base/arena.h"

int main(int argc, char **argv) {
    json_set_alloc_funcs(xmalloc, free);
    return cli_main(argc, argv);
}
