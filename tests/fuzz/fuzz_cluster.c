/* libFuzzer target: files of clusters from outside bytes. What is read says a finite time for every collective and every size, and
 * reads back from what is written of it. */
#include <math.h>

#include "base/yaml.h"
#include "plan/clock/network.h"
#include "plan/clock/roofline.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check_times(const cluster *c) {
    for (double bytes = 1; bytes < 1e13; bytes *= 1e3) {
        for (int ranks = 1; ranks <= 4096; ranks *= 8) {
            network_group g = {ranks, ranks < c->per_node ? ranks : c->per_node};
            double t = network_seconds(c, g, COMM_ALL_REDUCE, bytes);
            CHECK(isfinite(t) && t >= 0, "an all-reduce of %g s", t);
        }
        CHECK(isfinite(roofline_stream(c, bytes)), "a stream that does not end");
    }
    CHECK(cluster_devices(c) >= 1 && cluster_usable_bytes(c) > 0, "an empty cluster");
}

static void check_written(const cluster *c) {
    cluster back;
    err e = {0};
    json_t *o = cluster_json(c);
    CHECK(cluster_read(&back, o, NULL, "fuzz", &e) == ST_OK, "%s", e.message);
    json_decref(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    json_t *root, *origins;
    cluster c;
    err e = {0};
    if (yaml_parse(&root, &origins, "fuzz", (const char *)data, len, &e) != ST_OK) return 0;
    if (cluster_read(&c, root, origins, "fuzz", &e) == ST_OK) {
        check_times(&c);
        check_written(&c);
    }
    json_decref(root);
    json_decref(origins);
    return 0;
}
