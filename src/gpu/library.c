#include "gpu/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *open_in(const char *folder, int folder_bytes, const char *name) {
    char path[4096];
    if (snprintf(path, sizeof path, "%.*s/%s", folder_bytes, folder, name) >= (int)sizeof path)
        return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

void *gpu_find_library(const char *const names[], int n) {
    for (int i = 0; i < n; i++) {
        void *found = NULL;
        const char *folders = getenv("ATHANOR_CUDA_LIBS");
        for (const char *at = folders; at && *at && !found;) {
            int bytes = (int)strcspn(at, ":");
            if (bytes > 0) found = open_in(at, bytes, names[i]);
            at += bytes + (at[bytes] == ':');
        }
        if (!found) found = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (found) return found;
    }
    return NULL;
}
