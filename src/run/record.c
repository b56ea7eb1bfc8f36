/* Alarms and stages in words; see record.h. */
#include "run/record.h"

#include <math.h>
#include <string.h>

#include "run/metrics.h"
#include "run/report/svg.h"

/* ---- alarms ---- */

void record_put_kind(strbuf *out, const json_t *alarm) {
    const char *kind = metrics_text(alarm, "kind");
    if (strcmp(kind, "nonfinite") == 0)
        kind = "not finite";
    else if (*kind == '\0')
        kind = "alarm";
    for (; *kind; kind++) strbuf_putc(out, *kind == '_' ? ' ' : *kind);
}

const char *record_action(const json_t *alarm) {
    static const char *const WORDS[][2] = {{"log", "logged"},
                                           {"skip", "step skipped"},
                                           {"lower", "rate lowered"},
                                           {"rewind", "rewound"}};
    const char *action = metrics_text(alarm, "action");
    for (int i = 0; i < ARRAY_LEN(WORDS); i++)
        if (strcmp(action, WORDS[i][0]) == 0) return WORDS[i][1];
    return "";
}

static bool is_one_of(const char *word, const char *const *list, int n) {
    for (int i = 0; i < n; i++)
        if (strcmp(word, list[i]) == 0) return true;
    return false;
}

bool record_is_fatal(const json_t *alarm) {
    static const char *const FATAL[] = {"", "nonfinite"};
    const char *kind = metrics_text(alarm, "kind");
    if (strcmp(kind, "spike") == 0) return strcmp(metrics_text(alarm, "action"), "rewind") == 0;
    return is_one_of(kind, FATAL, ARRAY_LEN(FATAL));
}

bool record_is_on_curve(const json_t *alarm) {
    static const char *const ELSEWHERE[] = {"epochs", "checkpoint_damaged", "save_failed",
                                            "upload_failed"};
    return !is_one_of(metrics_text(alarm, "kind"), ELSEWHERE, ARRAY_LEN(ELSEWHERE));
}

/* Where its text is, where that is known. */
static void put_origin(strbuf *out, const json_t *document) {
    const char *source = metrics_text(document, "source");
    int64_t line = metrics_int(document, "line", 0);
    strbuf_puts(out, *source ? source : metrics_text(document, "set"));
    if (*source && line > 0) strbuf_printf(out, ":%lld", (long long)line);
}

/* Where its tokens are. Files of others are named by their whole path. */
static void put_tokens(strbuf *out, const json_t *document) {
    const char *set = metrics_text(document, "set"), *shard = metrics_text(document, "shard");
    int64_t number = metrics_int(document, "document", -1);
    if (!*shard) return;
    if (number >= 0)
        strbuf_printf(out, " (document %lld in ", (long long)number);
    else
        strbuf_printf(out, " (tokens %lld to %lld of ",
                      (long long)metrics_int(document, "first_tok", 0),
                      (long long)metrics_int(document, "end_tok", 0));
    if (*set && !strchr(shard, '/')) strbuf_printf(out, "%s/", set);
    strbuf_printf(out, "%s)", shard);
}

void record_put_document(strbuf *out, const json_t *document) {
    const char *id = metrics_text(document, "id");
    double repeated = metrics_num(document, "repeated"), loss = metrics_num(document, "loss");
    put_origin(out, document);
    if (*id) strbuf_printf(out, " \"%s\"", id);
    put_tokens(out, document);
    if (repeated >= 0.005) strbuf_printf(out, ", %.0f %% repeated", 100 * fmin(repeated, 1));
    if (!isfinite(loss)) return;
    strbuf_puts(out, ", loss ");
    svg_put_number(out, loss);
}

/* ---- stages ---- */

void record_put_stage_shape(strbuf *out, const json_t *stage) {
    double theta = metrics_num(stage, "rope_theta"), lr = metrics_num(stage, "lr");
    strbuf_printf(out, "%lld tokens x %lld", (long long)metrics_int(stage, "seq_len", 0),
                  (long long)metrics_int(stage, "batch", 0));
    if (theta > 0) {
        strbuf_puts(out, ", rotary base ");
        svg_put_number(out, theta);
    }
    if (isfinite(lr)) {
        strbuf_puts(out, ", rate ");
        svg_put_number(out, lr);
    }
}

void record_put_source(strbuf *out, const json_t *source) {
    const char *path = metrics_text(source, "path");
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') len--;
    if (len > 6 && memcmp(path + len - 6, "/train", 6) == 0) len -= 6;
    size_t first = len;
    while (first > 0 && path[first - 1] != '/') first--;
    strbuf_append(out, path + first, len - first);
}

void record_put_mixture(strbuf *out, const json_t *stage) {
    const json_t *sources = json_object_get(stage, "sources");
    for (size_t i = 0; i < json_array_size(sources); i++) {
        const json_t *source = json_array_get(sources, i);
        double share = metrics_num(source, "share");
        if (i > 0) strbuf_puts(out, ", ");
        record_put_source(out, source);
        if (isfinite(share)) strbuf_printf(out, " %.3g %%", 100 * share);
    }
}
