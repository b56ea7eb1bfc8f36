/* Opens a model that is named on the command line, and runs it: for `generate`, `chat`, `bench
 * generate`, and for an export, which compares the model that it has written with the source.
 *
 * The calls, in this order:
 *
 *   open_model_read        opens the files; config and tokenizer are known from here on
 *   open_model_set_formats if wanted: in which formats it computes, and the KV cache is
 *                          (or open_model_set_cache, open_model_set_precision alone)
 *   open_model_set_scorer  if wanted: for evaluation
 *   open_model_set_engine  if wanted: to serve many texts at a time
 *   open_model_load        plans and reserves memory, reads weights, makes the programs
 *   open_model_generator   text by means of a KV cache                 }
 *   open_model_scorer      log-likelihoods of continuations            } any number of times
 *   open_model_engine      many texts at a time                         }
 *   open_model_logits      logits of all positions of a sequence       }
 *   open_model_scores      what a head of labels says of a text        }
 *   open_model_close       always, also after an error
 *
 * open_model_borrow takes the place of open_model_read and open_model_load for a model that another
 * has planned and loaded: a run that trains evaluates so.
 *
 * Two forms of a model are opened: a Hugging Face folder, and a GGUF file. Exactly one of the
 * members `folder` and `gguf` is set after open_model_read, and it holds the mapped files. An
 * adapter (io/hf/peft.h) is opened with its base model, which is in one of these forms: the
 * programs add what the adapter adds to each product, as in training, so its log-probabilities are
 * those of training.
 *
 * Most weights are not copied. The programs read a matrix in the mapped file, in its format there,
 * if they can compute with it as it is (hf_weights.h and gguf_model.h say when). All others, mainly
 * norms and biases, are read into the plan's memory as fp32. Activations and sums are fp32, unless
 * open_model_set_precision says otherwise: then activations and matrices are in 16 bits as in
 * training, and sums in fp32. */
#ifndef INTERCHANGE_OPEN_MODEL_H
#define INTERCHANGE_OPEN_MODEL_H

#include "infer/generate.h"
#include "infer/settings.h"
#include "io/gguf/gguf_model.h"
#include "io/hf/hf_model.h"
#include "io/hf/peft.h"
#include "plan/plan.h"

/* The format of keys and values in the KV cache. At long contexts a token reads more of the cache
 * than of the weights, and f16 is half of f32.
 *
 * CACHE_AUTO is f16 if the file has weights in blocks of 8 bits or fewer (base/quant.h): their own
 * rounding is a hundred times that of f16. For all other models it is as activations are: generation then gives
 * the logits of one forward pass over the whole sequence. */
typedef enum cache_format { CACHE_AUTO, CACHE_F32, CACHE_F16 } cache_format;

typedef struct open_model {
    arena *a;
    dev *dev;
    /* after open_model_read */
    char *dir;            /* the Hugging Face folder, or that of the adapter; NULL: a GGUF file */
    peft_adapter adapter; /* dir NULL: it is none */
    const char *base_dir; /* of an adapter: the folder or GGUF file of its base model */
    hf_model *folder;     /* its weights; NULL: it is a GGUF file */
    gguf_model *gguf;     /* the GGUF file; NULL: it is a folder */
    model_config config; /* also says by which names and in which order of rows the files have it */
    tok *tok;            /* NULL: the model has no tokenizer, and works on ids alone */
    tok_ids end;         /* ids that end a text, if it is a GGUF file */
    const int32_t *eos;  /* what checkpoints have as eos_token, of a run; NULL: the tokenizer's */
    int source_tok;      /* what open_model_set_source was told */
    cache_format cache;  /* what open_model_set_cache was asked for */
    scorer_size score;   /* what open_model_set_scorer was asked for; tok 0: nothing */
    engine_size serve;   /* what open_model_set_engine was asked for; rows 0: nothing */
    dtype compute; /* of activations and matrices: DT_F32, or as open_model_set_precision says */
    bool exact; /* set before loading: activations are never rounded (plan_spec.exact_products) */
    bool as_trained; /* norms and biases are those that training has: of state/, in fp32 */
    /* after open_model_load */
    bool is_borrowed; /* plan, tokenizer and device are another's */
    void (*replay)(void *ctx, const prog *p, const op_run *run); /* NULL: prog_replay */
    void *replay_ctx;
    plan *plan;           /* programs, and the memory they run in */
    generator_pass whole; /* the program of open_model_logits; found at its first call */
    dev_room logits;      /* a copy of its result, if the host cannot read the device's memory */
} open_model;

/* Opens what `path` names: a Hugging Face folder, a run folder (its newest good checkpoint is such
 * a folder), a GGUF file, or an adapter. threads: of the CPU; 0: all cores. */
status open_model_read(open_model *m, const char *path, int threads, err *e) ATH_MUST_USE;
/* The same; base: the base model of an adapter, whatever the adapter says. ST_USAGE: `path` is no
 * adapter. NULL: what the adapter says. device: as --device says (dev_find_kind). */
status open_model_read_on(open_model *m, const char *path, const char *base, const char *device,
                          int threads, err *e) ATH_MUST_USE;
/* name: "auto", "f32" or "f16"; NULL is "auto". ST_USAGE: any other. */
status open_model_set_cache(open_model *m, const char *name, err *e) ATH_MUST_USE;
/* In which format the model computes. "fp32", "bf16", "fp16"; NULL or "auto": as the field does, in
 * that of its weights:
 *
 *   a checkpoint of a run      that of the run, so that it scores as the run itself does
 *   weights in bf16            bf16, if this machine multiplies bf16 faster than fp32 (op/machine.h)
 *   all others                 fp32
 *
 * ST_USAGE: there is no such format, or a GGUF file is to compute in 16 bits. */
status open_model_set_precision(open_model *m, const char *name, err *e) ATH_MUST_USE;
/* Both for generation: the options --cache and --precision, NULL where they were not given. A cache of f32 or f16
 * is one of programs of fp32: where it was asked for, "auto" is fp32. ST_USAGE: such a cache with 16 bits. */
status open_model_set_formats(open_model *m, const char *cache, const char *precision,
                              err *e) ATH_MUST_USE;
/* "fp32", "bf16", "fp16". */
const char *open_model_precision(dtype compute);
/* The model is to score requests of up to `longest` tokens. cache_bytes: of memory for their keys
 * and values, about; 0: a quarter of what the machine has free, at most 1 GiB; of a borrowed model
 * 256 MiB on every machine. */
void open_model_set_scorer(open_model *m, int64_t longest, int64_t cache_bytes);
/* After open_model_set_scorer: its scorer is also to write up to `texts` texts at a time (writer.h).
 */
void open_model_set_writer(open_model *m, int64_t texts);
/* In place of both: for beam search over texts of up to `longest` tokens. */
void open_model_set_beams(open_model *m, int64_t longest, int beams);
/* The model is to serve up to `seqs` texts of up to `longest` tokens at a time, with a cache of about
 * cache_bytes. After open_model_set_cache and open_model_set_precision. */
void open_model_set_engine(open_model *m, int longest, int seqs, int64_t cache_bytes);
/* Whether a path is taken for a GGUF file: by its first bytes, or by a name that ends with .gguf.
 * So the error for a damaged file names the right format. */
bool open_model_is_gguf(const char *path);

/* Makes the model ready to run. cache_tok: the longest sequence, prompt and answer together, in
 * tokens; 0: no generation. logits_T: the length of sequences for open_model_logits; 0: none.
 * ST_MEMORY: it does not fit. */
status open_model_load(open_model *m, int cache_tok, int logits_T, err *e) ATH_MUST_USE;
/* Before that, of a model with an encoder: the longest source, in tokens, where that is not cache_tok. */
void open_model_set_source(open_model *m, int source_tok);
/* A model whose plan and weights are another's; open_model_load has nothing to do then. p NULL: there
 * is no plan yet, and it is asked what it needs (open_model.score). replay: who runs the programs. */
void open_model_borrow(open_model *m, const model_config *config, tok *t, dtype compute, plan *p,
                       void (*replay)(void *ctx, const prog *p, const op_run *run), void *ctx);
/* What open_model_load plans; for `athanor plan`, which loads nothing. */
plan_spec open_model_spec(const open_model *m, int cache_tok, int logits_T);

/* The folder with the tokenizer's files: an adapter's own, or its base model's. NULL: a GGUF
 * file. */
const char *open_model_text_dir(const open_model *m);
/* What the files say about generation (temperature, ids that end a text, ...): those of a folder's
 * generation_config.json, of the GGUF file, and of the tokenizer. Freed with
 * generation_settings_free. */
status open_model_settings(const open_model *m, generation_settings *s, err *e) ATH_MUST_USE;
/* A generator with an empty cache. One at a time: all share the cache of the model. Freed with
 * generator_free. */
generator open_model_generator(const open_model *m);
/* A scorer with an empty cache, if one was asked for; it shares its cache with the generator. Freed
 * with scorer_free. */
scorer *open_model_scorer(const open_model *m);
/* An engine with an empty cache, if one was asked for. Freed with engine_free. */
engine *open_model_engine(const open_model *m);
/* Logits [n,V], fp32, of ids[0..n) by one forward pass without a cache; n must be the logits_T that
 * was loaded. A model with an encoder reads them there, and in its decoder shifted right. They stay until the next
 * call. */
const float *open_model_logits(open_model *m, const int32_t *ids, int n);
/* What a head of labels says of a text of n ids, [num_labels]; a text may have any length up to the logits_T that was loaded. It
 * looks at the last id that is not pad_token_id. They stay until the next call. */
const float *open_model_scores(open_model *m, const int32_t *ids, int n);
void open_model_close(open_model *m);

#endif
