/* Documents of several inputs in batches that own their text, so that many threads can work on
 * them while memory stays bounded.
 *
 * Documents longer than a batch are cut at line ends; each part counts as a document. */
#ifndef APP_DOC_FEED_H
#define APP_DOC_FEED_H

#include "app/frame/cli.h"
#include "data/text/reader.h"

typedef struct feed_doc {
    const char *text;
    size_t len;
    int input;         /* which of the inputs it came from */
    const char *label; /* document.label; NULL: none */
} feed_doc;

typedef struct doc_feed doc_feed;

/* How texts are read, by the keys of the command and its option --field. */
status doc_feed_options(const cli_args *args, arena *a, reader_options *opt, err *e) ATH_MUST_USE;
/* `opt` may be NULL; inputs must outlive the feed. `show`: progress on standard error. */
status doc_feed_open(doc_feed **out, const char *const *inputs, int n, const reader_options *opt,
                     bool show, err *e) ATH_MUST_USE;
void doc_feed_close(doc_feed *f);
/* The next batch, valid until the next call; *n 0 at the end. */
status doc_feed_next(doc_feed *f, const feed_doc **docs, int *n, err *e) ATH_MUST_USE;

#endif
