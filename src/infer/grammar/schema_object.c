/* Objects: properties in the order of the schema, then others.
 *
 * What may come depends on which property is next and on how many there are so far; the latter counts to 1 (is
 * there need of a comma?), or as far as minProperties and maxProperties go. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "infer/grammar/schema_int.h"

enum { MOST_PROPERTIES = 2000, MOST_NAME = 512 };

typedef struct property {
    const char *name;
    bool required;
    int32_t rule; /* NET_NO_RULE: it may not come */
} property;

typedef struct object {
    schema *c;
    const schema_list *l;
    property *p;
    int32_t n, cap;
    str_map by_name;
    int32_t other;    /* rule of further properties; NET_NO_RULE: there are none */
    int64_t min, max; /* max -1: any number */
    int counts;       /* 0 .. counts - 1 are told apart; the last is "so many or more" */
} object;

/* ---- which properties ---- */

static status find_property(object *o, const char *name, property **out, err *e) {
    size_t len = strlen(name);
    int32_t i = str_map_get(&o->by_name, name, len);
    if (i < 0) {
        if (o->n >= MOST_PROPERTIES)
            return schema_refuse(o->c, e, o->l->item[0].schema, NULL,
                                 "an object of more than %d properties", MOST_PROPERTIES);
        if (len > MOST_NAME)
            return schema_refuse(o->c, e, o->l->item[0].schema, NULL,
                                 "the name of a property has more than %d bytes", MOST_NAME);
        i = o->n;
        str_map_add(&o->by_name, name, len, i);
        VEC_PUSH(o->p, o->n, o->cap, ((property){.name = name}));
    }
    *out = &o->p[i];
    return ST_OK;
}

static status gather(object *o, err *e) {
    property *p;
    for (int32_t i = 0; i < o->l->n; i++) {
        const char *name;
        json_t *v;
        json_object_foreach(json_object_get(o->l->item[i].schema, "properties"), name, v)
            TRY(find_property(o, name, &p, e));
    }
    for (int32_t i = 0; i < o->l->n; i++) {
        const json_t *list = json_object_get(o->l->item[i].schema, "required");
        for (size_t k = 0; k < json_array_size(list); k++) {
            TRY(find_property(o, json_string_value(json_array_get(list, k)), &p, e));
            p->required = true;
        }
    }
    return ST_OK;
}

/* The rule of a property's value, by what each schema says of it; name NULL: of any other property. */
static status value_rule(object *o, const char *name, int32_t *rule, err *e) {
    schema_list values = {0};
    for (int32_t i = 0; i < o->l->n; i++) {
        const json_t *s = o->l->item[i].schema, *v = NULL;
        if (name) v = json_object_get(json_object_get(s, "properties"), name);
        if (!v) v = json_object_get(s, "additionalProperties");
        if (v) TRY(schema_add(o->c, &values, (schema_item){.schema = v}, e));
    }
    *rule = NET_NO_RULE;
    return values.never ? ST_OK : schema_rule(o->c, &values, rule, e);
}

/* ---- names of other properties ---- */

typedef struct other_name {
    network *n;
    char **name;  /* that it must not be, sorted by their characters */
    int32_t more; /* the rest of a name that is none of them, and its quote */
    int32_t close;
} other_name;

static uint32_t char_at(const char *name, size_t at, size_t *len) {
    *len = 1;
    return name[at] ? utf8_next(name + at, len) : 0;
}

/* Plain characters lo..hi, without those that need an escape. */
static int32_t plain(network *n, uint32_t lo, uint32_t hi, int32_t next) {
    static const uint32_t range[][2] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
    int32_t at = NET_DEAD;
    for (int i = 0; i < 3; i++) {
        uint32_t a = lo > range[i][0] ? lo : range[i][0], b = hi < range[i][1] ? hi : range[i][1];
        if (a <= b) at = net_split(n, net_char(n, a, b, next), at);
    }
    return at;
}

/* After the first `at` bytes of name[first..last). */
static int32_t unlike(other_name *o, size_t first, size_t last, size_t at) {
    int32_t start = o->name[first][at] ? o->close : NET_DEAD;
    uint32_t from = 0;
    size_t len;
    for (size_t i = first, next; i < last; i = next) {
        uint32_t cp = char_at(o->name[i], at, &len);
        for (next = i + 1; next < last; next++) {
            size_t other;
            if (char_at(o->name[next], at, &other) != cp) break;
        }
        if (cp == 0) continue;
        int32_t deeper = unlike(o, i, next, at + len);
        start = net_split(o->n, plain(o->n, cp, cp, deeper), start);
        if (cp > from) start = net_split(o->n, plain(o->n, from, cp - 1, o->more), start);
        from = cp + 1;
    }
    return net_split(o->n, plain(o->n, from, 0x10FFFF, o->more), start);
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A name in quotes that is none of the properties. It has no escapes, in which a name could be
 * spelled in a second way. */
static int32_t build_other_name(object *o, int32_t next) {
    network *n = o->c->net;
    other_name x = {.n = n, .close = net_byte(n, '"', '"', next), .more = net_reserve(n)};
    net_set(n, x.more, json_call(o->c->json, RULE_PLAIN, x.more), x.close);
    int32_t start = x.more;
    if (o->n > 0) {
        x.name = ARENA_ARRAY(o->c->mem, char *, o->n);
        for (int32_t i = 0; i < o->n; i++) x.name[i] = arena_strdup(o->c->mem, o->p[i].name);
        qsort(x.name, (size_t)o->n, sizeof *x.name, by_bytes);
        start = unlike(&x, 0, (size_t)o->n, 0);
    }
    return net_byte(n, '"', '"', start);
}

/* ---- the object ---- */

static bool is_enough(const object *o, int64_t count) {
    return count >= o->min;
}

/* A state after `count` properties, of which `more` is another. */
static int32_t with_comma(object *o, int count, int32_t more) {
    if (count == 0 || more == NET_DEAD) return more;
    return net_byte(o->c->net, ',', ',', json_space(o->c->json, more));
}

static int32_t close_at(object *o, int count) {
    if (!is_enough(o, count)) return NET_DEAD;
    int32_t close = net_byte(o->c->net, '}', '}', NET_END);
    return count == 0 ? close : json_space(o->c->json, close);
}

static int next_count(const object *o, int count) {
    return count + 1 < o->counts ? count + 1 : count;
}

static bool may_add(const object *o, int count) {
    return o->max < 0 || count < o->max;
}

/* Any others, behind the last of the named ones. Each counts for maxProperties; for minProperties only
 * the first does, as the next may have its name again. */
static void build_others(object *o, int32_t *at) {
    network *n = o->c->net;
    json_rules *json = o->c->json;
    for (int k = o->counts - 1; k >= 0; k--) at[k] = close_at(o, k);
    if (o->other == NET_NO_RULE) return;
    int32_t *others = ARENA_ARRAY(o->c->mem, int32_t, o->counts); /* one is written */
    for (int k = o->counts - 1; k >= 1; k--) {
        bool last = next_count(o, k) == k;
        int32_t self = net_reserve(n), to = last ? self : others[k + 1], more = NET_DEAD;
        if (may_add(o, k)) {
            int32_t value = json_colon(json, net_call(n, o->other, to));
            more = with_comma(o, k, build_other_name(o, value));
        }
        net_set(n, self, more, close_at(o, k));
        others[k] = self;
    }
    for (int k = 0; k < o->counts; k++) {
        int to = next_count(o, k);
        if (!may_add(o, k) || !is_enough(o, to)) continue;
        int32_t value = json_colon(json, net_call(n, o->other, others[to]));
        at[k] = net_split(n, at[k], with_comma(o, k, build_other_name(o, value)));
    }
}

static int32_t named(object *o, const property *p, int32_t next) {
    json_t *name = json_string(p->name);
    char *text = json_dumps(name, JSON_ENCODE_ANY);
    int32_t value = json_colon(o->c->json, net_call(o->c->net, p->rule, next));
    int32_t at = net_text(o->c->net, text, strlen(text), false, value);
    free(text);
    json_decref(name);
    return at;
}

/* at[count]: what follows a property, becomes what stands before it. */
static void build_property(object *o, const property *p, int32_t *at) {
    int32_t known = NET_DEAD, of = NET_DEAD; /* counts that go on alike share the property */
    for (int k = 0; k < o->counts; k++) {
        int32_t more = NET_DEAD;
        if (may_add(o, k) && p->rule != NET_NO_RULE) {
            int32_t next = at[next_count(o, k)];
            if (next != of) known = named(o, p, next);
            of = next;
            more = with_comma(o, k, known);
        }
        at[k] = p->required ? more : net_split(o->c->net, more, at[k]);
    }
}

static status build(object *o, int32_t *start, err *e) {
    TRY(gather(o, e));
    for (int32_t i = 0; i < o->n; i++) TRY(value_rule(o, o->p[i].name, &o->p[i].rule, e));
    TRY(value_rule(o, NULL, &o->other, e));
    int64_t most = o->max >= 0 ? o->max : o->min;
    if (most > MOST_PROPERTIES) most = MOST_PROPERTIES;
    o->counts = most < 1 ? 2 : (int)most + 1;
    int32_t *at = ARENA_ARRAY(o->c->mem, int32_t, o->counts);
    build_others(o, at);
    for (int32_t i = o->n - 1; i >= 0 && !o->c->net->full; i--) build_property(o, &o->p[i], at);
    *start = net_byte(o->c->net, '{', '{', json_space(o->c->json, at[0]));
    return ST_OK;
}

status schema_object(schema *c, const schema_list *l, int32_t *start, err *e) {
    object o = {.c = c, .l = l};
    o.min = schema_least(l, "minProperties", 0);
    o.max = schema_most(l, "maxProperties", -1);
    if (o.max > MOST_PROPERTIES) o.max = MOST_PROPERTIES;
    status st = build(&o, start, e);
    str_map_free(&o.by_name);
    free(o.p);
    return st;
}
