/* Numbers between limits, digit by digit.
 *
 * A limit is a decimal of as many digits as the numbers of one length: L before the point and the
 * rest, up to 15 together, behind it. While all digits so far are those of a limit the next one is bound by it
 * ("tight"); as soon as one differs the rest is free. 15 digits, so that two decimals that differ
 * are two doubles that differ: what is right here is right for who reads the number as a double. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "infer/grammar/schema_int.h"

enum { MOST_MULTIPLE = 1000, PLACES = 24 };

/* As text: digits before the point without leading zeros ("0" at least), digits behind it. */
typedef struct decimal {
    char whole[PLACES], part[PLACES];
} decimal;

typedef struct limit {
    long double value;
    const json_t *at; /* the schema; NULL: there is no limit */
    const char *keyword;
    bool open; /* the value itself is not allowed */
} limit;

/* Numbers of one sign and length. */
typedef struct digits {
    network *n;
    const char *lo, *hi; /* [L + F] digits; NULL: no limit */
    int L, F;            /* digits before the point and behind it at most */
    bool lo_open, hi_open;
    int multiple;
    int32_t *loose; /* [digits left][remainder] made before; 0: not yet */
} digits;

/* ---- the automaton ---- */

static bool is_zero(const char *s) {
    return s[strspn(s, "0")] == '\0';
}

/* Whether a number may end before digit `pos`: what is left out counts as zeros. */
static bool may_stop(const digits *d, int pos, bool tl, bool th, int rest) {
    if (rest != 0) return false;
    if (tl && (!is_zero(d->lo + pos) || d->lo_open)) return false;
    return !(th && is_zero(d->hi + pos) && d->hi_open);
}

static int32_t from(digits *d, int pos, bool tl, bool th, int rest);

/* The digit at pos, and what follows. Digits that lead to the same state become one range. */
static int32_t next_digit(digits *d, int pos, bool tl, bool th, int rest) {
    int lo = tl ? d->lo[pos] - '0' : 0, hi = th ? d->hi[pos] - '0' : 9, first = 0;
    int32_t at = NET_DEAD, run = NET_DEAD;
    if (pos == d->L + d->F) return at;
    if (pos == 0 && d->L > 1 && lo == 0) lo = 1;
    for (int k = lo; k <= hi + 1; k++) {
        int32_t to = NET_DEAD;
        if (k <= hi)
            to = from(d, pos + 1, tl && k == d->lo[pos] - '0', th && k == d->hi[pos] - '0',
                      (rest * 10 + k) % d->multiple);
        if (to == run && k <= hi) continue;
        if (run != NET_DEAD)
            at = net_split(d->n,
                           net_byte(d->n, (uint8_t)('0' + first), (uint8_t)('0' + k - 1), run), at);
        run = to;
        first = k;
    }
    return at;
}

static int32_t from(digits *d, int pos, bool tl, bool th, int rest) {
    int32_t *known = &d->loose[(d->L + d->F - pos) * d->multiple + rest];
    bool loose = !tl && !th && pos > 0;
    if (loose && *known) return *known;
    int32_t end = pos >= d->L && may_stop(d, pos, tl, th, rest) ? NET_END : NET_DEAD;
    int32_t more = next_digit(d, pos, tl, th, rest);
    if (pos == d->L) more = net_byte(d->n, '.', '.', more);
    int32_t at = net_split(d->n, end, more);
    if (loose) *known = at;
    return at;
}

/* ---- limits as decimals ---- */

/* False: it has more than 15 digits, or too many for a number of its size. */
static bool to_decimal(long double x, decimal *out) {
    char text[64];
    *out = (decimal){.whole = "0"};
    int precision = 1;
    do snprintf(text, sizeof text, "%.*e", precision - 1, (double)x);
    while (strtod(text, NULL) != (double)x && ++precision <= JSON_DIGITS);
    if (precision > JSON_DIGITS) return false;
    int exponent = atoi(strchr(text, 'e') + 1), places = precision - 1 - exponent;
    if (exponent >= JSON_DIGITS || places > JSON_DIGITS - 1) return false;
    snprintf(text, sizeof text, "%.*f", places > 0 ? places : 0, (double)x);
    char *point = strchr(text, '.');
    if (point) snprintf(out->part, PLACES, "%s", point + 1);
    snprintf(out->whole, PLACES, "%.*s", (int)strcspn(text, "."), text);
    return strlen(out->whole) + strlen(out->part) <= JSON_DIGITS;
}

/* Both parts of a limit, filled up with zeros. */
static void pad(const decimal *d, int places, char out[2 * PLACES]) {
    snprintf(out, 2 * PLACES, "%s%s", d->whole, d->part);
    size_t len = strlen(out), want = strlen(d->whole) + (size_t)places;
    while (len < want) out[len++] = '0';
    out[want] = '\0';
}

typedef struct range {
    decimal lo, hi;
    bool lo_open, hi_open;
    bool whole;
    int multiple;
} range;

/* Numbers of every length that the range has, without a sign. */
static int32_t build_range(schema *c, const range *r) {
    int most = (int)strlen(r->hi.whole), least = (int)strlen(r->lo.whole);
    size_t room = (size_t)(JSON_INT_DIGITS + 1) * (size_t)r->multiple;
    int32_t at = NET_DEAD, *loose = xcalloc(room, sizeof *loose);
    for (int L = least; L <= most; L++) {
        char lo[2 * PLACES], hi[2 * PLACES];
        digits d = {.n = c->net, .L = L, .multiple = r->multiple, .loose = loose};
        d.F = r->whole ? 0 : JSON_DIGITS - L;
        d.lo_open = r->lo_open;
        d.hi_open = r->hi_open;
        pad(&r->lo, d.F, lo);
        pad(&r->hi, d.F, hi);
        if (L == least) d.lo = lo;
        if (L == most) d.hi = hi;
        if (!r->whole) memset(loose, 0, room * sizeof *loose);
        at = net_split(c->net, at, from(&d, 0, L == least, L == most, 0));
    }
    free(loose);
    return at;
}

/* ---- the keywords ---- */

static bool is_tighter(const limit *best, long double x, bool open, bool above) {
    if (!best->at || x == best->value) return !best->at || open;
    return above ? x < best->value : x > best->value;
}

static limit find_limit(const schema_list *l, bool above) {
    const char *const names[] = {above ? "maximum" : "minimum",
                                 above ? "exclusiveMaximum" : "exclusiveMinimum"};
    limit best = {0};
    for (int32_t i = 0; i < l->n; i++)
        for (int open = 0; open < 2; open++) {
            const json_t *v = json_object_get(l->item[i].schema, names[open]);
            if (!v) continue;
            long double x = json_is_integer(v) ? (long double)json_integer_value(v)
                                               : (long double)json_real_value(v);
            if (is_tighter(&best, x, open, above))
                best = (limit){x, l->item[i].schema, names[open], open};
        }
    return best;
}

/* The least common multiple of all multipleOf; 0 where there is none. */
static status find_multiple(const schema *c, const schema_list *l, int *out, err *e) {
    *out = 0;
    for (int32_t i = 0; i < l->n; i++) {
        const json_t *s = l->item[i].schema, *v = json_object_get(s, "multipleOf");
        if (!v) continue;
        double x = json_number_value(v);
        if (!(x >= 1 && x <= MOST_MULTIPLE && x == floor(x)))
            return schema_refuse(c, e, s, "multipleOf",
                                 "only whole numbers from 1 to %d are supported", MOST_MULTIPLE);
        int before = *out ? *out : 1, a = before, b = (int)x;
        while (b) {
            int t = a % b;
            a = b;
            b = t;
        }
        if ((int64_t)before / a * (int64_t)x > MOST_MULTIPLE)
            return schema_refuse(c, e, s, "multipleOf", "with the others it is above %d",
                                 MOST_MULTIPLE);
        *out = before / a * (int)x;
    }
    return ST_OK;
}

/* Whole numbers have limits that are whole and closed, of up to 18 digits. */
static void make_whole(limit *lo, limit *hi) {
    const long double most = 999999999999999999.0L;
    lo->value = lo->at ? (lo->open ? floorl(lo->value) + 1 : ceill(lo->value)) : -most;
    hi->value = hi->at ? (hi->open ? ceill(hi->value) - 1 : floorl(hi->value)) : most;
    if (lo->value < -most) lo->value = -most;
    if (hi->value > most) hi->value = most;
    lo->open = hi->open = false;
}

static status limit_digits(const schema *c, const limit *l, bool whole, decimal *out, err *e) {
    if (whole) {
        *out = (decimal){0};
        snprintf(out->whole, PLACES, "%lld", (long long)l->value);
        return ST_OK;
    }
    if (to_decimal(l->value, out)) return ST_OK;
    return schema_refuse(c, e, l->at, l->keyword, "only limits of up to %d digits are supported",
                         JSON_DIGITS);
}

/* The numbers from lo to hi, both of at least 0. */
static status build_between(schema *c, limit lo, limit hi, bool whole, int multiple, int32_t *start,
                            err *e) {
    range r = {.lo_open = lo.open, .hi_open = hi.open, .whole = whole, .multiple = multiple};
    *start = NET_DEAD;
    if (lo.value > hi.value || (lo.value == hi.value && (lo.open || hi.open))) return ST_OK;
    TRY(limit_digits(c, &lo, whole, &r.lo, e));
    TRY(limit_digits(c, &hi, whole, &r.hi, e));
    *start = build_range(c, &r);
    return ST_OK;
}

static limit negated(limit l) {
    l.value = -l.value;
    return l;
}

static status build_limited(schema *c, limit lo, limit hi, bool whole, int multiple, int32_t *start,
                            err *e) {
    limit zero = {0};
    int32_t below = NET_DEAD;
    *start = NET_DEAD;
    if (hi.value >= 0)
        TRY(build_between(c, lo.value < 0 ? zero : lo, hi, whole, multiple, start, e));
    if (lo.value >= 0) return ST_OK;
    zero.open = true; /* no -0 */
    TRY(build_between(c, hi.value >= 0 ? zero : negated(hi), negated(lo), whole, multiple, &below,
                      e));
    *start = net_split(c->net, *start, net_byte(c->net, '-', '-', below));
    return ST_OK;
}

status schema_number(schema *c, const schema_list *l, bool whole, int32_t *start, err *e) {
    const long double most =
        99999999999999.0L; /* 14 digits, so that there is one behind the point */
    limit lo = find_limit(l, false), hi = find_limit(l, true);
    int multiple;
    TRY(find_multiple(c, l, &multiple, e));
    whole |= multiple > 0;
    if (multiple == 0) multiple = 1;
    if (!lo.at && !hi.at && multiple == 1) {
        *start = json_call(c->json, whole ? RULE_INTEGER : RULE_NUMBER, NET_END);
        return ST_OK;
    }
    if (whole) {
        make_whole(&lo, &hi);
    } else {
        if (!lo.at || lo.value < -most) lo = (limit){.value = -most, .at = lo.at};
        if (!hi.at || hi.value > most) hi = (limit){.value = most, .at = hi.at};
    }
    return build_limited(c, lo, hi, whole, multiple, start, e);
}
