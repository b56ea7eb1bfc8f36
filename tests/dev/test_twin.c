/* The twin: what is given runs late and in order, memory is out of the host's reach but where it
 * was entered, and nothing else differs from the CPU. */
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/arena.h"
#include "dev/dev.h"

enum { BYTES = 1 << 16 };

typedef struct lab {
    dev *d;
    char *at; /* BYTES on the device */
} lab;

static lab lab_open(void) {
    lab l;
    void *p;
    err e = {0};
    assert_int_equal(dev_open(&l.d, DEV_TWIN, 1, &e), ST_OK);
    assert_int_equal(dev_reserve(l.d, &p, BYTES, "the test's memory", &e), ST_OK);
    l.at = p;
    return l;
}

static void lab_close(lab *l) {
    dev_release(l->d, l->at, BYTES);
    dev_close(l->d);
}

/* ---- the stream ---- */

/* What kernels write down, on the host. */
typedef struct notes {
    int n;
    char text[64];
} notes;

typedef struct note_args {
    notes *to;
    char letter;
} note_args;

static void run_note(dev *d, const void *args) {
    (void)d;
    const note_args *a = args;
    a->to->text[a->to->n++] = a->letter;
}

static void note(dev *d, notes *to, char letter) {
    note_args a = {to, letter};
    dev_launch(d, run_note, &a, sizeof a);
    a.letter = '?'; /* arguments are copied when they are given */
}

static void test_runs_late_and_in_order(void **state) {
    (void)state;
    lab l = lab_open();
    notes n = {0};
    char host[4] = "abc", got[8];
    note(l.d, &n, '1');
    dev_fill(l.d, l.at, 'x', 8);
    dev_write(l.d, l.at, host, 3);
    memset(host, '?', 3); /* so are the host's bytes */
    dev_copy(l.d, l.at + 2, l.at, 4);
    note(l.d, &n, '2');
    assert_int_equal(n.n, 0);
    dev_read(l.d, got, l.at, 8);
    assert_memory_equal(got, "ababcxxx", 8);
    assert_string_equal(n.text, "12");
    note(l.d, &n, '3');
    note(l.d, &n, '4');
    assert_string_equal(n.text, "12");
    dev_sync(l.d);
    assert_string_equal(n.text, "1234");
    dev_sync(l.d); /* nothing is left */
    assert_string_equal(n.text, "1234");
    lab_close(&l);
}

static void test_events(void **state) {
    (void)state;
    lab l = lab_open();
    notes n = {0};
    dev_wait(l.d, dev_record(l.d));
    note(l.d, &n, '1');
    dev_event one = dev_record(l.d);
    note(l.d, &n, '2');
    note(l.d, &n, '3');
    assert_int_equal(n.n, 0);
    dev_wait(l.d, one);
    assert_string_equal(n.text, "1");
    dev_enter_after(l.d, one); /* leaves alone what came later */
    dev_leave(l.d);
    assert_string_equal(n.text, "1");
    dev_enter(l.d);
    assert_string_equal(n.text, "123");
    dev_leave(l.d);
    lab_close(&l);
}

static void test_everything_that_waits(void **state) {
    (void)state;
    lab l = lab_open();
    notes n = {0};
    dev_room room = {0};
    note(l.d, &n, '1');
    dev_borrow(l.d, l.at, 8, true, &room);
    assert_string_equal(n.text, "1");
    note(l.d, &n, '2');
    dev_put_back(l.d, l.at, room.host, 8);
    assert_string_equal(n.text, "12");
    note(l.d, &n, '3');
    void *more;
    assert_int_equal(dev_reserve(l.d, &more, 5, "more", NULL), ST_OK);
    assert_string_equal(n.text, "12"); /* needs nothing of what was given */
    dev_release(l.d, more, 5);
    assert_string_equal(n.text, "123");
    note(l.d, &n, '4');
    dev_release(l.d, l.at, BYTES);
    note(l.d, &n, '5');
    dev_close(l.d);
    assert_string_equal(n.text, "12345");
    dev_room_free(&room);
}

/* The queue is bounded: a long one is run by the call that made it so. */
static void test_long_queues_run_early(void **state) {
    (void)state;
    lab l = lab_open();
    notes n = {0};
    char host[BYTES];
    memset(host, 7, sizeof host);
    note(l.d, &n, '1');
    for (int i = 0; i < 64; i++) dev_write(l.d, l.at, host, BYTES);
    assert_int_equal(n.n, 0); /* 4 MB */
    for (int i = 0; i < 256; i++) dev_write(l.d, l.at, host, BYTES);
    assert_string_equal(n.text, "1");
    lab_close(&l);
}

/* ---- memory ---- */

typedef void (*deed)(lab *l);

/* The signal that ends a process which does this; 0: none. */
static int signal_of(lab *l, deed f) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL); /* sanitizers have their own */
        f(l);
        _exit(0);
    }
    int state;
    assert_int_equal(waitpid(pid, &state, 0), pid);
    return WIFSIGNALED(state) ? WTERMSIG(state) : 0;
}

static void look_at(lab *l) {
    volatile char c = *(volatile char *)l->at;
    (void)c;
}

static void write_to(lab *l) {
    *(volatile char *)(l->at + BYTES - 1) = 1;
}

static void *look_on_thread(void *arg) {
    look_at(arg);
    return NULL;
}

static void look_beside(lab *l) {
    pthread_t t;
    if (pthread_create(&t, NULL, look_on_thread, l) == 0) pthread_join(t, NULL);
}

static void look_inside(lab *l) {
    dev_enter(l->d);
    dev_enter(l->d);
    dev_leave(l->d);
    look_beside(l);
    write_to(l);
    dev_leave(l->d);
}

static void look_after(lab *l) {
    look_inside(l);
    look_at(l);
}

static void look_after_read(lab *l) {
    char c;
    dev_fill(l->d, l->at, 3, 8);
    dev_read(l->d, &c, l->at, 1);
    look_at(l);
}

static void look_in_another(lab *l) {
    lab other = lab_open();
    dev_enter(other.d);
    write_to(&other);
    look_at(l);
}

static void look_at_new(lab *l) {
    void *p;
    dev_enter(l->d);
    if (dev_reserve(l->d, &p, 1, "more", NULL) != ST_OK) _exit(1);
    *(volatile char *)p = 1; /* reserved inside: open */
    dev_leave(l->d);
    *(volatile char *)p = 2;
}

static void test_the_host_cannot_reach_it(void **state) {
    (void)state;
    lab l = lab_open();
    static const deed faults[] = {look_at,         write_to,        look_beside, look_after,
                                  look_after_read, look_in_another, look_at_new};
    for (int i = 0; i < ARRAY_LEN(faults); i++)
        if (signal_of(&l, faults[i]) != SIGSEGV) fail_msg("deed %d does not fault", i);
    assert_int_equal(signal_of(&l, look_inside), 0);
    lab_close(&l);
}

static void test_borrowing(void **state) {
    (void)state;
    lab l = lab_open();
    dev_room room = {0};
    dev_fill(l.d, l.at, 'a', BYTES);
    char *host = dev_borrow(l.d, l.at, 10, true, &room);
    assert_true(host != l.at);
    assert_memory_equal(host, "aaaaaaaaaa", 10);
    memcpy(host, "0123456789", 10);
    dev_put_back(l.d, l.at + 5, host, 10);
    memset(host, '?', 10);
    const char *seen = dev_look(l.d, l.at, BYTES, &room); /* the room grows */
    assert_memory_equal(seen, "aaaaa0123456789aaa", 18);
    assert_int_equal(seen[BYTES - 1], 'a');
    notes n = {0};
    note(l.d, &n, '1');
    assert_ptr_equal(dev_borrow(l.d, l.at, 4, false, &room), room.host);
    assert_string_equal(n.text, "1");
    dev_room_free(&room);
    assert_null(room.host);
    lab_close(&l);
}

static void test_high_water(void **state) {
    (void)state;
    lab l = lab_open();
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char zeros[16] = {0}, got[16];
    assert_int_equal(dev_touched_bytes(l.at, BYTES), 0);
    dev_fill(l.d, l.at + page, 1, 10);
    assert_int_equal(dev_touched_bytes(l.at, BYTES), 0); /* nothing has happened yet */
    dev_sync(l.d);
    assert_int_equal(dev_touched_bytes(l.at, BYTES), 2 * page);
    dev_read(l.d, got, l.at, sizeof got);
    assert_memory_equal(got, zeros, sizeof got);
    lab_close(&l);
}

/* ---- threads ---- */

typedef struct meeting {
    dev *d;
    char *at;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool begun, entered;
} meeting;

static void set(meeting *m, bool *what) {
    pthread_mutex_lock(&m->lock);
    *what = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

static void await(meeting *m, const bool *what) {
    pthread_mutex_lock(&m->lock);
    while (!*what) pthread_cond_wait(&m->changed, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

/* As a kernel with a collective, which needs what the side stream's thread sends. */
static void run_meeting(dev *d, const void *args) {
    (void)d;
    meeting *m = *(meeting *const *)args;
    set(m, &m->begun);
    await(m, &m->entered);
    assert_int_equal(m->at[0], 5);
    m->at[1] = 6; /* stays open after the other has left */
}

static void *enter_beside(void *arg) {
    meeting *m = arg;
    await(m, &m->begun);
    dev_enter_after(m->d, 0);
    m->at[0] = 5;
    dev_leave(m->d);
    set(m, &m->entered);
    return NULL;
}

static void test_another_thread_enters_while_the_stream_runs(void **state) {
    (void)state;
    lab l = lab_open();
    meeting m = {.d = l.d, .at = l.at}, *args = &m;
    pthread_mutex_init(&m.lock, NULL);
    pthread_cond_init(&m.changed, NULL);
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, enter_beside, &m), 0);
    dev_launch(l.d, run_meeting, &args, sizeof args);
    dev_sync(l.d);
    pthread_join(t, NULL);
    char got[2];
    dev_read(l.d, got, l.at, 2);
    assert_int_equal(got[1], 6);
    assert_int_equal(signal_of(&l, look_at), SIGSEGV); /* everybody has left */
    lab_close(&l);
}

static void run_increment(dev *d, const void *args) {
    (void)d;
    ++**(int *const *)args;
}

enum { ROUNDS = 2000, THREADS = 4 };

/* Each gives kernels of its own and waits for them in one way or another. */
static void *give_some(void *arg) {
    lab *l = arg;
    int32_t *sum = (int32_t *)(void *)l->at, before = 0, after;
    for (int i = 0; i < ROUNDS; i++) {
        dev_launch(l->d, run_increment, &sum, sizeof sum);
        if (i % 7 == 0) dev_wait(l->d, dev_record(l->d));
        if (i % 11 != 0) continue;
        dev_read(l->d, &after, sum, sizeof after);
        if (after <= before) return l; /* mine was given since */
        before = after;
    }
    return NULL;
}

static void test_many_threads_give(void **state) {
    (void)state;
    lab l = lab_open();
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, give_some, &l), 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(t[i], &wrong);
        assert_null(wrong);
    }
    int32_t sum;
    dev_read(l.d, &sum, l.at, sizeof sum);
    assert_int_equal(sum, THREADS * ROUNDS); /* one at a time */
    lab_close(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_late_and_in_order),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_everything_that_waits),
        cmocka_unit_test(test_long_queues_run_early),
        cmocka_unit_test(test_the_host_cannot_reach_it),
        cmocka_unit_test(test_borrowing),
        cmocka_unit_test(test_high_water),
        cmocka_unit_test(test_another_thread_enters_while_the_stream_runs),
        cmocka_unit_test(test_many_threads_give),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
