/* The configs of the recipe's trainings. Each is written once: a user may change one and do its stage again. */
#include <string.h>

#include "app/recipe/recipe.h"
#include "base/json.h"

enum { PRETRAIN_STEPS = 1000, CONTEXT_TOK = 256 };

/* RUN/NAME in quotes. */
static const char *quoted(const recipe *r, const char *name) {
    return json_quoted(r->a, recipe_path(r, name));
}

static void put_head(const recipe *r, const char *what, const char *stage, strbuf *out) {
    strbuf_printf(
        out,
        "# %s, written by `athanor recipe %s`.\n"
        "# Change it and do the stage and all after it again: athanor recipe %s -o %s --from %s\n",
        what, r->class->name, r->class->name, r->run, stage);
}

static status write_config(const recipe *r, const char *name, strbuf *text, err *e) {
    status st = recipe_write_once(r, name, text->data, e);
    strbuf_free(text);
    return st;
}

status recipe_write_pretrain(const recipe *r, err *e) {
    strbuf out = {0};
    put_head(r, "A Llama of two million parameters on the text", "pretrain", &out);
    strbuf_printf(&out,
                  "run: %s\n"
                  "model: {model_type: llama, hidden_size: 192, num_hidden_layers: 4, "
                  "num_attention_heads: 6, num_key_value_heads: 2,\n"
                  "  intermediate_size: 512, vocab_size: auto, max_position_embeddings: %d, "
                  "tie_word_embeddings: true}\n"
                  "tokenizer: %s\n"
                  "data: {train: [{path: %s, epochs: 6}], valid: %s}\n",
                  quoted(r, "pretrain"), CONTEXT_TOK, quoted(r, "tok.json"),
                  quoted(r, "shards/train"), quoted(r, "shards/valid"));
    strbuf_printf(&out,
                  "train: {steps: %d, seq_len: 128, global_batch_size: 16, micro_batch_size: 16}\n"
                  "optim: {lr: 3.0e-3, betas: [0.9, 0.99], weight_decay: 0.1,\n"
                  "  schedule: {kind: cosine, warmup_steps: 40, min_lr: 1.0e-4}}\n"
                  "checkpoint: {every: 100, keep: 2}\n"
                  "eval: {every: 200, batches: 20}\n",
                  PRETRAIN_STEPS);
    return write_config(r, "configs/pretrain.yaml", &out, e);
}

/* What the two trainings on conversations have in common. */
static void put_source(const recipe *r, const char *run, const char *from, const char *train,
                       const char *valid, strbuf *out) {
    strbuf_printf(out,
                  "run: %s\n"
                  "model: {from: %s}\n"
                  "data:\n"
                  "  train: [{path: %s}]\n"
                  "  valid: %s\n"
                  "  template: chatml\n",
                  quoted(r, run), quoted(r, from), quoted(r, train), quoted(r, valid));
}

status recipe_write_teach(const recipe *r, err *e) {
    strbuf out = {0};
    put_head(r, "Conversations for the pretrained model: only answers are learned", "teach", &out);
    put_source(r, "teach", "pretrain", "tasks/chats.jsonl", "tasks/chats-heldout.jsonl", &out);
    strbuf_printf(
        &out,
        "  packing: bestfit\n"
        "train: {objective: sft, epochs: 2, seq_len: %d, global_batch_size: 8, "
        "micro_batch_size: 8}\n"
        "optim: {lr: 6.0e-4, weight_decay: 0.0, schedule: {kind: cosine, warmup_steps: 10, "
        "min_lr: 5.0e-5}}\n"
        "checkpoint: {every: 50, keep: 2}\n"
        "eval: {every: 50}\n",
        CONTEXT_TOK);
    return write_config(r, "configs/teach.yaml", &out, e);
}

status recipe_write_prefer(const recipe *r, err *e) {
    strbuf out = {0};
    put_head(r, "Pairs of answers for the taught model, which is also the reference (DPO)",
             "prefer", &out);
    put_source(r, "prefer", "teach", "tasks/pairs.jsonl", "tasks/pairs-heldout.jsonl", &out);
    strbuf_puts(&out, "  packing: none\n"
                      "train: {objective: dpo, beta: 0.1, epochs: 1, seq_len: 128, "
                      "global_batch_size: 8, micro_batch_size: 8}\n"
                      "optim: {lr: 1.0e-5, weight_decay: 0.0, schedule: {kind: cosine, "
                      "warmup_steps: 10, min_lr: 1.0e-6}}\n"
                      "checkpoint: {every: 50, keep: 2}\n"
                      "eval: {every: 50}\n");
    return write_config(r, "configs/prefer.yaml", &out, e);
}
