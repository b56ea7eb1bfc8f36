/* Golden models of every family as folders in every format, with matrices left in the files: the
 * logits are those of the same folder read into masters. */
#include "io/hf/hf_load.h"
#include "io/hf/hf_weights.h"
#include "plan/golden.h"

#include "base/json.h"

#include <unistd.h>

#include "io/io_test.h"
#include "io/whole_tensors.h"
#include "io/hf/model_folder.h"
#include "interchange/open_model.h"

enum { T = 16, PROMPT = 3 };

/* How the weights of a folder lie. */
typedef struct form {
    dtype dt[3];          /* of the tensors, in turns */
    uint64_t shard_bytes; /* 0: one file */
    int shift;            /* bytes by which headers are longer than they have to be */
} form;

/* ---- folders ---- */

static char *read_text(const char *path, size_t *len) {
    char *text;
    MUST(file_read_all(path, &text, len, E));
    return text;
}

/* Headers may end with spaces. */
static void shift_data(const char *path, int by) {
    size_t len;
    uint64_t header;
    char *old = read_text(path, &len), *new = xmalloc(len + (size_t)by);
    memcpy(&header, old, 8);
    size_t begin = 8 + (size_t)header;
    memcpy(new, old, begin);
    memset(new + begin, ' ', (size_t)by);
    memcpy(new + begin + by, old + begin, len - begin);
    header += (uint64_t)by;
    memcpy(new, &header, 8);
    MUST(file_write_atomic(path, new, len + (size_t)by, E));
    free(old);
    free(new);
}

static void shift_files(arena *a, const char *dir, int by) {
    char **names;
    int n;
    MUST(file_list_dir(a, dir, &names, &n, E));
    for (int i = 0; i < n; i++)
        if (strstr(names[i], ".safetensors") && !strstr(names[i], ".json"))
            shift_data(path_join(a, dir, names[i]), by);
}

static const char *write_folder(test_dir *d, const golden *g, const form *f) {
    const char *dir = path_join(d->mem, d->path, "model");
    const param_store *s = g->p->store;
    st_tensor *list[3];
    size_t len;
    char *config = read_text(path_join(d->mem, g->dir, "config.json"), &len);
    MUST(file_remove_tree(dir, E));
    MUST(file_make_dirs(dir, E));
    MUST(file_write_atomic(path_join(d->mem, dir, "config.json"), config, len, E));
    free(config);
    for (int k = 0; k < 3; k++)
        list[k] = whole_tensors(g->a, s, param_master(s), "", f->dt[k], hf_order_of(g->dir));
    for (int i = 0; i < param_count(s); i++) list[0][i] = list[i % 3][i];
    MUST(shards_write(dir, list[0], param_count(s), f->shard_bytes, NULL, E));
    shift_files(d->mem, dir, f->shift);
    return dir;
}

/* ---- what is computed ---- */

/* The folder of m, all of it read into masters. */
static void open_widened(open_model *w, open_model *m) {
    plan_spec spec = open_model_spec(m, T, T);
    spec.locate = NULL;
    *w = (open_model){.dev = m->dev, .config = m->config};
    MUST(plan_new(&w->plan, m->dev, &spec, E));
    MUST(plan_commit(w->plan, E));
    MUST(hf_load_weights(w->plan->store, m->dir, E));
}

static int32_t *some_ids(int64_t V) {
    static int32_t ids[T];
    for (int i = 0; i < T; i++) ids[i] = (int32_t)((i * 31 + 7) % V);
    return ids;
}

/* Logits of whole sequences are equal bit for bit. */
static void check_logits(const char *name, open_model *m, open_model *w) {
    int64_t V = m->config.vocab_size;
    const int32_t *ids = some_ids(V);
    size_t bytes = sizeof(float) * (size_t)(T * V);
    float *want = xmalloc(bytes);
    memcpy(want, open_model_logits(w, ids, T), bytes);
    if (memcmp(open_model_logits(m, ids, T), want, bytes) != 0) fail_msg("%s: logits", name);
    free(want);
}

/* A prompt, then token by token: also bit for bit. */
static void check_decode(const char *name, open_model *m, const open_model *w) {
    int64_t V = m->config.vocab_size;
    const int32_t *ids = some_ids(V);
    generator a = open_model_generator(m), b = open_model_generator(w);
    for (int n = PROMPT; n <= T; n++) {
        const float *got = generator_continue(&a, ids, n, NULL, NULL);
        const float *want = generator_continue(&b, ids, n, NULL, NULL);
        if (memcmp(got, want, sizeof *got * (size_t)V) != 0)
            fail_msg("%s: token %d differs by %g", name, n, golden_distance(got, want, V));
    }
    generator_free(&a);
    generator_free(&b);
}

/* ---- where it lies ---- */

static bool has_to_stay(const param *p, const st_view *v, hf_order order) {
    bool as_it_is = !held_is_transposed(p, order) && !held_is_reordered(p, order);
    return p->rank == 2 && as_it_is && (uintptr_t)v->data % dtype_bytes(v->dt) == 0;
}

/* Experts of a layer stay together: all gates in one format, all ups in one, or neither; downs alone. */
static bool experts_have_to_stay(const open_model *m, const param *p) {
    const param_store *s = m->plan->store;
    dtype dt[PART_COUNT];
    bool seen[PART_COUNT] = {false}, stay = true;
    for (int i = 0; i < param_count(s); i++) {
        const param *q = param_at(s, i);
        bool same = (q->part == PART_EXPERT_DOWN) == (p->part == PART_EXPERT_DOWN);
        if (q->layer != p->layer || !model_part_of_expert(q->part) || !same) continue;
        const st_view *v = hf_find_view(m->folder->file, q->name);
        if (!seen[q->part]) dt[q->part] = v->dt, seen[q->part] = true;
        stay = stay && has_to_stay(q, v, m->folder->order) && v->dt == dt[q->part];
    }
    return stay;
}

/* Returns how many stay. */
static int check_places(const char *name, open_model *m) {
    const param_store *s = m->plan->store;
    int stay = 0;
    int64_t read = 0;
    for (int i = 0; i < param_count(s); i++) {
        const param *p = param_at(s, i);
        const st_view *v = hf_find_view(m->folder->file, p->name);
        bool stays = model_part_of_expert(p->part) ? experts_have_to_stay(m, p)
                                                   : has_to_stay(p, v, m->folder->order);
        if (p->mapped != stays) fail_msg("%s: %s", name, p->name);
        stay += p->mapped;
        if (!p->mapped) read += param_elems(p) + 64;
        if (!p->mapped) continue;
        assert_int_equal(p->stored, v->dt);
        assert_ptr_equal(m->folder->base + p->offset, v->data);
    }
    assert_true(param_store_sizes(s).flat_elems <= read);
    return stay;
}

/* ---- tests ---- */

/* same: a model with the same logits; NULL: none is known. */
static int check_folder(const char *dir, const char *name, open_model *same) {
    open_model m, w;
    MUST(open_model_read(&m, dir, 1, E));
    MUST(open_model_load(&m, T, T, E));
    open_widened(&w, &m);
    int stay = check_places(name, &m);
    check_logits(name, &m, &w);
    if (same) check_logits(name, &m, same);
    check_decode(name, &m, &w);
    plan_free(w.plan);
    open_model_close(&m);
    return stay;
}

static int check_form(test_dir *d, const golden *g, const char *name, const form *f) {
    return check_folder(write_folder(d, g, f), name, NULL);
}

static void test_families(void **state) {
    static const form forms[] = {
        {.dt = {DT_F32, DT_F32, DT_F32}},
        {.dt = {DT_BF16, DT_BF16, DT_BF16}},
        {.dt = {DT_F16, DT_F16, DT_F16}},
        {.dt = {DT_BF16, DT_F32, DT_F16}, .shard_bytes = 8192},
    };
    for (int i = 0; i < ARRAY_LEN(golden_names); i++) {
        golden g;
        golden_open(&g, golden_names[i], (plan_spec){.compute = DT_F32});
        for (int k = 0; k < ARRAY_LEN(forms); k++)
            assert_true(check_form(*state, &g, golden_names[i], &forms[k]) > 0);
        golden_close(&g);
    }
}

/* Only what lies at a multiple of its size can be used where it is. */
static void test_odd_places(void **state) {
    static const struct {
        form f;
        int stay; /* of the 8 matrices of a layer and its neighbours; -1: some */
    } cases[] = {
        {{.dt = {DT_BF16, DT_BF16, DT_BF16}, .shift = 1}, 0},
        {{.dt = {DT_F32, DT_F32, DT_F32}, .shift = 2}, 0},
        {{.dt = {DT_BF16, DT_F32, DT_F16}, .shift = 2}, -1},
        {{.dt = {DT_BF16, DT_F32, DT_F16}, .shift = 3, .shard_bytes = 8192}, 0},
    };
    golden g;
    golden_open(&g, "llama-gqa-tied", (plan_spec){.compute = DT_F32});
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        int stay = check_form(*state, &g, "llama-gqa-tied", &cases[i].f);
        assert_true(cases[i].stay < 0 ? stay > 0 : stay == cases[i].stay);
    }
    golden_close(&g);
}

/* ---- experts in stacks ---- */

/* A tensor of the file under the name that transformers 5 has for it; *of_expert: how many of an expert have that name; 0: it
 * is of no expert. */
static st_tensor stacked_tensor(arena *a, const st_view *v, int *of_expert) {
    st_tensor t = {.name = v->name, .dt = v->dt, .rank = v->rank, .data = v->data};
    memcpy(t.dims, v->dims, sizeof v->dims);
    const char *moe = strstr(v->name, "block_sparse_moe."), *end = strstr(v->name, ".experts.");
    bool down = end && (strstr(end, ".w2.") || strstr(end, ".down_proj."));
    *of_expert = !end ? 0 : down ? 1 : 2;
    const char *own = end ? (down ? "experts.down_proj" : "experts.gate_up_proj") : NULL;
    if (moe)
        t.name = arena_printf(a, "%.*smlp.%s", (int)(moe - v->name), v->name, own ? own : moe + 17);
    if (end && !moe) t.name = arena_printf(a, "%.*s%s", (int)(end + 1 - v->name), v->name, own);
    return t;
}

/* The file anew, in which what follows each other and has one name is one tensor. other: of another shape. */
static void stack_experts(arena *a, const char *dir, bool other) {
    st_reader *r;
    MUST(st_open(&r, dir, E));
    st_tensor *list = ARENA_ARRAY(a, st_tensor, st_count(r));
    int n = 0, parts = 0;
    for (int64_t i = 0, each; i < st_count(r); i += parts) {
        int of_expert, ignored;
        st_tensor t = stacked_tensor(a, st_get(r, i), &of_expert);
        for (parts = 1; of_expert && i + parts < st_count(r); parts++)
            if (strcmp(stacked_tensor(a, st_get(r, i + parts), &ignored).name, t.name) != 0) break;
        each = other ? 1 : of_expert;
        if (of_expert) t.rank = 3, t.dims[2] = t.dims[1], t.dims[1] = t.dims[0] * each;
        if (of_expert) t.dims[0] = parts / each;
        list[n++] = t;
    }
    char *file = path_join(a, dir, "stacked");
    MUST(st_write(file, list, n, E));
    st_close(r);
    MUST(file_rename(file, path_join(a, dir, "model.safetensors"), E));
}

/* As transformers writes them with save_original_format=False: the same bits, and matrices stay in the file. */
static void test_stacked_experts(void **state) {
    static const char *const names[] = {"mixtral",     "qwen2-moe",   "qwen3-moe",         "olmoe",
                                        "deepseek-v2", "deepseek-v3", "qwen3-next-experts"};
    test_dir *d = *state;
    const form f = {.dt = {DT_F32, DT_F32, DT_F32}};
    for (int i = 0; i < ARRAY_LEN(names); i++) {
        golden g;
        open_model plain;
        golden_open(&g, names[i], (plan_spec){.compute = DT_F32});
        const char *dir = write_folder(d, &g, &f);
        stack_experts(d->mem, dir, false);
        MUST(open_model_read(&plain, g.dir, 1, E));
        MUST(open_model_load(&plain, T, T, E));
        check_folder(dir, names[i], &plain);
        open_model_close(&plain);
        golden_close(&g);
    }
}

static void test_stack_of_another_shape(void **state) {
    test_dir *d = *state;
    const form f = {.dt = {DT_F32, DT_F32, DT_F32}};
    err e = {0};
    golden g;
    open_model m;
    golden_open(&g, "olmoe", (plan_spec){.compute = DT_F32});
    const char *dir = write_folder(d, &g, &f);
    stack_experts(d->mem, dir, true);
    assert_int_equal(open_model_read(&m, dir, 1, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "experts.gate_up_proj"));
    open_model_close(&m);
    golden_close(&g);
}

/* A tied model may store its head again; one that differs is a head of its own. */
static void test_head_of_tied_model(void **state) {
    test_dir *d = *state;
    golden g;
    golden_open(&g, "llama-gqa-tied", (plan_spec){.compute = DT_F32});
    const form f = {.dt = {DT_BF16, DT_BF16, DT_BF16}};
    const char *dir = write_folder(d, &g, &f);
    const param_store *s = g.p->store;
    int n = param_count(s), embed = param_find(s, "model.embed_tokens.weight");
    st_tensor *list = whole_tensors(g.a, s, param_master(s), "", DT_BF16, HF_FILES);
    st_tensor *with_head = ARENA_ARRAY(g.a, st_tensor, n + 1);
    memcpy(with_head, list, sizeof *list * (size_t)n);
    int64_t elems = param_elems(param_at(s, embed));
    uint16_t *head = ARENA_ARRAY(g.a, uint16_t, elems);
    MUST(list[embed].fill(list[embed].ctx, 0, elems, head, E));
    with_head[n] = list[embed];
    with_head[n].name = "lm_head.weight", with_head[n].data = head;
    for (int differs = 0; differs < 2; differs++) {
        open_model m;
        err e = {0};
        head[elems - 1] ^= (uint16_t)differs;
        MUST(st_write(path_join(d->mem, dir, "model.safetensors"), with_head, n + 1, E));
        assert_int_equal(open_model_read(&m, dir, 1, &e), ST_OK);
        assert_true(m.config.tie_word_embeddings == !differs);
        open_model_close(&m);
    }
    golden_close(&g);
}

typedef enum copied { SAME, OTHER, EMPTY } copied;

/* The tensors of a file under other names, with one more; NULL: there is none, or it stays. */
static status find_renamed(test_dir *d, const char *dir, const char *from, const char *to,
                           const char *more, const char *copy, copied how, err *e) {
    arena *a = d->mem;
    json_t *config;
    model_config mc;
    st_reader *r;
    MUST(json_read_file(&config, path_join(a, dir, "config.json"), 1 << 20, E));
    MUST(model_config_read_file(a, config, &mc, E));
    json_decref(config);
    param_store *s = param_store_new(a, DT_F32);
    model_declare(&mc, s);
    MUST(st_open(&r, dir, E));
    int n = (int)st_count(r);
    st_tensor *list = ARENA_ARRAY(a, st_tensor, n + 1);
    for (int i = 0; i < n; i++) {
        const st_view *v = st_get(r, i);
        list[i] = (st_tensor){.name = v->name, .dt = v->dt, .rank = v->rank, .data = v->data};
        memcpy(list[i].dims, v->dims, sizeof v->dims);
        if (copy && strcmp(v->name, copy) == 0) list[n] = list[i];
        if (from && strcmp(v->name, from) == 0) list[i].name = to;
    }
    list[n].name = more;
    if (how == EMPTY) list[n].dims[0] = 0;
    if (how == OTHER) {
        float *other = ARENA_ARRAY(a, float, st_tensor_bytes(&list[n]) / sizeof(float));
        memcpy(other, list[n].data, st_tensor_bytes(&list[n]));
        other[1] += 1;
        list[n].data = other;
    }
    char *file = path_join(a, d->path, "renamed.safetensors");
    MUST(st_write(file, list, more ? n + 1 : n, E));
    st_close(r);
    MUST(st_open(&r, file, E));
    status st =
        hf_find_weights(s, r, (hf_differs){0}, ARENA_ARRAY(a, hf_weight, param_count(s)), e);
    st_close(r);
    return st;
}

/* What published files of a family call their tensors, and hold beside them. */
static void test_names_of_publishers(void **state) {
    static const char shared[] = "shared.weight", decoders[] = "decoder.embed_tokens.weight",
                      encoders[] = "encoder.embed_tokens.weight", t5[] = "encoder/t5-relu-tied",
                      untied[] = "encoder/t5-gated-untied", neox[] = "models/neox-parallel",
                      llama[] = "models/llama-gqa-tied", norm[] = "model.norm.weight",
                      bias[] = "decoder.block.0.layer.0.SelfAttention."
                               "relative_attention_bias.weight";
    static const struct {
        const char *dir, *from, *to, *more, *copy;
        copied how;
        status want;
    } cases[] = {
        {t5, NULL, NULL, decoders, shared, SAME, ST_OK},
        {t5, NULL, NULL, encoders, shared, SAME, ST_OK},
        {t5, NULL, NULL, encoders, shared, OTHER, ST_FORMAT},
        {untied, NULL, NULL, encoders, shared, SAME, ST_OK},
        {t5, shared, decoders, NULL, NULL, SAME, ST_OK},
        {t5, shared, encoders, NULL, NULL, SAME, ST_OK},
        {t5, shared, decoders, encoders, shared, SAME, ST_OK},
        {t5, shared, decoders, encoders, shared, OTHER, ST_FORMAT},
        {t5, NULL, NULL, "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
         bias, SAME, ST_OK},
        {t5, NULL, NULL, "decoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight",
         bias, SAME, ST_FORMAT},
        {neox, "gpt_neox.embed_in.weight", "embed_in.weight", NULL, NULL, SAME, ST_OK},
        {neox, "embed_out.weight", "lm_head.weight", NULL, NULL, SAME, ST_OK},
        {llama, NULL, NULL, "mtp.norm.weight", norm, SAME, ST_OK},
        {llama, NULL, NULL, "model.mtp.norm.weight", norm, SAME, ST_FORMAT},
        {llama, NULL, NULL, "model.layers.0.mlp.shared_experts.up_proj.weight",
         "model.embed_tokens.weight", EMPTY, ST_OK}, /* of DeepSeek without shared experts */
    };
    test_dir *d = *state;
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        err e = {0};
        const char *dir = arena_printf(d->mem, "%s/golden/%s", TEST_DIR, cases[i].dir);
        status st = find_renamed(d, dir, cases[i].from, cases[i].to, cases[i].more, cases[i].copy,
                                 cases[i].how, &e);
        if (st != cases[i].want) fail_msg("case %d: %d, %s", i, (int)st, e.message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {IO_TEST(test_families),
                                       IO_TEST(test_odd_places),
                                       IO_TEST(test_head_of_tied_model),
                                       IO_TEST(test_stacked_experts),
                                       IO_TEST(test_stack_of_another_shape),
                                       IO_TEST(test_names_of_publishers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
