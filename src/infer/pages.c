/* Pages and their content (see pages.h).
 *
 * Offered pages are in a hash table with chains. Kept pages are in a ring, in the order in which
 * they were left; page 0 stands at its ends. All memory is made at first. */
#include "infer/pages.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/arena.h"

typedef struct page {
    int32_t users;        /* texts that hold it */
    int32_t before;       /* if it is offered: the page whose tokens come before its own */
    int32_t followers;    /* offered pages that follow it */
    int32_t next;         /* of its bucket, or of the free pages */
    int32_t older, newer; /* neighbours in the ring of kept pages */
    uint32_t bucket;
    bool is_offered;
} page;

struct pages {
    int n, tokens;
    page *page;
    int32_t *ids; /* [n, tokens] of offered pages */
    int32_t *bucket;
    uint32_t n_buckets;
    int32_t first_free;
    int n_free, n_kept;
};

pages *pages_new(int n, int tokens) {
    pages *p = xcalloc(1, sizeof *p);
    *p = (pages){.n = n, .tokens = tokens, .n_buckets = 1};
    while (p->n_buckets < (uint32_t)n) p->n_buckets *= 2;
    p->page = xcalloc((size_t)n, sizeof *p->page);
    p->ids = xcalloc((size_t)n * (size_t)tokens, sizeof *p->ids);
    p->bucket = xcalloc(p->n_buckets, sizeof *p->bucket);
    for (int32_t i = n - 1; i > PAGE_NONE; i--) {
        p->page[i].next = p->first_free;
        p->first_free = i;
    }
    p->n_free = n - 1;
    return p;
}

void pages_free(pages *p) {
    if (!p) return;
    free(p->page);
    free(p->ids);
    free(p->bucket);
    free(p);
}

int pages_available(const pages *p) {
    return p->n_free + p->n_kept;
}

int pages_kept(const pages *p) {
    return p->n_kept;
}

/* ---- kept pages ---- */

static void keep(pages *p, int32_t number) {
    int32_t newest = p->page[PAGE_NONE].older;
    p->page[number].older = newest;
    p->page[number].newer = PAGE_NONE;
    p->page[newest].newer = number;
    p->page[PAGE_NONE].older = number;
    p->n_kept++;
}

static void keep_no_more(pages *p, int32_t number) {
    page *g = &p->page[number];
    p->page[g->older].newer = g->newer;
    p->page[g->newer].older = g->older;
    p->n_kept--;
}

/* ---- content ---- */

static size_t id_bytes(const pages *p) {
    return sizeof *p->ids * (size_t)p->tokens;
}

static int32_t *ids_of(const pages *p, int32_t number) {
    return p->ids + (int64_t)number * p->tokens;
}

static uint32_t bucket_of(const pages *p, int32_t before, const int32_t *ids) {
    return (uint32_t)XXH3_64bits_withSeed(ids, id_bytes(p), (uint64_t)before) & (p->n_buckets - 1);
}

static int32_t find(const pages *p, uint32_t bucket, int32_t before, const int32_t *ids) {
    int32_t i = p->bucket[bucket];
    while (i && (p->page[i].before != before || memcmp(ids_of(p, i), ids, id_bytes(p)) != 0))
        i = p->page[i].next;
    return i;
}

static void forget(pages *p, int32_t number) {
    page *g = &p->page[number];
    CHECK(g->followers == 0, "page %d goes before the %d that follow it", number, g->followers);
    int32_t *at = &p->bucket[g->bucket];
    while (*at != number) at = &p->page[*at].next;
    *at = g->next;
    p->page[g->before].followers--;
    g->is_offered = false;
}

static void hold(pages *p, int32_t number) {
    if (p->page[number].users++ == 0) keep_no_more(p, number);
}

/* ---- calls ---- */

int32_t pages_take(pages *p) {
    int32_t number = p->first_free;
    if (number) {
        p->first_free = p->page[number].next;
        p->n_free--;
    } else {
        number = p->page[PAGE_NONE].newer; /* the oldest */
        CHECK(number, "no page is free");
        keep_no_more(p, number);
        forget(p, number);
    }
    p->page[number].users = 1;
    return number;
}

int32_t pages_share(pages *p, int32_t before, const int32_t *ids) {
    int32_t number = find(p, bucket_of(p, before, ids), before, ids);
    if (number) hold(p, number);
    return number;
}

int32_t pages_offer(pages *p, int32_t number, int32_t before, const int32_t *ids) {
    uint32_t bucket = bucket_of(p, before, ids);
    int32_t same = find(p, bucket, before, ids);
    if (same) {
        hold(p, same);
        pages_leave(p, number);
        return same;
    }
    page *g = &p->page[number];
    g->is_offered = true;
    g->before = before;
    g->bucket = bucket;
    g->next = p->bucket[bucket];
    p->bucket[bucket] = number;
    p->page[before].followers++;
    memcpy(ids_of(p, number), ids, id_bytes(p));
    return number;
}

void pages_leave(pages *p, int32_t number) {
    page *g = &p->page[number];
    CHECK(g->users > 0, "page %d is left by nobody", number);
    if (--g->users > 0) return;
    if (g->is_offered) {
        keep(p, number);
        return;
    }
    g->next = p->first_free;
    p->first_free = number;
    p->n_free++;
}
