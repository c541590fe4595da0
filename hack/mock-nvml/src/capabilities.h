/*
 * /proc/driver/nvidia/capabilities of the mocked machine follows the partitions.
 *
 * Only a tree that carries the mock host's marker file is touched, and only where this process may write: the host's own, or the one
 * that a driver root brings along. In a container that only uses a GPU, or on a machine with a real driver, nothing happens.
 */
#ifndef MOCK_NVML_CAPABILITIES_H
#define MOCK_NVML_CAPABILITIES_H

#include <stdbool.h>

#include "state.h"

#define HOST_MARKER ".mock-host"
/* Beside the library in a driver root: the same tree, for processes in containers. */
#define KERNEL_TREE "mock-kernel"

/* Minor numbers of the capability device of a GPU instance, and of a compute instance in it, as the driver assigns them. */
unsigned capability_gi_minor(unsigned gpu_minor, unsigned gi);
unsigned capability_ci_minor(unsigned gpu_minor, unsigned gi, unsigned ci);

/* Add or remove gpu<minor>/mig/gi<gi>/access, or with ci >= 0 the …/ci<ci>/access below it. */
void capability_add(const struct machine *machine, unsigned gpu_minor, unsigned gi, int ci);
void capability_remove(const struct machine *machine, unsigned gpu_minor, unsigned gi, int ci);

/* True when this process stands on the mocked node itself, not in a container. */
bool capability_on_host(const struct machine *machine);

#endif
