/* libFuzzer target: a file of conversations from outside bytes. Its records are read in each form; what can be
 * read is rendered and encoded, with its audit. Bytes are a tokenizer's tokens, the template is ChatML. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "data/chat/chat.h"
#include "data/chat/records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static const char *const forms[] = {"messages",    "sharegpt",   "alpaca",
                                    "translation", "preference", "kto"};
static char path[] = "/tmp/athanor-fuzz-chat-XXXXXX.jsonl";
static chat_encoder encoder;

static void remove_file(void) {
    unlink(path);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static const char chatml[] =
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    static const char *const special[] = {"<|im_start|>", "<|im_end|>"};
    static chat_template *template;
    static tok *bytes;
    (void)argc;
    (void)argv;
    tok_train_options opt = {.kind = TOK_BYTE, .special = special, .n_special = 2};
    tok_trainer *tr;
    err e;
    int fd = mkstemps(path, 6);
    CHECK(fd >= 0, "no file");
    close(fd);
    atexit(remove_file);
    CHECK(tok_trainer_new(&tr, &opt, &e) == ST_OK && tok_trainer_add(tr, "a", 1, &e) == ST_OK &&
              tok_trainer_finish(tr, &bytes, &e) == ST_OK,
          "%s", e.message);
    tok_trainer_free(tr);
    CHECK(chat_template_parse(&template, chatml, sizeof chatml - 1, NULL, &e) == ST_OK, "%s",
          e.message);
    encoder = (chat_encoder){.tok = bytes, .template = template};
    return 0;
}

static void encode(chat_audit *a, const chat_sample *s, uint32_t allowed) {
    chat_document d;
    err e = {0};
    encoder.allowed = allowed;
    status st = chat_encode(&encoder, s, s->messages, json_array_size(s->messages), &d, &e);
    CHECK(st == ST_OK || e.message[0], "an error without a message");
    if (st != ST_OK) return;
    for (int64_t i = 0; i < d.ids.n; i++) CHECK(d.marks[i] < MARK_END, "mark %d", d.marks[i]);
    chat_audit_sample(a, s, path, "x:1", &d, 1);
    chat_document_free(&d);
}

static void use(chat_audit *a, const json_t *record) {
    chat_audit_record(a, record, "x:1");
    for (int f = 0; f < ARRAY_LEN(forms); f++) {
        chat_sample s;
        err e = {0};
        if (chat_form_read(chat_form_find(forms[f]), record, &s, &e) != ST_OK) {
            CHECK(e.message[0], "an error without a message");
            continue;
        }
        size_t n = json_array_size(s.messages);
        CHECK(n > 0 && s.n_prompt <= n, "%zu of %zu messages are the prompt", s.n_prompt, n);
        encode(a, &s, 0);
        encode(a, &s, UINT32_MAX);
        chat_sample_free(&s);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *inputs[] = {path};
    chat_audit *a = chat_audit_new();
    records *r;
    err e = {0};
    FILE *f = fopen(path, "wb");
    CHECK(f, "no file");
    fwrite(data, 1, size, f);
    fclose(f);
    CHECK(records_open(&r, inputs, 1, &e) == ST_OK, "%s", e.message);
    for (;;) {
        chat_record one;
        if (records_next(r, &one, &e) != ST_OK || !one.value) break;
        use(a, one.value);
        json_decref(one.value);
    }
    (void)!chat_audit_check(a, 0, &e);
    json_decref(chat_audit_json(a));
    chat_audit_free(a);
    records_close(r);
    return 0;
}
