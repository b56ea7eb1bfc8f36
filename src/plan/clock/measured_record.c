/* A record of a table by the names of its columns (measured_int.h). */
#include <ctype.h>
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
    char digits[64], *to = digits, *end;
    for (const char *s = record_text(r, name); *s; s++)
        if (*s != ',' && (*s != '~' || to > digits) && (*s != '%' || s[1])) *to++ = *s;
    *to = '\0';
    double x = strtod(digits, &end);
    return *digits && !*end && x > -1e15 && x < 1e15 ? x : without;
}

int record_int(const record *r, const char *name, int without) {
    const char *cell = record_text(r, name);
    bool empty = !*cell || strcmp(cell, "-") == 0;
    double x = empty ? without : record_number(r, name, -1);
    return x >= 0 && x <= 1 << 30 ? (int)x : -1;
}

void record_plain_name(const char *s, char out[64]) {
    size_t n = 0;
    for (; *s && *s != '(' && n < 63; s++)
        if (isalnum((unsigned char)*s)) out[n++] = (char)tolower((unsigned char)*s);
    out[n] = '\0';
}

/* Columns as configs and tables of others call them, without what they write differently. The first of a line is ours. */
enum { NAMES = 10 };
static const char *const column_names[][NAMES] = {
    {"source"},
    {"gpus", "numgpus", "ngpus", "gpucount", "worldsize", "devices", "numdevices"},
    {"gpus_pp"},
    {"gpu", "device", "gputype", "hardware", "accelerator"},
    {"nodes", "numnodes", "nnodes"},
    {"model", "modelname"},
    {"layers", "numlayers", "nlayers", "nlayer", "numhiddenlayers"},
    {"hidden", "hiddensize", "dmodel", "nembd", "dim", "embdim"},
    {"heads", "numheads", "nheads", "nhead", "numattentionheads"},
    {"kv_heads", "kv", "numkvheads", "nkvheads", "numkeyvalueheads", "numquerygroups"},
    {"ffn", "ffnhiddensize", "intermediatesize", "dff", "ffnhidden", "ffndim"},
    {"activation", "hiddenact", "mlptype", "mlp"},
    {"vocab", "vocabsize", "paddedvocabsize"},
    {"seq", "seqlen", "seqlength", "sequencelength", "contextlength"},
    {"tied_emb", "tiewordembeddings", "tied", "tiedembeddings"},
    {"experts", "numexperts", "nexperts"},
    {"experts_per_token", "topk", "numexpertspertok", "activeexperts"},
    {"tp", "tensorparallel", "tensorparallelsize", "tpsize", "tensormodelparallelsize"},
    {"pp", "pipelineparallel", "pipelineparallelsize", "ppsize", "pipelinemodelparallelsize"},
    {"vpp", "vp", "virtualpipeline", "virtualpipelinesize", "virtualpipelineparallelsize"},
    {"cp", "contextparallel", "contextparallelsize", "cpsize"},
    {"ep", "expertparallel", "expertparallelsize", "epsize", "expertmodelparallelsize"},
    {"zero", "zerostage", "sharding", "shardingstrategy"},
    {"schedule", "pipelineschedule", "ppschedule"},
    {"recompute", "activationcheckpointing", "ac", "actckpt", "gradientcheckpointing"},
    {"precision", "dtype", "datatype"},
    {"mbs", "microbatch", "microbatchsize", "microbsz"},
    {"grad_acc", "gradaccum", "gradientaccumulation", "gradientaccumulationsteps", "ga", "gas"},
    {"microbatches", "nummicrobatches"},
    {"gbs_seqs", "gbs", "globalbatchsize", "globalbatch"},
    {"gbs_tokens", "tokensperbatch", "tokensperstep", "globalbatchtokens"},
    {"peak_tf"},
    {"flops_kind"},
    {"status"},
    {"bubble"},
    {"iter_time_s", "itertime", "iterationtime", "steptime", "steptimes", "iterationtimes",
     "secperiter", "timeperglobalstep"},
    {"iter_time_ms", "steptimems", "iterationtimems", "msperiter"},
    {"samples_per_gpu_s"},
    {"tok_s_gpu", "tokensperspergpu", "tokenspersecpergpu", "tokenspersecondpergpu",
     "tokensspergpu", "tokenssecgpu", "tokenssgpu", "tokenspergpupersecond", "tgs"},
    {"tok_s", "tokenspers", "tokenspersec", "tokenspersecond", "tokenss"},
    {"tflops_gpu", "tflops", "tflopspergpu", "modeltflopspergpu", "modeltflopsecgpu"},
    {"mfu_pct", "mfu", "mfupercent"},
    {"gpu_mem_GB"},
    {"mem_GB", "peakmemgb"},
    {"mem_GiB", "peakmemgib"}};

/* NULL: nothing reads it. */
static const char *usual_column(const char *name) {
    char plain[64], known[64];
    record_plain_name(name, plain);
    for (int i = 0; i < ARRAY_LEN(column_names); i++)
        for (int k = 0; k < NAMES && column_names[i][k]; k++) {
            record_plain_name(column_names[i][k], known);
            if (strcmp(plain, known) == 0) return column_names[i][0];
        }
    return NULL;
}

bool record_has_column(const record *names, const char *name) {
    for (int i = 0; i < names->columns; i++)
        if (strcmp(names->name[i], name) == 0) return true;
    return false;
}

void record_name_columns(record *names) {
    for (int i = 0; i < names->columns; i++) {
        const char *name = usual_column(names->name[i]);
        if (name && !record_has_column(names, name))
            snprintf(names->name[i], sizeof names->name[i], "%s", name);
    }
}

bool record_tells(const record *r, const char *name) {
    const char *cell = record_text(r, name);
    return strcasecmp(cell, "true") == 0 || strcasecmp(cell, "yes") == 0 ||
           record_int(r, name, 0) > 0;
}

size_t record_scan(const char *s, size_t n, char *to, size_t size, int *columns, const char **why) {
    int field[RECORD_COLUMNS];
    field_value v[RECORD_COLUMNS] = {{0}};
    csv_columns c = {RECORD_COLUMNS, field};
    for (int i = 0; i < RECORD_COLUMNS; i++) field[i] = i;
    size_t used =
        csv_record_scan(s, n, (csv_dialect){',', true}, &c, RECORD_COLUMNS, v, columns, why);
    if (*columns > RECORD_COLUMNS) *columns = RECORD_COLUMNS;
    for (int i = 0; i < *columns; i++)
        snprintf(to + (size_t)i * size, size, "%.*s",
                 v[i].len < size ? (int)v[i].len : (int)size - 1, v[i].len ? v[i].s : "");
    return used;
}
