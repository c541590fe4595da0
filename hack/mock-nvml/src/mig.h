/*
 * The MIG state machine: what may exist together on one GPU, and what a change does.
 *
 * Works on the machine alone and is called with the lock held; knows no handles and no faults. Rules: NVIDIA's MIG user guide
 * and what `nvidia-smi mig` was seen to answer.
 */
#ifndef MOCK_NVML_MIG_H
#define MOCK_NVML_MIG_H

#include "nvml.h"
#include "state.h"

struct board *mig_board(struct machine *machine, const struct gpu *gpu);
/* Profile of the board by the enum NVML is asked with, or by the id it answers; NULL when the board has none. */
struct profile *mig_profile_by_enum(struct board *board, unsigned enum_index);
struct profile *mig_profile_by_id(struct board *board, unsigned id);
struct profile *mig_profile_of(struct machine *machine, const struct gpu *gpu, const struct gpu_instance *instance);

/* Switch the mode. `activation` says whether the new mode is in force: success, reset required (Ampere) or in use. */
nvmlReturn_t mig_set_mode(struct machine *machine, struct gpu *gpu, bool enabled, nvmlReturn_t *activation);

/* Instances of the profile that would still fit. */
unsigned mig_remaining(struct machine *machine, struct gpu *gpu, const struct profile *profile);

/* Make an instance at `placement`, or where the driver would put it when NULL. */
nvmlReturn_t mig_create(struct machine *machine, struct gpu *gpu, struct profile *profile, const nvmlPlacement_t *placement,
                        struct gpu_instance **created);
nvmlReturn_t mig_destroy(struct machine *machine, struct gpu *gpu, struct gpu_instance *instance);

/* Compute slices of a compute-instance profile that this GPU instance offers; 0 when it offers it not. */
unsigned mig_compute_slices(const struct profile *profile, unsigned compute_profile);
unsigned mig_compute_profile(unsigned slices);
unsigned mig_compute_remaining(const struct profile *profile, const struct gpu_instance *instance, unsigned slices);
nvmlReturn_t mig_create_compute(struct machine *machine, struct gpu *gpu, struct gpu_instance *instance, unsigned slices,
                                const nvmlPlacement_t *placement, struct compute_instance **created);
nvmlReturn_t mig_destroy_compute(struct machine *machine, struct gpu *gpu, struct gpu_instance *instance,
                                 struct compute_instance *compute);

/* Remove all partitions and put the pending mode in force, as a GPU reset does. */
void mig_reset(struct machine *machine, struct gpu *gpu);
/* What a reboot leaves of MIG on this GPU. */
void mig_reboot(struct machine *machine, struct gpu *gpu);

#endif
