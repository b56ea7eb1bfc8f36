/* Grapheme clusters. */
#ifndef TOK_NORMALIZE_CLUSTER_H
#define TOK_NORMALIZE_CLUSTER_H

#include <stddef.h>

/* End of the cluster that begins at i < n; a cluster begins at 0 and where another ends. Valid
 * UTF-8. */
size_t cluster_end(const char *s, size_t n, size_t i);

#endif
