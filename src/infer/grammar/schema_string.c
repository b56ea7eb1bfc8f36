#include <string.h>

#include "infer/grammar/schema_int.h"

/* min to max characters (max -1: any number) in quotes. While there is room for more than a token has,
 * it does not matter how much. */
static int32_t counted(schema *c, int64_t min, int64_t max) {
    network *n = c->net;
    int32_t close = net_byte(n, '"', '"', NET_END), at = close, roomy = NET_DEAD;
    if (max < 0) {
        at = net_reserve(n);
        net_set(n, at, json_call(c->json, RULE_CHAR, at), close);
    }
    for (int64_t i = (max < 0 ? min : max) - 1; i >= 0; i--) {
        int32_t more = json_call(c->json, RULE_CHAR, at);
        at = i >= min ? net_split(n, more, close) : more;
        if (i < min || max - i < NET_NEAR) continue;
        if (roomy == NET_DEAD) roomy = at;
        net_liken(n, at, roomy);
    }
    return net_byte(n, '"', '"', at);
}

/* The one schema that has a keyword; two that differ are refused. */
static status only_one(const schema *c, const schema_list *l, const char *keyword,
                       const json_t **at, err *e) {
    *at = NULL;
    for (int32_t i = 0; i < l->n; i++) {
        const json_t *s = l->item[i].schema, *v = json_object_get(s, keyword);
        if (!v || (*at && json_equal(v, json_object_get(*at, keyword)))) continue;
        if (*at)
            return schema_refuse(c, e, s, keyword, "two of them for one value are not supported");
        *at = s;
    }
    return ST_OK;
}

static status find_pattern(const schema *c, const schema_list *l, const json_t **at,
                           const char **pattern, err *e) {
    const json_t *by_format;
    *pattern = NULL;
    TRY(only_one(c, l, "pattern", at, e));
    TRY(only_one(c, l, "format", &by_format, e));
    if (*at && by_format)
        return schema_refuse(c, e, by_format, "format", "a pattern beside it is not supported");
    if (*at) *pattern = json_string_value(json_object_get(*at, "pattern"));
    if (!by_format) return ST_OK;
    const char *name = json_string_value(json_object_get(by_format, "format"));
    *at = by_format;
    *pattern = pattern_of_format(name);
    if (*pattern) return ST_OK;
    schema_refuse(c, e, by_format, "format", "the format %s is not supported", name);
    return err_hint(e, "supported are date, time, date-time, duration, uuid, ipv4, ipv6, hostname, "
                       "email and uri");
}

status schema_string(schema *c, const schema_list *l, int32_t *start, err *e) {
    int64_t min = schema_least(l, "minLength", 0), max = schema_most(l, "maxLength", -1);
    const json_t *at;
    const char *pattern;
    if (min > SCHEMA_MOST_COUNT)
        return schema_refuse(c, e, l->item[0].schema, "minLength", "more than %d is not supported",
                             SCHEMA_MOST_COUNT);
    if (max > SCHEMA_MOST_COUNT) max = SCHEMA_MOST_COUNT;
    TRY(find_pattern(c, l, &at, &pattern, e));
    *start = NET_DEAD;
    if (max >= 0 && max < min) return ST_OK;
    if (!pattern) {
        *start =
            min == 0 && max < 0 ? json_call(c->json, RULE_STRING, NET_END) : counted(c, min, max);
        return ST_OK;
    }
    err why = {0};
    if (pattern_string(c, pattern, min, max, start, &why) == ST_OK) return ST_OK;
    schema_refuse(c, e, at, json_object_get(at, "pattern") ? "pattern" : "format", "%s",
                  why.message);
    return err_hint(e, "supported are characters, classes, groups, |, * + ? {n,m}, and ^ and $ at "
                       "the ends");
}
