/* What each program loads (see where_runs.h). Reading order: where_runs_of. */
#include "interchange/where_runs.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "io/gguf/gguf_model.h"
#include "tok/tok_format.h"

where_basis where_basis_of(where_tool t) {
    static const where_basis known[] = {
        [WHERE_TRANSFORMERS] = {"transformers", true, "5.23.0"},
        [WHERE_LLAMA_CPP] = {"llama.cpp", true, "llama-cpp-python 0.3.36"},
        [WHERE_VLLM] = {"vLLM", false, "registry of models at 0002bff, January 2026"},
        [WHERE_OLLAMA] = {"Ollama", false, "converter at 01cf744, February 2026"}};
    return known[t];
}

ATH_PRINTF(3, 4)
static void set(where_answer *a, bool runs, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(a->why, sizeof a->why, fmt, args);
    va_end(args);
    a->runs = runs;
}

static void by_family(const model_config *mc, where_runs *w) {
    const char *type = mc->family->model_type, *arch = mc->family->gguf_arch;
    unsigned by = mc->family->loaded_by;
    bool ours = by & BY_TRANSFORMERS, vllm = by & BY_VLLM;
    if (ours)
        set(&w->tool[WHERE_TRANSFORMERS], true, "%s", "");
    else
        set(&w->tool[WHERE_TRANSFORMERS], false,
            "it has no class for model_type %s (the publishers' own code computes it)", type);
    if (arch)
        set(&w->tool[WHERE_LLAMA_CPP], true, "as a GGUF file");
    else
        set(&w->tool[WHERE_LLAMA_CPP], false, "no GGUF file is written of model_type %s", type);
    if (!vllm)
        set(&w->tool[WHERE_VLLM], false, "it has no class for %s", mc->family->architecture);
    else
        set(&w->tool[WHERE_VLLM], true, "%s",
            ours ? "" : "with the configuration code of the publishers");
    w->tool[WHERE_OLLAMA] = w->tool[WHERE_LLAMA_CPP];
    if (by & BY_OLLAMA) set(&w->tool[WHERE_OLLAMA], true, "as a folder or a GGUF file");
}

/* Ollama runs GGUF files by llama.cpp, and turns folders into such files. */
static void stop(where_runs *w, where_tool t, const char *why) {
    if (w->tool[t].runs) set(&w->tool[t], false, "%s", why);
    if (t == WHERE_LLAMA_CPP && w->tool[WHERE_OLLAMA].runs)
        set(&w->tool[WHERE_OLLAMA], false, "%s", why);
}

/* Options that a family's config.json can say, and vLLM does not compute. What llama.cpp cannot,
 * the writer of its files knows. */
static void by_options(const model_config *mc, where_runs *w) {
    const char *type = mc->family->model_type;
    bool scaled = mc->positions == POSITIONS_ROTARY && mc->rope.kind != ROPE_PLAIN;
    if (strcmp(type, "phi") == 0 && mc->qk_norm != QK_NORM_NONE)
        stop(w, WHERE_VLLM, "model.qk_norm is not computed for phi");
    if (strcmp(type, "gpt_neox") == 0 && scaled)
        stop(w, WHERE_VLLM, "model.rope_scaling is ignored for gpt_neox");
}

/* What no config.json of the family can say, nobody else computes; what matters only while training
 * stands in nobody's way, nor do modules, whose tensors others pass over. */
static void by_extensions(const model_config *mc, where_runs *w) {
    static const char *const training[] = {
        "init_scheme", "initializer_range",        "embd_pdrop",      "attn_pdrop",
        "resid_pdrop", "num_nextn_predict_layers", "mtp_loss_weight", "router_aux_loss_coef"};
    json_t *more = model_config_extensions(mc);
    for (int i = 0; i < ARRAY_LEN(training); i++) json_object_del(more, training[i]);
    const char *key = json_object_iter_key(json_object_iter(more));
    for (int t = 0; key && t < WHERE_TOOLS; t++) {
        char why[160];
        snprintf(why, sizeof why, "other tools' %.40s models have no %.40s%s",
                 mc->family->model_type, key,
                 json_object_size(more) > 1 ? ", nor some other keys" : "");
        stop(w, (where_tool)t, why);
    }
    json_decref(more);
}

/* For Qwen 2 AutoTokenizer takes that model's own class, whatever tokenizer_class says, and of tokenizer.json the
 * vocabulary alone (MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS in transformers 5). */
static void by_tokenizer(const model_config *mc, const tok *t, where_runs *w) {
    where_answer *a = &w->tool[WHERE_TRANSFORMERS];
    if (!t || !a->runs || strcmp(mc->family->model_type, "qwen2") != 0 || tok_cuts_as_qwen2(t))
        return;
    set(a, true,
        "its tokenizer by PreTrainedTokenizerFast: AutoTokenizer cuts text as Qwen 2's own does, "
        "into other ids");
}

/* Whether there can be a GGUF file of it, with this tokenizer. */
static void by_gguf_writer(const model_config *mc, const tok *t, where_runs *w) {
    if (!w->tool[WHERE_LLAMA_CPP].runs) return;
    arena *a = arena_new("where");
    param_store *s = param_store_new(a, DT_F32);
    err e = {0};
    model_declare(mc, s);
    gguf_model_source src = {.config = mc, .store = s, .tok = t};
    if (gguf_model_check(&src, &e) != ST_OK) stop(w, WHERE_LLAMA_CPP, e.message);
    arena_free(a);
}

where_runs where_runs_of(const model_config *mc, const tok *t) {
    where_runs w = {0};
    by_family(mc, &w);
    by_options(mc, &w);
    by_extensions(mc, &w);
    by_tokenizer(mc, t, &w);
    by_gguf_writer(mc, t, &w);
    return w;
}

bool where_runs_nowhere(const where_runs *w) {
    for (int t = 0; t < WHERE_TOOLS; t++)
        if (w->tool[t].runs) return false;
    return true;
}

void where_describe(where_tool t, const where_answer *a, strbuf *out) {
    where_basis b = where_basis_of(t);
    strbuf_puts(out, !a->runs ? "no" : b.compared ? "yes" : "listed");
    if (*a->why) strbuf_printf(out, ", %s", a->why);
    if (b.compared && !a->runs) return;
    strbuf_printf(out, b.compared ? " (compared with %s)" : " (its %s; not run here)", b.of);
}

void where_runs_describe(const where_runs *w, strbuf *out) {
    for (int t = 0; t < WHERE_TOOLS; t++) {
        strbuf_printf(out, "  %-13s ", where_basis_of((where_tool)t).program);
        where_describe((where_tool)t, &w->tool[t], out);
        strbuf_puts(out, "\n");
    }
}

json_t *where_runs_json(const where_runs *w) {
    json_t *o = json_object();
    for (int t = 0; t < WHERE_TOOLS; t++) {
        where_basis b = where_basis_of((where_tool)t);
        const where_answer *a = &w->tool[t];
        json_object_set_new(o, b.program,
                            json_pack("{s:b,s:o,s:s,s:s}", "runs", a->runs, "why",
                                      json_cstr(a->why), "basis",
                                      b.compared ? "compared" : "listed", "of", b.of));
    }
    return o;
}
