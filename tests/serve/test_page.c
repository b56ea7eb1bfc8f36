/* The chat page as it lies in the program: whole, with a policy that names its own style and script. */
#include "base/sha256.h"
#include "serve/page/page.h"
#include "test.h"

static const char *text_of_page(void) {
    static char text[1 << 20];
    assert_true(chat_page_bytes > 0 && chat_page_bytes < sizeof text);
    memcpy(text, chat_page, chat_page_bytes);
    text[chat_page_bytes] = 0;
    return text;
}

/* 'sha256-BASE64' of the text between two tags, as a browser computes it. */
static void source_of(const char *open, const char *close, char out[64]) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *from = strstr(text_of_page(), open);
    assert_non_null(from);
    from += strlen(open);
    const char *to = strstr(from, close);
    assert_non_null(to);
    uint8_t digest[33] = {0};
    sha256 s;
    sha256_init(&s);
    sha256_update(&s, from, (size_t)(to - from));
    sha256_final(&s, digest);
    char *at = out + sprintf(out, "'sha256-");
    for (int i = 0; i < 33; i += 3) {
        unsigned group = (unsigned)digest[i] << 16 | (unsigned)digest[i + 1] << 8 | digest[i + 2];
        for (int shift = 18; shift >= 0; shift -= 6) *at++ = digits[group >> shift & 63];
    }
    strcpy(at - 1, "='"); /* the 33rd byte is none */
}

static void test_policy_names_style_and_script(void **state) {
    (void)state;
    char style[64];
    char script[64];
    source_of("<style>", "</style>", style);
    source_of("<script type=\"module\">", "</script>", script);
    assert_non_null(strstr(chat_page_csp, "default-src 'none'"));
    assert_non_null(strstr(chat_page_csp, style));
    assert_non_null(strstr(chat_page_csp, script));
    assert_null(strstr(chat_page_csp, "unsafe"));
}

static void test_page_is_whole(void **state) {
    (void)state;
    const char *text = text_of_page();
    assert_int_equal(strlen(text), chat_page_bytes);
    assert_memory_equal(text, "<!doctype html>", 15);
    assert_string_equal(text + chat_page_bytes - 8, "</html>\n");
    assert_null(strstr(text, "@SCRIPT@"));
    assert_null(strstr(text, "@STYLE@"));
    assert_null(strstr(text, "innerHTML"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy_names_style_and_script),
        cmocka_unit_test(test_page_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
