/* Ids to text: at once, or as a stream of them. */
#include <string.h>

#include "base/utf8.h"
#include "tok/internal.h"

/* ---- one id ---- */

/* The token of an id, number `at` of its list. */
static status find_token(const tok *t, int32_t id, int64_t at, const tok_token **k, err *e) {
    if (id >= 0 && id < t->n_token && t->token[id].text) {
        *k = &t->token[id];
        return ST_OK;
    }
    err_set(e, ST_USAGE, "id %d (number %lld) is not in the vocabulary", (int)id, (long long)at);
    return err_hint(e, "ids of this tokenizer are below %d", (int)t->n_token);
}

static status decode_id(const tok *t, dec_run *run, int32_t id, int64_t at, bool skip_special,
                        strbuf *out, err *e) {
    const tok_token *k = NULL;
    TRY(find_token(t, id, at, &k, e));
    if (skip_special && k->special) return ST_OK;
    if (run) return dec_run_token(run, k->shown, k->n_shown, out, e);
    strbuf_append(out, k->bytes, k->n_bytes);
    return ST_OK;
}

/* ---- at once ---- */

status tok_decode(const tok *t, const int32_t *ids, int64_t n, bool skip_special, strbuf *out,
                  err *e) {
    size_t before = out->len;
    dec_run *run = t->plain ? NULL : dec_run_new(t->dec, t->n_dec, DEC_ALONE);
    status st = ST_OK;
    for (int64_t i = 0; st == ST_OK && i < n; i++) {
        st = decode_id(t, run, ids[i], i, skip_special, out, e);
    }
    if (st == ST_OK && run) st = dec_run_end(run, out, e);
    dec_run_free(run);
    if (st != ST_OK) strbuf_truncate(out, before);
    return st;
}

/* ---- a stream ---- */

/* Plain tokens may end inside a character, what is printed may not. */
static status push_plain(tok_stream *s, int32_t id, strbuf *out, err *e) {
    size_t before = out->len;
    strbuf_append(out, s->held, (size_t)s->n_held);
    status st = decode_id(s->t, NULL, id, s->n_ids, s->skip_special, out, e);
    if (st == ST_OK) {
        s->n_held = utf8_open_tail(out->data + before, out->len - before);
        memcpy(s->held, out->data + out->len - s->n_held, (size_t)s->n_held);
    }
    strbuf_truncate(out, st == ST_OK ? out->len - (size_t)s->n_held : before);
    return st;
}

bool tok_has_text(const tok *t, const int32_t *ids, int64_t n, bool skip_special) {
    for (int64_t i = 0; i < n; i++) {
        bool known = ids[i] >= 0 && ids[i] < t->n_token && t->token[ids[i]].text;
        if (known && !(skip_special && t->token[ids[i]].special)) return true;
    }
    return false;
}

status tok_stream_push(tok_stream *s, int32_t id, strbuf *out, err *e) {
    if (!s->t->plain && !s->run)
        s->run = dec_run_new(s->t->dec, s->t->n_dec, s->behind ? DEC_BEHIND : DEC_ALONE);
    status st = s->run ? decode_id(s->t, s->run, id, s->n_ids, s->skip_special, out, e)
                       : push_plain(s, id, out, e);
    s->n_ids++;
    return st;
}

status tok_stream_flush(tok_stream *s, strbuf *out, err *e) {
    status st = s->run ? dec_run_end(s->run, out, e) : ST_OK;
    strbuf_append(out, s->held, (size_t)s->n_held);
    tok_stream_free(s);
    return st;
}

void tok_stream_free(tok_stream *s) {
    dec_run_free(s->run);
    *s = (tok_stream){.t = s->t, .skip_special = s->skip_special, .behind = s->behind};
}
