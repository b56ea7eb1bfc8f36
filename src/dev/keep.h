/* Small things that stay on a device until it is closed: copies of the host's tables, and scratch
 * memory. Private to the module; cuda.h has the calls. */
#ifndef DEV_KEEP_H
#define DEV_KEEP_H

#include "dev/dev.h"

typedef struct kept {
    void *host, *at; /* the bytes, and their copy on the device */
    size_t bytes;
} kept;

typedef struct dev_keep {
    kept *item;
    int n, cap;
    kept scratch;  /* without bytes of the host */
    dev_room room; /* of the host */
} dev_keep;

/* The copy of these bytes; the same bytes give the same address. NULL: there is no memory for them. */
const void *keep_bytes(dev_keep *k, dev *d, const void *bytes, size_t n, err *e);
void *keep_scratch(dev_keep *k, dev *d, size_t bytes, err *e);
/* Before the device is closed. */
void keep_free(dev_keep *k, dev *d);

#endif
