/* See card.h. */
#include "interchange/card.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "interchange/ledger.h"
#include "model/family.h"

static const char MARK[] =
    "<!-- Made by athanor. Remove this line, and the text stays as you write it. -->";
enum { CARD_MOST_BYTES = 4 << 20 };

/* A copy in another form is no model of its own: what its source was made from counts. Each name once. */
static void add_names(const json_t *ledger, json_t *names) {
    size_t i;
    json_t *parent;
    json_array_foreach(json_object_get(ledger, "parents"), i, parent) {
        const char *role = json_string_value(json_object_get(parent, "role"));
        const char *path = json_string_value(json_object_get(parent, "path"));
        const json_t *own = json_object_get(parent, "ledger");
        if (role && strcmp(role, "source") == 0 && json_is_object(own))
            add_names(own, names);
        else if (path)
            json_object_set_new(names, path_base(path), json_true());
    }
}

static void put_parents(const json_t *ledger, strbuf *out) {
    json_t *names = json_object(), *unused;
    const char *name;
    add_names(ledger, names);
    if (json_object_size(names)) strbuf_puts(out, "base_model:\n");
    json_object_foreach(names, name, unused) {
        strbuf_puts(out, "- ");
        json_put_text(out, name);
        strbuf_putc(out, '\n');
    }
    json_decref(names);
}

static void put_front_matter(const card *c, strbuf *out) {
    strbuf_printf(out, "---\nlibrary_name: transformers\npipeline_tag: text-%s\nlicense: ",
                  c->config->num_labels ? "classification" : "generation");
    json_put_text(out, c->license ? c->license : "unknown");
    strbuf_puts(out, "\n");
    put_parents(c->ledger, out);
    strbuf_printf(out, "tags:\n- athanor\n- %s\n", c->config->family->model_type);
    for (const char *p = c->tags ? c->tags : ""; *p;) {
        size_t n = strcspn(p, " ");
        strbuf_printf(out, "- %.*s\n", (int)n, p);
        p += n + (p[n] == ' ');
    }
    strbuf_puts(out, "---\n");
}

static void put_facts(const card *c, strbuf *out) {
    const model_config *mc = c->config;
    strbuf_printf(out, "| | |\n|---|---|\n| architecture | %s |\n| parameters | %lld |\n",
                  model_architecture(mc), (long long)c->params);
    strbuf_printf(out, "| weights | %s", c->format);
    if (c->bytes)
        strbuf_printf(out, ", %llu bytes in %d file%s", (unsigned long long)c->bytes, c->files,
                      text_s(c->files));
    strbuf_printf(out,
                  " |\n| layers, width | %lld, %lld |\n| vocabulary | %lld |\n| longest sequence | "
                  "%lld |\n\n",
                  (long long)mc->num_hidden_layers, (long long)mc->hidden_size,
                  (long long)mc->vocab_size, (long long)mc->max_position_embeddings);
}

void card_put(const card *c, strbuf *out) {
    put_front_matter(c, out);
    strbuf_printf(out, "%s\n\n# %s\n\n", MARK, c->name);
    strbuf_printf(out, "A %s model, %s by athanor %s.\n\n", c->config->family->model_type, c->made,
                  ATHANOR_VERSION);
    put_facts(c, out);
    if (c->sections) strbuf_puts(out, c->sections);
    if (c->ledger) {
        strbuf_puts(out, "\n## Where it comes from\n\n");
        ledger_describe(c->ledger, out);
        strbuf_puts(out, "\nAll of it, with digests and configs, is in `" LEDGER_FILE "`.\n");
    }
    if (!c->where) return;
    strbuf_puts(out, "\n## Where it runs\n\n");
    for (int t = 0; t < WHERE_TOOLS; t++) {
        strbuf_printf(out, "- %s: ", where_basis_of((where_tool)t).program);
        where_describe((where_tool)t, &c->where->tool[t], out);
        strbuf_puts(out, "\n");
    }
}

/* ---- cards that are there ---- */

/* NULL: there is no text. On the heap. */
static char *read_card(arena *a, const char *dir) {
    char *text;
    size_t len;
    const char *path = path_join(a, dir, "README.md");
    if (file_read_part(path, CARD_MOST_BYTES, &text, &len, NULL) != ST_OK) return NULL;
    return text;
}

status card_write(const card *c, const char *dir, const char *keep, err *e) {
    arena *a = arena_new("card");
    char *old = keep ? read_card(a, keep) : NULL;
    bool theirs = old && !strstr(old, MARK);
    strbuf text = {0};
    if (theirs)
        strbuf_puts(&text, old);
    else
        card_put(c, &text);
    status st = file_write_atomic(path_join(a, dir, "README.md"), text.data, text.len, e);
    strbuf_free(&text);
    free(old);
    arena_free(a);
    return st;
}

const char *card_license_of(arena *a, const char *dir) {
    char *text = file_is_dir(dir) ? read_card(a, dir) : NULL;
    const char *found = NULL;
    if (text && strncmp(text, "---\n", 4) == 0) {
        char *end = strstr(text + 4, "\n---");
        char *line = strstr(text, "\nlicense:");
        if (end && line && line < end) {
            line += strlen("\nlicense:");
            line += strspn(line, " \"");
            size_t n =
                strspn(line, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_");
            if (n && strncmp(line, "unknown", n) != 0) found = arena_strndup(a, line, n);
        }
    }
    free(text);
    return found;
}
