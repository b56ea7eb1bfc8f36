/* athanor doctor calibrate: how fast the ops of training are on this machine, as a cluster that athanor plan reckons with. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "app/doctor.h"
#include "base/clock.h"
#include "base/file.h"
#include "op/machine.h"
#include "train/bench/calibrate.h"

static void show_case(void *ctx, int i, int n) {
    (void)ctx;
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\rmeasuring ops: %d of %d ", i + 1, n);
}

static status calibrate(int ranks, double seconds, doctor_checks *checks, err *e) {
    cluster *c = xcalloc(1, sizeof *c);
    char path[4400];
    int64_t began = clock_now_ns();
    strbuf text = {0};
    status st = calibrate_machine(ranks, seconds, show_case, NULL, c, e);
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K");
    if (st == ST_OK && !cluster_local_path(c->name, path, sizeof path)) st = machine_no_place(e);
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
    return calibrate((int)ranks, seconds, c, e);
}
