/* athanor doctor calibrate: how fast the ops of training are on this machine, as a cluster that athanor plan reckons with. */
#include <stdio.h>
#include <stdlib.h>

#include "app/doctor.h"
#include "app/frame/progress.h"
#include "base/clock.h"
#include "base/file.h"
#include "op/machine.h"
#include "train/bench/calibrate.h"
#include "train/bench/disk_speed.h"

static void show_case(void *ctx, int i, int n) {
    (void)ctx;
    if (progress_is_live(stderr)) fprintf(stderr, "\rmeasuring ops: %d of %d ", i + 1, n);
}

static status measure_disk(const char *folder, double *rate, doctor_checks *checks, err *e) {
    if (!folder) return ST_OK;
    TRY(disk_speed(folder, rate, e));
    doctor_check(checks, "disk", true, "%.2f GB/s, written and read in %.300s", *rate * 1e-9,
                 folder);
    return ST_OK;
}

/* A disk that was measured before is still there: only --disk measures it again. */
static double disk_known(const char *path) {
    err ignored = {0};
    cluster *was = xcalloc(1, sizeof *was);
    double rate = cluster_find(was, path, &ignored) == ST_OK ? was->disk_bytes_per_s : 0;
    free(was);
    return rate;
}

static status calibrate(int ranks, double seconds, const char *folder, doctor_checks *checks,
                        err *e) {
    char path[4400];
    double disk = 0; /* measured first: it may fail, and the ops take a minute */
    TRY(measure_disk(folder, &disk, checks, e));
    cluster *c = xcalloc(1, sizeof *c);
    int64_t began = clock_now_ns();
    strbuf text = {0};
    status st = calibrate_machine(ranks, seconds, show_case, NULL, c, e);
    if (progress_is_live(stderr)) fprintf(stderr, "\r\033[K");
    if (st == ST_OK && !cluster_local_path(c->name, path, sizeof path)) st = machine_no_place(e);
    if (st == ST_OK)
        c->disk_bytes_per_s =
            folder ? disk / c->per_node /* which ranks share */ : disk_known(path);
    if (st == ST_OK) {
        cluster_put_yaml(&text, c);
        st = file_write_atomic(path, text.data, text.len, e);
    }
    if (st == ST_OK)
        doctor_check(
            checks, c->name, true,
            "%d rates of ops, measured in %.0f s; athanor plan CONFIG cluster=%s uses %.300s",
            c->n_rates, clock_since_s(began), c->name, path);
    strbuf_free(&text);
    free(c);
    return st;
}

status doctor_calibrate(const cli_args *args, doctor_checks *c, err *e) {
    int64_t ranks;
    TRY(cli_int(args, "ranks", 1, 1, COMM_MOST_RANKS, &ranks, e));
    double seconds;
    TRY(cli_num(args, "seconds", 60, 0.1, 86400, &seconds, e));
    const char *folder = cli_value(args, "disk");
    if (folder && !file_is_dir(folder)) {
        err_set(e, ST_USAGE, "--disk %s is no folder", folder);
        return err_hint(e, "name the folder in which parallel.offload will put its file");
    }
    return calibrate((int)ranks, seconds, folder, c, e);
}
