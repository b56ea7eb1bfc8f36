/* Devices: reservations and their high-water mark, the choice of threads and instruction set. */
#include "test.h"

#include <omp.h>

#include "base/file.h"
#include "dev/dev_int.h"

static dev *open_dev(dev_kind kind, int threads) {
    dev *d;
    err e = {0};
    assert_int_equal(dev_open(&d, kind, threads, &e), ST_OK);
    return d;
}

static void test_reserve_and_high_water(void **state) {
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = 20000 * page - 100;
    dev *d = open_dev(DEV_CPU, 1);
    void *p;
    err e = {0};
    size_t anon = dev_process_anon_bytes();
    assert_int_equal(dev_reserve(d, &p, bytes, "arena", &e), ST_OK);
    assert_int_equal((uintptr_t)p % page, 0);
    assert_int_equal(dev_touched_bytes(p, bytes), 0);
    char *c = p;
    c[0] = 1;
    assert_int_equal(dev_touched_bytes(p, bytes), page);
    c[5000 * page + 7] = 1; /* in another chunk of the scan */
    assert_int_equal(dev_touched_bytes(p, bytes), 5001 * page);
    memset(c + 5001 * page, 1, 10 * page);
    assert_int_equal(dev_touched_bytes(p, bytes), 5011 * page);
    assert_int_equal(c[2 * page], 0); /* zero-filled; reading counts as touching only below */
    assert_true(dev_process_anon_bytes() < anon + 1000 * page); /* most pages were never given */
    c[bytes - 1] = 1;
    assert_int_equal(dev_touched_bytes(p, bytes), 20000 * page);
    dev_release(d, p, bytes);
    dev_close(d);
}

/* With large pages the high-water mark is exact near the end, and too high by less than one of them before. */
static void test_large_pages(void **state) {
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), large = 2 << 20,
           bytes = 20 * large + 5 * page - 100;
    dev *d = open_dev(DEV_CPU, 1);
    void *p;
    err e = {0};
    for (int k = 0; k < 3; k++) {
        size_t size = k < 2 ? bytes : page * 3; /* smaller than one: nothing happens */
        assert_int_equal(dev_reserve(d, &p, size, "arena", &e), ST_OK);
        dev_expect_whole(d, p, size);
        char *c = p;
        assert_int_equal(dev_touched_bytes(p, size), 0);
        c[0] = 1;
        assert_in_range(dev_touched_bytes(p, size), page, large);
        size_t last = k == 1 ? size - large / 2 : size - 1;
        memset(c, 1, last + 1);
        assert_int_equal(dev_touched_bytes(p, size), last / page * page + page);
        dev_release(d, p, size);
    }
    dev_expect_whole(d, NULL, bytes);
    dev_close(d);
    assert_int_equal(dev_open_meta(&d, DEV_CPU, 1, &e), ST_OK);
    dev_expect_whole(d, NULL, bytes);
    dev_close(d);
}

static void test_touched_memory_is_counted(void **state) {
    (void)state;
    size_t bytes = 64 << 20;
    dev *d = open_dev(DEV_CPU, 1);
    void *p;
    size_t before = dev_process_anon_bytes();
    assert_int_equal(dev_reserve(d, &p, bytes, "arena", NULL), ST_OK);
    memset(p, 1, bytes);
    size_t after = dev_process_anon_bytes();
    assert_true(after >= before + bytes * 9 / 10 && after <= before + bytes * 11 / 10);
    assert_true(dev_process_peak_bytes() >= bytes);
    dev_release(d, p, bytes);
    assert_true(dev_process_anon_bytes() <= after - bytes * 9 / 10);
    dev_close(d);
}

static void test_too_much_memory_is_one_error(void **state) {
    (void)state;
    dev *d = open_dev(DEV_CPU, 1);
    void *p = d;
    err e = {0};
    assert_int_equal(dev_reserve(d, &p, (size_t)1 << 50, "the step arena", &e), ST_MEMORY);
    assert_null(p);
    assert_non_null(strstr(e.message, "the step arena"));
    assert_non_null(strstr(e.message, "1125899906.8 MB"));
    assert_int_equal(dev_reserve(d, &p, SIZE_MAX, "x", &e), ST_MEMORY);
    dev_release(d, NULL, 5);
    dev_close(d);
}

static void never(dev *d, const void *args) {
    (void)d, (void)args;
    fail_msg("a kernel runs on a meta device");
}

/* Of any kind: no memory, and nothing happens. */
static void test_meta_holds_nothing(void **state) {
    (void)state;
    for (int kind = 0; kind < DEV_KINDS; kind++) {
        dev *d;
        void *p = &d;
        err e = {0};
        char host[4] = "abc";
        assert_int_equal(dev_open_meta(&d, (dev_kind)kind, 3, &e), ST_OK);
        assert_true(dev_is_meta(d));
        assert_int_equal(dev_get_kind(d), kind);
        assert_int_equal(dev_threads(d), 3);
        assert_int_equal(dev_reserve(d, &p, (size_t)1 << 50, "arena", &e), ST_OK);
        assert_null(p);
        assert_int_equal(dev_touched_bytes(p, (size_t)1 << 50), 0);
        dev_launch(d, never, host, sizeof host);
        dev_write(d, p, host, sizeof host);
        dev_fill(d, p, 1, sizeof host);
        dev_copy(d, p, host, sizeof host);
        dev_read(d, host, p, sizeof host);
        assert_null(dev_borrow(d, p, 1 << 20, true, &(dev_room){0}));
        dev_put_back(d, p, host, sizeof host);
        dev_enter(d);
        dev_leave(d);
        dev_wait(d, dev_record(d));
        assert_string_equal(host, "abc");
        dev_release(d, p, (size_t)1 << 50);
        dev_close(d);
    }
}

static void test_kinds_by_name(void **state) {
    (void)state;
    dev_kind kind = DEV_KINDS;
    err e = {0};
    unsetenv("ATHANOR_DEVICE");
    assert_int_equal(dev_find_kind("auto", &kind, &e), ST_OK);
    assert_int_equal(kind, DEV_CPU);
    setenv("ATHANOR_DEVICE", "twin", 1);
    assert_int_equal(dev_find_kind(NULL, &kind, &e), ST_OK);
    assert_int_equal(kind, DEV_TWIN);
    assert_int_equal(dev_find_kind("cpu", &kind, &e), ST_OK); /* what is named is taken */
    assert_int_equal(kind, DEV_CPU);
    assert_int_equal(dev_find_kind("gpu", &kind, &e), ST_USAGE);
    assert_non_null(strstr(e.message, "\"gpu\""));
    assert_non_null(strstr(e.hint, "auto, cpu, cuda, twin"));
    setenv("ATHANOR_DEVICE", "twins", 1);
    assert_int_equal(dev_find_kind("auto", &kind, &e), ST_USAGE);
    assert_non_null(strstr(e.message, "twins"));
    assert_string_equal(e.where, "ATHANOR_DEVICE");
    unsetenv("ATHANOR_DEVICE");
}

static void test_memory_numbers_are_sane(void **state) {
    (void)state;
    size_t total = dev_machine_total_bytes(), available = dev_machine_available_bytes();
    assert_true(total > 64u << 20);
    assert_true(available > 0 && available <= total);
    assert_true(dev_process_anon_bytes() > 0 && dev_process_anon_bytes() < total);
    assert_true(dev_process_peak_bytes() >= dev_process_anon_bytes());
}

static void test_isa_can_only_be_lowered(void **state) {
    (void)state;
    unsetenv("ATHANOR_ISA");
    dev *d = open_dev(DEV_CPU, 1);
    cpu_isa machine = dev_isa(d);
    dev_close(d);
    for (int i = ISA_BASE; i <= ISA_AMX; i++) {
        setenv("ATHANOR_ISA", cpu_isa_name((cpu_isa)i), 1);
        d = open_dev(DEV_CPU, 1);
        assert_int_equal(dev_isa(d), (cpu_isa)i < machine ? (cpu_isa)i : machine);
        dev_close(d);
    }
    setenv("ATHANOR_ISA", "avx3", 1);
    err e = {0};
    assert_int_equal(dev_open(&d, DEV_CPU, 1, &e), ST_USAGE);
    assert_null(d);
    assert_non_null(strstr(e.message, "avx3"));
    assert_non_null(strstr(e.hint, "avx512_bf16 or amx"));
    assert_string_equal(e.where, "ATHANOR_ISA");
    unsetenv("ATHANOR_ISA");
}

/* A Xeon with AMX under a system that knows tiles, with all that is asked of it. */
static cpu_id xeon_with_amx(void) {
    return (cpu_id){.basic_ecx = 0x7ffefbff,
                    .more_ebx = 0xf3bfbffb,
                    .more_ecx = 0x1b415f7e,
                    .more_edx = 0xffdd4432,
                    .more1_eax = 0x00001c30,
                    .extended_ecx = 0x00000121,
                    .xcr0 = 0x602e7,
                    .tiles_granted = true};
}

/* What is missing lowers the instruction set to the one that does without it. */
static void test_isa_of_planted_cpuid(void **state) {
    (void)state;
    enum { BASIC_C, MORE_B, MORE_C, MORE_D, MORE1_A, EXTENDED_C, XCR0, GRANTED };
    static const struct {
        int word, bit;
        cpu_isa without;
    } needed[] = {
        {GRANTED, 0, ISA_AVX512_BF16}, {XCR0, 17, ISA_AVX512_BF16},   {XCR0, 18, ISA_AVX512_BF16},
        {MORE_D, 22, ISA_AVX512_BF16}, {MORE_D, 24, ISA_AVX512_BF16}, {MORE1_A, 5, ISA_AVX512_VNNI},
        {MORE_C, 11, ISA_AVX512},      {MORE_B, 16, ISA_AVX2},        {MORE_B, 17, ISA_AVX2},
        {MORE_B, 28, ISA_AVX2},        {MORE_B, 30, ISA_AVX2},        {MORE_B, 31, ISA_AVX2},
        {XCR0, 5, ISA_AVX2},           {XCR0, 6, ISA_AVX2},           {XCR0, 7, ISA_AVX2},
        {MORE_B, 3, ISA_BASE},         {MORE_B, 5, ISA_BASE},         {MORE_B, 8, ISA_BASE},
        {BASIC_C, 12, ISA_BASE},       {BASIC_C, 22, ISA_BASE},       {BASIC_C, 27, ISA_BASE},
        {BASIC_C, 29, ISA_BASE},       {EXTENDED_C, 5, ISA_BASE},     {XCR0, 1, ISA_BASE},
        {XCR0, 2, ISA_BASE},
    };
    cpu_id all = xeon_with_amx();
    assert_int_equal(isa_of(&all), ISA_AMX);
    for (int i = 0; i < ARRAY_LEN(needed); i++) {
        cpu_id id = all;
        uint32_t *const words[] = {&id.basic_ecx, &id.more_ebx,  &id.more_ecx,
                                   &id.more_edx,  &id.more1_eax, &id.extended_ecx};
        int word = needed[i].word;
        if (word == GRANTED) id.tiles_granted = false;
        if (word == XCR0) id.xcr0 &= ~(1ull << needed[i].bit);
        if (word < XCR0) *words[word] &= ~(1u << needed[i].bit);
        if (isa_of(&id) != needed[i].without)
            fail_msg("without bit %d of word %d: %s", needed[i].bit, word,
                     cpu_isa_name(isa_of(&id)));
    }
    cpu_id none = {0};
    assert_int_equal(isa_of(&none), ISA_BASE);
}

static void test_threads(void **state) {
    (void)state;
    unsetenv("OMP_NUM_THREADS");
    dev *d = open_dev(DEV_CPU, 0);
    int cores = dev_threads(d);
    assert_in_range(cores, 1, 1 << 16);
    dev_close(d);
    setenv("OMP_NUM_THREADS", "1,2", 1);
    d = open_dev(DEV_CPU, 0);
    assert_int_equal(dev_threads(d), 1);
    dev_close(d);
    setenv("OMP_NUM_THREADS", "100000", 1);
    d = open_dev(DEV_CPU, 0);
    assert_int_equal(dev_threads(d), cores);
    dev_close(d);
    d = open_dev(DEV_CPU, 3);
    assert_int_equal(dev_threads(d), 3);
    dev_close(d);
    unsetenv("OMP_NUM_THREADS");
}

/* Limits lower, never raise; OpenMP follows, since libraries ask it. */
static void test_limits(void **state) {
    (void)state;
    dev *d = open_dev(DEV_CPU, 3), *meta;
    cpu_isa isa = dev_isa(d);
    dev_limit(d, ISA_AMX, 0);
    assert_int_equal(dev_isa(d), isa);
    assert_int_equal(dev_threads(d), 3);
    dev_limit(d, ISA_BASE, 2);
    assert_int_equal(dev_isa(d), ISA_BASE);
    assert_int_equal(dev_threads(d), 2);
    assert_int_equal(omp_get_max_threads(), 2);
    assert_int_equal(dev_open_meta(&meta, DEV_CPU, 3, NULL), ST_OK);
    dev_limit(meta, ISA_BASE, 1); /* stands for a device, changes nothing else */
    assert_int_equal(dev_threads(meta), 1);
    assert_int_equal(omp_get_max_threads(), 2);
    dev_close(meta);
    dev_close(d);
}

static void put_siblings(int cpu, const char *list) {
    char path[128];
    snprintf(path, sizeof path, "cores_test/cpu%d/topology", cpu);
    assert_int_equal(file_make_dirs(path, NULL), ST_OK);
    strcat(path, "/thread_siblings_list");
    assert_int_equal(file_write_atomic(path, list, strlen(list), NULL), ST_OK);
}

/* Six processors: 0 and 4, 1 and 5 are hyper-threads of a core, 2-3 too; of 6 nothing is known. */
static void test_hyper_threads_count_once(void **state) {
    (void)state;
    static const char *const lists[] = {"0,4\n", "1,5\n", "2-3\n", "2-3\n", "0,4\n", "1,5\n"};
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < ARRAY_LEN(lists); i++) {
        put_siblings(i, lists[i]);
        CPU_SET((size_t)i, &set);
    }
    assert_int_equal(dev_count_cores("cores_test", &set), 3);
    CPU_CLR(0, &set); /* this process may not run there: 4 is alone on its core */
    assert_int_equal(dev_count_cores("cores_test", &set), 3);
    CPU_CLR(3, &set);
    CPU_CLR(2, &set);
    assert_int_equal(dev_count_cores("cores_test", &set), 2);
    CPU_SET(6, &set);
    assert_int_equal(dev_count_cores("cores_test", &set), 3);
    put_siblings(6, "nonsense");
    assert_int_equal(dev_count_cores("cores_test", &set), 3);
    assert_int_equal(file_remove_tree("cores_test", NULL), ST_OK);
    assert_true(dev_cores() >= 1);
}

static void put_file(const char *path, const char *text) {
    char dir[128];
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
    assert_int_equal(file_make_dirs(dir, NULL), ST_OK);
    assert_int_equal(file_write_atomic(path, text, strlen(text), NULL), ST_OK);
}

/* What control groups of both versions grant: the least from the process's own group to the root. */
static void test_quota(void **state) {
    (void)state;
    assert_true(dev_read_quota("quota_test/none", "quota_test") == 0);
    put_file("quota_test/v2", "0::/a/b\n");
    assert_true(dev_read_quota("quota_test/v2", "quota_test") == 0);
    put_file("quota_test/a/b/cpu.max", "max 100000\n");
    assert_true(dev_read_quota("quota_test/v2", "quota_test") == 0);
    put_file("quota_test/a/cpu.max", "150000 100000\n");
    assert_true(dev_read_quota("quota_test/v2", "quota_test") == 1.5);
    put_file("quota_test/cpu.max", "50000 100000\n"); /* of a container, seen from within */
    assert_true(dev_read_quota("quota_test/v2", "quota_test") == 0.5);
    put_file("quota_test/cpu.max", "nonsense\n");
    assert_true(dev_read_quota("quota_test/v2", "quota_test") == 1.5);
    put_file("quota_test/v1", "9:memory:/x\n3:cpuacct:/a\n2:cpu,cpuacct:/c\n1:name=cpu:/a\nodd\n");
    put_file("quota_test/cpu/cpu.cfs_quota_us", "-1\n");
    put_file("quota_test/cpu/cpu.cfs_period_us", "100000\n");
    put_file("quota_test/cpu/c/cpu.cfs_quota_us", "250000\n");
    assert_true(dev_read_quota("quota_test/v1", "quota_test") == 0); /* its period is not said */
    put_file("quota_test/cpu/c/cpu.cfs_period_us", "100000\n");
    assert_true(dev_read_quota("quota_test/v1", "quota_test") == 2.5);
    put_file("quota_test/v1", "2:cpuacct,cpu:/c\n");
    assert_true(dev_read_quota("quota_test/v1", "quota_test") == 2.5);
    assert_int_equal(file_remove_tree("quota_test", NULL), ST_OK);
    int cpu[1024], n = dev_list_processors(cpu, ARRAY_LEN(cpu));
    double quota = dev_quota();
    assert_true(dev_processors() >= 1 && dev_processors() <= n);
    assert_true(quota < 1 || dev_processors() <= quota);
    assert_int_equal(dev_list_processors(cpu, 1), 1);
}

static void *create_cache(dev *d) {
    (void)d;
    return calloc(1, sizeof(int));
}

/* The cache's only content is where to count its destruction. */
static int *destroyed;
static void destroy_cache(void *cache) {
    ++*destroyed;
    free(cache);
}

static void test_cache_lives_as_long_as_the_dev(void **state) {
    (void)state;
    int count = 0;
    destroyed = &count;
    dev *d = open_dev(DEV_CPU, 1);
    void *cache = dev_kernel_cache(d, create_cache, destroy_cache);
    assert_non_null(cache);
    assert_ptr_equal(dev_kernel_cache(d, create_cache, destroy_cache), cache);
    assert_int_equal(count, 0);
    dev_close(d);
    assert_int_equal(count, 1);
    dev_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reserve_and_high_water),
        cmocka_unit_test(test_large_pages),
        cmocka_unit_test(test_touched_memory_is_counted),
        cmocka_unit_test(test_too_much_memory_is_one_error),
        cmocka_unit_test(test_meta_holds_nothing),
        cmocka_unit_test(test_kinds_by_name),
        cmocka_unit_test(test_memory_numbers_are_sane),
        cmocka_unit_test(test_isa_can_only_be_lowered),
        cmocka_unit_test(test_isa_of_planted_cpuid),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_hyper_threads_count_once),
        cmocka_unit_test(test_quota),
        cmocka_unit_test(test_cache_lives_as_long_as_the_dev),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
