/* Files: reads, atomic writes that fail, folders, removal without following links, the stream. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_fault.h"
#include "base/json.h"

typedef struct fixture {
    arena *a;
    char *dir;
} fixture;

/* In place of that of libc: a signal interrupts the next calls. */
static int interruptions;
int fsync(int fd) {
    if (interruptions == 0) return fdatasync(fd);
    interruptions--;
    errno = EINTR;
    return -1;
}

static int set_up(void **state) {
    fixture *f = calloc(1, sizeof *f);
    f->a = arena_new("test");
    const char *base = getenv("TMPDIR");
    f->dir = arena_printf(f->a, "%s/athanor-file-XXXXXX", base ? base : "/tmp");
    *state = f;
    return mkdtemp(f->dir) ? 0 : -1;
}

static int tear_down(void **state) {
    fixture *f = *state;
    status s = file_remove_tree(f->dir, NULL);
    arena_free(f->a);
    free(f);
    return s == ST_OK ? 0 : -1;
}

static void write_file(const char *path, const char *text) {
    err e = {0};
    assert_int_equal(file_write_atomic(path, text, strlen(text), &e), ST_OK);
}

static void assert_content(const char *path, const char *text) {
    char *data;
    size_t len;
    err e = {0};
    assert_int_equal(file_read_all(path, &data, &len, &e), ST_OK);
    assert_int_equal(len, strlen(text));
    assert_string_equal(data, text);
    free(data);
}

static void test_write_and_read(void **state) {
    fixture *f = *state;
    char *path = path_join(f->a, f->dir, "a.txt");
    write_file(path, "one");
    assert_content(path, "one");
    write_file(path, "");
    assert_content(path, "");
    assert_int_equal(file_size(path), 0);
    write_file(path, "a longer text");
    assert_content(path, "a longer text");
    assert_int_equal(file_size(path), 13);
}

static void test_interrupted_sync(void **state) {
    fixture *f = *state;
    char *path = path_join(f->a, f->dir, "a.txt");
    interruptions = 2;
    write_file(path, "one");
    assert_int_equal(interruptions, 0);
    assert_content(path, "one");
}

static void test_read_errors_name_the_path(void **state) {
    fixture *f = *state;
    char *data, *path = path_join(f->a, f->dir, "missing");
    size_t len;
    err e = {0};
    assert_int_equal(file_read_all(path, &data, &len, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, path));
    assert_non_null(strstr(e.message, "No such file"));
    assert_string_equal(e.where, path);
    assert_int_equal(file_read_all(f->dir, &data, &len, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "Is a directory"));
    file_map m;
    assert_int_equal(file_map_open(&m, f->dir, &e), ST_FORMAT);
    assert_int_equal(file_map_open(&m, "/dev/null", &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "not a regular file"));
}

/* Nothing keeps the reader of a folder for ever: no pipe without a writer, no endless device. */
static void test_parts_are_regular_and_bounded(void **state) {
    fixture *f = *state;
    char *data, *path = path_join(f->a, f->dir, "pipe");
    size_t len;
    file_map m;
    err e = {0};
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(file_read_part(path, FILE_PART_MAX_BYTES, &data, &len, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "not a regular file"));
    assert_string_equal(e.where, path);
    assert_int_equal(file_map_open(&m, path, &e), ST_FORMAT);
    assert_int_equal(file_read_part("/dev/zero", FILE_PART_MAX_BYTES, &data, &len, &e), ST_FORMAT);
    assert_int_equal(unlink(path), 0);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(write(fd, "text", 4), 4);
    assert_int_equal(file_read_part(path, FILE_PART_MAX_BYTES, &data, &len, &e), ST_OK);
    assert_string_equal(data, "text");
    free(data);
    assert_int_equal(ftruncate(fd, FILE_PART_MAX_BYTES + 1), 0);
    close(fd);
    assert_int_equal(file_read_part(path, FILE_PART_MAX_BYTES, &data, &len, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "at most 268435456"));
}

/* What the user names may be a pipe or a device, but nothing is read for ever. */
static void test_inputs_are_bounded(void **state) {
    fixture *f = *state;
    char *data, *path = path_join(f->a, f->dir, "five");
    size_t len;
    err e = {0};
    assert_int_equal(file_read_input("/dev/zero", 100000, &data, &len, &e), ST_FORMAT);
    assert_null(data);
    assert_non_null(strstr(e.message, "/dev/zero is too large: at most 100000 bytes"));
    assert_string_equal(e.where, "/dev/zero");
    assert_true(e.hint[0]);
    write_file(path, "fives");
    assert_int_equal(file_read_input(path, 5, &data, &len, &e), ST_OK);
    assert_string_equal(data, "fives");
    free(data);
    assert_int_equal(file_read_input(path, 4, &data, &len, &e), ST_FORMAT);
    assert_int_equal(file_read_part(path, 4, &data, &len, &e), ST_FORMAT);
    assert_int_equal(file_read_input("/dev/null", 4, &data, &len, &e), ST_OK);
    assert_int_equal(len, 0);
    free(data);
}

static void test_json_file(void **state) {
    fixture *f = *state;
    char *path = path_join(f->a, f->dir, "value.json");
    json_t *value;
    err e = {0};
    write_file(path, "{\"a\": [1, 2.5]}\n");
    assert_int_equal(json_read_file(&value, path, 100, &e), ST_OK);
    assert_int_equal(json_array_size(json_object_get(value, "a")), 2);
    json_decref(value);
    assert_int_equal(json_read_file(&value, path, 10, &e), ST_FORMAT);
    assert_null(value);
    write_file(path, "{\"a\": 1,\n \"a\": 2}");
    assert_int_equal(json_read_file(&value, path, 100, &e), ST_FORMAT);
    assert_non_null(strstr(e.where, "value.json:2"));
    assert_null(value);
}

/* Files whose size is not known before: pipes and /proc. */
static void test_read_unknown_size(void **state) {
    (void)state;
    char *data;
    size_t len;
    err e = {0};
    assert_int_equal(file_read_all("/proc/self/maps", &data, &len, &e), ST_OK);
    assert_true(len > 100 && strlen(data) == len);
    free(data);
    int ends[2], saved = dup(STDIN_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "piped", 5), 5);
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    assert_int_equal(file_read_all("-", &data, &len, &e), ST_OK);
    assert_string_equal(data, "piped");
    free(data);
    dup2(saved, STDIN_FILENO);
    close(saved);
    close(ends[0]);
}

static int count_entries(fixture *f, const char *dir) {
    char **names;
    int n;
    err e = {0};
    assert_int_equal(file_list_dir(f->a, dir, &names, &n, &e), ST_OK);
    return n;
}

/* A limit on the size of files makes write(2) fail half way, as a full disk does. */
static void with_file_limit(rlim_t bytes, struct rlimit *saved) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, saved);
    struct rlimit limit = {bytes, saved->rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void test_failed_write_leaves_old_file(void **state) {
    fixture *f = *state;
    char *path = path_join(f->a, f->dir, "a.txt");
    write_file(path, "old");
    char *big = calloc(1, 100000);
    struct rlimit saved;
    err e = {0};
    with_file_limit(4096, &saved);
    status s = file_write_atomic(path, big, 100000, &e);
    setrlimit(RLIMIT_FSIZE, &saved);
    assert_int_equal(s, ST_FAILED);
    assert_non_null(strstr(e.message, path));
    assert_content(path, "old");
    assert_int_equal(count_entries(f, f->dir), 1); /* the temporary file is gone */
    free(big);
    char *nowhere = path_join(f->a, f->dir, "no/such/file");
    assert_int_equal(file_write_atomic(nowhere, "x", 1, &e), ST_FAILED);
    assert_non_null(strstr(e.message, nowhere));
    assert_null(strstr(e.message, "tmp-"));
    assert_string_equal(e.where, nowhere);
}

static void assert_reads(int fd, const char *text) {
    char got[64] = "";
    assert_int_equal(read(fd, got, sizeof got - 1), strlen(text));
    assert_string_equal(got, text);
}

/* A file in place of a device would destroy it, for all other programs too. */
static void test_devices_and_pipes_are_written_into(void **state) {
    fixture *f = *state;
    struct stat st;
    int ends[2];
    char *fifo = path_join(f->a, f->dir, "fifo"), *null = path_join(f->a, f->dir, "null");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    int reader = open(fifo, O_RDONLY | O_NONBLOCK);
    write_file(fifo, "text");
    assert_reads(reader, "text");
    assert_int_equal(lstat(fifo, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    assert_int_equal(symlink("/dev/null", null), 0);
    write_file(null, "text");
    assert_int_equal(lstat(null, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(pipe(ends), 0);
    write_file(arena_printf(f->a, "/dev/fd/%d", ends[1]), "more");
    assert_reads(ends[0], "more");
    err e = {0};
    file_out out;
    assert_int_equal(file_out_open(&out, fifo, &e), ST_USAGE); /* which might remove it later */
    assert_int_equal(file_out_open(&out, null, &e), ST_USAGE);
    close(reader);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(file_write_atomic(arena_printf(f->a, "/dev/fd/%d", ends[1]), "x", 1, &e),
                     ST_FAILED);
    assert_non_null(strstr(e.message, "/dev/fd/"));
}

static void test_folders(void **state) {
    fixture *f = *state;
    err e = {0};
    char *deep = path_join(f->a, f->dir, "x/y//z/");
    assert_int_equal(file_make_dirs(deep, &e), ST_OK);
    assert_int_equal(file_make_dirs(deep, &e), ST_OK);
    assert_true(file_is_dir(deep) && file_exists(deep));
    write_file(path_join(f->a, f->dir, "x/b"), "b");
    write_file(path_join(f->a, f->dir, "x/a"), "a");
    char **names;
    int n;
    assert_int_equal(file_list_dir(f->a, path_join(f->a, f->dir, "x"), &names, &n, &e), ST_OK);
    assert_int_equal(n, 3);
    assert_string_equal(names[0], "a");
    assert_string_equal(names[1], "b");
    assert_string_equal(names[2], "y");
    char *blocked = path_join(f->a, f->dir, "x/a/c");
    assert_int_equal(file_make_dirs(blocked, &e), ST_FAILED);
    assert_non_null(strstr(e.message, "x/a"));
    assert_int_equal(file_list_dir(f->a, blocked, &names, &n, &e), ST_FAILED);
    assert_int_equal(file_sync_dir(f->dir, &e), ST_OK);
    assert_int_equal(file_sync_dir(blocked, &e), ST_FAILED);
}

/* a is there: b, b/c, and the folders that they are in are synced, and no more. */
static void test_remove_tree_spares_link_targets(void **state) {
    fixture *f = *state;
    err e = {0};
    char *keep = path_join(f->a, f->dir, "keep"), *gone = path_join(f->a, f->dir, "gone");
    assert_int_equal(file_make_dirs(keep, &e), ST_OK);
    assert_int_equal(file_make_dirs(path_join(f->a, gone, "sub/deeper"), &e), ST_OK);
    write_file(path_join(f->a, keep, "precious"), "p");
    write_file(path_join(f->a, gone, "sub/file"), "x");
    assert_int_equal(symlink(keep, path_join(f->a, gone, "sub/link")), 0);
    assert_int_equal(file_remove_tree(gone, &e), ST_OK);
    assert_false(file_exists(gone));
    assert_content(path_join(f->a, keep, "precious"), "p");
    char *link = path_join(f->a, f->dir, "toplink");
    assert_int_equal(symlink(keep, link), 0);
    assert_int_equal(file_remove_tree(link, &e), ST_OK);
    assert_content(path_join(f->a, keep, "precious"), "p");
    assert_int_equal(file_remove_tree(gone, &e), ST_OK); /* absent is fine */
}

static void test_paths(void **state) {
    fixture *f = *state;
    assert_string_equal(path_join(f->a, "a", "b"), "a/b");
    assert_string_equal(path_join(f->a, "a/", "b"), "a/b");
    assert_string_equal(path_join(f->a, "", "b"), "b");
    assert_string_equal(path_join(f->a, "a", "/b"), "/b");
    assert_string_equal(path_base("a/b/c.txt"), "c.txt");
    assert_string_equal(path_base("c.txt"), "c.txt");
    assert_string_equal(path_plain(f->a, "a/b//"), "a/b");
    assert_string_equal(path_plain(f->a, "//"), "/");
}

static void test_map(void **state) {
    fixture *f = *state;
    char *path = path_join(f->a, f->dir, "m");
    err e = {0};
    file_map m;
    write_file(path, "mapped");
    assert_int_equal(file_map_open(&m, path, &e), ST_OK);
    assert_int_equal(m.len, 6);
    assert_memory_equal(m.data, "mapped", 6);
    file_map_close(&m);
    assert_null(m.data);
    write_file(path, "");
    assert_int_equal(file_map_open(&m, path, &e), ST_OK);
    assert_int_equal(m.len, 0);
    file_map_close(&m);
}

static void test_stream_hashes_what_it_writes(void **state) {
    fixture *f = *state;
    enum { N = 3000000 };
    uint8_t *bytes = malloc(N);
    for (int i = 0; i < N; i++) bytes[i] = (uint8_t)(i * 31 >> 3);
    char *path = path_join(f->a, f->dir, "s");
    file_out out;
    err e = {0};
    assert_int_equal(file_out_open(&out, path, &e), ST_OK);
    for (size_t at = 0, step = 1; at < N; at += step, step = step * 3 + 1) {
        if (step > N - at) step = N - at;
        assert_int_equal(file_out_write(&out, bytes + at, step, &e), ST_OK);
    }
    uint64_t hash, again;
    assert_int_equal(file_out_close(&out, &hash, &e), ST_OK);
    assert_true(hash == hash_bytes(bytes, N));
    assert_int_equal(hash_file(path, &again, &e), ST_OK);
    assert_true(hash == again);
    file_map m;
    assert_int_equal(file_map_open(&m, path, &e), ST_OK);
    assert_int_equal(m.len, N);
    assert_memory_equal(m.data, bytes, N);
    file_map_close(&m);
    free(bytes);
}

static void test_stream_names_a_full_disk(void **state) {
    fixture *f = *state;
    static const uint8_t BLOCK[1 << 20];
    char *path = path_join(f->a, f->dir, "full");
    file_out out;
    err e = {0};
    assert_int_equal(file_out_open(&out, path, &e), ST_OK);
    assert_true(file_fault_arm("write:1"));
    assert_int_equal(file_out_write(&out, BLOCK, sizeof BLOCK, &e), ST_FAILED);
    assert_non_null(strstr(e.message, path));
    assert_non_null(strstr(e.message, "No space left"));
    file_out_abandon(&out);
    assert_int_equal(file_out_open(&out, path, &e), ST_OK);
    assert_int_equal(file_out_write(&out, "x", 1, &e), ST_OK); /* still in the buffer */
    assert_true(file_fault_arm("write:1"));
    assert_int_equal(file_out_close(&out, NULL, &e), ST_FAILED);
    assert_non_null(strstr(e.message, "No space left"));
    file_fault_arm(NULL);
}

static void test_stream_abandon_removes_the_file(void **state) {
    fixture *f = *state;
    char *path = path_join(f->a, f->dir, "s");
    file_out out;
    err e = {0};
    assert_int_equal(file_out_open(&out, path, &e), ST_OK);
    assert_int_equal(file_out_write(&out, "x", 1, &e), ST_OK);
    file_out_abandon(&out);
    file_out_abandon(&out);
    assert_false(file_exists(path));
    assert_int_equal(file_out_open(&out, path_join(f->a, f->dir, "no/file"), &e), ST_FAILED);
    file_out_abandon(&out);
}

/* XXH3-64 is a fixed function: these are its published values for the empty input and "a". */
static void test_hash_values(void **state) {
    (void)state;
    char text[17];
    hash_format(hash_bytes(NULL, 0), text);
    assert_string_equal(text, "2d06800538d394c2");
    hash_format(hash_bytes("a", 1), text);
    assert_string_equal(text, "e6c632b61e964e1f");
    hash_format(0x1f, text);
    assert_string_equal(text, "000000000000001f");
}

/* The folder of every folder that was made, and that of the path in any case, is synced. */
static void test_make_dirs_synced(void **state) {
    fixture *f = *state;
    char *path = path_join(f->a, f->dir, "a/b/c");
    for (int n = 1; n <= 3; n++) {
        err e = {0};
        assert_true(file_fault_arm((const char *[]){"fsync:1", "fsync:2", "fsync:3"}[n - 1]));
        assert_int_equal(file_make_dirs_synced(path, &e), ST_FAILED);
        assert_non_null(strstr(e.message, "cannot sync folder"));
        assert_true(file_fault_struck());
        file_fault_arm(NULL);
        assert_int_equal(file_remove_tree(path_join(f->a, f->dir, "a"), &e), ST_OK);
    }
    err e = {0};
    assert_int_equal(file_make_dirs(path, &e), ST_OK);
    assert_true(file_fault_arm("fsync:2"));
    assert_int_equal(file_make_dirs_synced(path, &e), ST_OK);
    assert_false(file_fault_struck()); /* only the last one, which was there */
    file_fault_arm(NULL);
    assert_int_equal(chdir(f->dir), 0);
    assert_int_equal(file_make_dirs_synced("d/e/", &e), ST_OK);
    assert_true(file_is_dir("d/e"));
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(file_make_dirs_synced("/", &e), ST_OK);
}

/* Also links of links, and links to what is not there yet. */
static void test_links_are_written_through(void **state) {
    fixture *f = *state;
    struct stat st;
    char *file = path_join(f->a, f->dir, "file"), *link = path_join(f->a, f->dir, "link");
    char *first = path_join(f->a, f->dir, "first");
    assert_int_equal(symlink("link", first), 0);
    assert_int_equal(symlink(file, link), 0);
    for (int i = 0; i < 2; i++) {
        write_file(first, i ? "two" : "one");
        assert_int_equal(lstat(first, &st), 0);
        assert_true(S_ISLNK(st.st_mode));
        assert_int_equal(lstat(link, &st), 0);
        assert_true(S_ISLNK(st.st_mode));
        assert_int_equal(lstat(file, &st), 0);
        assert_true(S_ISREG(st.st_mode));
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_write_and_read),
        CASE(test_interrupted_sync),
        CASE(test_read_errors_name_the_path),
        CASE(test_parts_are_regular_and_bounded),
        CASE(test_inputs_are_bounded),
        CASE(test_json_file),
        CASE(test_read_unknown_size),
        CASE(test_failed_write_leaves_old_file),
        CASE(test_devices_and_pipes_are_written_into),
        CASE(test_links_are_written_through),
        CASE(test_folders),
        CASE(test_make_dirs_synced),
        CASE(test_remove_tree_spares_link_targets),
        CASE(test_paths),
        CASE(test_map),
        CASE(test_stream_hashes_what_it_writes),
        CASE(test_stream_names_a_full_disk),
        CASE(test_stream_abandon_removes_the_file),
        CASE(test_hash_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
