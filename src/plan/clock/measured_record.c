/* A record of a table by the names of its columns (measured_int.h). */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "data/text/csv_record.h"
#include "plan/clock/measured_int.h"

const char *record_text(const record *r, const char *name) {
    for (int i = 0; i < r->columns; i++)
        if (strcmp(r->name[i], name) == 0) return r->value[i];
    return "";
}

double record_number(const record *r, const char *name, double without) {
    double x;
    return cell_number(record_text(r, name), name, &x) ? x : without;
}

int record_int(const record *r, const char *name, int without) {
    const char *cell = record_text(r, name);
    double x = without;
    if (*cell && !cell_number(cell, name, &x)) return -1;
    return x >= 0 && x <= 1 << 30 && x == floor(x) ? (int)x : -1;
}

int record_degree(const record *r, const char *name) {
    int n = record_int(r, name, 1);
    return n == 0 ? 1 : n;
}

void record_plain_name(const char *s, char out[64]) {
    size_t n = 0;
    for (; *s && *s != '(' && n < 63; s++)
        if (isalnum((unsigned char)*s)) out[n++] = (char)tolower((unsigned char)*s);
    out[n] = '\0';
}

/* What the cells of a column are. What was measured is read of runs that went well; a memory that cannot be read is not told. */
typedef enum column_kind {
    WORDS,
    TRUTH,
    MEMORY,
    COUNT,
    COUNT_OR_NONE,
    NUMBER,
    MEASURED
} column_kind;

/* Columns as configs and tables of others call them, without what they write differently. The first of a line is ours. */
enum { NAMES = 10 };
static const struct {
    column_kind kind;
    const char *names[NAMES];
} known_columns[] = {
    {WORDS, {"source"}},
    {COUNT, {"gpus", "numgpus", "ngpus", "gpucount", "worldsize", "devices", "numdevices"}},
    {COUNT, {"gpus_pp"}},
    {WORDS, {"gpu", "device", "gputype", "hardware", "accelerator"}},
    {COUNT, {"nodes", "numnodes", "nnodes"}},
    {WORDS, {"model", "modelname"}},
    {COUNT, {"layers", "numlayers", "nlayers", "nlayer", "numhiddenlayers"}},
    {COUNT, {"hidden", "hiddensize", "dmodel", "nembd", "dim", "embdim"}},
    {COUNT, {"heads", "numheads", "nheads", "nhead", "numattentionheads"}},
    {COUNT, {"head_dim", "headdim", "headsize", "kvchannels"}},
    {COUNT, {"kv_heads", "kv", "numkvheads", "nkvheads", "numkeyvalueheads", "numquerygroups"}},
    {COUNT, {"ffn", "ffnhiddensize", "intermediatesize", "dff", "ffnhidden", "ffndim"}},
    {WORDS, {"activation", "hiddenact", "mlptype", "mlp"}},
    {COUNT, {"vocab", "vocabsize", "paddedvocabsize"}},
    {COUNT, {"seq", "seqlen", "seqlength", "sequencelength", "contextlength"}},
    {TRUTH, {"tied_emb", "tiewordembeddings", "tied", "tiedembeddings"}},
    {COUNT_OR_NONE, {"experts", "numexperts", "nexperts"}},
    {COUNT_OR_NONE, {"experts_per_token", "topk", "numexpertspertok", "activeexperts"}},
    {COUNT_OR_NONE,
     {"tp", "tensorparallel", "tensorparallelsize", "tpsize", "tensormodelparallelsize"}},
    {COUNT_OR_NONE,
     {"pp", "pipelineparallel", "pipelineparallelsize", "ppsize", "pipelinemodelparallelsize"}},
    {COUNT_OR_NONE,
     {"vpp", "vp", "virtualpipeline", "virtualpipelinesize", "virtualpipelineparallelsize"}},
    {COUNT_OR_NONE, {"cp", "contextparallel", "contextparallelsize", "cpsize"}},
    {COUNT_OR_NONE,
     {"ep", "expertparallel", "expertparallelsize", "epsize", "expertmodelparallelsize"}},
    {WORDS, {"zero", "zerostage", "sharding", "shardingstrategy"}},
    {WORDS, {"schedule", "pipelineschedule", "ppschedule"}},
    {WORDS, {"recompute", "activationcheckpointing", "ac", "actckpt", "gradientcheckpointing"}},
    {WORDS, {"precision", "dtype", "datatype"}},
    {COUNT, {"mbs", "microbatch", "microbatchsize", "microbsz"}},
    {COUNT,
     {"grad_acc", "gradaccum", "gradientaccumulation", "gradientaccumulationsteps", "ga", "gas"}},
    {COUNT, {"microbatches", "nummicrobatches"}},
    {COUNT, {"gbs_seqs", "gbs", "globalbatchsize", "globalbatch"}},
    {COUNT, {"gbs_tokens", "tokensperbatch", "tokensperstep", "globalbatchtokens"}},
    {NUMBER, {"peak_tf"}},
    {WORDS, {"flops_kind"}},
    {WORDS, {"status"}},
    {MEASURED, {"bubble", "bubbleratetheory"}},
    {MEASURED,
     {"iter_time_s", "itertime", "iterationtime", "steptime", "steptimes", "iterationtimes",
      "secperiter", "timeperglobalstep"}},
    {MEASURED, {"iter_time_ms", "steptimems", "iterationtimems", "msperiter"}},
    {MEASURED, {"samples_per_gpu_s"}},
    {MEASURED,
     {"tok_s_gpu", "tokensperspergpu", "tokenspersecpergpu", "tokenspersecondpergpu",
      "tokensspergpu", "tokenssecgpu", "tokenssgpu", "tokenspergpupersecond", "tgs"}},
    {MEASURED, {"tok_s", "tokenspers", "tokenspersec", "tokenspersecond", "tokenss"}},
    {MEASURED, {"tflops_gpu", "tflops", "tflopspergpu", "modeltflopspergpu", "modeltflopsecgpu"}},
    {MEASURED, {"mfu_pct", "mfu", "mfupercent"}},
    {MEMORY, {"gpu_mem_GB"}},
    {MEMORY, {"mem_GB", "peakmemgb"}},
    {MEMORY, {"mem_GiB", "peakmemgib"}},
};

/* NULL: nothing reads it. */
static const char *usual_column(const char *name) {
    char plain[64], known[64];
    record_plain_name(name, plain);
    for (int i = 0; i < ARRAY_LEN(known_columns); i++)
        for (int k = 0; k < NAMES && known_columns[i].names[k]; k++) {
            record_plain_name(known_columns[i].names[k], known);
            if (strcmp(plain, known) == 0) return known_columns[i].names[0];
        }
    return NULL;
}

bool record_has_column(const record *names, const char *name) {
    for (int i = 0; i < names->columns; i++)
        if (strcmp(names->name[i], name) == 0) return true;
    return false;
}

bool record_ends_in_notes(const record *names) {
    return names->columns > 0 && !usual_column(names->name[names->columns - 1]);
}

void record_name_columns(record *names) {
    for (int i = 0; i < names->columns; i++) {
        const char *name = usual_column(names->name[i]);
        if (name && !record_has_column(names, name))
            snprintf(names->name[i], sizeof names->name[i], "%s", name);
    }
}

/* "true", "no", or a number. False: the cell is none of these. */
static bool read_truth(const char *cell, bool *out) {
    double x = 0;
    bool yes = strcasecmp(cell, "true") == 0 || strcasecmp(cell, "yes") == 0;
    bool no = !*cell || strcasecmp(cell, "false") == 0 || strcasecmp(cell, "no") == 0;
    bool known = yes || no || cell_number(cell, "", &x);
    *out = yes || x > 0;
    return known;
}

bool record_tells(const record *r, const char *name) {
    bool yes;
    return read_truth(record_text(r, name), &yes) && yes;
}

bool record_went_well(const record *r) {
    static const char *const well[] = {"ok", "success", "succeeded", "completed", "passed"};
    const char *state = record_text(r, "status");
    for (int i = 0; i < ARRAY_LEN(well); i++)
        if (strcasecmp(state, well[i]) == 0) return true;
    return !*state;
}

/* What is wrong with a cell that is not empty; NULL: nothing. */
static const char *fault_of(column_kind kind, const char *name, const char *cell) {
    double x;
    bool truth, number = cell_number(cell, name, &x);
    if (kind == TRUTH && !read_truth(cell, &truth)) return "is neither true nor false";
    if (kind >= COUNT && !number) return "is no number";
    if ((kind == COUNT || kind == COUNT_OR_NONE) && x != floor(x)) return "is no whole number";
    if (kind == COUNT && x < 1) return "is no number of 1 or more";
    if (kind >= COUNT && x < 0) return "is below 0";
    return NULL;
}

status record_check(const record *r, err *e) {
    bool went_well = record_went_well(r);
    for (int i = 0; i < ARRAY_LEN(known_columns); i++) {
        const char *name = known_columns[i].names[0], *cell = record_text(r, name);
        if (!*cell || (known_columns[i].kind == MEASURED && !went_well)) continue;
        const char *fault = fault_of(known_columns[i].kind, name, cell);
        if (fault) return err_set(e, ST_FORMAT, "%s '%s' %s", name, cell, fault);
    }
    return ST_OK;
}

size_t record_scan(const char *s, size_t n, char *to, size_t size, int *columns, const char **why) {
    int field[RECORD_COLUMNS];
    field_value v[RECORD_COLUMNS] = {{0}};
    csv_columns c = {RECORD_COLUMNS, field};
    for (int i = 0; i < RECORD_COLUMNS; i++) field[i] = i;
    size_t used =
        csv_record_scan(s, n, (csv_dialect){',', true}, &c, RECORD_COLUMNS, v, columns, why);
    if (*columns > RECORD_COLUMNS) *columns = RECORD_COLUMNS;
    for (int i = 0; i < *columns; i++, to += size) {
        snprintf(to, size, "%.*s", v[i].len < size ? (int)v[i].len : (int)size - 1,
                 v[i].len ? v[i].s : "");
        cell_tidy(to);
    }
    return used;
}
