/* What nvidia-smi knows of the machine: the GPUs and partitions that its /dev lets it use. */
#ifndef MOCK_NVML_SMI_H
#define MOCK_NVML_SMI_H

#include <stdbool.h>

#include "nvml.h"
#include "nvml_functions.h"

enum { SMI_MOST_GPUS = 32 };

struct smi_gpu {
    nvmlDevice_t device;
    unsigned index, minor;
    char name[96], uuid[80], bus_id[32];
};

struct smi_partition {
    char profile[32], uuid[80];
};

/* Open NVML; on the node itself make what is missing in /dev. DriverNotLoaded where there is no control node, as the real one finds. */
nvmlReturn_t smi_open(void);

/* GPUs that may be used here, numbered from 0 as they are seen; `wanted` limits them to one by index, UUID or PCI bus id. */
unsigned smi_find_gpus(struct smi_gpu *gpus, const char *wanted);

/* The MIG device at NVML's index, when it exists and may be used here. */
bool smi_partition(const struct smi_gpu *gpu, unsigned index, struct smi_partition *partition);

#endif
