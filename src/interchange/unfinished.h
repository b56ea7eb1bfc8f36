/* What is written under a hidden name goes when a signal ends the program (Ctrl-C): half a model may be as large as
 * a disk, and nobody sees it. */
#ifndef INTERCHANGE_UNFINISHED_H
#define INTERCHANGE_UNFINISHED_H

/* A file or folder, and another or NULL, whose names may come later: they stay with the caller, NULL while there is
 * nothing. SIGINT, SIGTERM and SIGHUP remove them first, and end the program then, but for those that are ignored, or that the
 * command catches, to end in order. One thing at a time. */
void unfinished_begin(const char *const *path, const char *const *beside);
/* While what is finished gets its name, and what had that name goes, a signal waits. The first does not return where a
 * signal was sooner: else half of a folder would come to its name, and what it replaces be removed. */
void unfinished_hold(void);
void unfinished_release(void);
/* Signals do what they did before. */
void unfinished_end(void);

#endif
