/*
 * How every exported function begins and ends: library initialised, faults suffered, lock taken, handle read, GPU not lost.
 *
 *     nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
 *     {
 *         BEGIN(call_gpu, READS, device);
 *         *minor = call.gpu->minor;
 *         END(NVML_SUCCESS);
 *     }
 *
 * A handle is a number: kind, GPU index, GPU instance, compute instance, and the serial of the instance it was made for. So it is the same
 * in every call and process, and a handle to an instance that is gone never reaches its successor.
 */
#ifndef MOCK_NVML_CALL_H
#define MOCK_NVML_CALL_H

#include "mig.h"
#include "nvml.h"
#include "state.h"

#define EXPORT __attribute__((visibility("default")))

enum access { READS, CHANGES };

struct call {
    struct machine_file *file;
    struct machine *machine;
    struct gpu *gpu;                   /* NULL for a call about no GPU */
    struct board *board;
    struct gpu_instance *instance;     /* of a GPU instance, a compute instance or a MIG device */
    struct compute_instance *compute;  /* of a compute instance or a MIG device */
    struct profile *profile;           /* of `instance` */
};

/* Each returns with the lock held when it succeeds, and without it when not. */
nvmlReturn_t call_system(struct call *call, const char *function, enum access access);
nvmlReturn_t call_index(struct call *call, const char *function, enum access access, unsigned index);
nvmlReturn_t call_uuid(struct call *call, const char *function, enum access access, const char *uuid);
nvmlReturn_t call_pci(struct call *call, const char *function, enum access access, const char *bus_id);
nvmlReturn_t call_gpu(struct call *call, const char *function, enum access access, nvmlDevice_t device); /* whole GPUs only */
nvmlReturn_t call_device(struct call *call, const char *function, enum access access, nvmlDevice_t device);
nvmlReturn_t call_instance(struct call *call, const char *function, enum access access, nvmlGpuInstance_t instance);
nvmlReturn_t call_compute(struct call *call, const char *function, enum access access, nvmlComputeInstance_t compute);

/* Release the lock and pass the result through. */
nvmlReturn_t call_end(struct call *call, nvmlReturn_t result);

#define BEGIN(opener, ...)                                          \
    struct call call;                                               \
    nvmlReturn_t begun = opener(&call, __func__, __VA_ARGS__);      \
    if (begun != NVML_SUCCESS)                                      \
        return begun
#define END(result) return call_end(&call, (result))

/* Handles of what `call` points at. */
nvmlDevice_t handle_gpu(const struct call *call, const struct gpu *gpu);
nvmlDevice_t handle_mig(const struct call *call, const struct gpu_instance *instance, const struct compute_instance *compute);
nvmlGpuInstance_t handle_instance(const struct call *call, const struct gpu_instance *instance);
nvmlComputeInstance_t handle_compute(const struct call *call, const struct gpu_instance *instance,
                                     const struct compute_instance *compute);

unsigned gpu_index(const struct call *call);
unsigned instance_id(const struct call *call);
unsigned compute_id(const struct call *call);

/* Copy `text` into the caller's buffer: InsufficientSize when it does not fit, InvalidArgument without a buffer. */
nvmlReturn_t copy_text(char *buffer, unsigned length, const char *text);

#endif
