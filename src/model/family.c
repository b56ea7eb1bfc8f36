/* The list of families, and the recording of a whole model. */
#include "model/family.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/blocks.h"

extern const model_family family_llama, family_gpt2;

static const model_family *const families[] = {&family_llama, &family_gpt2};

const model_family *model_family_at(int i) {
    return i < ARRAY_LEN(families) ? families[i] : NULL;
}

const model_family *model_family_find(const char *model_type) {
    for (int i = 0; i < ARRAY_LEN(families); i++)
        if (strcmp(families[i]->model_type, model_type) == 0) return families[i];
    return NULL;
}

val model_param(model_rec *r, const char *fmt, ...) {
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    graph_param_ref ref;
    if (!param_ref(r->params, name, &ref)) return VAL_NONE;
    return graph_param(r->g, &ref);
}

static void make_inputs(model_rec *r) {
    int64_t N = (int64_t)r->B * r->T;
    r->ids = graph_input(r->g, "ids", DT_I32, N, 1);
    r->pos = graph_input(r->g, "pos", DT_I32, N, 1);
    r->start = r->document_mask ? graph_input(r->g, "start", DT_I32, N, 1) : VAL_NONE;
    r->qpos = r->Tmax > 0 ? graph_input(r->g, "qpos", DT_I32, r->B, 1) : VAL_NONE;
    r->rope =
        r->mc->family->rotary ? block_rope_table(r, r->Tmax > r->T ? r->Tmax : r->T) : VAL_NONE;
}

void model_record(model_rec *r) {
    const model_family *f = r->mc->family;
    make_inputs(r);
    val x = f->embed(r);
    for (int l = 0; l < r->mc->num_hidden_layers; l++) {
        graph_block_begin(r->g, l);
        x = f->block(r, l, x);
        graph_block_end(r->g);
    }
    x = f->head(r, x);
    val w = model_param(r, "%s", f->head_weight(r->mc));
    if (r->task == TASK_LM) {
        val targets = graph_input(r->g, "targets", DT_I32, (int64_t)r->B * r->T, 1);
        graph_output(r->g, graph_head_ce(r->g, x, w, targets, r->chunk_rows, r->z_loss), "nll");
        return;
    }
    val rows = graph_input(r->g, "rows", DT_I32, r->n_logits, 1);
    graph_output(r->g, graph_linear(r->g, graph_embed(r->g, x, rows), w, VAL_NONE), "logits");
}

int64_t model_cache_bytes(const model_config *mc, int B, int Tmax, dtype dt) {
    return 2 * mc->num_hidden_layers * (int64_t)B * Tmax * mc->num_key_value_heads * mc->head_dim *
           (int64_t)dtype_bytes(dt);
}

int64_t model_embedding_params(const model_config *mc, const param_store *s) {
    int64_t n = 0;
    const char *head = mc->family->head_weight(mc);
    for (int i = 0; i < param_count(s); i++) {
        const param *p = param_at(s, i);
        if (p->table || strcmp(p->name, head) == 0) n += param_elems(p);
    }
    return n;
}
