/* See lora.h. */
#include "train/lora.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "io/checkpoint/checkpoint.h"
#include "io/gguf/gguf.h"
#include "io/hf/hf_part.h"
#include "train/objective/objective.h"

/* ---- what is asked for ---- */

/* What the adapter says is not changed by a key that says otherwise. */
static status check_given(const config *c, const char *key, bool same, err *e) {
    if (same || strcmp(config_where(c, key), "default") == 0) return ST_OK;
    config_error(c, e, key, "%s is given, but the adapter of lora.from says that itself", key);
    return err_hint(e, "leave %s out", key);
}

static status open_from(lora *l, arena *a, const config *c, err *e) {
    char *dir;
    TRY(checkpoint_resolve(a, c->lora.from, &dir, e));
    if (!peft_is_folder(dir)) {
        config_error(c, e, "lora.from", "%s holds no adapter", dir);
        return err_hint(e, "a whole model is given by model.from");
    }
    TRY(peft_open(&l->from, dir, e));
    l->adapters = l->from.adapters;
    l->adapters.dropout = (float)c->lora.dropout;
    if (!c->lora.rank) return ST_OK; /* then the other keys mean nothing, and a note says so */
    TRY(check_given(c, "lora.alpha", c->lora.alpha == l->adapters.alpha, e));
    TRY(check_given(c, "lora.rslora", c->lora.rslora == l->adapters.rslora, e));
    TRY(check_given(c, "lora.targets", false, e));
    if (c->lora.rank == l->adapters.rank) return ST_OK;
    config_error(c, e, "lora.rank", "lora.rank is %ld, the adapter of lora.from has rank %d",
                 (long)c->lora.rank, l->adapters.rank);
    return err_hint(e, "leave lora.rank out");
}

/* "all-linear" becomes no targets at all, and so an empty list would be that. */
static status take_targets(model_adapters *ad, const config *c, err *e) {
    if (c->lora.targets.n == 0) {
        config_error(c, e, "lora.targets", "lora.targets names no matrix");
        return err_hint(e, "leave it out for all matrices of the layers");
    }
    ad->targets = c->lora.targets.items;
    ad->n_targets = c->lora.targets.n;
    for (int i = 0; i < c->lora.targets.n; i++)
        if (strcmp(c->lora.targets.items[i], "all-linear") == 0) ad->n_targets = 0;
    return ST_OK;
}

static void train_embeddings(model_adapters *ad, bool both) {
    ad->embedding = ad->head = both;
}

/* Random numbers of dropout are those of whole rows and of all layers before. */
static status check_dropout(double dropout, const config *c, err *e) {
    if (dropout <= 0) return ST_OK;
    if (c->parallel.tp == 1 && c->parallel.pp == 1 && c->parallel.virtual == 1) return ST_OK;
    config_error(c, e, "lora.dropout", "lora.dropout does not run with %s",
                 c->parallel.tp > 1   ? "parallel.tp"
                 : c->parallel.pp > 1 ? "parallel.pp"
                                      : "parallel.virtual");
    return err_hint(e, "lora.dropout=0");
}

/* The blocks of a file are decoded to fp32, by matrices as a whole. */
static status open_gguf(lora *l, config *c, const char *from, err *e) {
    int *compute = &c->train.precision.compute;
    if (!gguf_is_file(from)) return ST_OK;
    if (*compute == CONFIG_PRECISION_AUTO) *compute = CONFIG_PRECISION_FP32;
    if (*compute != CONFIG_PRECISION_FP32) {
        config_error(c, e, "train.precision.compute",
                     "a base model in a GGUF file is read as fp32");
        return err_hint(e, "leave train.precision out");
    }
    if (c->parallel.tp > 1 || c->parallel.pp > 1) {
        const char *path = c->parallel.tp > 1 ? "parallel.tp" : "parallel.pp";
        config_error(c, e, path, "a base model in a GGUF file is not split by %s", path);
        return err_hint(e, "%s=1, or a folder of it: athanor import %s -o FOLDER", path, from);
    }
    if (l->adapters.embedding || l->adapters.head) {
        config_error(c, e, "lora.train_embeddings", "the embedding of a GGUF file is not trained");
        return err_hint(e, "use a folder of it: athanor import %s -o FOLDER", from);
    }
    if (objective_of(c)->reference && !c->train.reference) {
        config_error(c, e, "train.reference", "a GGUF file is not read as the reference of %s",
                     objective_of(c)->name);
        return err_hint(e, "train.reference=FOLDER, made by athanor import %s -o FOLDER", from);
    }
    if (json_object_size(c->model) > 1) {
        config_error(c, e, "model", "a base model in a GGUF file is as it is: no key changes it");
        return err_hint(e, "leave all keys but model.from out");
    }
    return gguf_model_open(&l->gguf, from, e);
}

static status refuse_nf4(const config *c, const char *key, const char *what, const char *hint,
                         err *e) {
    config_error(c, e, key, "lora.base_dtype=nf4: %s", what);
    return err_hint(e, "%s, or lora.base_dtype=stored", hint);
}

/* Products with blocks of 4 bits are of fp32, with matrices as a whole. */
static status open_nf4(lora *l, config *c, const char *from, err *e) {
    int *compute = &c->train.precision.compute;
    if (c->lora.base_dtype != CONFIG_BASE_NF4) return ST_OK;
    if (gguf_is_file(from))
        return refuse_nf4(c, "lora.base_dtype", "a GGUF file is read in blocks of its own",
                          "a folder as model.from", e);
    if (*compute == CONFIG_PRECISION_AUTO) *compute = CONFIG_PRECISION_FP32;
    if (*compute != CONFIG_PRECISION_FP32)
        return refuse_nf4(c, "train.precision.compute", "activations beside 4 bits are fp32",
                          "leave train.precision out", e);
    if (c->parallel.tp > 1)
        return refuse_nf4(c, "parallel.tp", "blocks of 4 bits are not split by parallel.tp",
                          "parallel.tp=1", e);
    if (objective_of(c)->reference && !c->train.reference)
        return refuse_nf4(c, "train.reference",
                          "the reference would be the base model in full, another than in 4 bits",
                          "train.reference=FOLDER", e);
    l->nf4 = true;
    return ST_OK;
}

status lora_open(lora *l, arena *a, config *c, err *e) {
    const char *from = json_string_value(json_object_get(c->model, "from"));
    *l = (lora){0};
    if (!config_adapts(c)) {
        if (c->lora.base_dtype == CONFIG_BASE_STORED) return ST_OK;
        return refuse_nf4(c, "lora.base_dtype",
                          "4 bits are of frozen matrices, and without adapters all are trained",
                          "lora.rank=16", e);
    }
    if (!from) {
        config_error(c, e, config_adapts(c),
                     "adapters are trained beside a model, and the config names none");
        return err_hint(e, "add model.from=FOLDER");
    }
    char *absolute = realpath(from, NULL);
    l->base = arena_strdup(a, absolute ? absolute : from);
    free(absolute);
    if (c->lora.from)
        TRY(open_from(l, a, c, e));
    else {
        l->adapters = (model_adapters){.rank = (int)c->lora.rank,
                                       .alpha = c->lora.alpha,
                                       .rslora = c->lora.rslora,
                                       .dropout = (float)c->lora.dropout};
        TRY(take_targets(&l->adapters, c, e));
        train_embeddings(&l->adapters, c->lora.train_embeddings == CONFIG_TRAIN_ALWAYS);
    }
    TRY(open_nf4(l, c, from, e));
    TRY(open_gguf(l, c, from, e));
    return check_dropout((double)l->adapters.dropout, c, e);
}

/* An adapter has all rows of the embedding, or none. */
static status refuse_rows(const lora *l, const config *c, const model_config *m, int32_t added,
                          err *e) {
    if (!l->from.a) {
        config_error(c, e, "lora.train_embeddings",
                     "the tokenizer has %d tokens more than the base model, and an adapter keeps "
                     "their rows only if it trains the embedding",
                     added);
        return err_hint(e, "lora.train_embeddings=auto");
    }
    long rows = l->from.vocab ? (long)l->from.vocab : (long)m->from_vocab;
    config_error(c, e, "tokenizer",
                 "the adapter of lora.from is of %ld tokens, and the tokenizer has %ld", rows,
                 (long)m->vocab_size);
    return err_hint(e,
                    "merge it: athanor export %s -o FOLDER --to hf, and train a new adapter with "
                    "model.from=FOLDER",
                    c->lora.from);
}

status lora_learn_tokens(lora *l, const config *c, const model_config *m, int32_t added, err *e) {
    bool new_here = l->adapters.rank && !l->from.a && !l->gguf.a;
    if (new_here && c->lora.train_embeddings == CONFIG_TRAIN_AUTO && added > 0)
        train_embeddings(&l->adapters, true);
    if (!l->adapters.rank || l->gguf.a || added == 0) return ST_OK;
    int64_t rows = !l->adapters.embedding ? m->from_vocab
                   : l->from.a            ? l->from.vocab
                                          : m->vocab_size;
    return m->vocab_size > rows ? refuse_rows(l, c, m, added, e) : ST_OK;
}

/* ---- memory and weights ---- */

status lora_check_axes(const config *c, err *e) {
    return check_dropout(config_adapts(c) ? c->lora.dropout : 0, c, e);
}

status lora_plan(lora *l, const dev *d, const model_config *mc, plan_spec *specs, int n, err *e) {
    if (!l->adapters.rank) return ST_OK;
    bool gguf = l->gguf.a != NULL, planned_gpu = dev_is_meta(d) && dev_get_kind(d) == DEV_CUDA;
    bool reaches = dev_host_enters(d) && !planned_gpu;
    if (gguf && !reaches) {
        err_at(e, ST_USAGE, "device", "a GPU does not read a base model in a GGUF file yet");
        return err_hint(e, "device=cpu, or a folder of it: athanor import FILE.gguf -o FOLDER");
    }
    if (!gguf && !l->folder.a) TRY(hf_model_open(&l->folder, mc->from, mc, e));
    l->order = gguf ? HF_FILES : l->folder.order;
    for (int i = 0; i < n; i++) {
        specs[i].adapters = l->adapters;
        specs[i].nf4_base = l->nf4;
        if (!reaches) continue;
        l->folder.fp8_stays = specs[i].compute == DT_F32;
        specs[i].locate = gguf ? gguf_model_locate : hf_model_locate;
        specs[i].locate_ctx = gguf ? (void *)&l->gguf : &l->folder;
        specs[i].file = gguf ? l->gguf.base : l->folder.base;
    }
    return ST_OK;
}

status lora_load_base(const lora *l, const param_store *s, err *e) {
    if (l->gguf.a) return gguf_model_load_rest(&l->gguf, s, e);
    if (l->nf4) TRY(hf_model_quantise(&l->folder, s, e));
    return hf_model_load_rest(&l->folder, s, e);
}

status lora_make_weights(const lora *l, param_store *s, uint64_t seed, err *e) {
    param_init_all(s, seed);
    TRY(lora_load_base(l, s, e));
    return l->from.a ? peft_load(&l->from, s, l->order, e) : ST_OK;
}

status lora_resume(const lora *l, arena *a, const param_store *s, const char *dir, err *e) {
    st_reader *r;
    TRY(lora_load_base(l, s, e));
    TRY(st_open(&r, path_join(a, dir, PEFT_WEIGHTS), e));
    held_array masters = held_masters(s);
    status st = hf_read_array(&masters, r, PEFT_PREFIX, l->order, e);
    st_close(r);
    if (st == ST_OK) param_refresh_work(s);
    return st;
}

void lora_close(lora *l) {
    if (l->from.a) peft_close(&l->from);
    if (l->folder.a) hf_model_close(&l->folder);
    if (l->gguf.a) gguf_model_close(&l->gguf);
}
