/* Shared by the tests of `data build`: tokenizers made here, and folders compared byte for byte. */
#ifndef TESTS_BUILD_TEST_H
#define TESTS_BUILD_TEST_H

#include "data_test.h"

#include "data/build/build.h"

static inline tok *make_tok(tok_kind kind, const char *text) {
    tok_trainer *tr;
    tok *t = NULL;
    tok_train_options opt = {.kind = kind, .vocab_size = kind == TOK_BPE ? 300 : 0};
    assert_ok(tok_trainer_new(&tr, &opt, e));
    assert_ok(tok_trainer_add(tr, text, strlen(text), e));
    assert_ok(tok_trainer_finish(tr, &t, e));
    tok_trainer_free(tr);
    return t;
}

/* The same names, hidden ones too, and the same bytes. */
static inline void expect_same_tree(const char *want, const char *got) {
    arena *a = arena_new("compare");
    char **x, **y;
    int n, m;
    assert_ok(file_list_dir(a, want, &x, &n, e));
    assert_ok(file_list_dir(a, got, &y, &m, e));
    for (int i = 0; i < n || i < m; i++) {
        if (i >= n || i >= m || strcmp(x[i], y[i]) != 0)
            fail_msg("%s has %s, %s has %s", want, i < n ? x[i] : "no more", got,
                     i < m ? y[i] : "no more");
        char *p = path_join(a, want, x[i]), *q = path_join(a, got, y[i]);
        uint64_t hash[2];
        if (file_is_dir(p)) {
            expect_same_tree(p, q);
            continue;
        }
        assert_ok(hash_file(p, &hash[0], e));
        assert_ok(hash_file(q, &hash[1], e));
        if (hash[0] != hash[1] || file_size(p) != file_size(q)) fail_msg("%s and %s differ", p, q);
    }
    arena_free(a);
}

#endif
