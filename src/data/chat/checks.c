/* See checks.h. The table first, then the checks of one conversation; those of a whole set are in audit.c and, where a
 * row's length matters, in train/course/chat_source.c. */
#include "data/chat/checks.h"

#include <string.h>

#include "base/arena.h"
#include "base/text.h"

const chat_check_row chat_checks[CHAT_CHECKS] = {
    [CHECK_NOTHING_TRAINED] =
        {"nothing_trained", "no token of this conversation is trained: it has no answer to learn",
         "end conversations with an answer of the assistant", "it is left out"},
    [CHECK_EVERYTHING_TRAINED] =
        {"everything_trained",
         "every token of this conversation is trained, what the user says too",
         "put {% generation %} in the template around what the assistant says only",
         "it is trained so"},
    [CHECK_TWO_BOS] = {"two_bos", "this conversation begins with two beginning-of-text tokens",
                       "take the token out of the messages, or out of the template",
                       "it is trained so"},
    [CHECK_PREFIX_CHANGES] = {"prefix_changes",
                              "the template writes an earlier turn of this conversation in another "
                              "way once later ones follow",
                              "train_on=each makes every answer a sample of its own, as the model "
                              "will see it; train_on=last takes the last answer",
                              "what both ways have in common at the start is the prompt"},
    [CHECK_SYSTEM_DROPPED] =
        {"system_dropped", "the template drops the system prompt of this conversation",
         "take a template that writes system prompts, or take them out of the data",
         "it is trained without"},
    [CHECK_TOOLS_DROPPED] = {"tools_dropped",
                             "the template drops a tool, or a call of one, of this conversation",
                             "take a template that writes tools: --template FILE",
                             "it is trained without"},
    [CHECK_TEMPLATE_FAILS] = {"template_fails", "the template fails on this conversation",
                              "mend the conversation, or take another template: --template FILE",
                              "it is left out"},
    [CHECK_STOP_UNTRAINED] = {"stop_untrained",
                              "no answer ends with a token that stands for its end, so that a "
                              "model would never learn to stop",
                              "take a template that closes the assistant's turn, inside of {% "
                              "generation %} where it has that; "
                              "the token must be in the vocabulary: athanor tok add",
                              "the set is trained so"},
    [CHECK_EMPTY_COLUMN] = {"empty_column", "a column is empty in every record",
                            "fill it, or take it out of the data", "the set is trained so"},
    [CHECK_TRUNCATED] = {"truncated",
                         "too many conversations are longer than a sequence and lose their end",
                         "raise train.seq_len, shorten the data, or raise data.max_truncated",
                         "they are cut"},
};

status chat_checks_parse(const char *const *names, int n, uint32_t *bits, err *e) {
    const char *known[CHAT_CHECKS];
    for (int c = 0; c < CHAT_CHECKS; c++) known[c] = chat_checks[c].name;
    for (int i = 0; i < n; i++) {
        int c = 0;
        while (c < CHAT_CHECKS && strcmp(known[c], names[i]) != 0) c++;
        if (c < CHAT_CHECKS) {
            *bits |= 1u << c;
            continue;
        }
        int near = text_nearest(names[i], known, CHAT_CHECKS);
        err_at(e, ST_USAGE, "allow", "'%s' is not a check of conversations", names[i]);
        return near >= 0 ? err_hint(e, "did you mean %s?", known[near])
                         : err_hint(e, "docs/teaching.md has a list of them");
    }
    return ST_OK;
}

status chat_check_error(chat_check c, const char *detail, err *e) {
    const chat_check_row *row = &chat_checks[c];
    err_set(e, ST_USAGE, "%s%s%s (%s)", row->what, detail ? ": " : "", detail ? detail : "",
            row->name);
    return err_hint(e, "%s; or accept it with data.allow (allow=%s): %s", row->hint, row->name,
                    row->allowed);
}

/* ---- of one conversation ---- */

static int64_t count_trained(const chat_document *d) {
    int64_t n = 0;
    for (int64_t i = 0; i < d->ids.n; i++) n += d->marks[i] & MARK_TRAINED;
    return n;
}

static bool nothing_trained(const chat_view *v) {
    return count_trained(v->doc) == 0;
}

static bool everything_trained(const chat_view *v) {
    bool others = false;
    for (size_t i = 0; i < v->n; i++)
        others = others || !chat_is_role(json_array_get(v->messages, i), "assistant");
    return others && count_trained(v->doc) == v->doc->ids.n;
}

static bool two_bos(const chat_view *v) {
    const tok_ids *ids = &v->doc->ids;
    int32_t bos = tok_bos(v->k->tok);
    return bos >= 0 && ids->n > 1 && ids->id[0] == bos && ids->id[1] == bos;
}

static bool prefix_changes(const chat_view *v) {
    return !v->stable;
}

static bool system_dropped(const chat_view *v) {
    return !v->system_kept;
}

static bool has_name(const chat_view *v, const json_t *tool) {
    const json_t *name = json_object_get(json_object_get(tool, "function"), "name");
    return !json_is_string(name) ||
           memmem(v->text, v->text_bytes, json_string_value(name), json_string_length(name));
}

/* All of them, or one: by the names of functions, which every template writes as they are. */
static bool tools_dropped(const chat_view *v) {
    size_t i, k;
    json_t *tool;
    if (!v->tools_kept) return true;
    json_array_foreach(v->tools, i, tool) if (!has_name(v, tool)) return true;
    for (k = 0; k < v->n; k++) {
        const json_t *calls = json_object_get(json_array_get(v->messages, k), "tool_calls");
        json_array_foreach((json_t *)calls, i, tool) if (!has_name(v, tool)) return true;
    }
    return false;
}

static bool (*const OF_ONE[CHAT_CHECKS])(const chat_view *) = {
    [CHECK_NOTHING_TRAINED] = nothing_trained,
    [CHECK_EVERYTHING_TRAINED] = everything_trained,
    [CHECK_TWO_BOS] = two_bos,
    [CHECK_PREFIX_CHANGES] = prefix_changes,
    [CHECK_SYSTEM_DROPPED] = system_dropped,
    [CHECK_TOOLS_DROPPED] = tools_dropped,
};

status chat_checks_run(const chat_view *v, uint32_t *found, err *e) {
    for (int c = 0; c < CHAT_CHECKS; c++) {
        if (!OF_ONE[c] || !OF_ONE[c](v)) continue;
        if (!(v->k->allowed & 1u << c)) return chat_check_error((chat_check)c, NULL, e);
        *found |= 1u << c;
    }
    return ST_OK;
}
