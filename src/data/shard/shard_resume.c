/* Shard writers that go on: with a new folder, with a finished set (append), or where a writer
 * stood at a sync.
 *
 * The state of a sync is the manifest of the closed shards and, under "open", how far the
 * unfinished one has come. It may have been stored for long: it is checked like a manifest, and the
 * files against it, before anything is changed. */
#include "data/shard/shard_writer.h"

#include "base/file_fault.h"
#include "base/json.h"

#include <fcntl.h>

/* The shards that are there already must be whole before others are put behind them. */
static status check_closed(shards *s, err *e) {
    shards_use_files(s, NULL);
    for (int i = 0; i < s->n_shards; i++) TRY(own_check_shard(s, i, e));
    return ST_OK;
}

static bool same_chat(const shard_chat *a, const shard_chat *b) {
    return a->marks == b->marks && a->labels == b->labels && a->sequences == b->sequences &&
           a->template_hash == b->template_hash && a->variables_hash == b->variables_hash;
}

static const char *chat_difference(const shard_chat *have, const shard_chat *want) {
    if (have->marks != want->marks) return have->marks ? "conversations" : "texts";
    if (have->labels != want->labels || have->sequences != want->sequences)
        return "samples of another kind";
    return "conversations of another chat template";
}

static status open_existing(shards **out, const char *dir, const shard_writer_options *opt,
                            err *e) {
    TRY(own_open(out, dir, 0, e));
    shards *s = *out;
    TRY(shards_check_tokenizer(s, opt->tok_hash, e));
    const char *what = NULL;
    if (s->vocab_size != opt->vocab_size) what = "another vocabulary";
    if (s->eos != opt->eos) what = "another end-of-text token";
    if (s->has_ids != opt->ids) what = s->has_ids ? "ids of documents" : "no ids of documents";
    if (s->has_scores != opt->scores) what = s->has_scores ? "scores" : "no scores";
    if (!same_chat(&s->chat, &opt->chat)) what = chat_difference(&s->chat, &opt->chat);
    if (!what) return check_closed(s, e);
    err_at(e, ST_USAGE, dir, "%s cannot be appended to: it has %s", dir, what);
    return err_hint(e, "append with the options that the set was built with");
}

status shard_writer_open(shard_writer **out, const char *dir, const shard_writer_options *opt,
                         err *e) {
    *out = NULL;
    CHECK(opt->vocab_size > 0 && opt->eos < opt->vocab_size, "vocab_size %d, eos %d",
          opt->vocab_size, opt->eos);
    CHECK(!opt->chat.marks || (opt->eos < 0 && opt->chat.sequences > 0), "a template ends texts");
    TRY(file_make_dirs(dir, e));
    shards *s = NULL;
    status st;
    if (opt->append) {
        st = open_existing(&s, dir, opt, e);
        if (st == ST_OK) st = writer_remove_from(dir, s->n_shards, e);
    } else {
        st = shards_remove(dir, e);
        s = writer_new_set(dir, opt);
    }
    if (st == ST_OK)
        *out = writer_new(s, opt);
    else
        shards_close(s);
    return st;
}

/* ---- stopping ---- */

static const char *const HASH_KEYS[SHARD_KINDS] = {"xxh3", "index_xxh3", "ids_xxh3", "marks_xxh3"};

static void subtract(shard_totals *t, const shard_totals *part) {
    t->tokens -= part->tokens;
    t->documents -= part->documents;
    t->text_bytes -= part->text_bytes;
}

/* The manifest of the closed shards alone. */
static json_t *closed_to_json(const shard_writer *w) {
    shards closed = *w->set;
    if (w->open) {
        closed.n_shards--;
        subtract(&closed.totals, &w->set->shard[closed.n_shards].totals);
    }
    return manifest_to_json(&closed);
}

static status open_to_json(shard_writer *w, json_t **out, err *e) {
    const shard *sh = &w->set->shard[w->set->n_shards - 1];
    json_t *o = json_object();
    *out = o;
    manifest_put_totals(o, &sh->totals);
    json_object_set_new(o, "id_bytes", json_integer((json_int_t)sh->id_bytes));
    json_object_set_new(o, "pending", json_integer((json_int_t)w->pending));
    for (shard_kind k = 0; k < SHARD_KINDS; k++) {
        uint64_t hash;
        if (!shard_has_kind(w->set, k)) continue;
        TRY(shard_out_sync(&w->out[k], &hash, e));
        json_object_set_new(o, HASH_KEYS[k], json_hash(hash));
    }
    return ST_OK;
}

status shard_writer_sync(shard_writer *w, json_t *state, err *e) {
    json_t *open = NULL;
    status st = w->open ? open_to_json(w, &open, e) : ST_OK;
    if (st == ST_OK) st = file_sync_dir(w->set->dir, e);
    if (st != ST_OK) {
        json_decref(open);
        return st;
    }
    json_t *closed = closed_to_json(w);
    json_object_update(state, closed);
    json_decref(closed);
    if (open) json_object_set_new(state, "open", open);
    w->synced = true;
    return ST_OK;
}

/* ---- going on ---- */

static status bad_state(const char *dir, const char *what, err *e) {
    err_at(e, ST_FORMAT, dir, "cannot go on with the build in %s: its saved state %s", dir, what);
    return err_hint(e, "begin the build anew");
}

static bool fits_options(const shards *s, const shard_writer_options *opt) {
    return s->tok_hash == opt->tok_hash && s->vocab_size == opt->vocab_size && s->eos == opt->eos &&
           s->has_ids == opt->ids && s->has_scores == opt->scores &&
           same_chat(&s->chat, &opt->chat) && s->width_bytes == (opt->vocab_size <= 65536 ? 2 : 4);
}

/* Puts the unfinished shard behind the closed ones. */
static bool add_open(shard_writer *w, const json_t *open, uint64_t hash[SHARD_KINDS]) {
    shards *s = w->set;
    shard_totals t;
    uint64_t id_bytes;
    if (!manifest_get_count(open, "tokens", SHARD_MAX_TOKENS - s->totals.tokens, &t.tokens) ||
        !manifest_get_count(open, "documents", t.tokens, &t.documents) ||
        !manifest_get_count(open, "text_bytes", SHARD_MAX_TEXT_BYTES - s->totals.text_bytes,
                            &t.text_bytes) ||
        !manifest_get_count(open, "pending", SHARD_MAX_TOKENS - s->totals.tokens - t.tokens,
                            &w->pending) ||
        !manifest_get_count(open, "id_bytes", SHARD_MAX_TEXT_BYTES, &id_bytes))
        return false;
    for (shard_kind k = 0; k < SHARD_KINDS; k++)
        if (shard_has_kind(s, k) && !manifest_get_hash(open, HASH_KEYS[k], &hash[k])) return false;
    char name[32];
    shard_file_name(name, s->n_shards, SHARD_TOKENS);
    shard sh = {.file = xstrdup(name),
                .totals = t,
                .first_tok = s->totals.tokens,
                .first_doc = s->totals.documents,
                .id_bytes = id_bytes};
    VEC_PUSH(s->shard, s->n_shards, w->shard_cap, sh);
    s->totals.tokens += t.tokens;
    s->totals.documents += t.documents;
    s->totals.text_bytes += t.text_bytes;
    return true;
}

/* The hashes prove that the files hold what was written. */
static status reopen(shard_writer *w, const uint64_t hash[SHARD_KINDS], err *e) {
    char path[SHARD_PATH_BYTES];
    w->open = true;
    for (shard_kind k = 0; k < SHARD_KINDS; k++) {
        if (!shard_has_kind(w->set, k)) continue;
        shard_path(w->set, w->set->n_shards - 1, k, path);
        TRY(shard_out_reopen(&w->out[k], path, shard_header_bytes(k), writer_body_bytes(w, k),
                             hash[k], e));
    }
    return ST_OK;
}

/* A manifest that names the unfinished shard was written after the sync, and will not be true of
 * the files any more; that of the set that is appended to stays. */
static status drop_manifest(const shard_writer *w, err *e) {
    shards *finished = NULL;
    const char *dir = w->set->dir, *path = path_join(w->scratch, dir, "manifest.json");
    bool newer =
        own_open(&finished, dir, 0, NULL) == ST_OK && finished->n_shards > w->set->n_shards;
    shards_close(finished);
    if (newer && file_sys_unlinkat(AT_FDCWD, path, 0) != 0)
        return err_errno(e, path, "cannot remove %s", path);
    return newer ? file_sync_dir(dir, e) : ST_OK;
}

static status go_on(shard_writer *w, const json_t *state, err *e) {
    uint64_t hash[SHARD_KINDS] = {0};
    const json_t *open = json_object_get(state, "open");
    TRY(check_closed(w->set, e));
    TRY(drop_manifest(w, e));
    if (open) {
        if (!add_open(w, open, hash)) return bad_state(w->set->dir, "has impossible numbers", e);
        TRY(reopen(w, hash, e));
    }
    return writer_remove_from(w->set->dir, w->set->n_shards, e);
}

status shard_writer_resume(shard_writer **out, const char *dir, const shard_writer_options *opt,
                           const json_t *state, err *e) {
    *out = NULL;
    shards *s;
    if (manifest_from_json(&s, dir, state, true, NULL) != ST_OK)
        return bad_state(dir, "cannot be read", e);
    if (!fits_options(s, opt)) {
        shards_close(s);
        return bad_state(dir, "was made with other options", e);
    }
    shard_writer *w = writer_new(s, opt);
    w->synced = true;
    status st = go_on(w, state, e);
    if (st == ST_OK)
        *out = w;
    else
        shard_writer_free(w);
    return st;
}
