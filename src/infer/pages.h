/* The pages of a cache of keys and values, and what is known of their content.
 *
 *   free --take--> held --offer--> held, and found by texts that begin alike
 *     ^              |                         |  nobody holds it any more (leave)
 *     +---- leave ---+                         v
 *   taken by somebody else <---------------- kept: still found (share); the one that was left
 *                                            longest ago is taken first, when none is free
 *
 * What an offered page holds is known by its tokens and by the page whose tokens come before them:
 * a tree of whole pages, in which a text is a path. Tokens are compared one by one, so nothing is
 * found by mistake.
 *
 * Invariant: a text that holds a page holds all pages before it, and leaves them last to first.
 * So of kept pages those that follow others are older than these, and are taken first. */
#ifndef INFER_PAGES_H
#define INFER_PAGES_H

#include <stdint.h>

/* Page 0 is never given out: as the page before, it means that there is none. */
enum { PAGE_NONE = 0 };

typedef struct pages pages;
/* n pages, with page 0, of some tokens each. */
pages *pages_new(int n, int tokens);
void pages_free(pages *p); /* NULL is fine */

/* How many can be taken: free ones and kept ones. */
int pages_available(const pages *p);
int pages_kept(const pages *p);
/* A page for the caller; there must be one. */
int32_t pages_take(pages *p);
/* The page that holds ids [tokens] after those of page `before`: the caller holds it, too.
 * PAGE_NONE: there is none. */
int32_t pages_share(pages *p, int32_t before, const int32_t *ids);
/* The caller's page has come to hold ids [tokens]. Where another page holds the same already, the
 * caller gets that one for its own, which it has left; else its own. */
int32_t pages_offer(pages *p, int32_t page, int32_t before, const int32_t *ids);
void pages_leave(pages *p, int32_t page);

#endif
