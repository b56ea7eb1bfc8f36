/* options.def as data, and look-ups in it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/chat/encode.h"
#include "data/order/loader.h"
#include "model/family.h"
#include "optim/optim.h"
#include "optim/lr_schedule.h"
#include "prog/graph.h"
#include "run/config/config_int.h"

#define SET(name, LIST) static const char *const SET_##name[] = {LIST(LIST_WORD) NULL};
SET(DEVICE, CONFIG_SET_DEVICE)
SET(PACKING, LOADER_PACKINGS)
SET(DATA_ORDER, LOADER_ORDERS)
SET(CHAT_TRAIN, CHAT_TRAINS)
SET(TOKEN_FORMAT, SHARDS_FORMATS)
SET(TOKEN_DTYPE, CONFIG_SET_TOKEN_DTYPE)
SET(PRECISION, CONFIG_SET_PRECISION)
SET(ARITHMETIC, CONFIG_SET_ARITHMETIC)
SET(REDUCE_DTYPE, CONFIG_SET_REDUCE_DTYPE)
SET(OFFLOAD, CONFIG_SET_OFFLOAD)
SET(RECOMPUTE, RECOMPUTE_POLICIES)
SET(ROUTER_BALANCE, ROUTER_BALANCES)
SET(OBJECTIVE, CONFIG_SET_OBJECTIVE)
SET(OPTIMIZER, OPTIM_CLASSES)
SET(SCHEDULE, SCHEDULE_KINDS)
SET(DECAY, DECAY_KINDS)
SET(ANNEAL, ANNEAL_KINDS)
SET(TRAIN_EMBEDDINGS, CONFIG_SET_TRAIN_EMBEDDINGS)
SET(BASE_DTYPE, CONFIG_SET_BASE_DTYPE)
SET(CP_KIND, CONTEXT_KINDS)
SET(PP_SCHEDULE, CONFIG_SET_PP_SCHEDULE)
SET(GUARD_ACTION, CONFIG_SET_GUARD_ACTION)
#define SET_NONE NULL

enum { FIXED, FREE };

#define TOP(name, type, fallback, lo, hi, set, resume, help)                                       \
    {#name, NULL, OPTION_##type, offsetof(config, name), fallback, lo, hi, SET_##set, resume, help},
#define OPTION(group, name, type, fallback, lo, hi, set, resume, help)                             \
    {#group "." #name, NULL,   OPTION_##type, offsetof(config, group.name), fallback, lo, hi,      \
     SET_##set,        resume, help},
const option config_options[] = {
#include "run/config/options.def"
};
const int config_n_options = ARRAY_LEN(config_options);

#define ITEM(owner, struct_type, name, type, fallback, lo, hi, set, resume, help)                  \
    {#name,     #owner, OPTION_##type, offsetof(struct_type, name), fallback, lo, hi,              \
     SET_##set, resume, help},
const option config_items[] = {
#include "run/config/options.def"
};
const int config_n_items = ARRAY_LEN(config_items);

#define GROUP(path, name) #path,
#define GROUP_END(name)
const char *const config_groups[] = {
#include "run/config/options.def"
};
const int config_n_groups = ARRAY_LEN(config_groups);

const char config_short_group[] = "train.precision";
const char config_short_member[] = "compute";

const option *config_find_option(const char *path) {
    for (int i = 0; i < config_n_options; i++)
        if (strcmp(config_options[i].path, path) == 0) return &config_options[i];
    return NULL;
}

size_t config_elements(const option *o, option *element) {
    static const struct {
        option_type type;
        size_t bytes;
    } ELEMENTS[] = {
        [OPTION_TEXTS] = {OPTION_TEXT, sizeof(const char *)},
        [OPTION_INTS] = {OPTION_INT, sizeof(int64_t)},
        [OPTION_NUMS] = {OPTION_NUM, sizeof(double)},
        [OPTION_SOURCES] = {OPTION_SOURCE, sizeof(config_source)},
        [OPTION_STAGES] = {OPTION_STAGE, sizeof(config_stage)},
        [OPTION_STAGE] = {0},
    };
    *element = *o;
    element->offset = 0;
    element->type = ELEMENTS[o->type].type;
    return ELEMENTS[o->type].bytes;
}

bool config_is_group(const char *path) {
    for (int i = 0; i < config_n_groups; i++)
        if (strcmp(config_groups[i], path) == 0) return true;
    return path[0] == '\0';
}

const char *config_path_below(const char *path, const char *parent) {
    size_t n = strlen(parent);
    return strncmp(path, parent, n) == 0 && path[n] == '.' ? path + n + 1 : NULL;
}

static bool key_is_free(const char *path) {
    for (int i = 0; i < config_n_options; i++) {
        const option *o = &config_options[i];
        if (strcmp(o->path, path) == 0 || config_path_below(path, o->path))
            return o->free_on_resume;
    }
    return false;
}

bool config_key_is_free_in(const char *path, int stage) {
    const char *rest = config_path_below(path, "stages");
    if (!rest) return key_is_free(path);
    char *end;
    long n = strtol(rest, &end, 10);
    if (n > stage) return true;
    return n == stage && strncmp(end, ".until", 6) == 0;
}

const char *config_precision_name(int precision) {
    return SET_PRECISION[precision];
}

const char *config_arithmetic_name(int arithmetic) {
    return SET_ARITHMETIC[arithmetic];
}

const char *config_device_name(int device) {
    return SET_DEVICE[device];
}

static json_t *child(const json_t *node, const char *key) {
    if (!json_is_array(node)) return json_object_get(node, key);
    char *end;
    unsigned long i = strtoul(key, &end, 10);
    return *key >= '0' && *key <= '9' && *end == '\0' ? json_array_get(node, i) : NULL;
}

json_t *config_walk(const json_t *root, const char *path) {
    json_t *node = (json_t *)root;
    while (node && *path) {
        char key[256];
        size_t n = strcspn(path, ".");
        if (n >= sizeof key) return NULL;
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        node = child(node, key);
        path += n + (path[n] == '.');
    }
    return node;
}

static void describe_range(const option *o, const char *noun, char *out, size_t size) {
    if (o->hi >= 1e15)
        snprintf(out, size, "%s of at least %.9g", noun, o->lo);
    else
        snprintf(out, size, "%s from %.9g to %.9g", noun, o->lo, o->hi);
}

static void describe_set(const option *o, char *out, size_t size) {
    size_t len = (size_t)snprintf(out, size, "one of");
    for (int i = 0; o->set[i] && len < size; i++)
        len += (size_t)snprintf(out + len, size - len, "%s %s", i ? "," : "", o->set[i]);
}

void config_describe(const option *o, char *out, size_t size) {
    switch (o->type) {
        case OPTION_BOOL: snprintf(out, size, "true or false"); break;
        case OPTION_INT: describe_range(o, "an integer", out, size); break;
        case OPTION_NUM: describe_range(o, "a number", out, size); break;
        case OPTION_TEXT: snprintf(out, size, "a text"); break;
        case OPTION_CHOICE: describe_set(o, out, size); break;
        case OPTION_AUTO: describe_range(o, "auto or an integer", out, size); break;
        case OPTION_TEXTS: snprintf(out, size, "a list of texts"); break;
        case OPTION_INTS: describe_range(o, "a list of integers, each", out, size); break;
        case OPTION_NUMS: describe_range(o, "a list of numbers, each", out, size); break;
        case OPTION_SOURCES: snprintf(out, size, "a path or a list of {path, weight}"); break;
        case OPTION_STAGES: snprintf(out, size, "a list of {name, until, ...}"); break;
        default: snprintf(out, size, "an object"); break;
    }
}
