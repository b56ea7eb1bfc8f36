#include "app/frame/cli_ids.h"

#include <stdio.h>
#include <string.h>

#include "app/frame/cli.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

static status refuse(const char *word, err *e) {
    err_at(e, ST_USAGE, "--ids", "'%s' is not a token id", word);
    return err_hint(e, "write --ids 1,2,3");
}

status cli_parse_ids(const char *list, tok_ids *out, err *e) {
    const char *s = list + strspn(list, " ");
    while (*s) {
        char word[32];
        int64_t id;
        size_t n = strcspn(s, ", ");
        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), s);
        if (!text_parse_int(word, &id) || id < 0 || id > INT32_MAX) return refuse(word, e);
        tok_ids_push(out, (int32_t)id);
        s += n;
        s += strspn(s, " ");
        if (*s != ',') continue;
        s += 1 + strspn(s + 1, " ");
        if (!*s) return refuse("", e); /* a comma has something behind it */
    }
    return ST_OK;
}

const char **cli_split_tokens(arena *a, const char *list, int *n) {
    const char **parts = ARENA_ARRAY(a, const char *, strlen(list) + 1);
    *n = 0;
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, ",");
        parts[(*n)++] = arena_strndup(a, p, len);
        p += len + (p[len] == ',');
    }
    return parts;
}

json_t *cli_id_list(const int32_t *id, int64_t n) {
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) json_array_append_new(list, json_integer(id[i]));
    return list;
}

status cli_check_tok_apart(const char *output, const char *input, err *e) {
    static const char *const NAMES[] = {"", "tokenizer.json", "tokenizer.model"};
    arena *a = arena_new("paths");
    status st = ST_OK;
    if (file_is_dir(output)) output = path_join(a, output, "tokenizer.json");
    for (int i = 0; st == ST_OK && i < ARRAY_LEN(NAMES); i++)
        st = cli_check_apart(output, i > 0 ? path_join(a, input, NAMES[i]) : input, e);
    arena_free(a);
    return st;
}

void cli_warn_of_lost_bytes(const tok *t) {
    int64_t lost = tok_lost_bytes(t);
    if (lost == 0) return;
    log_warn("%lld byte%s of the text %s left out: the vocabulary has no token for %s",
             (long long)lost, text_s(lost), lost == 1 ? "was" : "were", lost == 1 ? "it" : "them");
}
