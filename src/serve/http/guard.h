/* Who may ask: the checks of a request's Host, Origin and Authorization. Pure functions of texts that
 * strangers send.
 *
 * Host: a page of another site can have its name resolve to an address of this machine (DNS
 * rebinding), and is then of the same origin for the browser; but its name stands in Host. So only
 * names that the server knows as its own are served. A numeric address cannot be rebound: where the
 * server listens to other machines, any is fine, as it may stand behind a translated address.
 *
 * Origin: browsers name the page that asks. Requests of other sites are refused, not only hidden from
 * them: a request that changes something has done so before its answer is hidden.
 *
 * Key: compared by digest, so that the time depends on neither the key nor its length. */
#ifndef SERVE_GUARD_H
#define SERVE_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "serve/http/http.h"

typedef struct guard {
    const http_options *options;
    bool loopback;      /* listens to this machine alone */
    char own_name[256]; /* of this machine */
    uint8_t (*digests)[32];
} guard;

/* ST_USAGE: a name of allow_hosts or a site of allow_origins that no request can have. */
status guard_check(const http_options *options, err *e) ATH_MUST_USE;
void guard_init(guard *g, const http_options *options, bool loopback);
void guard_free(guard *g);

/* host: the header's value. Names are compared without case, port and final dot. */
bool guard_allows_host(const guard *g, const char *host);
/* origin: "null", or "http://host:port". One whose host and port are those of `host` is the server's
 * own page. */
bool guard_allows_origin(const guard *g, const char *origin, const char *host);
/* authorization: "Bearer KEY", NULL for none. True where there are no keys. */
bool guard_allows_key(const guard *g, const char *authorization);

/* A name or address without port and brackets: the length of the part of `host` that is it, which
 * begins at *name; 0 for what is none. */
int guard_split_host(const char *host, const char **name);

#endif
