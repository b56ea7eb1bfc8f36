/* Arrays. Items of the same schema after the last count that matters go round in one loop. */
#include <string.h>

#include "infer/grammar/schema_int.h"

/* The rule of item i, by what each schema says of it. */
static status item_rule(schema *c, const schema_list *l, int64_t i, int32_t *rule, err *e) {
    schema_list items = {0};
    for (int32_t k = 0; k < l->n; k++) {
        const json_t *s = l->item[k].schema, *prefix = json_object_get(s, "prefixItems");
        const json_t *v = i < (int64_t)json_array_size(prefix) ? json_array_get(prefix, (size_t)i)
                                                               : json_object_get(s, "items");
        if (v) TRY(schema_add(c, &items, (schema_item){.schema = v}, e));
    }
    *rule = NET_NO_RULE;
    return items.never ? ST_OK : schema_rule(c, &items, rule, e);
}

static int64_t longest_prefix(const schema_list *l) {
    size_t most = 0;
    for (int32_t i = 0; i < l->n; i++) {
        size_t n = json_array_size(json_object_get(l->item[i].schema, "prefixItems"));
        if (n > most) most = n;
    }
    return (int64_t)most;
}

static const json_t *that_is_unique(const schema_list *l) {
    for (int32_t i = 0; i < l->n; i++)
        if (json_is_true(json_object_get(l->item[i].schema, "uniqueItems")))
            return l->item[i].schema;
    return NULL;
}

static int32_t close_array(schema *c, int64_t count) {
    int32_t close = net_byte(c->net, ']', ']', NET_END);
    return count == 0 ? close : json_space(c->json, close);
}

/* The item after `count` others. */
static int32_t next_item(schema *c, int64_t count, int32_t rule, int32_t next) {
    int32_t at = net_call(c->net, rule, next);
    if (count == 0 || at == NET_DEAD) return at;
    return net_byte(c->net, ',', ',', json_space(c->json, at));
}

static status build(schema *c, const schema_list *l, int64_t min, int64_t max, int32_t *start,
                    err *e) {
    int64_t prefix = longest_prefix(l), last = max < 0 ? (prefix > min ? prefix : min) : max;
    int32_t rest, at = NET_DEAD;
    TRY(item_rule(c, l, prefix, &rest, e));
    if (max < 0 && last == 0) last = 1; /* before the first there is no comma */
    if (max < 0) {
        at = net_reserve(c->net);
        net_set(c->net, at, next_item(c, last, rest, at), close_array(c, last));
    } else if (max >= min) {
        at = close_array(c, max);
    }
    for (int64_t i = last - 1; i >= 0; i--) {
        int32_t rule = rest;
        if (i < prefix) TRY(item_rule(c, l, i, &rule, e));
        int32_t end = i >= min ? close_array(c, i) : NET_DEAD;
        at = net_split(c->net, next_item(c, i, rule, at), end);
    }
    *start = net_byte(c->net, '[', '[', json_space(c->json, at));
    return ST_OK;
}

status schema_array(schema *c, const schema_list *l, int32_t *start, err *e) {
    int64_t min = schema_least(l, "minItems", 0), max = schema_most(l, "maxItems", -1);
    const json_t *unique = that_is_unique(l);
    if (unique && max != 0 && max != 1)
        return schema_refuse(c, e, unique, "uniqueItems",
                             "more than one item is not supported with it");
    if (min > SCHEMA_MOST_COUNT)
        return schema_refuse(c, e, l->item[0].schema, "minItems", "more than %d is not supported",
                             SCHEMA_MOST_COUNT);
    if (max > SCHEMA_MOST_COUNT) max = SCHEMA_MOST_COUNT;
    return build(c, l, min, max, start, e);
}
