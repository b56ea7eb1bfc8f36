/* `data build` interrupted: killed before every operation that changes a file, killed at random
 * moments, and with every n-th operation failing. Afterwards the same build gives the same bytes as
 * one that nothing befell, and the set that was there before stands until then.
 *
 * The builds that die are run by this program as a child of itself. */
#include "build_test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file_fault.h"
#include "sanitizer.h"

/* In memory where there is such a folder: thousands of fsyncs would take minutes. */
static int scene_open_fast(void **state) {
    if (scene_open(state) != 0) return -1;
    scene *s = *state;
    char dir[] = "/dev/shm/athanor-data-XXXXXX";
    if (!mkdtemp(dir)) return 0;
    rmdir(s->dir);
    strcpy(s->dir, dir);
    return 0;
}

/* ---- the builds ---- */

typedef struct recipe {
    const char *in, *out;
    bool append;
    int threads;
    size_t part_bytes;
    uint64_t save_bytes;
} recipe;

static tok *load_tok(void) {
    tok *t = NULL;
    assert_ok(tok_load(&t, TEST_DIR "/golden/tok/bpe_gpt2.json", e));
    return t;
}

static data_build_options options(const recipe *r) {
    return (data_build_options){.reader = {.id = "name"},
                                .valid_fraction = 0.3,
                                .split = DATA_SPLIT_LINES,
                                .shard_tokens = 300,
                                .append = r->append,
                                .threads = r->threads,
                                .part_bytes = r->part_bytes,
                                .save_bytes = r->save_bytes};
}

static status run_here(const recipe *r, const char *fault, data_build_result *result, err *e) {
    tok *t = load_tok();
    data_build_options opt = options(r);
    assert_true(file_fault_arm(fault));
    status st = data_build(&r->in, 1, r->out, t, &opt, result, e);
    tok_free(t);
    return st;
}

static data_build_result build_ok(const recipe *r) {
    data_build_result result;
    assert_ok(run_here(r, NULL, &result, e));
    return result;
}

/* A child with that fault, killed after `usec` if that is not 0; its wait status. */
static int run_child(const recipe *r, const char *fault, useconds_t usec) {
    char number[4][24];
    uint64_t v[4] = {r->append, (uint64_t)r->threads, r->part_bytes, r->save_bytes};
    for (int i = 0; i < 4; i++) snprintf(number[i], sizeof number[i], "%lu", (unsigned long)v[i]);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        execl("/proc/self/exe", "build", r->in, r->out, number[0], number[1], number[2], number[3],
              fault, (char *)NULL);
        _exit(99);
    }
    if (usec > 0) {
        usleep(usec);
        kill(pid, SIGKILL);
    }
    int state;
    assert_int_equal(waitpid(pid, &state, 0), pid);
    return state;
}

static int be_child(char **argv) {
    recipe r = {.in = argv[1],
                .out = argv[2],
                .append = argv[3][0] == '1',
                .threads = atoi(argv[4]),
                .part_bytes = (size_t)atol(argv[5]),
                .save_bytes = (uint64_t)atol(argv[6])};
    data_build_result result;
    return run_here(&r, argv[7][0] ? argv[7] : NULL, &result, NULL) == ST_OK ? 0 : 1;
}

/* ---- the corpora ---- */

static const char *small_corpus(scene *sc) {
    const char *dir = in_scene(sc, "in");
    assert_ok(file_make_dirs(dir, e));
    strbuf text = {0};
    for (int i = 0; i < 12; i++)
        strbuf_printf(&text, "{\"text\":\"document %d\\nsays things\",\"name\":\"n%d\"}\n", i, i);
    put_text(sc, "in/b.jsonl", strbuf_cstr(&text));
    put_text(sc, "in/c.txt", "a small file\nwith two lines\n");
    strbuf_truncate(&text, 0);
    for (int i = 0; i < 40; i++)
        strbuf_printf(&text, "Line %d of the long one, which goes on.\n", i * 7919);
    put_text(sc, "in/a.txt", strbuf_cstr(&text));
    strbuf_free(&text);
    return dir;
}

/* Files that are cut into parts, which they are among texts alone. */
static const char *long_texts(scene *sc) {
    const char *dir = in_scene(sc, "texts");
    assert_ok(file_make_dirs(dir, e));
    strbuf text = {0};
    for (int f = 0; f < 2; f++) {
        strbuf_truncate(&text, 0);
        for (int i = 0; i < 30; i++)
            strbuf_printf(&text, "Line %d of a long one, which goes on.\n", i * 7919 + f);
        put_text(sc, arena_printf(sc->mem, "texts/%d.txt", f), strbuf_cstr(&text));
    }
    strbuf_free(&text);
    return dir;
}

static const char *old_corpus(scene *sc) {
    return put_text(sc, "old.txt", "the old set\nhas these lines\nof text\n");
}

/* Whether a folder with a split holds two sets that are whole, with this many tokens in both. */
static bool holds(const char *out, uint64_t tokens) {
    static const char *const SIDES[] = {"train", "valid"};
    arena *a = arena_new("holds");
    uint64_t sum = 0;
    bool good = true;
    for (int i = 0; i < 2; i++) {
        shards *s = NULL;
        shards_spec spec = {.path = path_join(a, out, SIDES[i]), .eos = -1};
        good = good && shards_open(&s, &spec, NULL) == ST_OK && shards_verify(s, NULL) == ST_OK;
        if (s) sum += s->totals.tokens;
        shards_close(s);
    }
    arena_free(a);
    return good && sum == tokens;
}

static uint64_t tokens_of(const data_build_result *r) {
    return r->train.tokens + r->valid.tokens;
}

/* The state says that the new sets are complete: the files are being exchanged. */
static bool is_exchanging(scene *sc, const char *out) {
    const char *path = arena_printf(sc->mem, "%s/.build/state.json", out);
    char *text;
    size_t len;
    if (!file_exists(path)) return false;
    assert_ok(file_read_all(path, &text, &len, e));
    bool yes = strstr(text, "\"complete\": true") != NULL;
    free(text);
    return yes;
}

/* What a build of the old set gives, then with `append` or without the one that is tested. */
typedef struct trial {
    recipe old, new;
    const char *want; /* the folder as it shall be */
    uint64_t old_tokens, new_tokens;
} trial;

static trial make_trial(scene *sc, const char *in, bool append) {
    trial t = {.old = {.in = old_corpus(sc), .threads = 1}, .want = in_scene(sc, "want")};
    t.new = (recipe){.in = in, .append = append, .threads = 1, .part_bytes = 400, .save_bytes = 1};
    t.old.out = t.new.out = t.want;
    data_build_result r = build_ok(&t.old);
    t.old_tokens = tokens_of(&r);
    r = build_ok(&t.new);
    t.new_tokens = tokens_of(&r);
    t.old.out = t.new.out = in_scene(sc, "out");
    return t;
}

static void begin_trial(const trial *t) {
    assert_ok(file_remove_tree(t->new.out, e));
    build_ok(&t->old);
}

/* The old set, or the new one: only the remains of the build are still to be removed. */
static bool stands(const trial *t) {
    return holds(t->new.out, t->old_tokens) || holds(t->new.out, t->new_tokens);
}

/* Under the address sanitizer every third operation is enough: others when a set is added to. */
enum { STRIDE = UNDER_ASAN ? 3 : 1 };

static int first_operation(bool append) {
    return UNDER_ASAN && append ? 2 : 1;
}

/* ---- killed ---- */

static void kill_everywhere(scene *sc, const char *in, bool append) {
    trial t = make_trial(sc, in, append);
    int kills = 0, resumed = 0, exchanging = 0, n;
    for (n = first_operation(append);; n += STRIDE) {
        begin_trial(&t);
        int state = run_child(&t.new, arena_printf(sc->mem, "kill:%d", n), 0);
        if (WIFEXITED(state)) {
            assert_int_equal(WEXITSTATUS(state), 0);
            break;
        }
        assert_int_equal(WTERMSIG(state), SIGKILL);
        kills++;
        if (is_exchanging(sc, t.new.out))
            exchanging++;
        else
            assert_true(stands(&t));
        if (append && !is_exchanging(sc, t.new.out) && holds(t.new.out, t.new_tokens)) {
            /* Killed after the end: another build would append once more. */
            assert_ok(file_remove_tree(in_scene(sc, "out/.build"), e));
            expect_same_tree(t.want, t.new.out);
            continue;
        }
        t.new.threads = 1 + kills % 3;
        data_build_result r = build_ok(&t.new);
        resumed += r.resumed;
        t.new.threads = 1;
        assert_int_equal(tokens_of(&r), t.new_tokens);
        expect_same_tree(t.want, t.new.out);
    }
    print_message("%d kills, %d gone on after, %d in the exchange\n", kills, resumed, exchanging);
    assert_in_range(n, 60, 1000);
    assert_in_range(resumed, kills / 3, kills);
    assert_in_range(exchanging, 1, kills);
}

static void test_kill_everywhere(void **state) {
    kill_everywhere(*state, small_corpus(*state), false);
}

static void test_kill_everywhere_in_long_texts(void **state) {
    kill_everywhere(*state, long_texts(*state), false);
}

static void test_kill_everywhere_appending(void **state) {
    kill_everywhere(*state, small_corpus(*state), true);
}

static void test_kill_at_random(void **state) {
    scene *sc = *state;
    const char *dir = in_scene(sc, "in");
    strbuf text = {0};
    assert_ok(file_make_dirs(dir, e));
    for (int f = 0; f < 6; f++) {
        strbuf_truncate(&text, 0);
        for (int i = 0; i < 3000; i++) {
            if (f % 2)
                strbuf_printf(&text, "{\"text\":\"%d is the number of this document\"}\n", i * f);
            else
                strbuf_printf(&text, "%d is the number of this line.\n", i * 7919 * (f + 1));
        }
        put_text(sc, arena_printf(sc->mem, "in/%d.%s", f, f % 2 ? "jsonl" : "txt"),
                 strbuf_cstr(&text));
    }
    strbuf_free(&text);
    recipe r = {.in = dir, .out = in_scene(sc, "want"), .part_bytes = 20000};
    data_build_result want = build_ok(&r);
    r.out = in_scene(sc, "out");
    r.save_bytes = 50000;
    r.threads = 2;
    int killed = 0;
    for (uint64_t i = 0; i < 25; i++) {
        int how = run_child(&r, "", (useconds_t)(2000 + mix64(i) % 60000));
        killed += WIFSIGNALED(how);
        if (WIFSIGNALED(how)) continue;
        assert_int_equal(WEXITSTATUS(how), 0);
        expect_same_tree(in_scene(sc, "want"), r.out);
        assert_ok(file_remove_tree(r.out, e));
    }
    assert_true(killed > 0);
    data_build_result got = build_ok(&r);
    assert_int_equal(tokens_of(&got), tokens_of(&want));
    expect_same_tree(in_scene(sc, "want"), r.out);
}

/* ---- failing ---- */

static void fail_everywhere(scene *sc, bool append) {
    static const char *const KINDS[] = {"create", "write", "fsync", "rename",
                                        "remove", "mkdir", "read"};
    trial t = make_trial(sc, small_corpus(sc), append);
    for (int k = 0; k < ARRAY_LEN(KINDS); k++)
        for (int n = first_operation(append);; n += STRIDE) {
            data_build_result r;
            err why = {0};
            begin_trial(&t);
            status st = run_here(&t.new, arena_printf(sc->mem, "%s:%d", KINDS[k], n), &r, &why);
            bool struck = file_fault_struck();
            file_fault_arm(NULL);
            if (st == ST_OK) {
                /* Only what is left of the work may have resisted. */
                assert_ok(file_remove_tree(in_scene(sc, "out/.build"), e));
                expect_same_tree(t.want, t.new.out);
            } else {
                assert_true(strlen(why.message) > 10 && struck);
                if (!is_exchanging(sc, t.new.out)) assert_true(stands(&t));
                build_ok(&t.new);
                expect_same_tree(t.want, t.new.out);
            }
            if (!struck) break;
            assert_true(n < 1000);
        }
}

static void test_fail_everywhere(void **state) {
    fail_everywhere(*state, false);
}

static void test_fail_everywhere_appending(void **state) {
    fail_everywhere(*state, true);
}

/* ---- another build ---- */

static void test_changed_build_begins_anew(void **state) {
    scene *sc = *state;
    recipe r = {.in = small_corpus(sc),
                .out = in_scene(sc, "out"),
                .threads = 1,
                .part_bytes = 400,
                .save_bytes = 1};
    int how = run_child(&r, "kill:60", 0);
    assert_true(WIFSIGNALED(how));
    assert_true(file_exists(in_scene(sc, "out/.build/state.json")));
    put_text(sc, "in/c.txt", "a small file\nwhich is another now\n");
    data_build_result got = build_ok(&r);
    assert_false(got.resumed);
    r.out = in_scene(sc, "want");
    build_ok(&r);
    expect_same_tree(r.out, in_scene(sc, "out"));
}

/* A state that is damaged in any way is passed over, or the build says what is wrong; the result is
 * that of the whole text. */
static void test_damaged_state(void **state) {
    scene *sc = *state;
    recipe r = {.in = small_corpus(sc),
                .out = in_scene(sc, "want"),
                .threads = 1,
                .part_bytes = 400,
                .save_bytes = 1};
    build_ok(&r);
    r.out = in_scene(sc, "out");
    const char *path = in_scene(sc, "out/.build/state.json");
    for (uint64_t i = 0; i < 40; i++) {
        char *text;
        size_t len;
        assert_ok(file_remove_tree(r.out, e));
        assert_true(WIFSIGNALED(run_child(&r, "kill:90", 0)));
        assert_ok(file_read_all(path, &text, &len, e));
        size_t at = mix64(i) % len;
        if (i % 4 == 0)
            len = at;
        else
            text[at] = "0123456789\"{}x"[mix64(i + 99) % 14];
        assert_ok(file_write_atomic(path, text, len, e));
        free(text);
        data_build_result got;
        err why = {0};
        if (run_here(&r, NULL, &got, &why) == ST_OK) continue;
        assert_true(strlen(why.message) > 10);
    }
}

int main(int argc, char **argv) {
    if (argc == 8) return be_child(argv);
    if (argc == 2) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_kill_everywhere, scene_open_fast, scene_close),
        cmocka_unit_test_setup_teardown(test_kill_everywhere_in_long_texts, scene_open_fast,
                                        scene_close),
        cmocka_unit_test_setup_teardown(test_kill_everywhere_appending, scene_open_fast,
                                        scene_close),
        cmocka_unit_test_setup_teardown(test_kill_at_random, scene_open_fast, scene_close),
        cmocka_unit_test_setup_teardown(test_fail_everywhere, scene_open_fast, scene_close),
        cmocka_unit_test_setup_teardown(test_fail_everywhere_appending, scene_open_fast,
                                        scene_close),
        cmocka_unit_test_setup_teardown(test_changed_build_begins_anew, scene_open_fast,
                                        scene_close),
        cmocka_unit_test_setup_teardown(test_damaged_state, scene_open_fast, scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
