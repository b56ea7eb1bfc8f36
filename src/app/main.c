/* The program: see cli.h for the frame and commands.def for what it can do. */
#include "app/cli.h"

int main(int argc, char **argv) {
    return cli_main(argc, argv);
}
