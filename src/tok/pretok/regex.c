/* Pre-tokenizer patterns without a hand-written matcher, through PCRE2 with Unicode properties.
 *
 * Text is checked UTF-8, so PCRE2's own check is off. Limits on steps keep a hostile pattern
 * bounded. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tok/pretok/pretok.h"

enum { MATCH_LIMIT = 1000000, HEAP_LIMIT_KIB = 64 << 10, MAX_PATTERN = 16 << 10 };

status pretok_regex_compile(void **code, const char *regex, err *e) {
    pcre2_compile_context *ctx = pcre2_compile_context_create(NULL);
    CHECK(ctx, "PCRE2 has no memory");
    pcre2_set_max_pattern_length(ctx, MAX_PATTERN);
    int error = 0;
    PCRE2_SIZE at = 0;
    *code = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, ctx);
    pcre2_compile_context_free(ctx);
    if (*code) {
        /* Without JIT the interpreter does the same, slower. */
        pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE);
        return ST_OK;
    }
    PCRE2_UCHAR text[256];
    pcre2_get_error_message(error, text, sizeof(text));
    return err_set(e, ST_FORMAT, "the pattern does not compile at character %zu: %s", (size_t)at,
                   (const char *)text);
}

void pretok_regex_free(void *code) {
    pcre2_code_free(code);
}

static int match(void *code, const char *text, size_t len, size_t from, pcre2_match_data *md) {
    pcre2_match_context *ctx = pcre2_match_context_create(NULL);
    CHECK(ctx, "PCRE2 has no memory");
    pcre2_set_match_limit(ctx, MATCH_LIMIT);
    pcre2_set_heap_limit(ctx, HEAP_LIMIT_KIB);
    const uint32_t options = PCRE2_NO_UTF_CHECK;
    int rc = pcre2_match(code, (PCRE2_SPTR)text, len, from, options, md, ctx);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc = pcre2_match(code, (PCRE2_SPTR)text, len, from, options | PCRE2_NO_JIT, md, ctx);
    }
    pcre2_match_context_free(ctx);
    return rc;
}

status pretok_regex_find(void *code, const char *text, size_t len, size_t from, size_t *start,
                         size_t *end, void **match_data, err *e) {
    if (!*match_data) {
        *match_data = pcre2_match_data_create(1, NULL);
        CHECK(*match_data, "PCRE2 has no memory");
    }
    int rc = match(code, text, len, from, *match_data);
    if (rc == PCRE2_ERROR_NOMATCH) {
        *start = *end = len;
        return ST_OK;
    }
    if (rc < 0) {
        PCRE2_UCHAR why[256];
        pcre2_get_error_message(rc, why, sizeof(why));
        return err_set(e, ST_FORMAT, "the pre-tokenizer pattern gave up at byte %zu of a text: %s",
                       from, (const char *)why);
    }
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(*match_data);
    /* \K can move the start behind the end or before the last piece. */
    *start = at[0] < from ? from : at[0];
    *end = at[1] < *start ? *start : at[1];
    return ST_OK;
}

void pretok_match_data_free(void *match_data) {
    pcre2_match_data_free(match_data);
}
