/* Memory of the machine and of this process, as Linux tells it in /proc and /sys/fs/cgroup.
 *
 * What is available is the least of the kernel's estimate and the room left under every memory
 * limit of the control groups above this process. A file that is missing or odd sets no limit. */
#include "dev/dev.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

/* The number after `key` at the start of a line, times unit; false when there is none. */
static bool read_field(const char *path, const char *key, size_t unit, size_t *value) {
    FILE *f = fopen(path, "r");
    if (!f) return false;
    char line[PATH_BYTES];
    size_t n = strlen(key);
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, n) != 0) continue;
        char *end;
        unsigned long long x = strtoull(line + n, &end, 10);
        found = end != line + n;
        if (found) *value = x > SIZE_MAX / unit ? SIZE_MAX : (size_t)x * unit;
    }
    fclose(f);
    return found;
}

/* Names of one version of the control-group files. */
typedef struct cgroup_files {
    const char *root, *limit, *usage, *cache_key;
} cgroup_files;

static const cgroup_files CGROUP_V1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                       "memory.usage_in_bytes", "total_inactive_file "};
static const cgroup_files CGROUP_V2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                       "inactive_file "};

/* Room under one group's limit, SIZE_MAX for no limit ("max" is not a number). Cached file pages
 * that nobody uses count as usage but are given back on demand. */
static size_t group_room(const cgroup_files *files, const char *group) {
    char path[2 * PATH_BYTES];
    size_t limit, usage, cache = 0;
    snprintf(path, sizeof path, "%s%s/%s", files->root, group, files->limit);
    if (!read_field(path, "", 1, &limit)) return SIZE_MAX;
    snprintf(path, sizeof path, "%s%s/%s", files->root, group, files->usage);
    if (!read_field(path, "", 1, &usage)) return SIZE_MAX;
    snprintf(path, sizeof path, "%s%s/memory.stat", files->root, group);
    read_field(path, files->cache_key, 1, &cache);
    usage -= cache < usage ? cache : usage;
    return limit > usage ? limit - usage : 0;
}

/* The least room from `group` ("/a/b") up to the root; inside a container the outer part of the
 * path may not be visible, so the root is always asked. */
static size_t room_up_to_root(const cgroup_files *files, char *group) {
    size_t room = SIZE_MAX;
    for (;;) {
        size_t r = group_room(files, group);
        if (r < room) room = r;
        char *slash = strrchr(group, '/');
        if (!slash) return room;
        *slash = '\0';
    }
}

/* /proc/self/cgroup has lines "id:controllers:/path"; version 2 has id 0 and no controllers. */
static size_t cgroup_room(void) {
    FILE *f = fopen("/proc/self/cgroup", "r");
    if (!f) return SIZE_MAX;
    size_t room = SIZE_MAX;
    char line[PATH_BYTES];
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        size_t r = SIZE_MAX;
        if (strcmp(controllers + 1, "memory") == 0)
            r = room_up_to_root(&CGROUP_V1, group);
        else if (controllers[1] == '\0')
            r = room_up_to_root(&CGROUP_V2, group);
        if (r < room) room = r;
    }
    fclose(f);
    return room;
}

size_t dev_machine_total_bytes(void) {
    size_t total;
    if (read_field("/proc/meminfo", "MemTotal:", 1024, &total)) return total;
    return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

size_t dev_machine_available_bytes(void) {
    size_t available, room = cgroup_room();
    if (!read_field("/proc/meminfo", "MemAvailable:", 1024, &available))
        available = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    return available < room ? available : room;
}

size_t dev_process_anon_bytes(void) {
    size_t bytes = 0;
    read_field("/proc/self/status", "RssAnon:", 1024, &bytes);
    return bytes;
}

size_t dev_process_peak_bytes(void) {
    size_t bytes;
    if (read_field("/proc/self/status", "VmHWM:", 1024, &bytes)) return bytes;
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (size_t)usage.ru_maxrss * 1024 : 0;
}
