/* athanor bench generate --streams: the engine, without a server around it (bench_streams.c). */
#ifndef APP_BENCH_STREAMS_H
#define APP_BENCH_STREAMS_H

#include "app/frame/cli.h"
#include "interchange/open_model.h"

typedef struct bench_streams_wish {
    int64_t prompt, new_tok, repeat;
    int streams;
} bench_streams_wish;

/* m has been read; its model is loaded here. Prints what was measured. */
status bench_streams(const cli_args *args, open_model *m, const bench_streams_wish *w,
                     err *e) ATH_MUST_USE;

#endif
