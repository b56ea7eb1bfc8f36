/* Pipeline schedules: every piece of work is done once, in an order that never waits for ever; memory and bubble are those that their
 * papers state. */
#include "test.h"

#include "step/schedule.h"

static schedule build(arena *a, schedule_kind kind, int P, int M, int v) {
    schedule s;
    err e = {0};
    if (schedule_build(a, kind, P, M, v, &s, &e) != ST_OK) fail_msg("%s", e.message);
    return s;
}

static int chunks_of(schedule_kind kind, int v) {
    return schedule_chunks_of(kind) ? schedule_chunks_of(kind) : v;
}

static schedule_times times(double f, double i, double w, double transfer) {
    return (schedule_times){
        .work = {[WORK_FORWARD] = f, [WORK_BACKWARD] = i + w, [WORK_INPUT] = i, [WORK_WEIGHT] = w},
        .transfer = transfer};
}

/* Each piece once; forward, then back, then W; only what is there is worked on. */
static void check_complete(const schedule *s) {
    int pieces = 0, parts = 0; /* those of a backward in two */
    for (int i = 0; i < s->stages; i++) {
        const schedule_stage *g = &s->stage[i];
        bool seen[3][64][64] = {0};
        for (int k = 0; k < g->n; k++, pieces++) {
            const schedule_item *it = &g->item[k];
            int step = it->work == WORK_FORWARD ? 0 : it->work == WORK_WEIGHT ? 2 : 1;
            parts += it->work == WORK_INPUT ? 1 : it->work == WORK_WEIGHT ? -1 : 0;
            pieces -= it->work == WORK_WEIGHT;
            assert_int_equal(schedule_stage_of(s, it->chunk), i);
            assert_in_range(it->micro_batch, 0, s->micro_batches - 1);
            assert_false(seen[step][it->chunk][it->micro_batch]);
            for (int before = 0; before < step; before++)
                assert_true(seen[before][it->chunk][it->micro_batch]);
            seen[step][it->chunk][it->micro_batch] = true;
        }
    }
    assert_int_equal(parts, 0);
    assert_int_equal(pieces, 2 * s->chunks / s->copies * s->micro_batches);
}

static double length_of(const schedule_item *it, int k, const schedule_times *t) {
    if (it->joined) return t->work[WORK_FORWARD] + t->work[WORK_BACKWARD];
    return k > 0 && it[-1].joined ? length_of(&it[-1], k - 1, t) : t->work[it->work];
}

/* What an item needs has come when it begins, and a stage does one thing at a time. */
static void check_times(const schedule *s, const schedule_times *t) {
    for (int i = 0; i < s->stages; i++)
        for (int k = 0; k < s->stage[i].n; k++) {
            const schedule_item *it = &s->stage[i].item[k];
            bool second = k > 0 && it[-1].joined;
            if (second) assert_true(it->begin == it[-1].begin && it->end == it[-1].end);
            if (k > 0 && !second) assert_true(it->begin >= it[-1].end);
            assert_true(fabs(it->end - it->begin - length_of(it, k, t)) < 1e-9);
            int before = it->work == WORK_FORWARD ? it->chunk - 1 : it->chunk + 1;
            int of_copy = s->chunks / s->copies;
            if (it->work == WORK_WEIGHT || before < 0 || before / of_copy != it->chunk / of_copy)
                continue;
            const schedule_item *need =
                (it->work == WORK_FORWARD ? s->forward
                                          : s->back)[before * s->micro_batches + it->micro_batch];
            double way = schedule_stage_of(s, before) == i ? 0 : t->transfer;
            assert_true(it->begin >= need->end + way - 1e-9);
        }
}

static void test_complete(void **state) {
    for (int kind = 0; kind < SCHEDULES; kind++)
        for (int P = 1; P <= 8; P += P == 1 ? 1 : 2)
            for (int M = 1; M <= 24; M++)
                for (int v = 2; v <= 3; v++) {
                    if (kind == SCHEDULE_INTERLEAVED && M % P) continue;
                    if (kind == SCHEDULE_DUALPIPE && (P % 2 || M % 2 || M < 2 * P)) continue;
                    schedule s = build(*state, kind, P, M, chunks_of(kind, v));
                    schedule_times t = times(1, 1.1, 0.7, 0.2);
                    check_complete(&s);
                    schedule_suit(*state, &s, &t);
                    check_complete(&s);
                    schedule_time(&s, &t);
                    check_times(&s, &t);
                    arena_reset(*state);
                }
}

/* With F = I = W = 1: what a step takes beyond the work of one stage. */
static double waits(arena *a, schedule_kind kind, int P, int M, int v) {
    schedule s = build(a, kind, P, M, v);
    schedule_times t = times(1, 1, 1, 0);
    schedule_time(&s, &t);
    double work = 3.0 * v * M;
    assert_true(fabs(s.bubble - (1 - work / s.step)) < 1e-12);
    return s.step - work;
}

static void test_bubbles(void **state) {
    arena *a = *state;
    for (int P = 2; P <= 8; P++)
        for (int M = P; M <= 4 * P; M += P) {
            assert_true(waits(a, SCHEDULE_AFAB, P, M, 1) == 3.0 * (P - 1));
            assert_true(waits(a, SCHEDULE_1F1B, P, M, 1) == 3.0 * (P - 1));
            for (int v = 2; v <= 4; v++) /* in pieces of 1/v of a stage: (P - 1)(F + B) / v */
                assert_true(waits(a, SCHEDULE_INTERLEAVED, P, M, v) == 3.0 * (P - 1));
            assert_true(waits(a, SCHEDULE_ZB_H1, P, M, 1) == P - 1.0); /* (P - 1)(F + B - 2 W) */
            if (M >= 2 * P) assert_true(waits(a, SCHEDULE_ZB_H2, P, M, 1) == 0);
            if (M >= 2 * P) assert_true(waits(a, SCHEDULE_ZB_2P, P, M, 1) == 0);
            if (M > P) /* before the last stage's first piece; nothing after that */
                assert_true(waits(a, SCHEDULE_ZB_V, P, M, 2) == P - 1.0);
            arena_reset(a);
        }
}

/* Theoretical bubbles of 1.5B on 8 stages and of 28.3B on 32 in Qi et al. 2023, table 5, by the times of their pieces in
 * milliseconds that were profiled there; the automatic schedule has its order found by a solver, too. */
static void test_published_bubbles(void **state) {
    static const struct {
        int P, M;
        double takes[4], bubble[4]; /* F, I, W, transfer */
    } rows[] = {
        {8, 24, {18.522, 18.086, 9.337, 0.601}, {0.2431, 0.1585, 0.1083, 0.0433}},
        {8, 32, {18.522, 18.086, 9.337, 0.601}, {0.1985, 0.1242, 0.0837, 0.0039}},
        {8, 64, {18.522, 18.086, 9.337, 0.601}, {0.1240, 0.0674, 0.0444, 0.0026}},
        {32, 96, {10.419, 10.207, 7.715, 0.408}, {0.2646, 0.1421, 0.0641, 0.0038}},
    };
    static const schedule_kind kinds[] = {SCHEDULE_1F1B, SCHEDULE_ZB_H1, SCHEDULE_ZB_H2,
                                          SCHEDULE_ZB_2P};
    for (int i = 0; i < ARRAY_LEN(rows); i++)
        for (int k = 0; k < ARRAY_LEN(kinds); k++) {
            const double *takes = rows[i].takes;
            schedule_times t = times(takes[0], takes[1], takes[2], takes[3]);
            schedule s = build(*state, kinds[k], rows[i].P, rows[i].M, 1);
            schedule_suit(*state, &s, &t);
            schedule_time(&s, &t);
            if (fabs(s.bubble - rows[i].bubble[k]) > 0.01)
                fail_msg("%s, %d: %.4f", schedule_name(s.kind), rows[i].M, s.bubble);
        }
}

/* The automatic schedule has room for 2 P micro-batches, where one that lacks its W alone counts half, and it waits no longer than
 * zb-h1 and zb-h2, whatever takes how long. */
static void test_automatic(void **state) {
    static const double takes[][4] = {
        {1, 1, 1, 0},       {2, 2, 1, 0.1},           {1, 1.2, 0.8, 0.05},
        {1, 2, 1, 0},       {1, 0.5, 1, 0},           {1, 1, 0, 0},
        {3, 1, 2, 0.3},     {0.0233, 71, 0.39, 2.83}, {0.249, 62.9, 0.589, 0},
        {13.8, 21, 9.32, 0}};
    for (int P = 2; P <= 16; P *= 2)
        for (int i = 0; i < ARRAY_LEN(takes); i++, arena_reset(*state)) {
            const double *x = takes[i];
            schedule_times t = times(x[0], x[1], x[2], x[3]);
            schedule own = build(*state, SCHEDULE_ZB_2P, P, 4 * P, 1);
            schedule_suit(*state, &own, &t);
            check_complete(&own);
            schedule_time(&own, &t);
            for (int k = 0; k < 2; k++) {
                schedule s = build(*state, k ? SCHEDULE_ZB_H2 : SCHEDULE_ZB_H1, P, 4 * P, 1);
                schedule_time(&s, &t);
                if (own.bubble > s.bubble + 1e-9)
                    fail_msg("P %d, %d: %.4f, %s %.4f", P, i, own.bubble, schedule_name(s.kind),
                             s.bubble);
            }
            for (int k = 0; k < P; k++) assert_in_range(own.stage[k].kept, 1, 2 * P);
        }
}

/* Of all F, I and W: the most micro-batches that lack I at a time, that lack I or W, and the most
 * that lack W alone when as many as ever lack I. */
typedef struct peak {
    int of_input, of_both, of_weight;
} peak;

static peak peak_of(const schedule_stage *g) {
    int input = 0, weight = 0;
    peak most = {0};
    for (int k = 0; k < g->n; k++) {
        schedule_work w = g->item[k].work;
        input += (w == WORK_FORWARD) - (w == WORK_INPUT);
        weight += (w == WORK_INPUT) - (w == WORK_WEIGHT);
        if (input > most.of_input) most.of_input = input, most.of_weight = weight;
        if (input == most.of_input && weight > most.of_weight) most.of_weight = weight;
        if (input + weight > most.of_both) most.of_both = input + weight;
    }
    return most;
}

/* Peaks by Qi et al. 2023, table 2, whose stages are counted from 1: (p - i + 1) M_B + (i - 1) M_W with zb-h1,
 * (2 p - 2 i + 1) M_B + (2 i - 2) M_W with zb-h2. A frame is M_B and M_W alike: it stays whole until W. */
static void test_kept_of_split_backwards(void **state) {
    for (int P = 2; P <= 8; P *= 2)
        for (int M = P; M <= 8 * P; M++, arena_reset(*state))
            for (int twice = 0; twice <= (M >= 2 * P); twice++) {
                schedule s = build(*state, twice ? SCHEDULE_ZB_H2 : SCHEDULE_ZB_H1, P, M, 1);
                for (int i = 0; i < P; i++) {
                    peak got = peak_of(&s.stage[i]);
                    int inputs = twice ? 2 * (P - i) - 1 : P - i, weights = twice ? 2 * i : i;
                    assert_int_equal(got.of_input, inputs);
                    assert_int_equal(got.of_weight, weights);
                    assert_int_equal(got.of_both, inputs + weights);
                    assert_int_equal(s.stage[i].kept, inputs + weights);
                }
            }
}

/* DeepSeek-AI 2024, table 2: every stage keeps P + 1 micro-batches. With pieces of one length the stage that waits longest waits
 * (P / 2 - 1)(F&B + B - 3 W), and where F&B saves nothing all do. */
static void test_dualpipe(void **state) {
    static const double both[] = {3, 2.5, 2};
    for (int P = 2; P <= 8; P += 2)
        for (int M = 2 * P; M <= 8 * P; M += 2, arena_reset(*state))
            for (int k = 0; k < ARRAY_LEN(both); k++) {
                schedule_times t = times(1, 1, 1, 0);
                t.both = both[k] < 3 ? both[k] : 0;
                schedule s = build(*state, SCHEDULE_DUALPIPE, P, M, 1);
                schedule_time(&s, &t);
                double formula = (P / 2 - 1) * (both[k] + 2 - 3), most = 0;
                for (int i = 0; i < P; i++) {
                    assert_int_equal(s.stage[i].kept, P + 1);
                    most = fmax(most, s.step - s.stage[i].busy);
                    if (k == 0) assert_true(s.step - s.stage[i].busy == formula);
                }
                assert_true(most == formula);
            }
}

/* Most micro-batches, times chunks, that a stage keeps. */
static void test_kept(void **state) {
    arena *a = *state;
    for (int P = 2; P <= 8; P++) {
        int M = 4 * P, most_v = 0;
        schedule afab = build(a, SCHEDULE_AFAB, P, M, 1), one = build(a, SCHEDULE_1F1B, P, M, 1);
        schedule v = build(a, SCHEDULE_ZB_V, P, M, 2);
        schedule inter = build(a, SCHEDULE_INTERLEAVED, P, M, 2);
        for (int i = 0; i < P; i++) {
            assert_int_equal(afab.stage[i].kept, M);
            assert_int_equal(one.stage[i].kept, P - i);
            if (v.stage[i].kept > most_v) most_v = v.stage[i].kept;
            /* of half a stage each: 2 (P - 1 - s) + (v - 1) P + 1 (Narayanan et al. 2021), so stage 0 has
             * (1 + (P - 1) / (P v)) times those of 1f1b */
            assert_int_equal(inter.stage[i].kept, 2 * (P - 1 - i) + P + 1);
        }
        assert_int_equal(most_v, 2 * P); /* halves: as much as 1f1b */
        arena_reset(a);
    }
}

static void test_transfers_delay(void **state) {
    schedule s = build(*state, SCHEDULE_1F1B, 4, 8, 1);
    schedule_times none = times(1, 1, 1, 0), slow = times(1, 1, 1, 0.5);
    schedule_time(&s, &none);
    double end = s.end;
    schedule_time(&s, &slow);
    assert_true(s.end >= end + 2 * 3 * 0.5); /* at least the way down and up once */
    schedule_time(&s, &none);
    assert_true(s.end == end);
}

static void test_refusals(void **state) {
    schedule s;
    err e = {0};
    assert_int_equal(schedule_build(*state, SCHEDULE_INTERLEAVED, 4, 6, 2, &s, &e), ST_USAGE);
    assert_non_null(strstr(e.hint, "8 micro-batches"));
    assert_int_equal(schedule_build(*state, SCHEDULE_INTERLEAVED, 4, 8, 1, &s, &e), ST_USAGE);
    assert_int_equal(schedule_build(*state, SCHEDULE_1F1B, 4, 8, 2, &s, &e), ST_USAGE);
    assert_int_equal(schedule_build(*state, SCHEDULE_ZB_V, 4, 8, 1, &s, &e), ST_USAGE);
    assert_int_equal(schedule_build(*state, SCHEDULE_DUALPIPE, 3, 6, 1, &s, &e), ST_USAGE);
    assert_non_null(strstr(e.hint, "4 stages"));
    assert_int_equal(schedule_build(*state, SCHEDULE_DUALPIPE, 4, 6, 1, &s, &e), ST_USAGE);
    assert_non_null(strstr(e.hint, "8 micro-batches"));
    assert_int_equal(schedule_build(*state, SCHEDULE_DUALPIPE, 4, 11, 1, &s, &e), ST_USAGE);
    assert_non_null(strstr(e.hint, "12 micro-batches"));
}

static int make_arena(void **state) {
    *state = arena_new("test");
    return 0;
}
static int drop_arena(void **state) {
    arena_free(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_complete),  cmocka_unit_test(test_bubbles),
        cmocka_unit_test(test_kept),      cmocka_unit_test(test_kept_of_split_backwards),
        cmocka_unit_test(test_dualpipe),  cmocka_unit_test(test_published_bubbles),
        cmocka_unit_test(test_automatic), cmocka_unit_test(test_transfers_delay),
        cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, make_arena, drop_arena);
}
