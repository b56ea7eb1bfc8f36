/* libFuzzer target: a SentencePiece .model from outside bytes. What is read can be written, and
 * reads back as the same. */
#include "tok_load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static status load(tok_input *in, tok **out) {
    spm_model m, again;
    strbuf bytes = {0};
    TRY(spm_read(&m, in->mem, in->bytes, in->len, in->path, in->e));
    spm_write(&m, &bytes);
    status st = spm_read(&again, in->mem, bytes.data, bytes.len, "written", in->e);
    CHECK(st == ST_OK && again.n == m.n && again.unk == m.unk && again.kind == m.kind, "%s",
          in->e->message);
    strbuf_free(&bytes);
    return sentencepiece_load(in, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    sentencepiece_looks((const char *)data, size);
    fuzz_load(data, size, NULL, load);
    return 0;
}
