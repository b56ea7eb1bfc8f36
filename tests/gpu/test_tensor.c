/* Tensor cores of the emulated device: a product of two tiles has the right numbers, and fragments
 * with a wrong lane are found, with kernel and line. */
#include "test.h"

#define KERNEL_SUFFIX bf16
#define KERNEL_IMAGE gpu_image_fragments
#include "gpu/kernel.h"

#include "gpu/emulated/emulated.h"

const gpu_image gpu_image_fragments = {"fragments", NULL};

enum { SIZE = 16, STRIDE = 40 /* of the matrices in global memory */ };

/* d [16,16] = x [16,16] times y^T [16,16], or y. */
typedef struct product_args {
    const uint16_t *x, *y;
    float *d;
} product_args;

/* A warp brings both matrices to shared memory. */
GPU_FN void bring(const product_args *a, uint16_t *x, uint16_t *y) {
    int32_t r = (int32_t)lane() / 2, c = (int32_t)lane() % 2 * 8;
    copy16_async(&x[r * SIZE + c], &a->x[r * STRIDE + c]);
    copy16_async(&y[r * SIZE + c], &a->y[r * STRIDE + c]);
    copies_commit();
    copies_wait(0);
    sync_block();
}

GPU_FN void put(const product_args *a, const float d[4], int32_t column) {
    int32_t l = (int32_t)lane();
    for (int e = 0; e < 4; e++)
        a->d[(l / 4 + e / 2 * 8) * SIZE + column + l % 4 * 2 + e % 2] = d[e];
}

/* Each kernel gives the address of its lane's row, for x and for y; the rest is the same. */
#define PRODUCT(name, x_at, y_at, load_y, second)                                                  \
    KERNEL(name, product_args, 32) {                                                               \
        SHARED(uint16_t, x, SIZE *SIZE);                                                           \
        SHARED(uint16_t, y, SIZE *SIZE);                                                           \
        uint32_t f[4], g[4];                                                                       \
        float p[4] = {0}, q[4] = {0};                                                              \
        int32_t l = (int32_t)lane();                                                               \
        bring(a, x, y);                                                                            \
        matrix_load4(f, &x[x_at]);                                                                 \
        load_y(g, &y[y_at]);                                                                       \
        multiply_add_bf16(p, f, g);                                                                \
        multiply_add_bf16(q, f, g + (second));                                                     \
        put(a, p, 0);                                                                              \
        put(a, q, 8);                                                                              \
    }

#define X_AT (l % 16 * SIZE + l / 16 * 8)
#define Y_AT ((l % 8 + l / 16 * 8) * SIZE + l / 8 % 2 * 8)
PRODUCT(times_transposed, X_AT, Y_AT, matrix_load4, 2)
PRODUCT(times, X_AT, X_AT, matrix_load4_turned, 2)
PRODUCT(same_rows_twice, l % 8 * SIZE + l / 16 * 8, Y_AT, matrix_load4, 2)
PRODUCT(quarters_exchanged, l % 8 * SIZE + l / 16 * 8 * SIZE + l / 8 % 2 * 8, Y_AT, matrix_load4, 2)
PRODUCT(one_lane_wrong, X_AT + (l == 21 ? SIZE : 0), Y_AT, matrix_load4, 2)
PRODUCT(one_row_of_y_wrong, X_AT, Y_AT - (l == 3 ? SIZE : 0), matrix_load4, 2)
PRODUCT(wrong_register, X_AT, Y_AT, matrix_load4, 1)

static uint16_t matrix[2][SIZE * STRIDE];
static float result[SIZE * SIZE];

/* The first fault, in room; NULL: there is none. */
static const char *run(const gpu_kernel *k, uint64_t seed, char room[EMU_FAULT_MAX]) {
    enum { BYTES = SIZE * STRIDE * 2 };
    emu_device *d = emu_device_new(seed, 1);
    const gpu_range ranges[] = {
        {"x", matrix[0], 1, BYTES, BYTES, GPU_READ, 2},
        {"y", matrix[1], 1, BYTES, BYTES, GPU_READ, 2},
    };
    product_args a = {matrix[0], matrix[1], result};
    for (int i = 0; i < SIZE * STRIDE; i++) {
        matrix[0][i] = f32_to_bf16((float)(i % 7 - 3));
        matrix[1][i] = f32_to_bf16((float)(i % 11 - 5));
    }
    emu_scope_begin(d, k->name, ranges, 2);
    emu_launch(d, k, &(gpu_grid){1, 1, 1, 32, 0}, &a);
    emu_scope_end(d);
    const char *fault = emu_fault(d);
    if (fault) snprintf(room, EMU_FAULT_MAX, "%s", fault);
    emu_device_free(d);
    return fault ? room : NULL;
}

/* turned: y^T y's rows are columns of the right factor. */
static void check_product(const gpu_kernel *k, bool turned) {
    char room[EMU_FAULT_MAX];
    for (uint64_t seed = 0; seed < 4; seed++) {
        const char *fault = run(k, seed, room);
        if (fault) fail_msg("%s", fault);
        for (int i = 0; i < SIZE; i++)
            for (int j = 0; j < SIZE; j++) {
                float want = 0;
                for (int n = 0; n < SIZE; n++)
                    want += bf16_to_f32(matrix[0][i * STRIDE + n]) *
                            bf16_to_f32(matrix[1][turned ? j * STRIDE + n : n * STRIDE + j]);
                assert_true(result[i * SIZE + j] == want);
            }
    }
}

static void test_products(void **state) {
    (void)state;
    check_product(&times_transposed, true);
    check_product(&times, false);
}

static void test_wrong_lanes_are_found(void **state) {
    (void)state;
    static const struct {
        const gpu_kernel *kernel;
        const char *says;
    } wrong[] = {
        {&same_rows_twice, "in a, row 8"},   {&quarters_exchanged, "in a, row"},
        {&one_lane_wrong, "in a, row"},      {&one_row_of_y_wrong, "in b, column 3"},
        {&wrong_register, "in b, column 0"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            char room[EMU_FAULT_MAX];
            const char *fault = run(wrong[i].kernel, seed, room);
            if (!fault) fail_msg("%s was not found", wrong[i].kernel->name);
            if (!strstr(fault, wrong[i].says) || !strstr(fault, wrong[i].kernel->name) ||
                !strstr(fault, "test_tensor.c:"))
                fail_msg("%s: %s", wrong[i].kernel->name, fault);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_wrong_lanes_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
