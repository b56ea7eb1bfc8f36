#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "infer/grammar/schema_int.h"

/* ---- where something stands ---- */

static void put_name(strbuf *out, const char *name) {
    for (; *name; name++) {
        if (*name == '~')
            strbuf_puts(out, "~0");
        else if (*name == '/')
            strbuf_puts(out, "~1");
        else
            strbuf_putc(out, *name);
    }
}

/* The JSON pointer of a value by which value it is (RFC 6901). */
static bool find(const json_t *in, const json_t *at, strbuf *path) {
    size_t len = path->len, i;
    const char *name;
    json_t *v;
    if (in == at) return true;
    if (json_is_array(in)) {
        json_array_foreach((json_t *)in, i, v) {
            strbuf_printf(path, "/%zu", i);
            if (find(v, at, path)) return true;
            strbuf_truncate(path, len);
        }
    }
    json_object_foreach((json_t *)in, name, v) {
        strbuf_putc(path, '/');
        put_name(path, name);
        if (find(v, at, path)) return true;
        strbuf_truncate(path, len);
    }
    return false;
}

status schema_refuse(const schema *c, err *e, const json_t *at, const char *keyword,
                     const char *fmt, ...) {
    char text[512];
    strbuf path = {0};
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    strbuf_putc(&path, '#');
    find(c->root, at, &path);
    if (keyword) {
        strbuf_putc(&path, '/');
        put_name(&path, keyword);
    }
    err_at(e, ST_USAGE, strbuf_cstr(&path), "%s%s%s", keyword ? keyword : "", keyword ? ": " : "",
           text);
    strbuf_free(&path);
    return ST_USAGE;
}

/* ---- keywords ---- */

typedef enum value_kind {
    IS_NOTE, /* passed over */
    IS_SCHEMA,
    IS_SCHEMAS,    /* a list of them, not empty */
    IS_SCHEMA_MAP, /* an object of them */
    IS_DEFS,       /* the same; what is not referred to is not looked at */
    IS_COUNT,
    IS_NUMBER,
    IS_STRING,
    IS_STRINGS,
    IS_BOOL,
    IS_LIST,
    IS_TYPE,
    IS_ANY,
} value_kind;

typedef struct keyword {
    const char *name;
    value_kind kind;
} keyword;

static const keyword keywords[] = {
    {"type", IS_TYPE},
    {"enum", IS_LIST},
    {"const", IS_ANY},
    {"properties", IS_SCHEMA_MAP},
    {"required", IS_STRINGS},
    {"additionalProperties", IS_SCHEMA},
    {"minProperties", IS_COUNT},
    {"maxProperties", IS_COUNT},
    {"items", IS_SCHEMA},
    {"prefixItems", IS_SCHEMAS},
    {"minItems", IS_COUNT},
    {"maxItems", IS_COUNT},
    {"uniqueItems", IS_BOOL},
    {"minLength", IS_COUNT},
    {"maxLength", IS_COUNT},
    {"pattern", IS_STRING},
    {"format", IS_STRING},
    {"minimum", IS_NUMBER},
    {"maximum", IS_NUMBER},
    {"exclusiveMinimum", IS_NUMBER},
    {"exclusiveMaximum", IS_NUMBER},
    {"multipleOf", IS_NUMBER},
    {"anyOf", IS_SCHEMAS},
    {"oneOf", IS_SCHEMAS},
    {"allOf", IS_SCHEMAS},
    {"$ref", IS_STRING},
    {"nullable", IS_BOOL},
    {"$defs", IS_DEFS},
    {"definitions", IS_DEFS},
    {"$schema", IS_NOTE},
    {"$id", IS_NOTE},
    {"$comment", IS_NOTE},
    {"title", IS_NOTE},
    {"description", IS_NOTE},
    {"default", IS_NOTE},
    {"example", IS_NOTE},
    {"examples", IS_NOTE},
    {"deprecated", IS_NOTE},
    {"readOnly", IS_NOTE},
    {"writeOnly", IS_NOTE},
    {"discriminator", IS_NOTE},
};

static const keyword *keyword_of(const char *name) {
    for (int i = 0; i < (int)(sizeof keywords / sizeof *keywords); i++)
        if (strcmp(keywords[i].name, name) == 0) return &keywords[i];
    return NULL;
}

static bool is_schema(const json_t *v) {
    return json_is_object(v) || json_is_boolean(v);
}

static bool all_are(const json_t *v, bool (*is)(const json_t *)) {
    size_t i;
    const char *name;
    json_t *x;
    json_array_foreach((json_t *)v, i, x) if (!is(x)) return false;
    json_object_foreach((json_t *)v, name, x) if (!is(x)) return false;
    return true;
}

static bool is_type_name(const json_t *v) {
    static const char *const names[] = {"null",   "boolean", "integer", "number",
                                        "string", "array",   "object"};
    const char *s = json_string_value(v);
    for (int i = 0; s && i < 7; i++)
        if (strcmp(names[i], s) == 0) return true;
    return false;
}

static bool is_string(const json_t *v) {
    return json_is_string(v);
}

/* What a keyword's value should be; NULL: it is. */
static const char *mistake(value_kind kind, const json_t *v) {
    switch (kind) {
        case IS_SCHEMA: return is_schema(v) ? NULL : "a schema";
        case IS_SCHEMAS:
            return json_array_size(v) > 0 && all_are(v, is_schema) ? NULL : "a list of schemas";
        case IS_DEFS:
        case IS_SCHEMA_MAP:
            return json_is_object(v) && all_are(v, is_schema) ? NULL : "an object of schemas";
        case IS_COUNT:
            return json_is_integer(v) && json_integer_value(v) >= 0 ? NULL
                                                                    : "a whole number from 0";
        case IS_NUMBER: return json_is_number(v) ? NULL : "a number";
        case IS_STRING: return is_string(v) ? NULL : "a string";
        case IS_STRINGS:
            return json_is_array(v) && all_are(v, is_string) ? NULL : "a list of strings";
        case IS_BOOL: return json_is_boolean(v) ? NULL : "true or false";
        case IS_LIST: return json_is_array(v) ? NULL : "a list";
        case IS_TYPE:
            return is_type_name(v) ||
                           (json_is_array(v) && json_array_size(v) > 0 && all_are(v, is_type_name))
                       ? NULL
                       : "the name of a type, or a list of them";
        default: return NULL;
    }
}

static status check_keywords(const schema *c, const json_t *s, err *e) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)s, name, v) {
        const keyword *k = keyword_of(name);
        if (!k && strncmp(name, "x-", 2) == 0) continue;
        if (!k) return schema_refuse(c, e, s, name, "this keyword is not supported");
        const char *want = mistake(k->kind, v);
        if (want) return schema_refuse(c, e, s, name, "this is not %s", want);
    }
    return ST_OK;
}

status schema_check(schema *c, const json_t *s, err *e) {
    const char *key = arena_memdup(c->mem, &s, sizeof s);
    if (str_map_get(&c->checked, key, sizeof s) >= 0) return ST_OK;
    str_map_add(&c->checked, key, sizeof s, 1);
    return check_keywords(c, s, e);
}
