/* Reads and writes GGUF files, for compare_gguf.py:
 *   use_gguf keys FILE             a line for each key: name, type, type of items, count, values
 *   use_gguf numbers FILE          all tensors as float32, one after another
 *   use_gguf copy FILE OUT         the same keys and tensors again
 *   use_gguf convert FILE OUT TYPE the same keys, F32 tensors in another format
 * Strings are printed in hexadecimal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "io/gguf/gguf.h"

static void print_values(const gguf_value *v, arena *mem) {
    const gguf_text *texts = gguf_value_texts(v, mem);
    for (uint64_t i = 0; i < v->n; i++) {
        int64_t whole;
        double number;
        bool truth;
        putchar(' ');
        if (texts) {
            putchar('x');
            for (size_t k = 0; k < texts[i].len; k++)
                printf("%02x", (unsigned)(unsigned char)texts[i].text[k]);
        } else if (gguf_value_int(v, i, &whole)) {
            printf("%lld", (long long)whole);
        } else if (gguf_value_float(v, i, &number)) {
            printf("%.17g", number);
        } else if (gguf_value_bool(v, i, &truth)) {
            fputs(truth ? "True" : "False", stdout);
        } else {
            fputs("beyond", stdout);
        }
    }
}

static status print_keys(const gguf_reader *r) {
    const gguf_meta *m = gguf_get_meta(r);
    for (int64_t i = 0; i < m->n; i++) {
        const gguf_value *v = &m->pairs[i].value;
        arena *mem = arena_new("values");
        printf("%s %s %s %llu", m->pairs[i].key, gguf_type_name(v->type), gguf_type_name(v->item),
               (unsigned long long)v->n);
        print_values(v, mem);
        putchar('\n');
        arena_free(mem);
    }
    return ST_OK;
}

static float *read_all(const gguf_view *v, err *e) {
    float *x = xmalloc((size_t)(v->rows * v->cols) * sizeof(*x));
    int64_t half = v->rows / 2;
    status st = gguf_read_f32(v, 0, half, x, e);
    if (st == ST_OK) st = gguf_read_f32(v, half, v->rows - half, x + half * v->cols, e);
    if (st == ST_OK) return x;
    free(x);
    return NULL;
}

static status print_numbers(const gguf_reader *r, err *e) {
    for (int64_t i = 0; i < gguf_count(r); i++) {
        const gguf_view *v = gguf_get(r, i);
        float *x = read_all(v, e);
        if (!x) return ST_FORMAT;
        fwrite(x, sizeof(*x), (size_t)(v->rows * v->cols), stdout);
        free(x);
    }
    return ST_OK;
}

/* Rows of a view of F32, in another format. */
typedef struct source {
    const gguf_view *v;
    const quant_format *to;
} source;

static status fill_rows(void *ctx, int64_t first, int64_t n, void *dst, err *e) {
    const source *s = ctx;
    const float *from = (const float *)(const void *)s->v->data + first * s->v->cols;
    if (quant_from_f32(s->to, dst, from, n * s->v->cols)) return ST_OK;
    return err_set(e, ST_NONFINITE, "tensor '%s' has numbers beyond %s", s->v->name, s->to->name);
}

/* type NULL: as they are. */
static status write_again(const gguf_reader *r, const char *path, const char *type, err *e) {
    const gguf_meta *m = gguf_get_meta(r);
    int64_t n = gguf_count(r);
    gguf_pairs pairs = {0};
    gguf_tensor *t = xcalloc((size_t)n + 1, sizeof(*t));
    source *s = xcalloc((size_t)n + 1, sizeof(*s));
    for (int64_t i = 0; i < m->n; i++) gguf_put_value(&pairs, m->pairs[i].key, &m->pairs[i].value);
    for (int64_t i = 0; i < n; i++) {
        const gguf_view *v = gguf_get(r, i);
        t[i] = (gguf_tensor){.name = v->name, .rank = v->rank, .type = v->format->type};
        memcpy(t[i].dims, v->dims, sizeof(v->dims));
        if (!type) {
            t[i].data = v->data;
            continue;
        }
        t[i].type = quant_by_name(type)->type;
        s[i] = (source){v, quant_by_name(type)};
        t[i].fill = fill_rows;
        t[i].ctx = &s[i];
    }
    status st = gguf_write(path, &pairs, t, n, e);
    gguf_pairs_free(&pairs);
    free(t);
    free(s);
    return st;
}

int main(int argc, char **argv) {
    gguf_reader *r;
    err e = {0};
    if (argc < 3) return 2;
    status st = gguf_open(&r, argv[2], &e);
    if (st == ST_OK && strcmp(argv[1], "keys") == 0)
        st = print_keys(r);
    else if (st == ST_OK && strcmp(argv[1], "numbers") == 0)
        st = print_numbers(r, &e);
    else if (st == ST_OK && argc >= 4)
        st = write_again(r, argv[3], argc > 4 ? argv[4] : NULL, &e);
    if (st != ST_OK) fprintf(stderr, "%s (%s)\n", e.message, e.hint);
    gguf_close(r);
    return (int)st;
}
