/* Pages: what is found is what was offered, the oldest goes first, and a random crowd of texts
 * beside a plain model of what must hold. */
#include "test.h"

#include "base/arena.h"
#include "base/rng.h"
#include "infer/pages.h"

enum { TOK = 2 };

static void test_life(void **state) {
    (void)state;
    static const int32_t a[] = {1, 2}, b[] = {3, 4}, c[] = {5, 6};
    pages *p = pages_new(4, TOK);
    assert_int_equal(pages_available(p), 3);
    int32_t x = pages_take(p), y = pages_take(p);
    assert_true(x > 0 && y > 0 && x != y);
    assert_int_equal(pages_share(p, PAGE_NONE, a), PAGE_NONE);
    assert_int_equal(pages_offer(p, x, PAGE_NONE, a), x);
    assert_int_equal(pages_offer(p, y, x, b), y);
    assert_int_equal(pages_share(p, PAGE_NONE, b), PAGE_NONE); /* elsewhere */
    assert_int_equal(pages_share(p, PAGE_NONE, a), x);
    pages_leave(p, x);
    pages_leave(p, y);
    pages_leave(p, x);
    assert_true(pages_available(p) == 3 && pages_kept(p) == 2);
    /* found while nobody holds them */
    assert_int_equal(pages_share(p, PAGE_NONE, a), x);
    assert_int_equal(pages_share(p, x, b), y);
    assert_true(pages_available(p) == 1 && pages_kept(p) == 0);
    /* the same once more: the caller gets the one that is known */
    int32_t z = pages_take(p);
    assert_int_equal(pages_offer(p, z, x, b), y);
    assert_int_equal(pages_available(p), 1);
    pages_leave(p, y);
    pages_leave(p, y);
    pages_leave(p, x);
    /* the free one, then the one that was left first */
    assert_int_equal(pages_take(p), z);
    assert_int_equal(pages_offer(p, z, PAGE_NONE, c), z);
    assert_int_equal(pages_take(p), y);
    assert_int_equal(pages_share(p, PAGE_NONE, a), x);
    assert_int_equal(pages_share(p, x, b), PAGE_NONE);
    pages_free(p);
}

enum { N = 24, TEXTS = 5, LONG = 6, STEPS = 20000 };

/* A text of LONG pages at most, whose tokens are few, so that many begin alike. */
typedef struct crowd_text {
    int32_t ids[LONG * TOK], page[LONG];
    int n; /* pages */
} crowd_text;

/* What each page holds: the whole text up to it. */
typedef struct crowd {
    pages *p;
    crowd_text text[TEXTS];
    int32_t holds[N][LONG * TOK];
    int long_[N], users[N];
    uint64_t draws;
} crowd;

static int draw(crowd *c, int n) {
    return (int)(mix64(c->draws++) % (uint64_t)n);
}

static void check_page(const crowd *c, const crowd_text *t, int i) {
    int32_t at = t->page[i];
    assert_in_range(at, 1, N - 1);
    assert_int_equal(c->long_[at], i + 1);
    assert_memory_equal(c->holds[at], t->ids, sizeof(int32_t) * TOK * (size_t)(i + 1));
}

/* The next page of a text: an old one, if there is one. */
static void grow(crowd *c, crowd_text *t) {
    int i = t->n;
    int32_t before = i ? t->page[i - 1] : PAGE_NONE, *ids = t->ids + i * TOK;
    for (int k = 0; k < TOK; k++) ids[k] = draw(c, 2);
    int32_t at = draw(c, 3) ? pages_share(c->p, before, ids) : PAGE_NONE;
    if (!at) {
        if (!pages_available(c->p)) return;
        at = pages_take(c->p);
        assert_int_equal(c->users[at], 0);
        memcpy(c->holds[at], t->ids, sizeof(int32_t) * TOK * (size_t)(i + 1));
        c->long_[at] = i + 1;
        int32_t known = pages_offer(c->p, at, before, ids);
        if (known != at) c->long_[at] = 0;
        at = known;
    }
    c->users[at]++;
    t->page[t->n++] = at;
    check_page(c, t, i);
}

static void end(crowd *c, crowd_text *t) {
    while (t->n) {
        c->users[t->page[--t->n]]--;
        pages_leave(c->p, t->page[t->n]);
    }
}

static void test_crowd(void **state) {
    (void)state;
    crowd c = {.p = pages_new(N, TOK)};
    for (int s = 0; s < STEPS; s++) {
        crowd_text *t = &c.text[draw(&c, TEXTS)];
        if (t->n == LONG || draw(&c, 8) == 0)
            end(&c, t);
        else
            grow(&c, t);
        int used = 0;
        for (int i = 1; i < N; i++) used += c.users[i] > 0;
        assert_int_equal(pages_available(c.p), N - 1 - used);
        for (int k = 0; k < TEXTS; k++)
            for (int i = 0; i < c.text[k].n; i++) check_page(&c, &c.text[k], i);
    }
    for (int k = 0; k < TEXTS; k++) end(&c, &c.text[k]);
    assert_int_equal(pages_available(c.p), N - 1);
    assert_true(pages_kept(c.p) > 0);
    for (int i = 1; i < N; i++) pages_take(c.p);
    pages_free(c.p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_life), cmocka_unit_test(test_crowd)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
