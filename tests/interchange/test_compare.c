/* Verification of exports: what is right passes, and one changed weight does not. */
#include "test.h"

#include "io/io_test.h"
#include "interchange/compare.h"
#include "interchange/interchange.h"

#define MODEL(name) TEST_DIR "/golden/models/" name

static model_comparison compare(const char *source, const char *result, dtype dt) {
    model_source s;
    model_comparison c;
    err e;
    assert_ok(model_source_open(&s, source, NULL, 0, &e), e);
    assert_ok(compare_models(&s, result, compare_limits_of(dt), &c, &e), e);
    model_source_close(&s);
    return c;
}

static char *write_folder(test_dir *d, const char *source, const char *name,
                          interchange_options opt) {
    char *path = path_join(d->mem, d->path, name);
    interchange_report r;
    err e;
    opt.verify = true;
    assert_ok(interchange_run(source, path, &opt, &r, &e), e);
    assert_true(r.verified.verified && r.verified.positions > 0);
    interchange_report_free(&r);
    return path;
}

static void test_same_bits_same_logits(void **state) {
    test_dir *d = *state;
    char *path = write_folder(d, MODEL("gpt2-tanh-tied"), "out", (interchange_options){0});
    model_comparison c = compare(MODEL("gpt2-tanh-tied"), path, DT_F32);
    assert_true(c.verified && c.ids_equal);
    assert_float_equal(c.max_abs_diff, 0, 0);
    assert_float_equal(c.top1, 1, 0);
}

/* The largest change that a lost half of a number can make in one weight. */
static void damage_weight(const char *path) {
    char *bytes;
    size_t len;
    err e;
    assert_ok(file_read_all(path, &bytes, &len, &e), e);
    uint64_t header;
    memcpy(&header, bytes, 8);
    float x;
    memcpy(&x, bytes + 8 + header, 4);
    x += 1.0f;
    memcpy(bytes + 8 + header, &x, 4);
    assert_ok(file_write_atomic(path, bytes, len, &e), e);
    free(bytes);
}

static void test_one_damaged_weight_is_seen(void **state) {
    test_dir *d = *state;
    char *path = write_folder(d, MODEL("llama-gqa-tied"), "out", (interchange_options){0});
    damage_weight(path_join(d->mem, path, "model.safetensors"));
    model_comparison c = compare(MODEL("llama-gqa-tied"), path, DT_F32);
    assert_false(c.verified);
    assert_true(c.max_abs_diff > 1e-3);
}

static void test_another_model_is_seen(void **state) {
    (void)state;
    model_source s;
    model_comparison c;
    err e;
    assert_ok(model_source_open(&s, MODEL("llama-linear"), NULL, 0, &e), e);
    assert_ok(compare_models(&s, MODEL("llama-dynamic"), compare_limits_of(DT_Q8_0), &c, &e), e);
    assert_false(c.verified);
    model_source_close(&s);
}

static void test_formats_are_told_apart(void **state) {
    test_dir *d = *state;
    const char *model = MODEL("llama-gqa-tied");
    char *path = write_folder(d, model, "bf16", (interchange_options){.format = "BF16"});
    assert_true(compare(model, path, DT_BF16).verified);
    assert_false(compare(model, path, DT_F32).verified); /* rounding is no equality */
    path = write_folder(d, model, "f16", (interchange_options){.format = "f16"});
    assert_true(compare(model, path, DT_F16).max_abs_diff > 0);
}

static model_comparison ask_rounding(const char *source, const char *result) {
    model_source s;
    model_comparison c = {.positions = 1};
    err e;
    assert_ok(model_source_open(&s, source, NULL, 0, &e), e);
    assert_ok(compare_rounding(&s, result, &c, &e), e);
    model_source_close(&s);
    return c;
}

/* The weights of the result are taken as they are; its config and its names are not. */
static void test_rounding_explains_itself_alone(void **state) {
    test_dir *d = *state;
    const char *model = MODEL("llama-linear"), *other = MODEL("llama-dynamic");
    char *path = write_folder(d, model, "f16", (interchange_options){.format = "F16"});
    char *file = write_folder(d, model, "f16.gguf", (interchange_options){.gguf = true});
    assert_true(ask_rounding(model, path).by_rounding);
    assert_true(ask_rounding(model, file).verified);
    /* files without modules, with biases of zeros, and with the embedding once more as the head */
    static const char *const others[] = {"llama-ahead", "gpt2-nanogpt", "deepseek-v3-ahead"};
    for (int i = 0; i < ARRAY_LEN(others); i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.gguf", others[i]);
        const char *from = path_join(d->mem, TEST_DIR "/golden/models", others[i]);
        char *to = write_folder(d, from, name, (interchange_options){.gguf = true});
        assert_true(ask_rounding(from, to).verified);
    }
    assert_false(ask_rounding(other, path).verified); /* other rotary positions */
    assert_false(ask_rounding(other, file).verified);
    assert_false(ask_rounding(MODEL("gpt2-tanh-tied"), path).verified);
}

static void test_card_says_what_was_measured(void **state) {
    test_dir *d = *state;
    char *text, *path = write_folder(d, MODEL("mobilellm-shared"), "out", (interchange_options){0});
    size_t len;
    err e;
    assert_ok(file_read_all(path_join(d->mem, path, "README.md"), &text, &len, &e), e);
    assert_non_null(strstr(text, "# out\n"));
    assert_non_null(strstr(text, "the largest difference of a logit is 0"));
    assert_non_null(strstr(text, "- transformers: no, it has no class for model_type mobilellm"));
    free(text);
}

static void test_extensions_run_nowhere(void **state) {
    (void)state;
    arena *a = arena_new("test");
    model_config mc;
    err e;
    json_t *o = json_pack("{s:s,s:i,s:i,s:i,s:i}", "model_type", "llama", "hidden_size", 32,
                          "num_hidden_layers", 2, "num_attention_heads", 4, "vocab_size", 50);
    assert_ok(model_config_read(a, o, 0, &mc, &e), e);
    where_runs w = where_runs_of(&mc, NULL);
    for (int t = 0; t < WHERE_TOOLS; t++) assert_true(w.tool[t].runs);
    json_object_set_new(o, "qk_norm", json_string("head"));
    assert_ok(model_config_read(a, o, 0, &mc, &e), e);
    w = where_runs_of(&mc, NULL);
    assert_true(where_runs_nowhere(&w));
    assert_non_null(strstr(w.tool[WHERE_VLLM].why, "qk_norm"));
    json_decref(o);
    arena_free(a);
}

static void append_tensor(strbuf *b, const st_reader *r, const char *name) {
    const st_view *v;
    err e;
    assert_ok(st_require(r, name, &v, &e), e);
    strbuf_append(b, v->data, v->bytes);
}

/* The same weights in a file of llama2.c: verification runs them with rotary pairs as they lie
 * there, and what was imported with halves. */
static void test_import_from_llama2c(void **state) {
    test_dir *d = *state;
    static const char *const layer[] = {
        "input_layernorm",  "self_attn.q_proj", "self_attn.k_proj",
        "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
        "mlp.gate_proj",    "mlp.down_proj",    "mlp.up_proj"};
    const int32_t header[7] = {32, 42, 3, 4, 2, 79, 96};
    st_reader *r;
    strbuf b = {0};
    err e;
    assert_ok(st_open(&r, MODEL("llama-interleaved"), &e), e);
    strbuf_append(&b, header, sizeof header);
    append_tensor(&b, r, "model.embed_tokens.weight");
    for (int i = 0; i < ARRAY_LEN(layer); i++)
        for (int l = 0; l < 3; l++)
            append_tensor(&b, r, arena_printf(d->mem, "model.layers.%d.%s.weight", l, layer[i]));
    append_tensor(&b, r, "model.norm.weight");
    memset(strbuf_extend(&b, 96 * 8 * 4), 0, 96 * 8 * 4);
    char *file = path_join(d->mem, d->path, "model.bin");
    assert_ok(file_write_atomic(file, b.data, b.len, &e), e);
    char *path = write_folder(d, file, "out", (interchange_options){0});
    assert_true(compare(MODEL("llama-interleaved"), path, DT_F32).verified);
    strbuf_free(&b);
    st_close(r);
}

static const char *why_in_transformers(const char *type, const char *tokenizer, where_answer *out) {
    arena *a = arena_new("test");
    model_config mc;
    tok *t;
    err e;
    json_t *o = json_pack("{s:s,s:i,s:i,s:i,s:i,s:i}", "model_type", type, "hidden_size", 32,
                          "num_hidden_layers", 2, "num_attention_heads", 4, "vocab_size", 50,
                          "num_key_value_heads", 4);
    assert_ok(tok_parse(&t, tokenizer, strlen(tokenizer), "tokenizer.json", &e), e);
    assert_ok(model_config_read(a, o, 0, &mc, &e), e);
    *out = where_runs_of(&mc, t).tool[WHERE_TRANSFORMERS];
    assert_true(out->runs);
    tok_free(t);
    json_decref(o);
    arena_free(a);
    return out->why;
}

/* AutoTokenizer has a class of its own for this family, which looks at the vocabulary alone. */
static void test_tokenizers_of_qwen2(void **state) {
    (void)state;
#define TOKENIZER(NORMALIZER, PATTERN)                                                             \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"normalizer\":" NORMALIZER   \
    ","                                                                                            \
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":" \
    "{"                                                                                            \
    "\"Regex\":\"" PATTERN                                                                         \
    "\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","                     \
    "\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":false}]}}"
#define QWEN2                                                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "              \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+["                                                                  \
    "\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
    where_answer w;
    const char *own = TOKENIZER("{\"type\":\"NFC\"}", QWEN2), *plain = TOKENIZER("null", QWEN2),
               *words = TOKENIZER("{\"type\":\"NFC\"}", "\\\\w+");
    assert_string_equal(why_in_transformers("qwen2", own, &w), "");
    assert_non_null(strstr(why_in_transformers("qwen2", plain, &w), "PreTrainedTokenizerFast"));
    assert_non_null(strstr(why_in_transformers("qwen2", words, &w), "PreTrainedTokenizerFast"));
    assert_string_equal(why_in_transformers("llama", words, &w), "");
}

/* Whoever adds a family says where it runs. */
static void test_every_family_has_an_answer(void **state) {
    (void)state;
    for (int i = 0; model_family_at(i); i++) {
        arena *a = arena_new("test");
        model_config mc;
        err e;
        json_t *o =
            json_pack("{s:s,s:i,s:i,s:i,s:i,s:i}", "model_type", model_family_at(i)->model_type,
                      "hidden_size", 32, "num_hidden_layers", 2, "num_attention_heads", 4,
                      "vocab_size", 50, "num_key_value_heads", 4);
        assert_ok(model_config_read(a, o, 0, &mc, &e), e);
        where_runs w = where_runs_of(&mc, NULL);
        for (int t = 0; t < WHERE_TOOLS; t++) assert_true(w.tool[t].runs || *w.tool[t].why);
        assert_int_equal(w.tool[WHERE_LLAMA_CPP].runs && !mc.family->gguf_arch, 0);
        json_decref(o);
        arena_free(a);
    }
}

/* Four bits cost more logits than two rows that changed places; weights tell. */
static void test_weights_tell_what_four_bits_hide(void **state) {
    test_dir *d = *state;
    char *path = write_folder(d, MODEL("llama-gqa-tied"), "out", (interchange_options){0}), *bytes;
    const char *file = path_join(d->mem, path, "model.safetensors");
    model_source s;
    size_t len;
    uint64_t header;
    err e;
    assert_ok(model_source_open(&s, MODEL("llama-gqa-tied"), NULL, 0, &e), e);
    assert_ok(compare_weights(&s, path, DT_F32, &e), e);
    assert_ok(file_read_all(file, &bytes, &len, &e), e);
    memcpy(&header, bytes, 8);
    size_t row = sizeof(float) * (size_t)s.config.hidden_size;
    char *rows = bytes + 8 + header, *first = arena_memdup(d->mem, rows, row);
    memcpy(rows, rows + row, row);
    memcpy(rows + row, first, row);
    assert_ok(file_write_atomic(file, bytes, len, &e), e);
    assert_int_equal(compare_weights(&s, path, DT_Q4_0, &e), ST_FAILED);
    assert_non_null(strstr(e.message, "row 0 of tensor"));
    free(bytes);
    model_source_close(&s);
}

/* A folder of the golden OLMo 2 without its head: config.json says that it is tied. */
static char *write_tied_olmo2(test_dir *d) {
    char *path = path_join(d->mem, d->path, "tied"), *config;
    st_tensor kept[64];
    st_reader *r;
    size_t len;
    int n = 0;
    err e;
    assert_ok(file_make_dirs(path, &e), e);
    assert_ok(file_read_all(MODEL("olmo2/config.json"), &config, &len, &e), e);
    static const char untied[] = "\"tie_word_embeddings\": false";
    memcpy(strstr(config, untied), "\"tie_word_embeddings\": true ", sizeof untied - 1);
    test_write(d, "tied/config.json", config);
    free(config);
    assert_ok(st_open(&r, MODEL("olmo2"), &e), e);
    for (int64_t i = 0; i < st_count(r); i++) {
        const st_view *v = st_get(r, i);
        if (strcmp(v->name, "lm_head.weight") == 0) continue;
        st_tensor t = {.name = v->name, .dt = v->dt, .rank = v->rank, .data = v->data};
        memcpy(t.dims, v->dims, sizeof t.dims);
        kept[n++] = t;
    }
    assert_ok(st_write(path_join(d->mem, path, "model.safetensors"), kept, n, &e), e);
    st_close(r);
    return path;
}

/* llama.cpp wants biases where these models have none, and a head where OLMo 2 is tied: the file
 * holds zeros, and the embedding twice. */
static void test_tensors_that_a_format_adds(void **state) {
    test_dir *d = *state;
    const char *tied = write_tied_olmo2(d);
    const char *const models[] = {MODEL("gpt2-nanogpt"), MODEL("neox-sequential"), tied};
    for (int i = 0; i < ARRAY_LEN(models); i++)
        write_folder(d, models[i], arena_printf(d->mem, "%d.gguf", i),
                     (interchange_options){.gguf = true});
}

static void test_other_tensors_are_named(void **state) {
    test_dir *d = *state;
    model_source s;
    err e;
    assert_ok(model_source_open(&s, write_tied_olmo2(d), NULL, 0, &e), e);
    assert_int_equal(compare_weights(&s, MODEL("olmo2"), DT_F32, &e), ST_FAILED);
    assert_non_null(strstr(e.message, "lm_head.weight"));
    model_source_close(&s);
    assert_ok(model_source_open(&s, MODEL("olmo2"), NULL, 0, &e), e);
    assert_int_equal(compare_weights(&s, write_tied_olmo2(d), DT_F32, &e), ST_FAILED);
    assert_string_equal(e.message, "the result has no tensor 'lm_head.weight'");
    model_source_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IO_TEST(test_same_bits_same_logits),
        IO_TEST(test_one_damaged_weight_is_seen),
        cmocka_unit_test(test_another_model_is_seen),
        IO_TEST(test_formats_are_told_apart),
        IO_TEST(test_rounding_explains_itself_alone),
        IO_TEST(test_weights_tell_what_four_bits_hide),
        IO_TEST(test_tensors_that_a_format_adds),
        IO_TEST(test_other_tensors_are_named),
        IO_TEST(test_card_says_what_was_measured),
        cmocka_unit_test(test_extensions_run_nowhere),
        cmocka_unit_test(test_tokenizers_of_qwen2),
        cmocka_unit_test(test_every_family_has_an_answer),
        IO_TEST(test_import_from_llama2c),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
