#include "infer/grammar/schema.h"

#include <stdlib.h>
#include <string.h>

#include "infer/grammar/schema_int.h"

/* ---- lists ---- */

static schema_item *item_of(const schema_list *l, const json_t *s) {
    for (int32_t i = 0; i < l->n; i++)
        if (l->item[i].schema == s) return &l->item[i];
    return NULL;
}

/* What stands at a JSON pointer, whose parts are split here; NULL: nothing. */
static const json_t *pointed(const json_t *at, char *pointer) {
    while (at && pointer) {
        char *name = pointer;
        if ((pointer = strchr(name, '/')) != NULL) *pointer++ = '\0';
        for (char *from = name, *to = name;; from++) {
            char c = *from;
            if (c == '~' && (from[1] == '0' || from[1] == '1')) c = *++from == '0' ? '~' : '/';
            *to++ = c;
            if (!c) break;
        }
        char *end;
        long i = strtol(name, &end, 10);
        if (json_is_array(at))
            at = *end || end == name || i < 0 ? NULL : json_array_get(at, (size_t)i);
        else
            at = json_object_get(at, name);
    }
    return at;
}

static status add_ref(schema *c, schema_list *l, const json_t *s, const char *ref, err *e) {
    const json_t *to = NULL;
    if (strcmp(ref, "#") == 0) to = c->root;
    if (strncmp(ref, "#/", 2) == 0) to = pointed(c->root, arena_strdup(c->mem, ref + 2));
    if (!json_is_object(to) && !json_is_boolean(to)) {
        schema_refuse(c, e, s, "$ref", "there is no schema at %s", ref);
        return err_hint(e, "references go into the schema itself, as in #/$defs/name");
    }
    return schema_add(c, l, (schema_item){.schema = to}, e);
}

status schema_add(schema *c, schema_list *l, schema_item s, err *e) {
    enum { MOST_ITEMS = 128 };
    if (json_is_false(s.schema)) l->never = true;
    if (!json_is_object(s.schema)) return ST_OK;
    schema_item *there = item_of(l, s.schema);
    if (there) {
        there->any_chosen |= s.any_chosen;
        there->one_chosen |= s.one_chosen;
        return ST_OK;
    }
    if (l->n >= MOST_ITEMS)
        return schema_refuse(c, e, s.schema, NULL, "more than %d schemas apply to one value",
                             MOST_ITEMS);
    TRY(schema_check(c, s.schema, e));
    l->item = arena_grow(c->mem, l->item, l->n, &l->cap, sizeof *l->item);
    l->item[l->n++] = s;
    const json_t *ref = json_object_get(s.schema, "$ref");
    const json_t *all = json_object_get(s.schema, "allOf");
    if (ref) TRY(add_ref(c, l, s.schema, json_string_value(ref), e));
    for (size_t i = 0; i < json_array_size(all); i++)
        TRY(schema_add(c, l, (schema_item){.schema = json_array_get(all, i)}, e));
    return ST_OK;
}

int64_t schema_least(const schema_list *l, const char *keyword, int64_t none) {
    int64_t best = none;
    for (int32_t i = 0; i < l->n; i++) {
        const json_t *v = json_object_get(l->item[i].schema, keyword);
        if (v && json_integer_value(v) > best) best = json_integer_value(v);
    }
    return best;
}

int64_t schema_most(const schema_list *l, const char *keyword, int64_t none) {
    int64_t best = none;
    for (int32_t i = 0; i < l->n; i++) {
        const json_t *v = json_object_get(l->item[i].schema, keyword);
        if (v && (best < 0 || json_integer_value(v) < best)) best = json_integer_value(v);
    }
    return best;
}

/* ---- types ---- */

static unsigned type_named(const char *name) {
    switch (name[0]) {
        case 'b': return TYPE_BOOL;
        case 'i': return TYPE_INT;
        case 's': return TYPE_STRING;
        case 'a': return TYPE_ARRAY;
        case 'o': return TYPE_OBJECT;
        default: return name[2] == 'm' ? TYPE_INT | TYPE_FRACTION : TYPE_NULL;
    }
}

unsigned schema_types(const schema_item *s) {
    const json_t *type = json_object_get(s->schema, "type");
    if (!type) return TYPE_ALL;
    unsigned types = json_is_true(json_object_get(s->schema, "nullable")) ? TYPE_NULL : 0;
    if (json_is_string(type)) return types | type_named(json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++)
        types |= type_named(json_string_value(json_array_get(type, i)));
    return types;
}

static status build_types(schema *c, const schema_list *l, int32_t *start, err *e) {
    unsigned types = TYPE_ALL;
    for (int32_t i = 0; i < l->n; i++) types &= schema_types(&l->item[i]);
    network *n = c->net;
    int32_t at = NET_DEAD, one = NET_DEAD;
    if (types & TYPE_OBJECT) TRY(schema_object(c, l, &at, e));
    if (types & TYPE_ARRAY) TRY(schema_array(c, l, &one, e));
    at = net_split(n, one, at);
    if (types & TYPE_STRING) {
        TRY(schema_string(c, l, &one, e));
        at = net_split(n, one, at);
    }
    if (types & (TYPE_INT | TYPE_FRACTION)) {
        TRY(schema_number(c, l, !(types & TYPE_FRACTION), &one, e));
        at = net_split(n, one, at);
    }
    if (types & TYPE_BOOL) {
        at = net_split(n, net_text(n, "true", 4, false, NET_END), at);
        at = net_split(n, net_text(n, "false", 5, false, NET_END), at);
    }
    if (types & TYPE_NULL) at = net_split(n, net_text(n, "null", 4, false, NET_END), at);
    *start = at;
    return ST_OK;
}

/* ---- choices ---- */

static status add_all(schema *c, schema_list *to, const schema_list *from, err *e) {
    to->never |= from->never;
    for (int32_t i = 0; i < from->n; i++) TRY(schema_add(c, to, from->item[i], e));
    return ST_OK;
}

/* Each branch alone, with the rest of the list: two that could both hold would make oneOf false. */
static status check_disjoint(schema *c, const schema_list *l, const schema_item *s,
                             const json_t *branches, err *e) {
    size_t n = json_array_size(branches);
    schema_list *list = ARENA_ARRAY(c->mem, schema_list, n);
    if (n > 100) return schema_refuse(c, e, s->schema, "oneOf", "more than 100 branches");
    for (size_t i = 0; i < n; i++) {
        TRY(add_all(c, &list[i], l, e));
        TRY(schema_add(c, &list[i], (schema_item){.schema = json_array_get(branches, i)}, e));
        for (size_t k = 0; k < i; k++) {
            if (!schema_overlap(c, &list[k], &list[i])) continue;
            schema_refuse(c, e, s->schema, "oneOf",
                          "branches %zu and %zu do not plainly exclude each other", k, i);
            return err_hint(e, "use anyOf, or give each branch a required property with a const of "
                               "its own");
        }
    }
    return ST_OK;
}

/* The rule of each branch, in place of a choice that is open. */
static status build_choice(schema *c, const schema_list *l, const schema_item *open, bool one,
                           int32_t *start, err *e) {
    const json_t *branches = json_object_get(open->schema, one ? "oneOf" : "anyOf");
    if (one) TRY(check_disjoint(c, l, open, branches, e));
    *start = NET_DEAD;
    for (size_t i = json_array_size(branches); i-- > 0;) {
        schema_list branch = {0};
        schema_item chosen = *open;
        int32_t rule;
        chosen.any_chosen |= !one;
        chosen.one_chosen |= one;
        TRY(schema_add(c, &branch, chosen, e));
        TRY(add_all(c, &branch, l, e));
        TRY(schema_add(c, &branch, (schema_item){.schema = json_array_get(branches, i)}, e));
        TRY(schema_rule(c, &branch, &rule, e));
        *start = net_split(c->net, net_call(c->net, rule, NET_END), *start);
    }
    return ST_OK;
}

static status build_list(schema *c, const schema_list *l, int32_t *start, err *e) {
    bool is_enum;
    *start = NET_DEAD;
    if (l->never) return ST_OK;
    for (int32_t i = 0; i < l->n; i++) {
        const schema_item *s = &l->item[i];
        if (!s->any_chosen && json_object_get(s->schema, "anyOf"))
            return build_choice(c, l, s, false, start, e);
        if (!s->one_chosen && json_object_get(s->schema, "oneOf"))
            return build_choice(c, l, s, true, start, e);
    }
    TRY(schema_enum(c, l, &is_enum, start, e));
    return is_enum ? ST_OK : build_types(c, l, start, e);
}

/* ---- rules ---- */

/* Lists of the same schemas in another order are the same. */
static int by_schema(const void *a, const void *b) {
    const schema_item *x = a, *y = b;
    return (x->schema > y->schema) - (x->schema < y->schema);
}

/* The items that say something, as bytes without padding. */
static const char *key_of(schema *c, const schema_list *l, size_t *len) {
    schema_item *sorted = ARENA_ARRAY(c->mem, schema_item, l->n);
    uintptr_t *key = ARENA_ARRAY(c->mem, uintptr_t, 2 * l->n + 1);
    size_t n = 0;
    if (l->n > 0) memcpy(sorted, l->item, sizeof *sorted * (size_t)l->n);
    qsort(sorted, (size_t)l->n, sizeof *sorted, by_schema);
    key[n++] = l->never;
    for (int32_t i = 0; i < l->n; i++) {
        key[n++] = (uintptr_t)sorted[i].schema;
        key[n++] = (uintptr_t)(sorted[i].any_chosen + 2 * sorted[i].one_chosen);
    }
    *len = n * sizeof *key;
    return (const char *)key;
}

status schema_rule(schema *c, const schema_list *l, int32_t *rule, err *e) {
    size_t len;
    if (!l->never && l->n == 0) {
        *rule = json_rule_of(c->json, RULE_VALUE);
        return ST_OK;
    }
    const char *key = key_of(c, l, &len);
    *rule = str_map_get(&c->rules, key, len);
    if (*rule >= 0) return ST_OK;
    if (c->depth >= SCHEMA_MOST_DEPTH)
        return schema_refuse(c, e, l->item[0].schema, NULL, "schemas are nested deeper than %d",
                             SCHEMA_MOST_DEPTH);
    int32_t start;
    *rule = net_new_rule(c->net);
    if (*rule == NET_NO_RULE) return ST_OK; /* full */
    str_map_add(&c->rules, key, len, *rule);
    c->depth++;
    status st = build_list(c, l, &start, e);
    c->depth--;
    if (st == ST_OK) net_set_rule(c->net, *rule, start);
    return st;
}

status schema_compile(json_rules *json, const json_t *root, int32_t *rule, err *e) {
    schema c = {.json = json, .net = json->net, .root = root, .mem = arena_new("schema")};
    schema_list all = {0};
    status st = ST_OK;
    if (!json_is_object(root) && !json_is_boolean(root))
        st = err_set(e, ST_USAGE, "a JSON Schema is an object, or true or false");
    if (st == ST_OK) st = schema_add(&c, &all, (schema_item){.schema = root}, e);
    if (st == ST_OK) st = schema_rule(&c, &all, rule, e);
    str_map_free(&c.rules);
    str_map_free(&c.checked);
    arena_free(c.mem);
    return st;
}
