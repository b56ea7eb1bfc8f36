#include "infer/grammar/json_rules.h"

#include <stddef.h>
#include <string.h>

enum { MOST_INDENT = 24 };

static int32_t one(network *n, char c, int32_t next) {
    return net_byte(n, (uint8_t)c, (uint8_t)c, next);
}

/* One of some characters. */
static int32_t any_of(network *n, const char *chars, int32_t next) {
    int32_t at = NET_DEAD;
    for (; *chars; chars++) at = net_split(n, one(n, *chars, next), at);
    return at;
}

static int32_t hex(network *n, int32_t next) {
    int32_t letter = net_split(n, net_byte(n, 'a', 'f', next), net_byte(n, 'A', 'F', next));
    return net_split(n, net_byte(n, '0', '9', next), letter);
}

/* What stands behind \u: four digits that are no surrogate, or two surrogates. */
static int32_t unicode_escape(network *n) {
    int32_t two = hex(n, hex(n, NET_END)), three = hex(n, two);
    int32_t below_d = net_split(n, net_byte(n, '0', '9', three), any_of(n, "abcefABCEF", three));
    int32_t d = any_of(n, "dD", net_byte(n, '0', '7', two));
    int32_t low = any_of(n, "dD", any_of(n, "cdefCDEF", two));
    low = one(n, '\\', one(n, 'u', low));
    int32_t high = any_of(n, "89abAB", hex(n, hex(n, low)));
    return net_split(n, below_d, net_split(n, d, any_of(n, "dD", high)));
}

static int32_t plain_char(network *n) {
    int32_t quoted =
        net_split(n, net_char(n, 0x23, 0x5B, NET_END), net_char(n, 0x5D, 0x10FFFF, NET_END));
    return net_split(n, net_char(n, 0x20, 0x21, NET_END), quoted);
}

static int32_t escaped_char(network *n) {
    int32_t letter = any_of(n, "\"\\/bfnrt", NET_END);
    return one(n, '\\', net_split(n, letter, one(n, 'u', unicode_escape(n))));
}

static int32_t string_of_any(json_rules *j) {
    network *n = j->net;
    int32_t loop = net_reserve(n);
    net_set(n, loop, json_call(j, RULE_CHAR, loop), one(n, '"', NET_END));
    return one(n, '"', loop);
}

/* No leading zeros. */
static int32_t digits(network *n, int most, int32_t next) {
    int32_t more = net_byte(n, '1', '9', net_bytes(n, '0', '9', 0, most - 1, next));
    return net_split(n, one(n, '0', next), more);
}

static int32_t signed_from(network *n, int32_t start) {
    return net_split(n, start, one(n, '-', start));
}

static int32_t integer(network *n) {
    int32_t rest = net_bytes(n, '0', '9', 0, JSON_INT_DIGITS - 1, NET_END);
    int32_t nonzero = signed_from(n, net_byte(n, '1', '9', rest));
    return net_split(n, one(n, '0', NET_END), nonzero);
}

static int32_t number(network *n) {
    int32_t power = net_bytes(n, '0', '9', 1, 2, NET_END);
    power = any_of(n, "eE", net_split(n, power, any_of(n, "+-", power)));
    int32_t end = net_split(n, NET_END, power);
    int32_t fraction = one(n, '.', net_bytes(n, '0', '9', 1, JSON_DIGITS, end));
    return signed_from(n, digits(n, JSON_DIGITS, net_split(n, end, fraction)));
}

/* A list of `item` (a state that leads to `loop`) between two brackets. */
static int32_t list(json_rules *j, const char *brackets, int32_t item, int32_t loop) {
    network *n = j->net;
    int32_t close = one(n, brackets[1], NET_END);
    net_set(n, loop, one(n, ',', json_space(j, item)), json_space(j, close));
    return one(n, brackets[0], json_space(j, net_split(n, item, close)));
}

static int32_t array(json_rules *j) {
    int32_t loop = net_reserve(j->net);
    return list(j, "[]", json_call(j, RULE_VALUE, loop), loop);
}

static int32_t object(json_rules *j) {
    int32_t loop = net_reserve(j->net);
    int32_t value = json_colon(j, json_call(j, RULE_VALUE, loop));
    return list(j, "{}", json_call(j, RULE_STRING, value), loop);
}

static int32_t value(json_rules *j) {
    static const char *const words[] = {"true", "false", "null"};
    static const json_rule kinds[] = {RULE_NUMBER, RULE_ARRAY, RULE_OBJECT, RULE_STRING};
    int32_t at = NET_DEAD;
    for (int i = 0; i < 3; i++)
        at = net_split(j->net, net_text(j->net, words[i], strlen(words[i]), false, NET_END), at);
    for (int i = 0; i < 4; i++) at = net_split(j->net, json_call(j, kinds[i], NET_END), at);
    return at;
}

static int32_t space(network *n) {
    int32_t line = one(n, '\n', net_bytes(n, ' ', ' ', 0, MOST_INDENT, NET_END));
    return net_split(n, one(n, ' ', NET_END), line);
}

static int32_t make(json_rules *j, json_rule which) {
    switch (which) {
        case RULE_SPACE: return space(j->net);
        case RULE_PLAIN: return plain_char(j->net);
        case RULE_CHAR:
            return net_split(j->net, json_call(j, RULE_PLAIN, NET_END), escaped_char(j->net));
        case RULE_STRING: return string_of_any(j);
        case RULE_INTEGER: return integer(j->net);
        case RULE_NUMBER: return number(j->net);
        case RULE_ARRAY: return array(j);
        case RULE_OBJECT: return object(j);
        default: return value(j);
    }
}

int32_t json_rule_of(json_rules *j, json_rule which) {
    if (j->rule[which] == 0) {
        int32_t rule = net_new_rule(j->net);
        if (rule == NET_NO_RULE) return rule;
        j->rule[which] = rule + 1; /* before what refers to itself */
        net_set_rule(j->net, rule, make(j, which));
    }
    return j->rule[which] - 1;
}

int32_t json_call(json_rules *j, json_rule which, int32_t next) {
    return net_call(j->net, json_rule_of(j, which), next);
}

int32_t json_space(json_rules *j, int32_t next) {
    return net_split(j->net, next, json_call(j, RULE_SPACE, next));
}

int32_t json_colon(json_rules *j, int32_t next) {
    network *n = j->net;
    return one(n, ':', net_split(n, next, one(n, ' ', next)));
}

int32_t json_char(network *n, uint32_t lo, uint32_t hi, int32_t next) {
    static const char code[] = "\b\f\n\r\t\"\\", letter[] = "bfnrt\"\\";
    int32_t at = NET_DEAD;
    for (int i = 0; code[i]; i++)
        if ((uint32_t)code[i] >= lo && (uint32_t)code[i] <= hi)
            at = net_split(n, at, one(n, '\\', one(n, letter[i], next)));
    static const uint32_t plain[][2] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
    for (int i = 0; i < 3; i++) {
        uint32_t from = lo > plain[i][0] ? lo : plain[i][0];
        uint32_t to = hi < plain[i][1] ? hi : plain[i][1];
        if (from <= to) at = net_split(n, net_char(n, from, to, next), at);
    }
    return at;
}
