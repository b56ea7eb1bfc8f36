/* A load on a server that speaks OpenAI's API: requests that are the same each time they are asked for, sent by a
 * number of clients or at random times, and what became of them.
 *
 * A request is a function of the seed and its number alone (load_put_request), so two servers get the same ones,
 * and the same server gets one again. Answers are always streamed.
 *
 *   serve_load.h -> load_request.c (what is asked) -> load_run.c (sending and counting); http_call.h is below */
#ifndef APP_BENCH_SERVE_LOAD_H
#define APP_BENCH_SERVE_LOAD_H

#include <jansson.h>

#include "app/bench/http_call.h"

typedef struct load_range {
    int64_t lo, hi; /* both included */
} load_range;

typedef struct load_wish {
    bool chat;              /* /v1/chat/completions, else /v1/completions */
    bool until_end;         /* an answer may end before its length */
    load_range words, news; /* words of a prompt; tokens of an answer */
    int64_t shared_words;   /* that all prompts begin with */
    json_t *prompts;        /* texts, or lists of messages; NULL: random words */
    const char *key;        /* for Authorization, or NULL */
    double temperature;
    double cancel, malformed; /* shares of requests: given up within the answer; wrong on purpose */
    uint64_t seed;
    double timeout_s; /* an answer that takes longer is given up, and counts as cut */
} load_wish;

/* What a request is meant to come to. */
typedef enum load_kind { LOAD_WHOLE, LOAD_CANCEL, LOAD_MALFORMED } load_kind;

load_kind load_kind_of(const load_wish *w, int64_t number);
/* After how many pieces of text a LOAD_CANCEL is given up. */
int64_t load_patience(const load_wish *w, int64_t number);
/* Appends the bytes of a request. model: its name for the server, or NULL. *hang_up: of http_call. */
void load_put_request(strbuf *out, const load_wish *w, const http_place *p, const char *model,
                      int64_t number, bool *hang_up);

/* ---- one round ---- */

typedef struct load_server {
    http_place place;
    char *model; /* asked of the server; NULL: it names none */
} load_server;

/* ST_FAILED: there is no server, or it does not answer to /v1/models or the key. */
status load_server_open(load_server *s, const char *url, const load_wish *w, err *e) ATH_MUST_USE;
void load_server_close(load_server *s);

typedef struct load_round {
    int64_t first, n; /* numbers of the requests */
    int64_t clients;  /* each sends its next request when its last has ended; 0: by rate */
    double rate;      /* requests a second, at random times (a Poisson process) */
} load_round;

typedef struct load_times {
    double *v; /* seconds */
    int64_t n, cap;
} load_times;

/* What a request came to. */
typedef enum load_end {
    LOAD_NOT_ASKED,
    LOAD_DONE,        /* the whole answer; of a malformed request, a refusal */
    LOAD_GIVEN_UP,    /* by us, as was meant */
    LOAD_TURNED_AWAY, /* 429 or 503: the server is full or ends */
    LOAD_UNREACHABLE, /* no connection, or one that ended before any answer */
    LOAD_CUT,         /* the answer began and did not end */
    LOAD_WRONG,       /* another status than the request deserves, or what is no answer */
    LOAD_ENDS,
} load_end;

typedef struct load_answer {
    load_end end;
    strbuf text;
} load_answer;

typedef struct load_result {
    double seconds;
    int64_t ends[LOAD_ENDS], prompt_tok, new_tok;
    /* to the first piece of text; between pieces (several tokens may come in one piece, or at once); a token of an
     * answer after its first piece, on average; to the end */
    load_times first, gap, token, whole;
    load_answer *answers; /* [round.n] */
    char why[256];        /* the first failure, for people */
} load_result;

void load_run(const load_wish *w, const load_server *s, const load_round *round, load_result *r);
void load_result_free(load_result *r, int64_t n);
/* Sorts; the smallest value that a share q of all do not exceed. 0: there are none. */
double load_quantile(load_times *t, double q);

#endif
