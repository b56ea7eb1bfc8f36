/* SHA-256 against the vectors of FIPS 180-4 and of NIST's example files. */
#include "base/sha256.h"
#include "test.h"

static void test_vectors(void **state) {
    (void)state;
    static const char *const CASES[][2] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno"
         "ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char hex[65];
        sha256_hex(CASES[i][0], strlen(CASES[i][0]), hex);
        assert_string_equal(hex, CASES[i][1]);
    }
}

/* A million "a", in pieces whose borders fall anywhere in a block. */
static void test_pieces(void **state) {
    (void)state;
    static const uint8_t WANT[4] = {0xcd, 0xc7, 0x6e, 0x5c};
    char text[997];
    uint8_t digest[32];
    sha256 s;
    memset(text, 'a', sizeof text);
    sha256_init(&s);
    for (size_t left = 1000000; left > 0;) {
        size_t n = left < sizeof text ? left : sizeof text;
        sha256_update(&s, text, n);
        left -= n;
    }
    sha256_final(&s, digest);
    assert_memory_equal(digest, WANT, sizeof WANT);
    assert_int_equal(digest[31], 0xd0);
}

/* Every length around the padding's borders: in one piece and byte by byte is the same. */
static void test_padding(void **state) {
    (void)state;
    for (size_t len = 0; len < 200; len++) {
        char text[200] = {0}, whole[65], bytes[65];
        uint8_t digest[32];
        sha256 s;
        for (size_t i = 0; i < len; i++) text[i] = (char)(i * 7 + len);
        sha256_hex(text, len, whole);
        sha256_init(&s);
        for (size_t i = 0; i < len; i++) sha256_update(&s, text + i, 1);
        sha256_final(&s, digest);
        for (int i = 0; i < 32; i++) snprintf(bytes + 2 * i, 3, "%02x", digest[i]);
        assert_string_equal(whole, bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors),
                                       cmocka_unit_test(test_pieces),
                                       cmocka_unit_test(test_padding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
