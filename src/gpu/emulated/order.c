/* Which work of several streams has an order. Work comes after all earlier work of its stream, after what the events that
 * the stream has waited for come after, and after what the host had waited for when it gave the work. A clock says how
 * much of each stream that is. Whether two pieces of work have an order does not depend on which ran first: so an event
 * that is missing is found in every order of streams.
 *
 * The history keeps who wrote each byte of the device's memory last and who has read it since, as spans of memory that
 * were used alike. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "gpu/emulated/device.h"

void emu_clock_join(emu_clock *c, const emu_clock *with) {
    for (int i = 0; i < EMU_MOST_STREAMS; i++)
        if (c->seen[i] < with->seen[i]) c->seen[i] = with->seen[i];
}

static bool comes_after(const emu_work *now, const emu_use *before) {
    return !before->who || before->number <= now->clock.seen[before->stream];
}

/* ---- spans; sorted, and none covers a part of another ---- */

static emu_span *insert(emu_history *h, int i, const char *from, const char *end) {
    VEC_PUSH(h->span, h->n, h->cap, (emu_span){0});
    memmove(&h->span[i + 1], &h->span[i], sizeof *h->span * (size_t)(h->n - 1 - i));
    h->span[i] = (emu_span){.from = from, .end = end};
    return &h->span[i];
}

/* The first that ends behind `at`. */
static int find(const emu_history *h, const char *at) {
    int low = 0, high = h->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (h->span[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Span i ends at `at`, and i + 1 begins there, if that is in the midst of it. */
static void split(emu_history *h, int i, const char *at) {
    if (i == h->n || h->span[i].from >= at || h->span[i].end <= at) return;
    emu_span before = h->span[i];
    *insert(h, i, at, at) = before;
    h->span[i].end = h->span[i + 1].from = at;
}

static void remove_spans(emu_history *h, int first, int n) {
    if (n > 0)
        memmove(&h->span[first], &h->span[first + n], sizeof *h->span * (size_t)(h->n - first - n));
    h->n -= n;
}

/* Spans that meet and were used alike become one. */
static void join_alike(emu_history *h, int i) {
    if (i <= 0 || i >= h->n || h->span[i - 1].end != h->span[i].from ||
        memcmp(&h->span[i - 1].writer, &h->span[i].writer,
               sizeof(emu_span) - offsetof(emu_span, writer)) != 0)
        return;
    h->span[i - 1].end = h->span[i].end;
    remove_spans(h, i, 1);
}

/* ---- uses ---- */

/* The first that has no order with `now`; NULL: all have. */
static const emu_use *unordered(const emu_span *s, const emu_work *now, bool write) {
    if (!comes_after(now, &s->writer)) return &s->writer;
    for (int i = 0; write && i < EMU_MOST_STREAMS; i++)
        if (!comes_after(now, &s->reader[i])) return &s->reader[i];
    return NULL;
}

static void note(emu_span *s, const emu_work *now, const char *who, bool write) {
    emu_use use = {who, now->clock.seen[now->stream], now->stream};
    if (!write) {
        s->reader[now->stream] = use;
        return;
    }
    memset(s->reader, 0, sizeof s->reader);
    s->writer = use;
}

emu_clash emu_history_use(emu_history *h, const emu_work *now, const char *who, const void *at,
                          int64_t bytes, bool write) {
    const char *from = at, *end = from + bytes;
    emu_clash clash = {0};
    split(h, find(h, from), from);
    int first = find(h, from), i = first;
    for (const char *p = from; p < end; p = h->span[i++].end) {
        if (i == h->n || h->span[i].from > p)
            insert(h, i, p, i < h->n && h->span[i].from < end ? h->span[i].from : end);
        split(h, i, end);
        emu_span *s = &h->span[i];
        const emu_use *other = unordered(s, now, write);
        if (other && !clash.who)
            clash = (emu_clash){s->from, s->end, other->who, other == &s->writer};
        note(s, now, who, write);
    }
    for (; i >= first; i--) join_alike(h, i);
    return clash;
}

void emu_history_forget(emu_history *h, const void *at, int64_t bytes) {
    const char *from = at, *end = from + bytes;
    int first = find(h, from), n = 0;
    while (first + n < h->n && h->span[first + n].from < end) n++;
    remove_spans(h, first, n);
}
