/* Tables are few and small, so they are found by comparing all bytes with those of each. */
#include "dev/keep.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

const void *keep_bytes(dev_keep *k, dev *d, const void *bytes, size_t n, err *e) {
    for (int i = 0; i < k->n; i++)
        if (k->item[i].bytes == n && memcmp(k->item[i].host, bytes, n) == 0) return k->item[i].at;
    kept new = {.bytes = n};
    if (dev_reserve(d, &new.at, n, "a table on the device", e) != ST_OK) return NULL;
    new.host = xmalloc(n);
    memcpy(new.host, bytes, n);
    dev_write(d, new.at, bytes, n);
    VEC_PUSH(k->item, k->n, k->cap, new);
    return new.at;
}

void *keep_scratch(dev_keep *k, dev *d, size_t bytes, err *e) {
    if (bytes <= k->scratch.bytes) return k->scratch.at;
    dev_release(d, k->scratch.at, k->scratch.bytes);
    k->scratch = (kept){.bytes = bytes};
    if (dev_reserve(d, &k->scratch.at, bytes, "scratch memory", e) != ST_OK)
        k->scratch = (kept){.at = NULL};
    return k->scratch.at;
}

void keep_free(dev_keep *k, dev *d) {
    for (int i = 0; i < k->n; i++) {
        dev_release(d, k->item[i].at, k->item[i].bytes);
        free(k->item[i].host);
    }
    dev_release(d, k->scratch.at, k->scratch.bytes);
    dev_room_free(&k->room);
    free(k->item);
    *k = (dev_keep){.n = 0};
}
