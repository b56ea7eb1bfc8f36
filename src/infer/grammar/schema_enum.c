/* Values that a schema names one by one, and which schemas plainly exclude each other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "infer/grammar/schema_int.h"

schema_type schema_type_of(const json_t *v) {
    switch (json_typeof(v)) {
        case JSON_NULL: return TYPE_NULL;
        case JSON_TRUE:
        case JSON_FALSE: return TYPE_BOOL;
        case JSON_STRING: return TYPE_STRING;
        case JSON_ARRAY: return TYPE_ARRAY;
        case JSON_OBJECT: return TYPE_OBJECT;
        case JSON_INTEGER: return TYPE_INT;
        default: {
            double x = json_real_value(v);
            return x == floor(x) ? TYPE_INT : TYPE_FRACTION;
        }
    }
}

/* Equal as JSON Schema has it: 1 is 1.0. */
static bool are_equal(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static bool is_among(const json_t *v, const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (are_equal(v, json_array_get(list, i))) return true;
    return false;
}

/* How many comparisons enum and const of a schema may take. */
static int64_t n_names(const json_t *s) {
    return 1 + (int64_t)json_array_size(json_object_get(s, "enum"));
}

/* What comparing with a value costs at most: 1 for a number. A value is nested no deeper than the
 * schema it stands in, which jansson bounds. */
static int64_t cost_of(const json_t *v) {
    int64_t cost = 1 + (int64_t)json_string_length(v) / 64;
    for (size_t i = 0; i < json_array_size(v); i++) cost += cost_of(json_array_get(v, i));
    void *it = json_object_iter((json_t *)v);
    for (; it; it = json_object_iter_next((json_t *)v, it))
        cost += 4 + cost_of(json_object_iter_value(it));
    return cost;
}

/* Whether they have a value. */
static bool names_allow(const json_t *s, const json_t *v) {
    const json_t *constant = json_object_get(s, "const"), *list = json_object_get(s, "enum");
    return (!constant || are_equal(v, constant)) && (!list || is_among(v, list));
}

/* ---- a value against the other keywords ---- */

static int64_t characters(const json_t *v) {
    const char *s = json_string_value(v);
    int64_t n = 0;
    for (size_t i = 0; i < json_string_length(v); i++) n += !utf8_continues(s[i]);
    return n;
}

static bool count_allows(const json_t *s, const char *least, const char *most, int64_t n) {
    const json_t *lo = json_object_get(s, least), *hi = json_object_get(s, most);
    return (!lo || n >= json_integer_value(lo)) && (!hi || n <= json_integer_value(hi));
}

static bool number_allows(const json_t *s, double x) {
    const json_t *lo = json_object_get(s, "minimum"), *hi = json_object_get(s, "maximum");
    const json_t *above = json_object_get(s, "exclusiveMinimum");
    const json_t *below = json_object_get(s, "exclusiveMaximum");
    const json_t *of = json_object_get(s, "multipleOf");
    if (lo && x < json_number_value(lo)) return false;
    if (hi && x > json_number_value(hi)) return false;
    if (above && x <= json_number_value(above)) return false;
    if (below && x >= json_number_value(below)) return false;
    return !of || fmod(x, json_number_value(of)) == 0;
}

/* Keywords beside an enum that are not looked into, by the type they are about. */
static const struct {
    unsigned types;
    const char *keyword;
} beside[] = {{TYPE_STRING, "pattern"},    {TYPE_STRING, "format"},
              {TYPE_ARRAY, "items"},       {TYPE_ARRAY, "prefixItems"},
              {TYPE_ARRAY, "uniqueItems"}, {TYPE_OBJECT, "properties"},
              {TYPE_OBJECT, "required"},   {TYPE_OBJECT, "additionalProperties"}};

/* *ok: whether a schema allows a value. */
static status check_value(const schema *c, const schema_item *item, const json_t *v, bool *ok,
                          err *e) {
    const json_t *s = item->schema;
    schema_type type = schema_type_of(v);
    for (int i = 0; i < (int)(sizeof beside / sizeof *beside); i++)
        if (type == beside[i].types && json_object_get(s, beside[i].keyword))
            return schema_refuse(c, e, s, beside[i].keyword,
                                 "beside an enum or a const this is not supported");
    *ok = (schema_types(item) & type) != 0;
    if (type == TYPE_STRING) *ok &= count_allows(s, "minLength", "maxLength", characters(v));
    if (type == TYPE_ARRAY)
        *ok &= count_allows(s, "minItems", "maxItems", (int64_t)json_array_size(v));
    if (type == TYPE_OBJECT)
        *ok &= count_allows(s, "minProperties", "maxProperties", (int64_t)json_object_size(v));
    if (json_is_number(v)) *ok &= number_allows(s, json_number_value(v));
    return ST_OK;
}

/* ---- the texts of values, with their common beginnings once ---- */

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorted texts that are alike up to `depth`. */
static int32_t choice(network *n, char *const *text, size_t count, size_t depth) {
    size_t same = depth;
    int32_t at = NET_DEAD;
    while (text[0][same] && text[0][same] == text[count - 1][same]) same++;
    for (size_t i = 0, next; i < count; i = next) {
        char byte = text[i][same];
        for (next = i + 1; next < count && text[next][same] == byte;) next++;
        int32_t one = byte ? choice(n, text + i, next - i, same) : NET_END;
        at = net_split(n, one, at);
    }
    return net_text(n, text[0] + depth, same - depth, false, at);
}

typedef struct text_list {
    char **item;
    size_t n, cap;
} text_list;

static void add_text(schema *c, text_list *t, const json_t *v) {
    strbuf text = {0};
    json_format(&text, v, 0);
    VEC_PUSH(t->item, t->n, t->cap, arena_strndup(c->mem, strbuf_cstr(&text), text.len));
    strbuf_free(&text);
}

/* The values of one schema that all of the list allow. */
static status gather(schema *c, const schema_list *l, const json_t *s, text_list *out, err *e) {
    const json_t *list = json_object_get(s, "enum"), *constant = json_object_get(s, "const");
    size_t n = constant ? 1 : json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = constant ? constant : json_array_get(list, i);
        bool ok = true;
        int64_t cost = cost_of(v);
        for (int32_t k = 0; k < l->n && ok; k++) {
            const json_t *other = l->item[k].schema;
            TRY(check_value(c, &l->item[k], v, &ok, e));
            if (other == s && !constant) continue;
            if ((c->json->comparisons -= n_names(other) * cost) < 0)
                return schema_refuse(c, e, s, "enum", "too many values for too many schemas");
            ok = ok && names_allow(other, v);
        }
        if (ok) add_text(c, out, v);
    }
    return ST_OK;
}

static const json_t *that_names(const schema_list *l) {
    for (int32_t i = 0; i < l->n; i++) {
        const json_t *s = l->item[i].schema;
        if (json_object_get(s, "enum") || json_object_get(s, "const")) return s;
    }
    return NULL;
}

status schema_enum(schema *c, const schema_list *l, bool *found, int32_t *start, err *e) {
    const json_t *s = that_names(l);
    text_list texts = {0};
    *found = s != NULL;
    if (!s) return ST_OK;
    *start = NET_DEAD;
    status st = gather(c, l, s, &texts, e);
    if (st == ST_OK && texts.n > 0) {
        qsort(texts.item, texts.n, sizeof *texts.item, by_bytes);
        *start = choice(c->net, texts.item, texts.n, 0);
    }
    free(texts.item);
    return st;
}

/* ---- schemas that exclude each other ---- */

static unsigned types_of(const schema_list *l) {
    unsigned types = TYPE_ALL;
    for (int32_t i = 0; i < l->n; i++) types &= schema_types(&l->item[i]);
    return types;
}

/* Whether a value that `a` names may be one of `b`, by types and names; true where a names none. What
 * takes too many comparisons is not plain to see: the answers below are then those that refuse. */
static bool share_names(schema *c, const schema_list *a, const schema_list *b) {
    const json_t *s = that_names(a);
    if (!s) return true;
    const json_t *list = json_object_get(s, "enum"), *constant = json_object_get(s, "const");
    size_t n = constant ? 1 : json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = constant ? constant : json_array_get(list, i);
        bool ok = (types_of(a) & types_of(b) & schema_type_of(v)) != 0;
        int64_t cost = cost_of(v);
        for (int32_t k = 0; k < a->n + b->n; k++) {
            const json_t *of = k < a->n ? a->item[k].schema : b->item[k - a->n].schema;
            if ((c->json->comparisons -= n_names(of) * cost) < 0) return true;
            ok = ok && names_allow(of, v);
        }
        if (ok) return true;
    }
    return false;
}

static bool requires(schema *c, const schema_list *l, const char *name) {
    for (int32_t i = 0; i < l->n; i++) {
        const json_t *list = json_object_get(l->item[i].schema, "required");
        for (size_t k = 0; k < json_array_size(list) && c->json->comparisons-- > 0; k++)
            if (strcmp(json_string_value(json_array_get(list, k)), name) == 0) return true;
    }
    return false;
}

static bool forbids(const schema_list *l, const char *name) {
    for (int32_t i = 0; i < l->n; i++) {
        const json_t *s = l->item[i].schema;
        const json_t *p = json_object_get(json_object_get(s, "properties"), name);
        if (json_is_false(p)) return true;
        if (!p && json_is_false(json_object_get(s, "additionalProperties"))) return true;
    }
    return false;
}

/* The schemas that a list has for a property, without what they refer to. */
static int32_t plain_property(const schema_list *l, const char *name, schema_item *out,
                              int32_t most) {
    int32_t n = 0;
    for (int32_t i = 0; i < l->n && n < most; i++) {
        const json_t *p = json_object_get(json_object_get(l->item[i].schema, "properties"), name);
        if (json_is_object(p)) out[n++] = (schema_item){.schema = p};
    }
    return n;
}

/* A property of a that tells its objects from those of b. */
static bool is_told_by(schema *c, const schema_list *a, const schema_list *b, const char *name) {
    enum { MOST = 16 };
    schema_item of_a[MOST], of_b[MOST];
    if (!requires(c, a, name)) return false;
    if (forbids(b, name)) return true;
    if (!requires(c, b, name)) return false;
    schema_list x = {.item = of_a, .n = plain_property(a, name, of_a, MOST)};
    schema_list y = {.item = of_b, .n = plain_property(b, name, of_b, MOST)};
    return !(types_of(&x) & types_of(&y)) || !share_names(c, &x, &y) || !share_names(c, &y, &x);
}

static bool are_told_apart(schema *c, const schema_list *a, const schema_list *b) {
    for (int32_t i = 0; i < a->n; i++) {
        const json_t *list = json_object_get(a->item[i].schema, "required");
        for (size_t k = 0; k < json_array_size(list) && c->json->comparisons > 0; k++)
            if (is_told_by(c, a, b, json_string_value(json_array_get(list, k)))) return true;
    }
    return false;
}

bool schema_overlap(schema *c, const schema_list *a, const schema_list *b) {
    unsigned types = types_of(a) & types_of(b);
    if (a->never || b->never || types == 0) return false;
    if (!share_names(c, a, b) || !share_names(c, b, a)) return false;
    return types != TYPE_OBJECT || !(are_told_apart(c, a, b) || are_told_apart(c, b, a));
}
