/* The processors that this process may use: those on which the system lets it run, and how much of
 * their time its control groups grant. Files are those of Linux in /proc and /sys; one that is missing
 * or odd says nothing. */
#include "dev/dev_int.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"

enum { PATH_BYTES = 4096 };

/* ---- where it may run ---- */

/* OpenMP has places where it is told to bind threads. Else it is not asked: LLVM's begins by that, and ends the program
 * where it does not find this process in /proc, as in a container that has the /proc of another. */
static bool binds_threads(void) {
    return getenv("OMP_PROC_BIND") || getenv("OMP_PLACES") || getenv("GOMP_CPU_AFFINITY") ||
           getenv("KMP_AFFINITY");
}

/* OpenMP's places. This thread was bound to the first of them before main, so that its own set has one processor. */
static int put_places(cpu_set_t *set) {
    int found = 0, places = binds_threads() ? omp_get_num_places() : 0;
    for (int i = 0; i < places; i++) {
        int n = omp_get_place_num_procs(i);
        int *id = xcalloc((size_t)n + 1, sizeof *id);
        omp_get_place_proc_ids(i, id);
        for (int k = 0; k < n; k++)
            if (id[k] >= 0 && id[k] < CPU_SETSIZE) CPU_SET((size_t)id[k], set), found++;
        free(id);
    }
    return found;
}

static bool allowed(cpu_set_t *set) {
    CPU_ZERO(set);
    return put_places(set) > 0 || sched_getaffinity(0, sizeof *set, set) == 0;
}

void dev_unbind(void) {
    cpu_set_t set;
    /* Where it fails a program has less than it may have. */
    if (binds_threads() && allowed(&set)) (void)!sched_setaffinity(0, sizeof set, &set);
}

int dev_list_processors(int *cpu, int room) {
    cpu_set_t set;
    int n = 0;
    if (!allowed(&set)) return 0;
    for (int i = 0; i < CPU_SETSIZE && n < room; i++)
        if (CPU_ISSET((size_t)i, &set)) cpu[n++] = i;
    return n;
}

/* "0,32" or "0-1": whether the list has an allowed processor below `cpu`. */
static bool has_lower(const char *list, int cpu, const cpu_set_t *set) {
    for (char *end; *list; list = *end ? end + 1 : end) {
        long first = strtol(list, &end, 10), last = first;
        if (end == list) return false;
        if (*end == '-') last = strtol(end + 1, &end, 10);
        for (long i = first; i >= 0 && i <= last && i < cpu; i++)
            if (CPU_ISSET((size_t)i, set)) return true;
    }
    return false;
}

int dev_count_cores(const char *dir, const cpu_set_t *set) {
    int cores = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        char path[256], list[256] = "";
        if (!CPU_ISSET((size_t)cpu, set)) continue;
        snprintf(path, sizeof path, "%s/cpu%d/topology/thread_siblings_list", dir, cpu);
        FILE *f = fopen(path, "r");
        if (f && !fgets(list, sizeof list, f)) list[0] = '\0';
        if (f) fclose(f);
        cores += !has_lower(list, cpu, set);
    }
    return cores;
}

int dev_cores(void) {
    cpu_set_t set;
    return allowed(&set) ? dev_count_cores("/sys/devices/system/cpu", &set) : dev_processors();
}

/* ---- how much of their time it gets ---- */

static bool read_line(const char *dir, const char *group, const char *name, char line[64]) {
    char path[2 * PATH_BYTES];
    snprintf(path, sizeof path, "%s%s/%s", dir, group, name);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    bool read = fgets(line, 64, f) != NULL;
    fclose(f);
    return read;
}

/* Of one group; 0: no limit. Version 2 has "50000 100000" or "max 100000" in one file, version 1 two
 * files, with -1 for no limit. */
static double group_quota(const char *dir, const char *group, bool v1) {
    char line[64], second[64], *end;
    if (!read_line(dir, group, v1 ? "cpu.cfs_quota_us" : "cpu.max", line)) return 0;
    double quota = strtod(line, &end);
    if (v1 && !read_line(dir, group, "cpu.cfs_period_us", second)) return 0;
    double period = strtod(v1 ? second : end, NULL);
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* The least from `group` ("/a/b") up to the root; inside a container the outer part of the path may not
 * be visible, so the root is always asked. */
static double least_quota(const char *dir, char *group, bool v1) {
    double least = 0;
    for (;;) {
        double q = group_quota(dir, group, v1);
        if (q > 0 && (least == 0 || q < least)) least = q;
        char *slash = strrchr(group, '/');
        if (!slash) return least;
        *slash = '\0';
    }
}

/* "cpu" or "cpu,cpuacct" */
static bool names_cpu(const char *controllers) {
    size_t n = strcspn(controllers, ",");
    if (n == 3 && strncmp(controllers, "cpu", 3) == 0) return true;
    return controllers[n] && names_cpu(controllers + n + 1);
}

/* Lines are "id:controllers:/path"; version 2 has no controllers. */
double dev_read_quota(const char *groups, const char *root) {
    char line[PATH_BYTES], dir[PATH_BYTES];
    double least = 0;
    FILE *f = fopen(groups, "r");
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *controllers++ = *group++ = '\0';
        if (*controllers && !names_cpu(controllers)) continue;
        snprintf(dir, sizeof dir, "%s%s", root, *controllers ? "/cpu" : "");
        double q = least_quota(dir, group, *controllers);
        if (q > 0 && (least == 0 || q < least)) least = q;
    }
    fclose(f);
    return least;
}

double dev_quota(void) {
    return dev_read_quota("/proc/self/cgroup", "/sys/fs/cgroup");
}

/* ---- threads ---- */

/* With more threads than the quota pays for, all of them stop together for the rest of each period, and who waits
 * for another one spends what that one would need. */
int dev_processors(void) {
    cpu_set_t set;
    double quota = dev_quota();
    int n = allowed(&set) ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (quota > 0 && quota < n) n = (int)quota;
    return n > 0 ? n : 1;
}

int dev_default_threads(void) {
    int n = dev_processors();
    const char *text = getenv("OMP_NUM_THREADS");
    long limit = text ? strtol(text, NULL, 10) : 0;
    return limit > 0 && limit < n ? (int)limit : n;
}
