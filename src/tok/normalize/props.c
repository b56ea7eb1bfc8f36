/* The table of properties, lower case, and grapheme clusters. */
#include "tok/normalize/props.h"

#include "tok/normalize/job.h"
#include "tok/normalize/norm_table.h"

int norm_lower_of(uint32_t cp, uint32_t out[2]) {
    if (cp == 0x130) { /* the only one of two characters: i with dot above */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    int lo = 0, hi = norm_n_lower - 1;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (cp > norm_lower[mid].last) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    out[0] = (uint32_t)((int32_t)cp + norm_lower[lo].delta);
    return 1;
}

/* ---- extended grapheme clusters of Unicode 17 (UAX #29): what a reader takes for one character ---- */

/* What of the cluster so far decides about the next character. */
typedef struct cluster_state {
    cluster_class last;
    int regionals;                    /* regional indicators at the end */
    enum { NO, PICTURE, JOINED } zwj; /* a pictograph and extenders; and a joiner behind them */
    bool consonant, linked; /* a consonant and extenders at the end; a linker among them */
} cluster_state;

static void take(cluster_state *st, unsigned props) {
    cluster_class c = (cluster_class)(props >> PROP_CLUSTER & 15);
    st->last = c;
    st->regionals = c == CLUSTER_REGIONAL ? st->regionals + 1 : 0;
    if (c == CLUSTER_PICTOGRAPHIC) {
        st->zwj = PICTURE;
    } else if (c == CLUSTER_ZWJ && st->zwj == PICTURE) {
        st->zwj = JOINED;
    } else if (c != CLUSTER_EXTEND || st->zwj == JOINED) {
        st->zwj = NO;
    }
    if (c == CLUSTER_CONSONANT) {
        st->consonant = true;
        st->linked = false;
    } else if (props & PROP_INCB_LINKER) {
        st->linked = st->consonant;
    } else if (!(props & PROP_INCB_EXTEND)) {
        st->consonant = st->linked = false;
    }
}

static bool is_control(cluster_class c) {
    return c == CLUSTER_CONTROL || c == CLUSTER_CR || c == CLUSTER_LF;
}

/* Hangul: GB6 to GB8. */
static bool joins_hangul(cluster_class a, cluster_class b) {
    switch (a) {
        case CLUSTER_L:
            return b == CLUSTER_L || b == CLUSTER_V || b == CLUSTER_LV || b == CLUSTER_LVT;
        case CLUSTER_LV:
        case CLUSTER_V: return b == CLUSTER_V || b == CLUSTER_T;
        case CLUSTER_LVT:
        case CLUSTER_T: return b == CLUSTER_T;
        default: return false;
    }
}

/* Rules GB3 to GB13, in their order. */
static bool joins(const cluster_state *st, cluster_class c) {
    if (st->last == CLUSTER_CR && c == CLUSTER_LF) return true;
    if (is_control(st->last) || is_control(c)) return false;
    if (joins_hangul(st->last, c)) return true;
    if (c == CLUSTER_EXTEND || c == CLUSTER_ZWJ || c == CLUSTER_SPACING) return true;
    if (st->last == CLUSTER_PREPEND) return true;
    if (c == CLUSTER_CONSONANT) return st->linked;
    if (c == CLUSTER_PICTOGRAPHIC) return st->zwj == JOINED;
    return c == CLUSTER_REGIONAL && st->regionals % 2 == 1;
}

size_t cluster_end(const char *s, size_t n, size_t i) {
    cluster_state st = {0};
    take(&st, norm_props(take_char(s, &i)));
    while (i < n) {
        size_t next = i;
        unsigned props = norm_props(take_char(s, &next));
        if (!joins(&st, (cluster_class)(props >> PROP_CLUSTER & 15))) return i;
        take(&st, props);
        i = next;
    }
    return n;
}
