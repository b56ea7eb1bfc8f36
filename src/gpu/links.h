/* By what a GPU is joined to the machine, and two of them to each other. */
#ifndef GPU_LINKS_H
#define GPU_LINKS_H

#include "gpu/driver.h"

/* Of the slot, as Linux tells: the generation of PCIe and the number of lanes, now and at most. A GPU at rest has slower
 * links than one at work. 0: not known. */
typedef struct gpu_pcie {
    int generation, lanes, most_generation, most_lanes;
} gpu_pcie;

/* folder: "/sys/bus/pci/devices". */
gpu_pcie gpu_pcie_of(const cu_driver *api, int device, const char *folder);

typedef enum gpu_link {
    GPU_LINK_NONE, /* neither reaches the other's memory: what they send goes through the host's */
    GPU_LINK_PEER, /* they copy directly, as over PCIe */
    GPU_LINK_ATOMIC, /* and have atomics on each other's memory, as over NVLink */
} gpu_link;

gpu_link gpu_link_of(const cu_driver *api, int a, int b);

#endif
