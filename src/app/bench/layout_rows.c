#include "app/bench/layout_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { MOST_BYTES = 64 << 20 };
static const char HEAD[] =
    "source,table,gpu,peak_tf,model,params_B,layers,hidden,heads,ffn,vocab,seq,gpus,tp,pp,vpp,cp,"
    "dp,"
    "ep,zero,recompute,precision,mbs,gbs_seqs,iter_time_s,tok_s,tok_s_gpu,tflops_gpu,flops_kind,"
    "mfu_pct,hfu_pct,mem_GiB,notes,kv_heads,tied_emb,schedule,status,predicted_tok_s_gpu,"
    "planned_GiB,config\n";

/* ---- the file ---- */

/* A file that another program wrote may end within a row: that one is made again. */
static status check_head(layout_rows *r, err *e) {
    size_t n = strlen(HEAD);
    if (r->text.len < n || memcmp(r->text.data, HEAD, n) != 0) {
        err_at(e, ST_USAGE, r->path, "%s is there already, and is no file of this command",
               r->path);
        return err_hint(e, "name another file with -o");
    }
    const char *last = strrchr(r->text.data, '\n');
    strbuf_truncate(&r->text, (size_t)(last - r->text.data) + 1);
    return ST_OK;
}

status layout_rows_open(layout_rows *r, const char *path, const char *table, err *e) {
    char *text;
    size_t n;
    *r = (layout_rows){.path = path, .table = table};
    if (!file_exists(path)) {
        strbuf_puts(&r->text, HEAD);
        return ST_OK;
    }
    TRY(file_read_input(path, MOST_BYTES, &text, &n, e));
    strbuf_append(&r->text, text, n);
    free(text);
    return check_head(r, e);
}

bool layout_rows_have(const layout_rows *r, const layout_case *k) {
    char end[20];
    snprintf(end, sizeof end, ",%s\n", k->digest);
    return strstr(r->text.data, end) != NULL;
}

status layout_rows_write(const layout_rows *r, err *e) {
    return file_write_atomic(r->path, r->text.data, r->text.len, e);
}

/* Empty where it is not known. */
static void put_number(strbuf *out, double x) {
    if (x > 0) strbuf_printf(out, "%.6g", x);
    strbuf_putc(out, ',');
}

static void put_text(strbuf *out, const char *s) {
    strbuf_putc(out, '"');
    for (; *s; s++) strbuf_putc(out, *s == '"' ? '\'' : (unsigned char)*s < ' ' ? ' ' : *s);
    strbuf_puts(out, "\",");
}

static void put_layout(strbuf *out, const layout_case *k) {
    static const char *const policies[] = {RECOMPUTE_POLICIES(LIST_WORD)};
    const sketch_layout *l = &k->l;
    strbuf_printf(out, "%d,%d,%d,%d,%d,%d,%d,%d,%s,%s,%d,%lld,", k->ranks, l->key.tp, l->pp,
                  l->chunks_of_stage, l->key.cp, l->dp, l->key.ep, l->zero,
                  policies[l->key.recompute], k->precision, l->key.micro_batch,
                  (long long)k->batch);
}

static void put_measured(strbuf *out, const layout_case *k, const layout_outcome *o) {
    put_number(out, o->step_s);
    put_number(out, o->tok_per_s);
    put_number(out, o->tok_per_s / k->ranks);
    put_number(out, o->mfu * o->peak_flops / 1e12);
    strbuf_puts(out, "model,");
    put_number(out, 100 * o->mfu);
    put_number(out, 100 * o->hfu);
    put_number(out, o->peak_bytes / (1 << 30));
}

status layout_rows_add(layout_rows *r, const layout_case *k, const layout_outcome *o, err *e) {
    strbuf *t = &r->text;
    strbuf_puts(t, "athanor,");
    put_text(t, r->table);
    put_text(t, o->device);
    put_number(t, o->peak_flops / 1e12);
    strbuf_puts(t, k->model);
    put_layout(t, k);
    put_measured(t, k, o);
    put_text(t, o->note);
    strbuf_printf(t, "%s%s,%s,", k->extra, schedule_name(k->l.schedule), o->state);
    put_number(t, k->predicted / k->ranks);
    put_number(t, k->planned_bytes / (1 << 30));
    strbuf_printf(t, "%s\n", k->digest);
    return layout_rows_write(r, e);
}

void layout_rows_close(layout_rows *r) {
    strbuf_free(&r->text);
}

/* ---- a case ---- */

/* Whether the columns say what this model is: a dense decoder, as GPT-2 or as Llama. */
static bool is_plain(const model_config *mc) {
    const char *type = mc->family->model_type;
    bool gpt2 = strcmp(type, "gpt2") == 0;
    return (gpt2 ? mc->intermediate_size == 4 * mc->hidden_size
                 : strcmp(type, "llama") == 0 || strcmp(type, "smollm3") == 0 ||
                       strcmp(type, "mistral") == 0 || strncmp(type, "qwen", 4) == 0) &&
           mc->num_experts == 0 && mc->num_encoder_layers == 0 &&
           mc->head_dim * mc->num_attention_heads == mc->hidden_size;
}

/* Sizes of models that the columns cannot say stay empty: such rows are counted by `plan validate`, not guessed. */
static void describe_model(layout_case *k, arena *a, const plan *p) {
    const model_config *mc = &p->spec.model;
    const char *type = mc->family->model_type;
    double params = (double)model_active_params(mc, p->store) / 1e9;
    if (is_plain(mc))
        k->model =
            arena_printf(a, "%s,%.6g,%lld,%lld,%lld,%lld,%lld,%d,", type, params,
                         (long long)mc->num_hidden_layers, (long long)mc->hidden_size,
                         (long long)mc->num_attention_heads, (long long)mc->intermediate_size,
                         (long long)mc->vocab_size, p->spec.T);
    else
        k->model = arena_printf(a, "%s,%.6g,,,,,,%d,", type, params, p->spec.T);
    /* rows of GPT-2 are known by an empty tied_emb */
    if (is_plain(mc) && strcmp(type, "gpt2") != 0)
        k->extra = arena_printf(a, "%lld,%d,", (long long)mc->num_key_value_heads,
                                (int)mc->tie_word_embeddings);
    else
        k->extra = ",,";
}

static const char *precision_of(dtype compute) {
    return compute == DT_BF16 ? "bf16" : compute == DT_F16 ? "fp16" : "fp32";
}

void layout_case_describe(layout_case *k, arena *a, const plan *p, const cluster *on) {
    strbuf name = {0};
    describe_model(k, a, p);
    k->precision = precision_of(p->spec.compute);
    k->planned_bytes = (double)p->peak_bytes;
    if (on) {
        clock_time t = clock_step(p, on);
        k->predicted = t.tokens / t.step_s;
    }
    search_name(&k->l, &name);
    k->name = arena_printf(a, "%s", strbuf_cstr(&name));
    strbuf_free(&name);
}
