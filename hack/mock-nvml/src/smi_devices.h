/* Which GPUs and MIG devices this process can use: those whose device nodes it can open. */
#ifndef MOCK_NVML_SMI_DEVICES_H
#define MOCK_NVML_SMI_DEVICES_H

#include <stdbool.h>

#include "nvml.h"

enum { MAX_VISIBLE = 32, MAX_VISIBLE_MIG = 8 };

struct smi_gpu {
    nvmlDevice_t device;
    nvmlReturn_t state; /* why there is no handle; success when there is one */
    unsigned number;    /* place in NVML's enumeration */
    unsigned minor;
    char uuid[96], bus_id[32];
    nvmlDevice_t mig[MAX_VISIBLE_MIG];
    unsigned mig_count;
};

/* Fill `gpus` with what is visible; their count. On the node itself, as root, missing nodes are made first, as nvidia-modprobe does. */
unsigned smi_find_gpus(struct smi_gpu *gpus);

/* True when /dev/nvidiactl can be used, being made first where that is ours to do. */
bool smi_has_control_node(void);

#endif
