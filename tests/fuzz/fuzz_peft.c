/* libFuzzer target: any bytes as adapter_config.json. What is accepted can be used, and what is
 * written from it is accepted again.
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined ... fuzz_peft.c; ./a.out CORPUS */
#include <math.h>

#include "io/hf/peft.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static model_config small(arena *a) {
    err e;
    model_config mc;
    json_t *o = json_pack("{s:s,s:i,s:i,s:i,s:i,s:i}", "model_type", "llama", "vocab_size", 16,
                          "hidden_size", 8, "num_hidden_layers", 1, "num_attention_heads", 2,
                          "intermediate_size", 8);
    CHECK(model_config_read(a, o, 0, &mc, &e) == ST_OK, "%s", e.message);
    json_decref(o);
    return mc;
}

static void use(const peft_adapter *p, arena *a) {
    err e;
    const model_adapters *ad = &p->adapters;
    CHECK(ad->rank > 0 && isfinite(model_adapters_scale(ad)), "rank %d", ad->rank);
    model_config mc = small(a);
    param_store *s = param_store_new(a, DT_F32);
    model_declare(&mc, s);
    json_t *o = peft_config(ad, s, &mc, p->base ? p->base : "base");
    peft_adapter again = {.a = a, .dir = "again"};
    CHECK(peft_take_config(&again, o, &e) == ST_OK, "%s", e.message);
    CHECK(again.adapters.rank == ad->rank && again.adapters.rslora == ad->rslora, "it changed");
    json_decref(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    err e = {0};
    json_t *o = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    if (!o) return 0;
    arena *a = arena_new("fuzz");
    peft_adapter p = {.a = a, .dir = "fuzz"};
    if (peft_take_config(&p, o, &e) == ST_OK)
        use(&p, a);
    else
        CHECK(e.message[0], "refused without a word");
    json_decref(o);
    arena_free(a);
    return 0;
}
