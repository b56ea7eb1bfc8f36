/* What the stages of a pipeline send each other: ranks that begin transfers in this order, one after
 * the other, never wait for ever; what comes has a box; frames are as many as the schedule says. */
#include "test.h"

#include "step/pipeline.h"
#include "step/schedule.h"

enum { MOST_STAGES = 8, MOST_TRANSFERS = 4096 };

/* A rank, as its thread that trains and its queue of transfers go on. */
typedef struct rank {
    pipeline p;
    int at; /* the next event */
    int queue[MOST_TRANSFERS], n, done;
    int used[2][64]; /* boxes, by direction and chunk */
} rank;

/* A transfer as both ends know it. */
static int number_of(const pipeline *p, const pipeline_event *e, bool sends, int micro_batches) {
    int from = sends ? e->chunk : e->other;
    (void)p;
    return (from * 2 + e->back) * micro_batches + e->micro_batch;
}

static bool is_done(const rank *r, int transfer) {
    for (int i = 0; i < r->done; i++)
        if (r->queue[i] == transfer) return true;
    return false;
}

/* A pass writes what it gives where that of an earlier micro-batch was. */
static bool was_sent(const rank *r, const pipeline_event *e, int micro_batches) {
    pipeline_event before = *e;
    before.micro_batch -= pipeline_ports(&r->p, e->chunk);
    int transfer = number_of(&r->p, &before, true, micro_batches);
    bool began = false;
    for (int i = 0; i < r->n; i++) began = began || r->queue[i] == transfer;
    return before.micro_batch < 0 || !began || is_done(r, transfer);
}

/* One event; false: it has to wait. */
static bool go_on(rank *r, int micro_batches) {
    const pipeline_event *e = &r->p.event[r->at];
    bool sends = e->action == PIPELINE_SEND;
    int transfer = number_of(&r->p, e, sends, micro_batches);
    int *used = &r->used[e->back][e->chunk];
    switch (e->action) {
        case PIPELINE_PASS:
            if (!was_sent(r, e, micro_batches)) return false;
            break;
        case PIPELINE_TAKE:
            if (!is_done(r, transfer)) return false;
            --*used;
            break;
        case PIPELINE_RECEIVE:
            assert_true(++*used <= r->p.boxes[e->back][e->chunk]);
            assert_true(e->box < r->p.boxes[e->back][e->chunk]);
            r->queue[r->n++] = transfer;
            break;
        case PIPELINE_SEND: r->queue[r->n++] = transfer; break;
    }
    r->at++;
    return true;
}

/* Two ranks whose queues begin with the same transfer do it. */
static bool meet(rank *r, int stages) {
    for (int a = 0; a < stages; a++)
        for (int b = a + 1; b < stages; b++)
            if (r[a].done < r[a].n && r[b].done < r[b].n &&
                r[a].queue[r[a].done] == r[b].queue[r[b].done]) {
                r[a].done++, r[b].done++;
                return true;
            }
    return false;
}

static void run(schedule_kind kind, int stages, int micro_batches, int of_stage) {
    arena *a = arena_new("pipeline");
    rank *r = ARENA_ARRAY(a, rank, stages);
    err e = {0};
    for (int i = 0; i < stages; i++)
        assert_int_equal(pipeline_build(a, kind, stages, micro_batches, of_stage, i, &r[i].p, &e),
                         ST_OK);
    for (bool moves = true; moves;) {
        moves = meet(r, stages);
        for (int i = 0; i < stages; i++)
            while (r[i].at < r[i].p.n && go_on(&r[i], micro_batches)) moves = true;
    }
    for (int i = 0; i < stages; i++)
        if (r[i].at < r[i].p.n || r[i].done < r[i].n)
            fail_msg("%s, %d stages of %d chunks, %d micro-batches: stage %d waits for ever",
                     schedule_name(kind), stages, of_stage, micro_batches, i);
    arena_free(a);
}

static void test_nobody_waits_for_ever(void **state) {
    (void)state;
    for (int P = 2; P <= MOST_STAGES; P++)
        for (int M = 1; M <= 3 * P + 1; M++) {
            run(SCHEDULE_AFAB, P, M, 1);
            run(SCHEDULE_1F1B, P, M, 1);
            run(SCHEDULE_ZB_H1, P, M, 1);
            run(SCHEDULE_ZB_V, P, M, 2);
            for (int v = 2; v <= 3 && M % P == 0; v++) run(SCHEDULE_INTERLEAVED, P, M, v);
        }
}

/* What a stage keeps grows with its own events, not with the schedule of all stages. */
static void test_a_stage_keeps_its_own(void **state) {
    (void)state;
    enum { P = 64, M = 256 };
    arena *a = arena_new("pipeline");
    pipeline p;
    assert_int_equal(pipeline_build(a, SCHEDULE_1F1B, P, M, 1, P / 2, &p, NULL), ST_OK);
    assert_true(arena_bytes_used(a) < 5 * sizeof *p.event * (size_t)p.n);
    arena_free(a);
}

static int frames_of(schedule_kind kind, int stages, int micro_batches, int of_stage, int stage) {
    arena *a = arena_new("pipeline");
    pipeline p;
    int sum = 0;
    assert_int_equal(pipeline_build(a, kind, stages, micro_batches, of_stage, stage, &p, NULL),
                     ST_OK);
    for (int c = 0; c < p.chunks; c++) sum += p.frames[c];
    arena_free(a);
    return sum;
}

static void test_frames_are_those_of_the_schedule(void **state) {
    (void)state;
    for (int P = 2; P <= MOST_STAGES; P++)
        for (int M = 1; M <= 3 * P; M++)
            for (int s = 0; s < P; s++) {
                assert_int_equal(frames_of(SCHEDULE_AFAB, P, M, 1, s), M);
                assert_int_equal(frames_of(SCHEDULE_1F1B, P, M, 1, s), M < P - s ? M : P - s);
                if (M >= P) assert_int_equal(frames_of(SCHEDULE_ZB_H1, P, M, 1, s), P);
            }
}

/* In a place of two mates lies one frame at a time, and a set of inputs and outputs is of one micro-batch. */
static void check_places(const pipeline *p) {
    bool lies[64][128] = {0}, has[64][128] = {0};
    for (int i = 0; i < p->n; i++) {
        const pipeline_event *e = &p->event[i];
        if (e->action != PIPELINE_PASS || p->mate[e->chunk] < 0) continue;
        int frame = pipeline_frame(p, e->chunk, e->micro_batch),
            ports = pipeline_ports(p, e->chunk);
        int mate = p->mate[e->chunk];
        bool *place = &lies[mate < e->chunk ? mate : e->chunk][frame];
        bool *set = &has[e->chunk][frame % ports];
        assert_int_equal(p->mate[mate], e->chunk);
        assert_true(*place == e->back && *set == e->back);
        *place = *set = !e->back;
    }
}

/* (v + 1) P places, or v P where few micro-batches are under way; at most P more than the schedule keeps, which is
 * 2 (P - 1 - s) + (v - 1) P + 1. */
static void test_mates_share_places(void **state) {
    (void)state;
    arena *a = arena_new("pipeline");
    bool all[64];
    memset(all, true, sizeof all);
    for (int P = 2; P <= MOST_STAGES; P++)
        for (int v = 2; v <= 6; v++)
            for (int M = P; M <= 6 * P; M += P, arena_reset(a))
                for (int s = 0; s < P; s++) {
                    pipeline p;
                    assert_int_equal(pipeline_build(a, SCHEDULE_INTERLEAVED, P, M, v, s, &p, NULL),
                                     ST_OK);
                    int places = 0, kept = 2 * (P - 1 - s) + (v - 1) * P + 1;
                    for (int c = s; c < p.chunks; c += P)
                        places += p.mate[c] < 0 ? p.frames[c] : P; /* half of 2 P */
                    p.shares = all;
                    check_places(&p);
                    if (M >= 4 * P) assert_in_range(places, kept, kept + P - 1);
                }
    arena_free(a);
}

/* A plan counts the frames and boxes of a short step for a longer one. */
static void test_longer_steps_need_no_more(void **state) {
    (void)state;
    static const struct {
        schedule_kind kind;
        int of_stage;
    } kinds[] = {{SCHEDULE_1F1B, 1},
                 {SCHEDULE_INTERLEAVED, 2},
                 {SCHEDULE_INTERLEAVED, 3},
                 {SCHEDULE_ZB_H1, 1},
                 {SCHEDULE_ZB_V, 2}};
    arena *a = arena_new("pipeline");
    for (int P = 2; P <= MOST_STAGES; P++)
        for (int i = 0; i < ARRAY_LEN(kinds); i++)
            for (int s = 0; s < P; s++) {
                schedule_kind kind = kinds[i].kind;
                int v = kinds[i].of_stage;
                pipeline few, many;
                assert_int_equal(pipeline_build(a, kind, P, 4 * P, v, s, &few, NULL), ST_OK);
                for (int M = P; M <= 12 * P; M += P) {
                    assert_int_equal(pipeline_build(a, kind, P, M, v, s, &many, NULL), ST_OK);
                    for (int c = 0; c < few.chunks; c++) {
                        assert_true(many.frames[c] <= few.frames[c]);
                        for (int back = 0; back < 2; back++)
                            assert_true(many.boxes[back][c] <= few.boxes[back][c]);
                        if (M >= 4 * P) assert_int_equal(many.frames[c], few.frames[c]);
                    }
                }
            }
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_waits_for_ever),
        cmocka_unit_test(test_a_stage_keeps_its_own),
        cmocka_unit_test(test_frames_are_those_of_the_schedule),
        cmocka_unit_test(test_longer_steps_need_no_more),
        cmocka_unit_test(test_mates_share_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
