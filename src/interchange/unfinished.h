/* What is written under a hidden name goes when a signal ends the program (Ctrl-C): half a model may be as large as
 * a disk, and nobody sees it. */
#ifndef INTERCHANGE_UNFINISHED_H
#define INTERCHANGE_UNFINISHED_H

/* A file or folder, and another or NULL, whose names may come later: they stay with the caller, NULL while there is
 * nothing. SIGINT, SIGTERM and SIGHUP remove them first, and
 * end the program then, unless they were ignored. What is begun in between lies in the first one, and goes with it. */
void unfinished_begin(const char *const *path, const char *const *beside);
/* Signals do what they did before. */
void unfinished_end(void);

#endif
