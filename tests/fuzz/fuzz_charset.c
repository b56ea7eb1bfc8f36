/* libFuzzer target: telling the charset of outside bytes, their conversion in two pieces, repair.
 */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/utf8.h"
#include "data/text/charset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In pieces or at once: the same. */
static void convert(const char *name, const char *s, size_t n, size_t cut) {
    charset_converter c;
    strbuf whole = {0}, parts = {0};
    charset_converter_open(&c, name);
    size_t used = charset_convert(&c, s, n, true, &whole);
    CHECK(used == n, "%zu of %zu bytes converted", used, n);
    charset_converter_close(&c);
    charset_converter_open(&c, name);
    used = charset_convert(&c, s, cut, false, &parts);
    CHECK(used <= cut && cut - used < 8, "%zu bytes left over", cut - used);
    charset_convert(&c, s + used, n - used, true, &parts);
    charset_converter_close(&c);
    CHECK(whole.len == parts.len &&
              memcmp(strbuf_cstr(&whole), strbuf_cstr(&parts), whole.len) == 0,
          "%s in pieces is another text", name);
    strbuf_free(&whole);
    strbuf_free(&parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const NAMES[] = {"UTF-16LE", "UTF-16BE", "GB18030", "WINDOWS-1252"};
    if (size == 0) return 0;
    const char *s = (const char *)data + 1, *name;
    size_t n = size - 1, cut = data[0] < n ? data[0] : n;
    strbuf mended = {0};
    name = charset_detect(s, n);
    if (name && !charset_is_utf8(name)) convert(name, s, n, cut);
    convert(NAMES[size % 4], s, n, cut);
    size_t repaired = charset_repair(s, n, &mended);
    CHECK((repaired == 0) == (utf8_valid_prefix(s, n) == n), "%zu repaired", repaired);
    CHECK(utf8_valid_prefix(strbuf_cstr(&mended), mended.len) == mended.len, "it is still broken");
    if (charset_is_open(s, n))
        CHECK(!repaired && name && charset_is_utf8(name), "open, but not ASCII");
    strbuf_free(&mended);
    return 0;
}
