/* The file of measured facts; see machine.h. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "op/machine.h"

enum { MOST_MACHINES = 64 }; /* of which the oldest goes */
enum { PATH_BYTES = 4096 };
#define OTHER_FILE "set ATHANOR_MACHINE_FILE to a file that can be read and written"

bool machine_is_off(void) {
    const char *file = getenv("ATHANOR_MACHINE_FILE");
    return file && strcmp(file, "none") == 0;
}

bool machine_path(char *out, size_t bytes) {
    const char *file = getenv("ATHANOR_MACHINE_FILE"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int n = -1;
    if (machine_is_off()) return false;
    if (file && *file)
        n = snprintf(out, bytes, "%s", file);
    else if (cache && *cache)
        n = snprintf(out, bytes, "%s/athanor/machine.json", cache);
    else if (home && *home)
        n = snprintf(out, bytes, "%s/.cache/athanor/machine.json", home);
    return n >= 0 && (size_t)n < bytes;
}

status machine_no_place(err *e) {
    err_set(e, ST_USAGE, "there is no place to remember what was measured");
    return err_hint(e, "set HOME, or ATHANOR_MACHINE_FILE to the name of a file");
}

void machine_free(machine_facts *f) {
    gemm_choices_free(&f->products);
}

/* What to do where a file could not be read: a damaged one goes, but not a folder, or what somebody else owns. */
static status cannot_read(const char *path, status st, err *e) {
    bool damaged = access(path, R_OK) == 0 && !file_is_dir(path);
    err_hint(e, damaged ? "delete it: what it held is measured again" : OTHER_FILE);
    return st;
}

/* ---- one machine ---- */

static json_t *layer_json(const machine_layer *l) {
    const double *ms = &l->ms[0][0][0];
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof l->ms / sizeof *ms; i++)
        json_array_append_new(list, json_f32(ms[i]));
    return json_pack("{s:I,s:I,s:I,s:o}", "rows", (json_int_t)l->rows, "in", (json_int_t)l->in,
                     "width", (json_int_t)l->width, "ms", list);
}

static json_t *facts_json(const machine_facts *f) {
    json_t *layers = json_array();
    for (int i = 0; i < f->n_layers; i++) json_array_append_new(layers, layer_json(&f->layer[i]));
    return json_pack("{s:o,s:s,s:i,s:s,s:i,s:o,s:o,s:o,s:o,s:o}", "machine", json_cstr(f->name),
                     "isa", cpu_isa_name(f->isa), "threads", f->threads, "program", ATHANOR_VERSION,
                     "best_threads", f->best_threads, "fma_gflops", json_f32(f->fma_gflops),
                     "dot_gflops", json_f32(f->dot_gflops), "memory_gb_per_s",
                     json_f32(f->memory_gb_per_s), "layers", layers, "products",
                     gemm_choices_json(&f->products));
}

static bool is_rate(double x) {
    return isfinite(x) && x >= 0;
}

static bool read_layer(const json_t *o, machine_layer *l) {
    json_int_t rows, in, width;
    json_t *list, *x;
    size_t i;
    double *ms = &l->ms[0][0][0];
    if (json_unpack((json_t *)o, "{s:I,s:I,s:I,s:o}", "rows", &rows, "in", &in, "width", &width,
                    "ms", &list) != 0 ||
        json_array_size(list) != sizeof l->ms / sizeof *ms)
        return false;
    l->rows = rows, l->in = in, l->width = width;
    json_array_foreach(list, i, x) {
        ms[i] = json_number_value(x);
        if (!json_is_number(x) || !is_rate(ms[i])) return false;
    }
    return true;
}

static bool read_numbers(const json_t *o, machine_facts *f) {
    json_t *list, *x;
    size_t i;
    if (json_unpack((json_t *)o, "{s:i,s:F,s:F,s:F,s:o}", "best_threads", &f->best_threads,
                    "fma_gflops", &f->fma_gflops, "dot_gflops", &f->dot_gflops, "memory_gb_per_s",
                    &f->memory_gb_per_s, "layers", &list) != 0 ||
        !json_is_array(list) || json_array_size(list) > MACHINE_LAYERS_MAX)
        return false;
    json_array_foreach(list, i, x) if (!read_layer(x, &f->layer[f->n_layers++])) return false;
    json_int_t threads = json_integer_value(json_object_get(o, "threads"));
    return is_rate(f->fma_gflops) && is_rate(f->dot_gflops) && is_rate(f->memory_gb_per_s) &&
           f->best_threads >= 0 && f->best_threads <= threads;
}

/* ---- the file ---- */

static bool has_text(const json_t *o, const char *key, const char *value) {
    const char *text = json_string_value(json_object_get(o, key));
    return text && strcmp(text, value) == 0;
}

/* Entries differ by threads, too. */
static bool is_like(const json_t *o, const machine_facts *f) {
    return has_text(o, "machine", f->name) && has_text(o, "isa", cpu_isa_name(f->isa)) &&
           has_text(o, "program", ATHANOR_VERSION);
}

static bool is_of(const json_t *o, const machine_facts *f) {
    return is_like(o, f) && json_integer_value(json_object_get(o, "threads")) == f->threads;
}

/* *out: the list of machines; empty when there is no file. The caller owns it. */
static status read_list(json_t **out, const char *path, err *e) {
    json_t *root = NULL;
    status st = file_exists(path) ? json_read_file(&root, path, JSON_FILE_MAX_BYTES, e) : ST_OK;
    *out = root ? json_incref(json_object_get(root, "machines")) : json_array();
    json_decref(root);
    if (st == ST_OK && json_is_array(*out)) return ST_OK;
    if (st == ST_OK) st = err_set(e, ST_FORMAT, "%s has no list of machines", path);
    json_decref(*out);
    *out = NULL;
    return st;
}

/* Layers are measured on one thread, so those of devices with other threads hold, too. */
static void add_layers(machine_facts *f, const json_t *o) {
    machine_layer l;
    json_t *x;
    size_t i;
    json_array_foreach(json_object_get(o, "layers"), i, x) {
        bool room = f->n_layers < MACHINE_LAYERS_MAX;
        if (room && read_layer(x, &l) && !machine_find(f, &l)) f->layer[f->n_layers++] = l;
    }
}

static status read_own(machine_facts *f, const json_t *list, const char *path, err *e) {
    json_t *o;
    size_t i;
    const json_t *own = NULL, *like = NULL;
    json_array_foreach(list, i, o) {
        if (is_of(o, f)) own = o;
        if (is_like(o, f)) like = o;
    }
    if (!like) return ST_OK;
    if (!read_numbers(own ? own : like, f))
        return err_set(e, ST_FORMAT, "%s: the facts of %s are damaged", path, f->name);
    json_array_foreach(list, i, o) if (is_like(o, f)) add_layers(f, o);
    if (own) return gemm_choices_from_json(&f->products, json_object_get(own, "products"), path, e);
    f->best_threads = 0, f->memory_gb_per_s = 0;
    return ST_OK;
}

static void clear(machine_facts *f, const dev *d) {
    machine_free(f);
    *f = (machine_facts){.isa = dev_isa(d), .threads = dev_threads(d)};
    dev_machine_name(f->name);
}

status machine_read(machine_facts *f, const dev *d, err *e) {
    char path[PATH_BYTES];
    json_t *list;
    f->products = (gemm_choices){0};
    clear(f, d);
    if (!machine_path(path, sizeof path)) return ST_OK;
    status st = read_list(&list, path, e);
    if (st == ST_OK) st = read_own(f, list, path, e);
    json_decref(list);
    if (st == ST_OK) return ST_OK;
    clear(f, d);
    return cannot_read(path, st, e);
}

/* Its folder is made. */
static status make_folder(const char *path, err *e) {
    const char *base = path_base(path);
    char dir[4096];
    if (base == path) return ST_OK;
    snprintf(dir, sizeof dir, "%.*s", (int)(base - path), path);
    return file_make_dirs(dir, e);
}

static status write_list(json_t *list, const char *path, err *e) {
    strbuf text = {0};
    json_t *root = json_pack("{s:O}", "machines", list);
    json_format(&text, root, 2);
    strbuf_putc(&text, '\n');
    json_decref(root);
    status st = file_write_atomic(path, text.data, text.len, e);
    strbuf_free(&text);
    return st;
}

/* ---- one writer at a time ---- */

/* Holds PATH.lock until the descriptor is closed, so that what a process reads, changes and writes has no other's write
 * in between. -1: there is no lock, as where the file system has none, or whoever holds it has stopped. Then it is done
 * without: at worst something is measured again, which is better than a program that waits for ever. */
static int lock(const char *path) {
    enum { MOST_S = 3, NAP_US = 5000 };
    char name[PATH_BYTES + 8];
    snprintf(name, sizeof name, "%s.lock", path);
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    int64_t began = clock_now_ns();
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if ((errno == EWOULDBLOCK || errno == EINTR) && clock_since_s(began) < MOST_S) {
            usleep(NAP_US);
            continue;
        }
        close(fd);
        fd = -1;
    }
    return fd;
}

static void unlock(int fd) {
    if (fd >= 0) close(fd);
}

/* What another process has put into this entry since f was read. */
static void add_since(machine_facts *f, const json_t *own) {
    machine_facts old = {0};
    if (!read_numbers(own, &old)) return;
    add_layers(f, own);
    if (f->best_threads == 0) f->best_threads = old.best_threads;
    if (f->fma_gflops <= 0) f->fma_gflops = old.fma_gflops, f->dot_gflops = old.dot_gflops;
    if (f->memory_gb_per_s <= 0) f->memory_gb_per_s = old.memory_gb_per_s;
}

/* The products of both; of one that both have, what f says. */
static gemm_choices join_products(const machine_facts *f, const json_t *own) {
    gemm_choices both = {0};
    const json_t *list = json_object_get(own, "products");
    if (list && gemm_choices_from_json(&both, list, "", NULL) != ST_OK) gemm_choices_free(&both);
    for (int i = 0; i < f->products.n; i++) gemm_choices_put(&both, &f->products.item[i]);
    return both;
}

/* What was measured of the same machine with other numbers of threads. */
static void forget_like(json_t *list, const machine_facts *f) {
    json_t *o;
    size_t i;
    json_array_foreach(list, i, o) {
        if (!is_like(o, f)) continue;
        json_object_set_new(o, "layers", json_array());
        json_object_set_new(o, "best_threads", json_integer(0));
    }
}

/* Puts them in place of the list's entry of the same machine. */
static void put_facts(json_t *list, const machine_facts *f, bool anew) {
    machine_facts all = *f;
    json_t *own = NULL;
    if (anew) forget_like(list, f);
    for (size_t i = json_array_size(list); i-- > 0;) {
        if (!is_of(json_array_get(list, i), f)) continue;
        if (!own) own = json_incref(json_array_get(list, i));
        json_array_remove(list, i);
    }
    if (own && !anew) add_since(&all, own);
    all.products = join_products(f, own);
    while (json_array_size(list) >= MOST_MACHINES) json_array_remove(list, 0);
    json_array_append_new(list, facts_json(&all));
    machine_free(&all);
    json_decref(own);
}

static status change(const char *path, const machine_facts *f, bool anew, err *e) {
    json_t *list;
    status st = read_list(&list, path, e);
    if (st != ST_OK) return cannot_read(path, st, e);
    put_facts(list, f, anew);
    st = write_list(list, path, e);
    json_decref(list);
    if (st != ST_OK) err_hint(e, OTHER_FILE);
    return st;
}

static status write_facts(const machine_facts *f, bool anew, err *e) {
    char path[PATH_BYTES];
    if (!machine_path(path, sizeof path)) return machine_no_place(e);
    status st = make_folder(path, e);
    if (st != ST_OK) {
        err_hint(e, OTHER_FILE);
        return st;
    }
    int held = lock(path);
    st = change(path, f, anew, e);
    unlock(held);
    return st;
}

status machine_write(const machine_facts *f, err *e) {
    return write_facts(f, false, e);
}

status machine_write_anew(const machine_facts *f, err *e) {
    return write_facts(f, true, e);
}
