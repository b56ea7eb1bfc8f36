/* This program as a child process: started with other arguments, heard line by line, signalled.
 *
 * The child's standard output is a pipe that its owner reads as JSON objects, one a line; what it
 * says on standard error is appended to a file. It inherits the environment except ATHANOR_FAULT,
 * which is what the owner gives. */
#ifndef APP_CHILD_H
#define APP_CHILD_H

#include <jansson.h>

#include "base/status.h"

typedef struct child child;

/* `args` begin with the program's name and end with NULL. `fault` becomes ATHANOR_FAULT (NULL:
 * none). */
status child_start(child **out, const char *const *args, const char *fault, const char *log_path,
                   err *e) ATH_MUST_USE;
/* The next line as JSON, owned by the caller; *line = NULL at the end of the output, which a killed
 * child may have left within a line. ST_FORMAT: a whole line that is no JSON. ST_STOPPED: a signal that this
 * process catches came first, and reading may go on. */
status child_read(child *c, json_t **line, err *e) ATH_MUST_USE;
/* Called by main: a process that was started so gets a SIGTERM when its parent dies, however that
 * does: none goes on in files that the parent's successor will write. */
void child_follow_parent(void);
/* SIGKILL, SIGTERM, ...; nothing happens when the child has ended. */
void child_signal(child *c, int signal_number);
/* Waits for its end and frees it: its exit status, or 128 + the signal that killed it. */
int child_end(child *c);
/* Kills it, if it still lives, and frees it; NULL is fine. */
void child_abandon(child *c);

#endif
