#include "serve/http/guard.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/sha256.h"

enum { LONGEST_NAME = 253 }; /* of the DNS */

static void digest(const char *text, uint8_t out[32]) {
    sha256 s;
    sha256_init(&s);
    sha256_update(&s, text, strlen(text));
    sha256_final(&s, out);
}

/* A name, or an address of IPv6; no port, no path, no brackets. */
static bool is_host(const char *s) {
    const char *colon = strchr(s, ':');
    return *s && !strpbrk(s, "/[]@") && !(colon && !strchr(colon + 1, ':'));
}

/* What browsers send: scheme and host, perhaps a port, no path. */
static bool is_origin(const char *s) {
    const char *rest = strstr(s, "://");
    return strcmp(s, "null") == 0 || (rest && rest > s && rest[3] && !strpbrk(rest + 3, "/?#@"));
}

status guard_check(const http_options *o, err *e) {
    for (int i = 0; i < o->n_allow_hosts; i++) {
        if (strcmp(o->allow_hosts[i], "*") == 0 || is_host(o->allow_hosts[i])) continue;
        err_at(e, ST_USAGE, "--allow-host", "'%s' is no name of a server", o->allow_hosts[i]);
        return err_hint(e, "give it without scheme, port and path: models.example.org");
    }
    for (int i = 0; i < o->n_allow_origins; i++) {
        if (strcmp(o->allow_origins[i], "*") == 0 || is_origin(o->allow_origins[i])) continue;
        err_at(e, ST_USAGE, "--allow-origin", "'%s' is no site as browsers name it",
               o->allow_origins[i]);
        return err_hint(e, "give scheme and host, without a path: https://app.example.org");
    }
    return ST_OK;
}

void guard_init(guard *g, const http_options *options, bool loopback) {
    *g = (guard){.options = options, .loopback = loopback};
    gethostname(g->own_name, sizeof g->own_name - 1);
    if (options->n_keys == 0) return;
    g->digests = xcalloc((size_t)options->n_keys, sizeof *g->digests);
    for (int i = 0; i < options->n_keys; i++) digest(options->keys[i], g->digests[i]);
}

void guard_free(guard *g) {
    free(g->digests);
    *g = (guard){0};
}

/* ---- Host ---- */

/* ":8080", or nothing. */
static bool is_port(const char *s) {
    if (*s == 0) return true;
    size_t n = strspn(s + 1, "0123456789");
    return *s == ':' && n >= 1 && n <= 5 && s[1 + n] == 0;
}

static bool is_name_byte(unsigned char c) {
    return isalnum(c) || c == '-' || c == '.' || c == '_';
}

int guard_split_host(const char *host, const char **name) {
    int n = 0;
    bool bracket = host[0] == '[';
    *name = host + bracket;
    if (bracket)
        while (isxdigit((unsigned char)(*name)[n]) || (*name)[n] == ':' || (*name)[n] == '.') n++;
    else
        while (is_name_byte((unsigned char)(*name)[n])) n++;
    const char *after = *name + n;
    if (bracket && *after++ != ']') return 0;
    if (n > LONGEST_NAME || !is_port(after)) return 0;
    return !bracket && n > 1 && (*name)[n - 1] == '.' ? n - 1 : n;
}

static bool equals(const char *name, int n, const char *other) {
    return (int)strlen(other) == n && strncasecmp(name, other, (size_t)n) == 0;
}

typedef enum address_kind { NO_ADDRESS, LOOPBACK_ADDRESS, OTHER_ADDRESS } address_kind;

static address_kind kind_of_address(const char *name, int n) {
    char text[INET6_ADDRSTRLEN];
    struct in_addr four;
    struct in6_addr six;
    if (n >= (int)sizeof text) return NO_ADDRESS;
    memcpy(text, name, (size_t)n);
    text[n] = 0;
    if (inet_pton(AF_INET, text, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127 ? LOOPBACK_ADDRESS : OTHER_ADDRESS;
    if (inet_pton(AF_INET6, text, &six) == 1)
        return IN6_IS_ADDR_LOOPBACK(&six) ? LOOPBACK_ADDRESS : OTHER_ADDRESS;
    return NO_ADDRESS;
}

static bool is_listed(const char *name, int n, const char *const *list, int n_list) {
    for (int i = 0; i < n_list; i++)
        if (strcmp(list[i], "*") == 0 || equals(name, n, list[i])) return true;
    return false;
}

bool guard_allows_host(const guard *g, const char *host) {
    const http_options *o = g->options;
    const char *name;
    int n = guard_split_host(host, &name);
    if (n == 0) return false;
    if (is_listed(name, n, o->allow_hosts, o->n_allow_hosts)) return true;
    if (o->host && equals(name, n, o->host)) return true;
    if (equals(name, n, "localhost")) return true;
    address_kind kind = kind_of_address(name, n);
    if (kind == LOOPBACK_ADDRESS) return true;
    if (g->loopback) return false;
    return kind == OTHER_ADDRESS || (g->own_name[0] && equals(name, n, g->own_name));
}

/* ---- Origin ---- */

bool guard_allows_origin(const guard *g, const char *origin, const char *host) {
    const http_options *o = g->options;
    for (int i = 0; i < o->n_allow_origins; i++)
        if (strcmp(o->allow_origins[i], "*") == 0 || strcasecmp(o->allow_origins[i], origin) == 0)
            return true;
    const char *rest = strncasecmp(origin, "http://", 7) == 0    ? origin + 7
                       : strncasecmp(origin, "https://", 8) == 0 ? origin + 8
                                                                 : NULL;
    return rest && *rest && strcasecmp(rest, host) == 0;
}

/* ---- keys ---- */

bool guard_allows_key(const guard *g, const char *authorization) {
    uint8_t given[32];
    bool found = g->options->n_keys == 0;
    if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0) return found;
    const char *key = authorization + 7;
    while (*key == ' ') key++;
    digest(key, given);
    for (int i = 0; i < g->options->n_keys; i++) {
        unsigned differ = 0;
        for (int b = 0; b < 32; b++) differ |= (unsigned)(given[b] ^ g->digests[i][b]);
        found |= differ == 0;
    }
    return found;
}
