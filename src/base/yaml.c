/* libyaml events to jansson values. One recursive descent: parse_node takes the event that starts a
 * node, so the path, the depth and the limits are all in one place.
 *
 * Invariants: s->path is the key path of the node being parsed; every node made, also by an alias,
 * is counted against the limits before it is made; an anchor becomes known only when its node is
 * complete, so no value can contain itself. */
#include "base/yaml.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

enum { MAX_EXPANDED_BYTES = 4 * YAML_MAX_BYTES };

typedef struct parse_state {
    yaml_parser_t parser;
    const char *name;
    json_t *origins;
    json_t *anchors;
    char path[YAML_MAX_PATH];
    size_t path_len;
    int depth;
    size_t nodes, bytes;
    bool bad_syntax; /* libyaml, not a rule of ours, refused the text */
    err *e;
} parse_state;

static status parse_node(parse_state *s, const yaml_event_t *event, json_t **out);

static status fail_at(parse_state *s, yaml_mark_t mark, const char *what, const char *detail) {
    err_set(s->e, ST_USAGE, "%s:%zu: %s%s%s%s", s->name, mark.line + 1, what, detail ? " '" : "",
            detail ? detail : "", detail ? "'" : "");
    return err_where(s->e, "%s:%zu", s->name, mark.line + 1);
}

static status next_event(parse_state *s, yaml_event_t *event) {
    if (yaml_parser_parse(&s->parser, event)) return ST_OK;
    const yaml_parser_t *p = &s->parser;
    s->bad_syntax = true;
    const char *problem = p->problem ? p->problem : "cannot be read";
    err_set(s->e, ST_USAGE, "%s:%zu: not valid YAML: %s%s%s", s->name, p->problem_mark.line + 1,
            problem, p->context ? " " : "", p->context ? p->context : "");
    err_hint(s->e, "check the indentation, brackets and quotes near this line");
    return err_where(s->e, "%s:%zu", s->name, p->problem_mark.line + 1);
}

static status count_node(parse_state *s, yaml_mark_t mark, size_t nodes, size_t bytes) {
    s->nodes += nodes;
    s->bytes += bytes;
    if (s->nodes > YAML_MAX_NODES || s->bytes > MAX_EXPANDED_BYTES)
        return fail_at(s, mark, "too many values (after aliases are expanded)", NULL);
    return ST_OK;
}

/* Extends the path by one segment; the caller restores path_len. */
static status push_path(parse_state *s, const char *key, yaml_mark_t mark) {
    size_t n = strlen(key), dot = s->path_len > 0;
    if (s->path_len + dot + n + 1 > sizeof s->path)
        return fail_at(s, mark, "the path of this key is too long", NULL);
    if (dot) s->path[s->path_len++] = '.';
    memcpy(s->path + s->path_len, key, n + 1);
    s->path_len += n;
    char where[512];
    snprintf(where, sizeof where, "%.480s:%zu", s->name, mark.line + 1);
    json_object_set_new(s->origins, s->path, json_cstr(where));
    return ST_OK;
}

static void pop_path(parse_state *s, size_t len) {
    s->path_len = len;
    s->path[len] = '\0';
}

static bool is_one_of(const char *s, const char *const *words) {
    for (; *words; words++)
        if (strcmp(s, *words) == 0) return true;
    return false;
}

static json_t *integer_or_real(const char *digits, int base, bool negative) {
    char *end;
    unsigned long long n = strtoull(digits, &end, base);
    bool twice = base == 16 && (digits[1] | 32) == 'x'; /* strtoull passes a 0x of its own */
    if (*end || end == digits || twice) return NULL;
    if (n <= INT64_MAX) return json_integer(negative ? -(json_int_t)n : (json_int_t)n);
    return json_real((negative ? -1.0 : 1.0) * (double)n);
}

/* A number of the core schema, or NULL when the text is none (or is beyond a double). */
static json_t *core_number(const char *s) {
    if (s[0] == '0' && (s[1] == 'x' || s[1] == 'o') && isxdigit((unsigned char)s[2]))
        return strlen(s) <= 18 ? integer_or_real(s + 2, s[1] == 'x' ? 16 : 8, false) : NULL;
    size_t span = text_number_span(s);
    if (span == 0 || s[span]) return NULL;
    const char *p = s + (*s == '-' || *s == '+');
    size_t whole = strspn(p, "0123456789");
    if (p[whole] == '\0' && whole <= 19) return integer_or_real(p, 10, *s == '-');
    return json_real(strtod(s, NULL)); /* NULL for an overflow to infinity */
}

static json_t *plain_value(const char *s) {
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const trues[] = {"true", "True", "TRUE", NULL};
    static const char *const falses[] = {"false", "False", "FALSE", NULL};
    if (is_one_of(s, nulls)) return json_null();
    if (is_one_of(s, trues)) return json_true();
    if (is_one_of(s, falses)) return json_false();
    json_t *number = core_number(s);
    return number ? number : json_string(s);
}

static status parse_scalar(parse_state *s, const yaml_event_t *event, json_t **out) {
    const char *text = (const char *)event->data.scalar.value;
    size_t len = event->data.scalar.length;
    const char *tag = (const char *)event->data.scalar.tag;
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && !tag;
    if (tag && strcmp(tag, YAML_STR_TAG) != 0 && strcmp(tag, "!") != 0)
        return fail_at(s, event->start_mark, "tags are not supported:", tag);
    if (memchr(text, '\0', len)) return fail_at(s, event->start_mark, "NUL byte in a text", NULL);
    TRY(count_node(s, event->start_mark, 1, len));
    *out = plain ? plain_value(text) : json_stringn(text, len);
    if (!*out) return fail_at(s, event->start_mark, "this text is not valid UTF-8", NULL);
    return ST_OK;
}

/* Adds what a value has to *nodes and *bytes; returns how deep it is nested. */
static int measure(const json_t *value, size_t *nodes, size_t *bytes) {
    const char *key;
    json_t *item;
    size_t i;
    int deepest = 0, depth;
    ++*nodes;
    if (json_is_string(value)) *bytes += json_string_length(value);
    json_array_foreach(value, i, item) {
        depth = measure(item, nodes, bytes);
        if (depth > deepest) deepest = depth;
    }
    json_object_foreach((json_t *)value, key, item) {
        *bytes += strlen(key);
        depth = measure(item, nodes, bytes);
        if (depth > deepest) deepest = depth;
    }
    return deepest + 1;
}

/* A value already made is within the limits, so measuring it is cheap; copies count like originals.
 */
static status parse_alias(parse_state *s, const yaml_event_t *event, json_t **out) {
    const char *anchor = (const char *)event->data.alias.anchor;
    json_t *value = json_object_get(s->anchors, anchor);
    if (!value) return fail_at(s, event->start_mark, "unknown alias", anchor);
    size_t nodes = 0, bytes = 0;
    int height = measure(value, &nodes, &bytes);
    TRY(count_node(s, event->start_mark, nodes, bytes));
    if (s->depth + height > YAML_MAX_DEPTH)
        return fail_at(s, event->start_mark, "values are nested too deeply", NULL);
    *out = json_deep_copy(value);
    return ST_OK;
}

static status parse_sequence(parse_state *s, json_t *array) {
    size_t len = s->path_len;
    for (;;) {
        yaml_event_t event;
        TRY(next_event(s, &event));
        if (event.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&event);
            return ST_OK;
        }
        char index[24];
        json_t *item = NULL;
        snprintf(index, sizeof index, "%zu", json_array_size(array));
        status st = push_path(s, index, event.start_mark);
        if (st == ST_OK) st = parse_node(s, &event, &item);
        yaml_event_delete(&event);
        if (st != ST_OK) return st;
        json_array_append_new(array, item);
        pop_path(s, len);
    }
}

static status check_key(parse_state *s, const yaml_event_t *event, const json_t *object) {
    if (event->type != YAML_SCALAR_EVENT)
        return fail_at(s, event->start_mark, "a key must be a plain word", NULL);
    const char *key = (const char *)event->data.scalar.value;
    if (strlen(key) != event->data.scalar.length)
        return fail_at(s, event->start_mark, "NUL byte in a key", NULL);
    if (json_object_get(object, key)) return fail_at(s, event->start_mark, "duplicate key", key);
    return count_node(s, event->start_mark, 0, event->data.scalar.length);
}

/* One "key: value" whose key event is given. */
static status parse_member(parse_state *s, const yaml_event_t *key_event, json_t *object) {
    const char *key = (const char *)key_event->data.scalar.value;
    yaml_event_t event;
    json_t *value = NULL;
    TRY(check_key(s, key_event, object));
    TRY(push_path(s, key, key_event->start_mark));
    TRY(next_event(s, &event));
    status st = parse_node(s, &event, &value);
    yaml_event_delete(&event);
    if (st != ST_OK) return st;
    if (json_object_set_new(object, key, value) != 0)
        return fail_at(s, key_event->start_mark, "this key is not valid UTF-8", NULL);
    return ST_OK;
}

static status parse_mapping(parse_state *s, json_t *object) {
    size_t len = s->path_len;
    for (;;) {
        yaml_event_t event;
        TRY(next_event(s, &event));
        bool end = event.type == YAML_MAPPING_END_EVENT;
        status st = end ? ST_OK : parse_member(s, &event, object);
        yaml_event_delete(&event);
        if (st != ST_OK || end) return st;
        pop_path(s, len);
    }
}

static status parse_collection(parse_state *s, const yaml_event_t *event, json_t **out) {
    bool mapping = event->type == YAML_MAPPING_START_EVENT;
    if (s->depth >= YAML_MAX_DEPTH)
        return fail_at(s, event->start_mark, "values are nested too deeply", NULL);
    TRY(count_node(s, event->start_mark, 1, 0));
    *out = mapping ? json_object() : json_array();
    s->depth++;
    status st = mapping ? parse_mapping(s, *out) : parse_sequence(s, *out);
    s->depth--;
    if (st == ST_OK) return ST_OK;
    json_decref(*out);
    *out = NULL;
    return st;
}

static status parse_node(parse_state *s, const yaml_event_t *event, json_t **out) {
    const yaml_char_t *anchor = NULL;
    switch (event->type) {
        case YAML_ALIAS_EVENT: return parse_alias(s, event, out);
        case YAML_SCALAR_EVENT:
            anchor = event->data.scalar.anchor;
            TRY(parse_scalar(s, event, out));
            break;
        case YAML_MAPPING_START_EVENT:
            anchor = event->data.mapping_start.anchor;
            TRY(parse_collection(s, event, out));
            break;
        case YAML_SEQUENCE_START_EVENT:
            anchor = event->data.sequence_start.anchor;
            TRY(parse_collection(s, event, out));
            break;
        default: return fail_at(s, event->start_mark, "a value was expected here", NULL);
    }
    if (anchor) json_object_set(s->anchors, (const char *)anchor, *out);
    return ST_OK;
}

/* Stream start, at most one document, stream end. */
static status parse_stream(parse_state *s, json_t **root) {
    status st = ST_OK;
    for (bool end = false; st == ST_OK && !end;) {
        yaml_event_t event;
        TRY(next_event(s, &event));
        switch (event.type) {
            case YAML_STREAM_START_EVENT:
            case YAML_DOCUMENT_END_EVENT: break;
            case YAML_STREAM_END_EVENT: end = true; break;
            case YAML_DOCUMENT_START_EVENT:
                if (*root) st = fail_at(s, event.start_mark, "only one document is expected", NULL);
                break;
            default: st = parse_node(s, &event, root);
        }
        yaml_event_delete(&event);
    }
    return st;
}

/* JSON that is no YAML (surrogate escapes in texts): values without line numbers. NULL when it is
 * no JSON either, or beyond the limits. */
static json_t *parse_json(const char *text, size_t len) {
    size_t i = 0, nodes = 0, bytes = 0;
    while (i < len && isspace((unsigned char)text[i])) i++;
    if (i == len || text[i] != '{') return NULL;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    if (!root) return NULL;
    int height = measure(root, &nodes, &bytes);
    if (nodes <= YAML_MAX_NODES && height <= YAML_MAX_DEPTH) return root;
    json_decref(root);
    return NULL;
}

static status parse_text(parse_state *s, json_t **root, const char *text, size_t len) {
    CHECK(yaml_parser_initialize(&s->parser), "out of memory");
    yaml_parser_set_input_string(&s->parser, (const unsigned char *)text, len);
    status st = parse_stream(s, root);
    yaml_parser_delete(&s->parser);
    if (st == ST_OK) {
        if (!*root) *root = json_null();
        return ST_OK;
    }
    json_decref(*root);
    *root = s->bad_syntax ? parse_json(text, len) : NULL;
    json_object_clear(s->origins);
    return *root ? ST_OK : st;
}

status yaml_parse(json_t **root, json_t **origins, const char *name, const char *text, size_t len,
                  err *e) {
    parse_state s = {.name = name, .e = e};
    *root = NULL;
    if (origins) *origins = NULL;
    if (len > YAML_MAX_BYTES) {
        return err_at(e, ST_USAGE, name, "%s is larger than the %d bytes a config may have", name,
                      YAML_MAX_BYTES);
    }
    s.origins = json_object();
    s.anchors = json_object();
    status st = parse_text(&s, root, text, len);
    json_decref(s.anchors);
    if (st == ST_OK && origins)
        *origins = s.origins;
    else
        json_decref(s.origins);
    return st;
}

status yaml_load(json_t **root, json_t **origins, const char *path, err *e) {
    char *text;
    size_t len;
    *root = NULL;
    if (origins) *origins = NULL;
    TRY(file_read_input(path, YAML_MAX_BYTES, &text, &len, e));
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    status st = yaml_parse(root, origins, name, text, len, e);
    free(text);
    return st;
}

status yaml_load_data(json_t **root, json_t **origins, const char *path, err *e) {
    status st = yaml_load(root, origins, path, e);
    if (st != ST_USAGE) return st;
    if (e) e->code = ST_FORMAT;
    err_where(e, "%s", path);
    return ST_FORMAT;
}

const char *yaml_origin(const json_t *origins, const char *path) {
    char key[YAML_MAX_PATH];
    snprintf(key, sizeof key, "%s", path);
    for (;;) {
        const char *where = json_string_value(json_object_get(origins, key));
        if (where) return where;
        char *dot = strrchr(key, '.');
        if (!dot) return NULL;
        *dot = '\0';
    }
}
