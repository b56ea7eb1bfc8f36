#include "gpu/links.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

/* The number with which a file of one line begins: "16.0 GT/s PCIe"; 0: there is none. */
static double read_number(const char *folder, const char *bus_id, const char *name) {
    char path[512], line[64] = "";
    snprintf(path, sizeof path, "%s/%s/%s", folder, bus_id, name);
    FILE *f = fopen(path, "r");
    if (f && !fgets(line, sizeof line, f)) line[0] = '\0';
    if (f) fclose(f);
    return strtod(line, NULL);
}

/* GT/s of a lane; each generation has about twice those of the one before. */
static int generation_of(double speed) {
    static const double least[] = {2.5, 5, 8, 16, 32, 64};
    int generation = 0;
    for (int i = 0; i < (int)(sizeof least / sizeof *least); i++)
        if (speed >= least[i]) generation = i + 1;
    return generation;
}

static int lanes_of(double lanes) {
    return lanes >= 1 && lanes <= 32 ? (int)lanes : 0; /* Linux says 255 where it does not know */
}

gpu_pcie gpu_pcie_of(const cu_driver *api, int device, const char *folder) {
    char id[32] = "";
    if (api->device_bus_id(id, sizeof id, device) != 0) return (gpu_pcie){0};
    for (char *c = id; *c; c++) *c = (char)tolower((unsigned char)*c); /* as folders are named */
    return (gpu_pcie){generation_of(read_number(folder, id, "current_link_speed")),
                      lanes_of(read_number(folder, id, "current_link_width")),
                      generation_of(read_number(folder, id, "max_link_speed")),
                      lanes_of(read_number(folder, id, "max_link_width"))};
}

gpu_link gpu_link_of(const cu_driver *api, int a, int b) {
    int there = 0, back = 0, atomics = 0;
    if (api->can_access_peer(&there, a, b) != 0 || api->can_access_peer(&back, b, a) != 0)
        return GPU_LINK_NONE;
    if (!there || !back) return GPU_LINK_NONE;
    bool known = api->peer_attribute(&atomics, CU_PEER_ATOMICS, a, b) == 0;
    return known && atomics ? GPU_LINK_ATOMIC : GPU_LINK_PEER;
}
