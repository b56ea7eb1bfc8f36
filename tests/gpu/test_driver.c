/* Opening NVIDIA's driver: one that serves, and the sentences about others. The fake one is loaded first, so that the loader
 * takes it for the real one, whose name it has. */
#include "test.h"

#include <dlfcn.h>

#include <sys/stat.h>

#include "gpu/links.h"

static void expect_refused(const char *how, const char *sentence) {
    cu_driver d;
    err e = {0};
    setenv("FAKE_DRIVER", how, 1);
    assert_int_equal(cu_driver_open(&d, &e), ST_USAGE);
    assert_string_equal(e.message, sentence);
    assert_non_null(strstr(e.hint, "device=cpu"));
    assert_null(d.library);
}

static const char *version_text(int version, char text[16]) {
    snprintf(text, 16, "%d", version);
    return text;
}

/* The oldest that serves is of the CUDA whose nvcc compiled the kernels. */
static void test_drivers(void **state) {
    (void)state;
    char sentence[128], text[16];
    cu_driver d;
    err e = {0};
    void *fake = dlopen(FAKE_DRIVER "/libcuda.so.1", RTLD_NOW);
    assert_non_null(fake);
    unsetenv("ATHANOR_CUDA");
    assert_true(cu_driver_is_there());
    snprintf(sentence, sizeof sentence,
             "the NVIDIA driver is of CUDA %d.8, and %d.0 is the oldest that serves",
             GPU_CUDA_MAJOR - 1, GPU_CUDA_MAJOR);
    expect_refused(version_text(GPU_CUDA_MAJOR * 1000 - 920, text), sentence);
    expect_refused("broken", "the NVIDIA driver does not start: unknown error");
    setenv("FAKE_DRIVER", version_text(GPU_CUDA_MAJOR * 1000, text), 1);
    if (cu_driver_open(&d, &e) != ST_OK) fail_msg("%s", e.message);
    cu_driver_close(&d);
    dlclose(fake);
}

static void test_kinds_of_gpus(void **state) {
    (void)state;
    static const char archs[] = "80 90a 100";
    assert_true(gpu_arch_serves(archs, 8, 0) && gpu_arch_serves(archs, 8, 9));
    assert_true(gpu_arch_serves(archs, 9, 0) && gpu_arch_serves(archs, 10, 3));
    assert_false(gpu_arch_serves(archs, 9, 1));
    assert_false(gpu_arch_serves(archs, 12, 0));
    assert_false(gpu_arch_serves("90a", 8, 0));
    assert_false(gpu_arch_serves("", 9, 0));
}

static void put_line(const char *folder, const char *name, const char *line) {
    char path[256];
    snprintf(path, sizeof path, "%s/0000:3b:00.0/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(line, f);
    fclose(f);
}

static void check_slot(const cu_driver *d, const char *folder, gpu_pcie want) {
    gpu_pcie p = gpu_pcie_of(d, 0, folder);
    assert_memory_equal(&p, &want, sizeof p);
}

/* A folder as Linux has it for each device on PCIe, and what the driver says of two GPUs. */
static void test_links(void **state) {
    (void)state;
    static const char *const files[] = {"current_link_speed", "current_link_width",
                                        "max_link_speed", "max_link_width"};
    char folder[] = "/tmp/athanor-pci-XXXXXX", device[128], version[16];
    cu_driver d;
    void *fake = dlopen(FAKE_DRIVER "/libcuda.so.1", RTLD_NOW);
    assert_non_null(mkdtemp(folder));
    snprintf(device, sizeof device, "%s/0000:3b:00.0", folder);
    setenv("FAKE_DRIVER", version_text(GPU_CUDA_MAJOR * 1000, version), 1);
    assert_int_equal(cu_driver_open(&d, NULL), ST_OK);
    check_slot(&d, folder, (gpu_pcie){0});
    assert_int_equal(mkdir(device, 0700), 0);
    put_line(folder, files[0], "2.5 GT/s PCIe\n");
    put_line(folder, files[1], "8\n");
    put_line(folder, files[2], "32.0 GT/s PCIe\n");
    put_line(folder, files[3], "16\n");
    check_slot(&d, folder, (gpu_pcie){1, 8, 5, 16});
    put_line(folder, files[0], "16.0 GT/s PCIe\n");
    put_line(folder, files[1], "255\n");
    put_line(folder, files[2], "Unknown\n");
    put_line(folder, files[3], "");
    check_slot(&d, folder, (gpu_pcie){4, 0, 0, 0});
    assert_int_equal(gpu_link_of(&d, 0, 1), GPU_LINK_NONE);
    setenv("FAKE_LINK", "peer", 1);
    assert_int_equal(gpu_link_of(&d, 0, 1), GPU_LINK_PEER);
    setenv("FAKE_LINK", "atomics", 1);
    assert_int_equal(gpu_link_of(&d, 0, 1), GPU_LINK_ATOMIC);
    for (int i = 0; i < ARRAY_LEN(files); i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", device, files[i]);
        remove(path);
    }
    rmdir(device), rmdir(folder);
    cu_driver_close(&d);
    dlclose(fake);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drivers),
                                       cmocka_unit_test(test_kinds_of_gpus),
                                       cmocka_unit_test(test_links)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
