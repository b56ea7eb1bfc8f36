/* The forms that records of conversations have, and which columns each of them reads. A form is known by
 * its columns; the first row that has all of its own is taken, so the more particular come first. */
#include "data/chat/sample.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "base/json.h"

struct chat_form {
    const char *name;
    bool (*is)(const json_t *record);
    status (*read)(const json_t *record, chat_sample *out, err *e);
};

void chat_sample_free(chat_sample *s) {
    json_decref(s->messages);
    json_decref(s->rejected);
    json_decref(s->tools);
    json_decref(s->documents);
    json_decref(s->variables);
    *s = (chat_sample){0};
}

/* ---- columns ---- */

/* The value of a column; NULL where it is absent or null. */
static const json_t *column(const json_t *record, const char *name) {
    const json_t *v = json_object_get(record, name);
    return json_is_null(v) ? NULL : v;
}

static bool has_text(const json_t *v) {
    return json_string_length(v) > 0;
}

/* Question and answer columns that go together. */
static const struct {
    const char *question, *answer;
} PAIRS[] = {{"instruction", "output"}, {"instruction", "response"},
             {"question", "answer"},    {"prompt", "completion"},
             {"prompt", "response"},    {"query", "response"},
             {"source", "target"},      {"src", "tgt"}};

static int question_of(const json_t *record) {
    for (int i = 0; i < ARRAY_LEN(PAIRS); i++)
        if (column(record, PAIRS[i].question) && column(record, PAIRS[i].answer)) return i;
    return -1;
}

static const char *list_of(const json_t *record) {
    static const char *const NAMES[] = {"messages", "conversations", "conversation"};
    for (int i = 0; i < ARRAY_LEN(NAMES); i++)
        if (json_is_array(column(record, NAMES[i]))) return NAMES[i];
    return NULL;
}

static const json_t *label_of(const json_t *record) {
    const json_t *v = column(record, "label");
    return v ? v : column(record, "kto_tag");
}

bool chat_column_is_read(const char *name) {
    static const char *const OTHERS[] = {
        "messages", "conversations", "conversation", "system", "tools",   "documents",
        "chosen",   "rejected",      "label",        "input",  "history", "chat_template_kwargs",
        "kto_tag",  "translation"};
    for (int i = 0; i < ARRAY_LEN(OTHERS); i++)
        if (strcmp(OTHERS[i], name) == 0) return true;
    for (int i = 0; i < ARRAY_LEN(PAIRS); i++)
        if (strcmp(PAIRS[i].question, name) == 0 || strcmp(PAIRS[i].answer, name) == 0) return true;
    return false;
}

/* ---- prompts ---- */

/* Alpaca: the input follows the instruction on a new line. */
static json_t *instruction_text(const json_t *question, const json_t *input) {
    size_t n = json_string_length(question), m = json_string_length(input);
    if (m == 0) return json_incref((json_t *)question);
    char *text = xmalloc(n + 1 + m);
    memcpy(text, json_string_value(question), n);
    text[n] = '\n';
    memcpy(text + n + 1, json_string_value(input), m);
    json_t *out = json_stringn_nocheck(text, n + 1 + m);
    free(text);
    return out;
}

/* Earlier turns: a list of [question, answer]. */
static status add_history(json_t *out, const json_t *history, err *e) {
    size_t i;
    json_t *turn;
    json_array_foreach((json_t *)history, i, turn) {
        const json_t *q = json_array_get(turn, 0), *a = json_array_get(turn, 1);
        if (!json_is_string(q) || !json_is_string(a))
            return err_set(e, ST_USAGE,
                           "turn %zu of its \"history\" is not a question and an answer", i + 1);
        TRY(chat_add_messages(out, q, "user", "history", e));
        TRY(chat_add_messages(out, a, "assistant", "history", e));
    }
    return ST_OK;
}

static status add_question(json_t *out, const json_t *record, const char *name, err *e) {
    const json_t *q = column(record, name);
    TRY(add_history(out, column(record, "history"), e));
    if (!json_is_string(q)) return chat_add_messages(out, q, "user", name, e);
    const json_t *input = strcmp(name, "instruction") == 0 ? column(record, "input") : NULL;
    json_array_append_new(out, chat_message("user", instruction_text(q, input)));
    return ST_OK;
}

/* What a pair or a labelled answer answers to. */
static status add_prompt(json_t *out, const json_t *record, err *e) {
    static const char *const NAMES[] = {"prompt", "instruction", "question", "query"};
    const char *list = list_of(record);
    if (list) return chat_add_messages(out, column(record, list), "user", list, e);
    for (int i = 0; i < ARRAY_LEN(NAMES); i++)
        if (column(record, NAMES[i])) return add_question(out, record, NAMES[i], e);
    return err_set(e, ST_USAGE,
                   "it has no prompt: no \"prompt\", \"messages\" or \"conversations\"");
}

/* The columns that every form may have. */
static status read_common(const json_t *record, chat_sample *out, err *e) {
    const json_t *system = column(record, "system");
    if (has_text(system) && !chat_is_role(json_array_get(out->messages, 0), "system")) {
        json_t *lists[] = {out->messages, out->rejected};
        for (int i = 0; i < 2; i++)
            if (lists[i])
                json_array_insert_new(lists[i], 0,
                                      chat_message("system", json_incref((json_t *)system)));
        if (out->n_prompt) out->n_prompt++;
    }
    const char *const documents = "documents", *const variables = "chat_template_kwargs";
    TRY(chat_read_column(column(record, documents), documents, JSON_ARRAY, &out->documents, e));
    TRY(chat_read_column(column(record, variables), variables, JSON_OBJECT, &out->variables, e));
    return chat_read_tools(column(record, "tools"), &out->tools, e);
}

/* ---- single conversations ---- */

static bool is_list(const json_t *record, const char *key) {
    const char *name = list_of(record);
    const json_t *first = name ? json_array_get(column(record, name), 0) : NULL;
    return first && json_object_get(first, key);
}

static bool is_messages(const json_t *record) {
    return is_list(record, "role");
}

static bool is_sharegpt(const json_t *record) {
    return is_list(record, "from");
}

static status read_list(const json_t *record, chat_sample *out, err *e) {
    const char *name = list_of(record);
    if (!name) return err_set(e, ST_USAGE, "it has no \"messages\" and no \"conversations\"");
    out->messages = json_array();
    TRY(chat_add_messages(out->messages, column(record, name), "user", name, e));
    if (json_array_size(out->messages) == 0)
        return err_set(e, ST_USAGE, "its \"%s\" is empty", name);
    return read_common(record, out, e);
}

static bool is_alpaca(const json_t *record) {
    return question_of(record) >= 0;
}

static status read_alpaca(const json_t *record, chat_sample *out, err *e) {
    int i = question_of(record);
    if (i < 0)
        return err_set(e, ST_USAGE,
                       "it has no \"instruction\" with an \"output\", nor another question "
                       "with its answer");
    out->messages = json_array();
    TRY(add_question(out->messages, record, PAIRS[i].question, e));
    /* A prompt may have answers of its own, which are only read. */
    if (strcmp(PAIRS[i].question, "prompt") == 0) out->n_prompt = json_array_size(out->messages);
    TRY(chat_add_messages(out->messages, column(record, PAIRS[i].answer), "assistant",
                          PAIRS[i].answer, e));
    return read_common(record, out, e);
}

/* ---- translations ---- */

/* {"translation": {"en": "...", "fr": "..."}}: from the first language to the second. */
static bool is_translation(const json_t *record) {
    return json_object_size(column(record, "translation")) == 2;
}

static status read_translation(const json_t *record, chat_sample *out, err *e) {
    json_t *pair = (json_t *)column(record, "translation");
    void *first = json_object_iter(pair), *second = json_object_iter_next(pair, first);
    if (json_object_size(pair) != 2)
        return err_set(e, ST_USAGE, "its \"translation\" is no object of two languages");
    out->messages = json_array();
    TRY(chat_add_messages(out->messages, json_object_iter_value(first), "user", "translation", e));
    return chat_add_messages(out->messages, json_object_iter_value(second), "assistant",
                             "translation", e);
}

/* ---- pairs ---- */

static bool is_preference(const json_t *record) {
    return column(record, "chosen") && column(record, "rejected");
}

static size_t common_messages(const json_t *a, const json_t *b) {
    size_t n = 0,
           most = json_array_size(a) < json_array_size(b) ? json_array_size(a) : json_array_size(b);
    while (n + 1 < most && json_equal(json_array_get(a, n), json_array_get(b, n))) n++;
    return n;
}

static status read_preference(const json_t *record, chat_sample *out, err *e) {
    const json_t *chosen = column(record, "chosen"), *rejected = column(record, "rejected");
    if (!chosen || !rejected)
        return err_set(e, ST_USAGE, "it has no \"%s\"", chosen ? "rejected" : "chosen");
    out->kind = CHAT_PAIRS;
    out->messages = json_array();
    out->rejected = json_array();
    json_t *answer = json_array();
    status st = chat_add_messages(answer, chosen, "assistant", "chosen", e);
    bool whole = !chat_is_role(json_array_get(answer, 0), "assistant");
    json_decref(answer);
    TRY(st);
    if (!whole) TRY(add_prompt(out->messages, record, e));
    json_array_extend(out->rejected, out->messages);
    out->n_prompt = json_array_size(out->messages);
    TRY(chat_add_messages(out->messages, chosen, "assistant", "chosen", e));
    TRY(chat_add_messages(out->rejected, rejected, "assistant", "rejected", e));
    if (whole) out->n_prompt = common_messages(out->messages, out->rejected);
    if (out->n_prompt == 0)
        return err_set(e, ST_USAGE, "its chosen and its rejected answer have no prompt in common");
    return read_common(record, out, e);
}

/* ---- labels ---- */

/* A truth that is written as a text or as 0.0 makes a labelled answer, too, which is then refused:
 * taken for a conversation, an answer that is not wanted would be learned. */
static bool is_labelled(const json_t *record) {
    const json_t *label = label_of(record);
    const char *text = json_string_value(label);
    bool known = json_is_boolean(label) || json_is_number(label) ||
                 (text && (strcasecmp(text, "true") == 0 || strcasecmp(text, "false") == 0));
    return known && (list_of(record) || question_of(record) >= 0);
}

static status read_labelled(const json_t *record, chat_sample *out, err *e) {
    const json_t *label = label_of(record);
    json_int_t number = json_integer_value(label);
    if (!json_is_boolean(label) && !json_is_integer(label))
        return err_set(e, ST_USAGE, "it has no \"label\" (or \"kto_tag\") that is true or false");
    if (number < -1 || number > 1) {
        err_set(e, ST_USAGE, "its label is %lld, and a label says whether the answer is wanted",
                (long long)number);
        return err_hint(e, "leave the column out if it says something else");
    }
    TRY((list_of(record) ? read_list : read_alpaca)(record, out, e));
    size_t n = json_array_size(out->messages);
    if (n < 2 || !chat_is_role(json_array_get(out->messages, n - 1), "assistant"))
        return err_set(e, ST_USAGE, "it does not end with an answer of the assistant");
    out->kind = CHAT_LABELS;
    out->n_prompt = n - 1;
    out->desirable = json_is_true(label) || number > 0;
    return ST_OK;
}

/* ---- the table ---- */

static const chat_form FORMS[] = {
    {"preference", is_preference, read_preference},
    {"kto", is_labelled, read_labelled},
    {"messages", is_messages, read_list},
    {"sharegpt", is_sharegpt, read_list},
    {"alpaca", is_alpaca, read_alpaca},
    {"translation", is_translation, read_translation},
};

const chat_form *chat_form_find(const char *name) {
    for (int i = 0; i < ARRAY_LEN(FORMS); i++)
        if (strcmp(FORMS[i].name, name) == 0) return &FORMS[i];
    return NULL;
}

const chat_form *chat_form_of(const json_t *record) {
    for (int i = 0; i < ARRAY_LEN(FORMS); i++)
        if (FORMS[i].is(record)) return &FORMS[i];
    return NULL;
}

const char *chat_form_name(const chat_form *f) {
    return f->name;
}

const char *chat_form_names(void) {
    return "messages, sharegpt, alpaca, translation, preference or kto";
}

static status bad_weight(const json_t *weight, size_t number, err *e) {
    strbuf text = {0};
    json_format(&text, weight, 0);
    err_set(e, ST_USAGE, "message %zu has the weight %.40s", number, strbuf_cstr(&text));
    strbuf_free(&text);
    return err_hint(e, "0 for an answer that is only read, 1 or none for one that is learned");
}

/* OpenAI's weights are 0 and 1. What follows a prompt is learned as a whole. */
static status check_weights(const chat_sample *s, const json_t *messages, err *e) {
    size_t i;
    json_t *m;
    json_array_foreach((json_t *)messages, i, m) {
        const json_t *weight = column(m, "weight");
        double w = json_number_value(weight);
        if (weight && (!json_is_number(weight) || (w != 0 && w != 1)))
            return bad_weight(weight, i + 1, e);
        bool answers = s->n_prompt > 0 && i >= s->n_prompt && chat_is_role(m, "assistant");
        if (answers && !chat_is_learned(m))
            return err_set(e, ST_USAGE,
                           "message %zu has the weight 0, and is what is to be learned", i + 1);
    }
    return ST_OK;
}

status chat_form_read(const chat_form *f, const json_t *record, chat_sample *out, err *e) {
    *out = (chat_sample){0};
    status st = f->read(record, out, e);
    if (st == ST_OK && (json_array_size(out->messages) > CHAT_MAX_MESSAGES ||
                        json_array_size(out->rejected) > CHAT_MAX_MESSAGES))
        st = err_set(e, ST_USAGE, "it has more than %d messages", CHAT_MAX_MESSAGES);
    if (st == ST_OK) st = check_weights(out, out->messages, e);
    if (st == ST_OK) st = check_weights(out, out->rejected, e);
    if (st != ST_OK) chat_sample_free(out);
    return st;
}
