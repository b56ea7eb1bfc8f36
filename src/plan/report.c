/* Reports of a plan: as JSON, as the table before step 0, and as the error of a run that does not
 * fit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "plan/plan_int.h"
#include "step/schedule.h"

/* Measured on Debian 12 with oneDNN 2.6: allocator, JIT code and primitive caches, JSON trees,
 * tokenizer tables; then one stack and kernel scratch area per thread. */
static const int64_t BASELINE_BYTES = 24 << 20, BASELINE_THREAD_BYTES = 1 << 20;

/* Beyond these ranks are on several machines. */
enum { MOST_RANKS_TOGETHER = 64 };

static int ranks_of(const plan *p) {
    return p->spec.ranks ? p->spec.ranks->size[MESH_WORLD] : 1;
}

static bool sends_by_mpi(const plan *p) {
    return ranks_of(p) > MOST_RANKS_TOGETHER || (ranks_of(p) > 1 && comm_is_by_mpi());
}

static int64_t segment_bytes(const plan *p) {
    return ranks_of(p) > 1 && !sends_by_mpi(p) ? comm_segment_bytes(ranks_of(p)) : 0;
}

static int64_t outbox_bytes(const plan *p) {
    return sends_by_mpi(p) ? comm_outbox_bytes(ranks_of(p)) : 0;
}

/* A GPU holds the arena; process and snapshot are the host's. Its driver and library have taken their memory
 * when it is opened, so that what it has free is without that. */
static bool on_gpu(const plan *p) {
    return dev_get_kind(p->dev) == DEV_CUDA;
}

/* Of a GPU that is not there, the memory of its host is not known. */
static bool has_known_host(const plan *p) {
    return on_gpu(p) && !dev_is_meta(p->dev);
}

/* Memory of the host, through which the ranks of GPUs pass what they send to each other. */
static int64_t staging_bytes(const plan *p) {
    return p->spec.ranks && has_known_host(p) ? comm_staging_bytes() : 0;
}

int64_t plan_state_bytes(const plan *p) {
    int64_t in_file = p->away.elems * p->away.n_states * (int64_t)dtype_bytes(p->away.state_dt);
    return in_file ? in_file : p->region[REGION_OPTIM].bytes;
}

int64_t plan_baseline_bytes(const plan *p) {
    int64_t host = 0;
    for (int i = 0; i < p->n_phases; i++)
        if (p->phase[i].host_bytes > host) host = p->phase[i].host_bytes;
    return BASELINE_BYTES + BASELINE_THREAD_BYTES * dev_threads(p->dev) + host + segment_bytes(p) +
           outbox_bytes(p) + staging_bytes(p);
}

static int64_t snapshot_bytes(const plan *p) {
    return p->spec.snapshot ? p->region[REGION_SNAPSHOT].bytes : 0;
}

static int64_t limit_or_free(const plan *p, int64_t limit_bytes) {
    return limit_bytes > 0 ? limit_bytes : (int64_t)dev_available_bytes(p->dev);
}

int64_t plan_needed_bytes(const plan *p) {
    return p->peak_bytes + (on_gpu(p) ? -snapshot_bytes(p) : plan_baseline_bytes(p));
}

static bool fits(const plan *p, int64_t limit_bytes) {
    int64_t host = plan_baseline_bytes(p) + snapshot_bytes(p);
    if (has_known_host(p) && host > (int64_t)dev_machine_available_bytes()) return false;
    return plan_needed_bytes(p) <= limit_or_free(p, limit_bytes);
}

/* Whether all phases would fit with at most this micro-batch, this policy and this stage of ZeRO. */
static bool fits_with(const plan *p, int micro_batch, recompute_policy recompute, int zero,
                      int64_t limit) {
    plan_spec *specs = xcalloc((size_t)p->n_phases, sizeof *specs);
    for (int i = 0; i < p->n_phases; i++) {
        plan_spec *s = &specs[i];
        *s = p->phase[i];
        if (micro_batch < s->train_B) {
            s->micro_batches =
                (s->micro_batches > 1 ? s->micro_batches : 1) * s->train_B / micro_batch;
            s->train_B = micro_batch;
            if (s->valid_B) s->valid_B = micro_batch;
        }
        s->recompute = recompute;
        s->sharing.zero = zero;
    }
    plan *smaller;
    status st = plan_new_phases(&smaller, p->dev, specs, p->n_phases, NULL);
    free(specs);
    if (st != ST_OK) return false;
    bool yes = fits(smaller, limit);
    plan_free(smaller);
    return yes;
}

/* The largest micro-batch that fits, by planning it: a divisor of the present one, so that it
 * divides the batch too. 0: none. */
static int fitting_micro_batch(const plan *p, recompute_policy recompute, int64_t limit) {
    int samples = p->spec.sequences > 1 ? p->spec.sequences : 1;
    for (int B = p->spec.train_B; B >= 1; B--)
        if (p->spec.train_B % B == 0 && B % samples == 0 &&
            fits_with(p, B, recompute, p->spec.sharing.zero, limit))
            return B;
    return 0;
}

/* The least stage of ZeRO with which it fits, where data-parallel ranks could share more than they do; 0: none, as of optimizers that
 * need whole matrices. `also`: what is needed beside it. */
static int fitting_zero(const plan *p, int64_t limit, const char **also) {
    const plan_spec *s = &p->spec;
    int least = s->sequences > 1 ? s->sequences : 1;
    if (s->optim && s->optim->declare_states) return 0;
    for (int zero = s->sharing.zero + 1; s->sharing.shards > 1 && zero <= 3; zero++) {
        *also = "";
        if (fits_with(p, s->train_B, s->recompute, zero, limit)) return zero;
        *also = s->train_B > least ? "; and a smaller micro-batch, or train.recompute=full"
                                   : "; and train.recompute=full";
        if (fits_with(p, least, RECOMPUTE_FULL, zero, limit)) return zero;
    }
    return 0;
}

/* The first of these that would make the run fit, each of which is planned to see: no snapshot, one
 * micro-batch under way, a smaller micro-batch, recompute, ZeRO. Else what is too large by itself. */
static status hint_at_what_fits(const plan *p, int64_t limit, err *e) {
    if (!on_gpu(p) && plan_baseline_bytes(p) > limit_or_free(p, limit)) {
        err_where(e, limit > 0 ? "train.memory_limit" : "train.threads");
        return err_hint(e, "%slower train.threads: the process takes %.1f MiB before any model",
                        limit > 0 ? "raise train.memory_limit or " : "",
                        (double)plan_baseline_bytes(p) / (1 << 20));
    }
    int B = fitting_micro_batch(p, p->spec.recompute, limit);
    int B_full = fitting_micro_batch(p, RECOMPUTE_FULL, limit);
    if (p->spec.snapshot && !on_gpu(p) &&
        plan_needed_bytes(p) - snapshot_bytes(p) <= limit_or_free(p, limit)) {
        err_where(e, "checkpoint.async");
        return err_hint(e, "set checkpoint.async=false: it saves without a copy in memory");
    }
    if (B < p->spec.train_B && plan_frames(p) > 1 && plan_stages(p) == 1) {
        err_where(e, "parallel.pp_schedule");
        return err_hint(e,
                        "set parallel.pp_schedule=1f1b: one micro-batch's activations at a time");
    }
    err_where(e, "train.micro_batch_size");
    if (B < 1 && B_full == p->spec.train_B) {
        err_where(e, "train.recompute");
        return err_hint(e, "set train.recompute=full");
    }
    if (B >= 1)
        return err_hint(e, "set train.micro_batch_size=%d (it is %d)%s", B, p->spec.train_B,
                        B_full == p->spec.train_B ? ", or train.recompute=full" : "");
    if (B_full >= 1)
        return err_hint(e, "set train.micro_batch_size=%d (it is %d) and train.recompute=full",
                        B_full, p->spec.train_B);
    const char *also;
    int zero = fitting_zero(p, limit, &also);
    if (zero) {
        err_where(e, "parallel.zero");
        return err_hint(e, "set parallel.zero=%d: %d ranks share more of it%s", zero,
                        p->spec.sharing.shards, also);
    }
    int64_t activations = p->region[REGION_FRAME].bytes + p->region[REGION_PINNED].bytes;
    if (plan_needed_bytes(p) - activations > limit_or_free(p, limit)) {
        err_where(e, "model");
        return err_hint(e, "choose a smaller model: without activations it needs %.1f MiB",
                        (double)(plan_needed_bytes(p) - activations) / (1 << 20));
    }
    err_where(e, "train.seq_len");
    return err_hint(e, "shorten train.seq_len (it is %d) or choose a smaller model", p->spec.T);
}

status plan_check_fits(const plan *p, int64_t limit_bytes, err *e) {
    if (fits(p, limit_bytes)) return ST_OK;
    int64_t limit = limit_or_free(p, limit_bytes), need = plan_needed_bytes(p);
    err_set(e, ST_MEMORY,
            "the run needs %.1f MiB, of which activations take %.1f MiB, and %.1f MiB are %s",
            (double)need / (1 << 20), (double)p->region[REGION_FRAME].bytes / (1 << 20),
            (double)limit / (1 << 20),
            limit_bytes > 0 ? "allowed"
            : on_gpu(p)     ? "free on the GPU"
                            : "free");
    if (p->spec.train_B) return hint_at_what_fits(p, limit_bytes, e);
    return err_hint(e, "choose a smaller model or a machine with more memory");
}

static int64_t workspace_bytes(const plan *p) {
    int64_t most = 0;
    for (int i = 0; i < p->n_programs; i++) {
        int64_t bytes = prog_get_stats(p->program[i].prog)->workspace_peak_bytes;
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Of the chunks' programs, in all frames: bytes kept for the backward, and the least that frames and
 * scratch can be packed into: beside what is kept, what one pass needs. */
typedef struct step_bytes {
    int64_t saved, live_peak, workspace;
} step_bytes;

static step_bytes bytes_of_step(const plan *p) {
    step_bytes b = {0};
    int64_t passing = 0;
    for (int c = 0; c < plan_chunks(p); c++) {
        const plan_program *own = plan_find(p, USE_TRAIN, c);
        const plan_program *mate = plan_mate(p, c);
        if (!own || (mate && mate < own)) continue; /* of another stage; in the same places */
        const prog_stats *st = prog_get_stats(own->prog);
        int frames = p->spec.pipe ? own->frames : plan_frames(p);
        b.saved += st->saved_bytes * frames;
        if (st->live_peak_bytes - st->saved_bytes > passing)
            passing = st->live_peak_bytes - st->saved_bytes;
        if (st->workspace_peak_bytes > b.workspace) b.workspace = st->workspace_peak_bytes;
    }
    b.live_peak = b.saved + passing;
    return b;
}

int64_t plan_saved_bytes(const plan *p) {
    return p->spec.train_B ? bytes_of_step(p).saved : 0;
}

/* ---- JSON ---- */

static int64_t param_bytes(const plan *p) {
    return p->region[REGION_PARAMS].bytes + p->region[REGION_WORK].bytes +
           p->region[REGION_WORK_PIECE].bytes + p->region[REGION_OTHERS].bytes +
           p->region[REGION_QUANT].bytes;
}

static int64_t grad_bytes(const plan *p) {
    return p->region[REGION_GRADS].bytes + p->region[REGION_GRAD_PIECE].bytes;
}

static int size_of(const plan *p, mesh_axis axis) {
    return p->spec.ranks ? p->spec.ranks->size[axis] : 1;
}

static json_t *classes_json(const plan *p) {
    json_t *all = json_array();
    for (int i = 0; i < p->n_classes; i++)
        json_array_append_new(all, json_pack("{s:i,s:I}", "ranks", p->classes[i].ranks,
                                             "peak_bytes", (json_int_t)p->classes[i].peak_bytes));
    return all;
}

/* What lies in a file, the memory of its slots, and what a step moves. */
static void add_file(const plan *p, json_t *o) {
    offload_counts moved = plan_file_traffic(p);
    json_object_update_new(o, json_pack("{s:I,s:I,s:I,s:I}", "file_bytes",
                                        (json_int_t)plan_file_bytes(p), "file_slot_bytes",
                                        (json_int_t)p->region[REGION_OFFLOAD].bytes,
                                        "file_read_bytes", (json_int_t)moved.read_bytes,
                                        "file_written_bytes", (json_int_t)moved.written_bytes));
}

/* Weights that stay in a file take no memory of the process, but pages of the machine. */
static int64_t mapped_bytes(const plan *p) {
    int64_t bytes = 0;
    for (int i = 0; i < param_count(p->store); i++) {
        const param *q = param_at(p->store, i);
        if (q->mapped && q->stored != DT_NF4)
            bytes += dtype_row_bytes(q->stored, q->cols) * q->rows;
    }
    return bytes;
}

static json_t *memory_json(const plan *p, int64_t limit_bytes) {
    int64_t activations = p->region[REGION_FRAME].bytes + p->region[REGION_PINNED].bytes +
                          p->region[REGION_BOXES].bytes + p->region[REGION_CACHE].bytes;
    json_t *o = json_pack(
        "{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:o}", "peak_bytes", (json_int_t)p->peak_bytes,
        "param_bytes", (json_int_t)param_bytes(p), "grad_bytes", (json_int_t)grad_bytes(p),
        "optimizer_bytes", (json_int_t)p->region[REGION_OPTIM].bytes, "activation_peak_bytes",
        (json_int_t)activations, "workspace_bytes", (json_int_t)workspace_bytes(p),
        "baseline_bytes", (json_int_t)plan_baseline_bytes(p), "fits", (int)fits(p, limit_bytes),
        "classes", classes_json(p));
    json_object_set_new(o, "needed_bytes", json_integer(plan_needed_bytes(p)));
    json_object_set_new(o, "snapshot_bytes", json_integer(p->region[REGION_SNAPSHOT].bytes));
    if (mapped_bytes(p)) json_object_set_new(o, "mapped_bytes", json_integer(mapped_bytes(p)));
    if (p->region[REGION_QUANT].bytes)
        json_object_set_new(o, "quantised_bytes", json_integer(p->region[REGION_QUANT].bytes));
    if (plan_has_file(p)) add_file(p, o);
    if (!p->spec.train_B) return o;
    step_bytes step = bytes_of_step(p);
    json_object_set_new(o, "live_peak_bytes", json_integer(step.live_peak));
    json_object_set_new(o, "saved_bytes", json_integer(step.saved));
    return o;
}

json_t *plan_traffic_json(const comm_counts *sent) {
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "all_reduce",
                     (json_int_t)sent->sent_bytes[COMM_ALL_REDUCE], "reduce_scatter",
                     (json_int_t)sent->sent_bytes[COMM_REDUCE_SCATTER], "all_gather",
                     (json_int_t)sent->sent_bytes[COMM_ALL_GATHER], "send",
                     (json_int_t)sent->sent_bytes[COMM_SEND], "all_to_all",
                     (json_int_t)sent->sent_bytes[COMM_ALL_TO_ALL], "shift",
                     (json_int_t)sent->sent_bytes[COMM_SHIFT]);
}

static json_t *layout_json(const plan *p) {
    const plan_spec *s = &p->spec;
    comm_counts sent = plan_traffic(p);
    int pp = size_of(p, MESH_PP);
    json_t *o =
        json_pack("{s:i,s:i,s:i,s:i,s:i,s:b,s:i,s:i,s:i,s:i,s:I,s:i,s:i,s:o}", "ranks",
                  size_of(p, MESH_WORLD), "dp", size_of(p, MESH_DP), "dp_replicate",
                  size_of(p, MESH_REPLICATE), "zero", s->sharing.zero, "tp", size_of(p, MESH_TP),
                  "sp", (int)s->sequence_parallel, "cp", size_of(p, MESH_CP), "ep",
                  size_of(p, MESH_EP), "pp", pp, "micro_batch", s->train_B, "micro_batches",
                  (json_int_t)(s->micro_batches > 1 ? s->micro_batches : 1), "chunks",
                  plan_chunks(p), "frames", plan_frames(p), "sent_bytes", plan_traffic_json(&sent));
    if (pp > 1)
        json_object_update_new(o, json_pack("{s:s,s:i}", "pp_schedule",
                                            schedule_name((schedule_kind)s->pp_schedule), "virtual",
                                            plan_chunks(p) / pp));
    return o;
}

/* Points of a curve that a screen can show. */
enum { LIVE_POINTS = 240 };

json_t *plan_live_json(const plan *p) {
    const plan_program *own = NULL;
    for (int c = 0; c < plan_chunks(p) && !own; c++) own = plan_find(p, USE_TRAIN, c);
    if (!own) return NULL;
    const prog_stats *st = prog_get_stats(own->prog);
    int64_t *live = xcalloc((size_t)st->ops + 1, sizeof *live);
    prog_get_live_bytes(own->prog, live);
    int points = st->ops < LIVE_POINTS ? st->ops : LIVE_POINTS;
    json_t *bytes = json_array();
    for (int k = 0; k < points; k++) {
        int64_t most = 0;
        for (int i = (int)((int64_t)k * st->ops / points);
             i < (int)((int64_t)(k + 1) * st->ops / points); i++)
            if (live[i] > most) most = live[i];
        json_array_append_new(bytes, json_integer(most));
    }
    free(live);
    return json_pack("{s:i,s:i,s:o}", "ops", st->ops, "ops_forward", st->ops_forward, "bytes",
                     bytes);
}

json_t *plan_json(const plan *p, int64_t limit_bytes) {
    const param_store *whole = param_store_whole(p->store);
    param_sizes ps = param_store_sizes(whole);
    int64_t embedding = model_embedding_params(&p->spec.model, whole);
    json_t *params = json_pack("{s:I,s:I,s:I,s:I}", "total", (json_int_t)ps.elems, "non_embedding",
                               (json_int_t)(ps.elems - embedding), "active",
                               (json_int_t)model_active_params(&p->spec.model, whole), "trained",
                               (json_int_t)ps.trained_elems);
    json_t *o = json_pack("{s:o,s:o}", "params", params, "memory", memory_json(p, limit_bytes));
    if (p->spec.train_B) json_object_set_new(o, "layout", layout_json(p));
    return o;
}

/* ---- the table ---- */

static void line(strbuf *out, const char *what, int64_t bytes, const char *note) {
    strbuf_printf(out, "  %-22s %10.1f MiB  %s\n", what, (double)bytes / (1 << 20), note);
}

static void first_line(const plan *p, strbuf *out) {
    static const char *const policies[] = {RECOMPUTE_POLICIES(LIST_WORD)};
    const plan_spec *s = &p->spec;
    param_sizes z = param_store_sizes(param_store_whole(p->store));
    strbuf_printf(out, "plan: %lld parameters (%.2fM), ", (long long)z.elems,
                  (double)z.elems / 1e6);
    if (s->train_B && z.trained_elems < z.elems)
        strbuf_printf(out, "%lld of them trained, ", (long long)z.trained_elems);
    if (s->train_B)
        strbuf_printf(out, "micro-batch %d x %d tokens, %s, recompute %s\n", s->train_B, s->T,
                      dtype_name(s->compute), policies[s->recompute]);
    else
        strbuf_printf(out, "generation of %d tokens, %s%s\n", s->cache_tok, dtype_name(s->compute),
                      s->cache_f16 ? ", keys and values as f16" : "");
}

/* "8 ranks: dp 4 in 2 replicas, ZeRO-3, tp 2 with sequence parallelism". */
static void layout_line(const plan *p, strbuf *out) {
    if (size_of(p, MESH_WORLD) == 1) return;
    strbuf_printf(out, "  %d ranks: dp %d", size_of(p, MESH_WORLD), size_of(p, MESH_DP));
    if (size_of(p, MESH_REPLICATE) > 1)
        strbuf_printf(out, " in %d replicas", size_of(p, MESH_REPLICATE));
    if (size_of(p, MESH_SHARD) > 1 && p->spec.sharing.zero)
        strbuf_printf(out, ", ZeRO-%d", p->spec.sharing.zero);
    if (size_of(p, MESH_TP) > 1)
        strbuf_printf(out, ", tp %d%s", size_of(p, MESH_TP),
                      p->spec.sequence_parallel ? " with sequence parallelism" : "");
    static const char *const kinds[] = {CONTEXT_KINDS(LIST_WORD)};
    if (size_of(p, MESH_CP) > 1)
        strbuf_printf(out, ", cp %d by %s", size_of(p, MESH_CP), kinds[p->spec.context]);
    if (size_of(p, MESH_EP) > 1) strbuf_printf(out, ", ep %d", size_of(p, MESH_EP));
    if (size_of(p, MESH_PP) > 1) strbuf_printf(out, ", pp %d", size_of(p, MESH_PP));
    if (p->n_classes == 1)
        strbuf_puts(out, "; each needs\n");
    else
        strbuf_printf(out, "; those with most memory, %d of them, need each\n",
                      p->classes[0].ranks);
}

/* "stage 0 has layers 0 to 13, the embedding; 2 micro-batches under way together". */
static void stage_line(const plan *p, strbuf *out) {
    strbuf_printf(out, "  stage %d of %d has", plan_stage(p), plan_stages(p));
    for (int c = 0; c < plan_chunks(p); c++) {
        model_layer_range k = plan_layers(p, c);
        if (!plan_find(p, USE_TRAIN, c)) continue;
        strbuf_printf(out, "%s layers %d to %d", c < plan_stages(p) ? "" : " and", k.first,
                      k.end - 1);
        if (k.first == 0) strbuf_puts(out, ", the embedding");
        if (k.end == model_layers(&p->spec.model)) strbuf_puts(out, ", the head");
    }
    strbuf_printf(out, "; %d micro-batches under way together\n", plan_frames(p));
}

static void chunks_line(const plan *p, strbuf *out) {
    if (p->spec.pipe) {
        stage_line(p, out);
        return;
    }
    if (plan_chunks(p) == 1 && plan_frames(p) == 1) return;
    strbuf_printf(out, "  %d chunk%s of layers, %d micro-batch%s under way together\n",
                  plan_chunks(p), text_s(plan_chunks(p)), plan_frames(p),
                  plan_frames(p) == 1 ? "" : "es");
}

static void traffic_line(const plan *p, strbuf *out) {
    if (size_of(p, MESH_WORLD) == 1 || !p->spec.train_B) return;
    comm_counts sent = plan_traffic(p);
    const int64_t *by = sent.sent_bytes;
    char note[128];
    int n = snprintf(note, sizeof note, "all-reduce %.1f, reduce-scatter %.1f, all-gather %.1f",
                     (double)by[COMM_ALL_REDUCE] / (1 << 20),
                     (double)by[COMM_REDUCE_SCATTER] / (1 << 20),
                     (double)by[COMM_ALL_GATHER] / (1 << 20));
    int64_t around = by[COMM_ALL_TO_ALL] + by[COMM_SHIFT];
    if (around)
        n += snprintf(note + n, sizeof note - (size_t)n, ", %s %.1f",
                      size_of(p, MESH_EP) > 1
                          ? size_of(p, MESH_CP) > 1 ? "around cp, to experts" : "to experts"
                          : "around cp",
                      (double)around / (1 << 20));
    if (plan_stages(p) > 1)
        snprintf(note + n, sizeof note - (size_t)n, ", to other stages %.1f",
                 (double)by[COMM_SEND] / (1 << 20));
    line(out, "sent in a step",
         by[COMM_ALL_REDUCE] + by[COMM_REDUCE_SCATTER] + by[COMM_ALL_GATHER] + by[COMM_SEND] +
             around,
         note);
}

static const char IN_SLOTS[] = "; what this rank owns, and slots for units in use";

const char *plan_offload_word(unsigned what) {
    static const char *const words[] = {
        "none", [OFFLOAD_OPTIMIZER] = "optimizer", [OFFLOAD_WEIGHTS] = "weights",
        [OFFLOAD_OPTIMIZER | OFFLOAD_WEIGHTS] = "all"};
    return words[what];
}

static void file_lines(const plan *p, strbuf *out) {
    char note[128];
    offload_counts moved = plan_file_traffic(p);
    line(out, "slots for the file", p->region[REGION_OFFLOAD].bytes, "");
    snprintf(note, sizeof note, "parallel.offload=%s: a step reads %.1f MiB, writes %.1f",
             plan_offload_word(p->spec.offload), (double)moved.read_bytes / (1 << 20),
             (double)moved.written_bytes / (1 << 20));
    line(out, "  beside it, in a file", plan_file_bytes(p), note);
}

/* "224 matrices of the layers, NF4, 4.13 bits a weight". */
static void quant_line(const plan *p, strbuf *out) {
    int64_t bytes = p->region[REGION_QUANT].bytes, elems = 0;
    int n = 0;
    for (int i = 0; i < param_count(p->store); i++) {
        const param *q = param_at(p->store, i);
        if (q->mapped && q->stored == DT_NF4) n++, elems += param_elems(q);
    }
    char note[128];
    snprintf(note, sizeof note, "%d matrices of the layers, NF4, %.2f bits a weight", n,
             8.0 * (double)bytes / (double)elems);
    line(out, "frozen, in 4 bits", bytes, note);
}

void plan_describe(const plan *p, strbuf *out) {
    const plan_spec *s = &p->spec;
    char note[128];
    first_line(p, out);
    layout_line(p, out);
    chunks_line(p, out);
    if (mapped_bytes(p)) line(out, "in the mapped file", mapped_bytes(p), "not counted below");
    for (int i = 1; i < p->n_phases; i++)
        strbuf_printf(out, "  stage %d: micro-batch %d x %d tokens\n", i + 1, p->phase[i].train_B,
                      p->phase[i].T);
    snprintf(note, sizeof note, "%s%s",
             s->compute == DT_F32 ? "fp32" : "fp32 masters and compute copies",
             param_weights_in_slots(p->store) ? IN_SLOTS : "");
    int64_t apart = p->region[REGION_OTHERS].bytes + p->region[REGION_QUANT].bytes;
    line(out, "parameters", param_bytes(p) - apart, note);
    if (p->region[REGION_QUANT].bytes) quant_line(p, out);
    for (int i = 1; i < p->n_models; i++) {
        param_sizes z = param_store_sizes(p->model[i].store);
        line(out, p->model[i].name, z.master_bytes + z.work_bytes, "frozen");
    }
    bool in_frame = plan_grads_in_frame(s);
    snprintf(note, sizeof note, "%s%s",
             s->fixed_grads ? "int64, deterministic"
             : in_frame     ? "fp32, where activations were that are done with"
                            : "fp32",
             param_grads_in_slots(p->store) ? IN_SLOTS : "");
    line(out, "gradients", grad_bytes(p), note);
    snprintf(note, sizeof note, "%s%s", s->optim ? s->optim->name : "",
             s->state_dt == DT_BF16 ? ", bf16" : "");
    line(out, "optimizer state", p->region[REGION_OPTIM].bytes, note);
    if (plan_has_file(p)) file_lines(p, out);
    if (s->snapshot)
        line(out, "snapshot", p->region[REGION_SNAPSHOT].bytes,
             on_gpu(p) ? "of the host: what is saved while training goes on"
                       : "what is saved while training goes on; checkpoint.async=false does "
                         "without");
    if (s->train_B) {
        step_bytes step = bytes_of_step(p);
        snprintf(note, sizeof note, "%s%.1f MiB kept for backward, %.1f scratch",
                 in_frame ? "beyond the gradients; " : "", (double)step.saved / (1 << 20),
                 (double)step.workspace / (1 << 20));
    } else
        note[0] = '\0';
    line(out, "activations", p->region[REGION_FRAME].bytes, note);
    line(out, "inputs, outputs, cache",
         p->region[REGION_PINNED].bytes + p->region[REGION_BOXES].bytes +
             p->region[REGION_CACHE].bytes,
         "");
    line(out, "arena", p->peak_bytes, "");
    snprintf(note, sizeof note, "%.1f MiB of it are shared by the ranks of a machine",
             (double)segment_bytes(p) / (1 << 20));
    line(out, "process baseline", plan_baseline_bytes(p), segment_bytes(p) ? note : "");
    if (on_gpu(p)) line(out, "needed of the GPU", plan_needed_bytes(p), "");
    traffic_line(p, out);
}
