/* The forms in which nvidia-smi shows GPUs. */
#ifndef MOCK_NVML_SMI_PRINT_H
#define MOCK_NVML_SMI_PRINT_H

#include "smi_devices.h"

void smi_print_versions(void);
void smi_print_list(const struct smi_gpu *gpus, unsigned count);
void smi_print_query(const struct smi_gpu *gpus, unsigned count);
void smi_print_table(const struct smi_gpu *gpus, unsigned count);
void smi_print_policies(const struct smi_gpu *gpus, unsigned count);

#endif
