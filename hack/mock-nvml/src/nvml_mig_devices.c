/* MIG mode, and MIG devices as NVML devices. */
#include <string.h>

#include "call.h"

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    BEGIN(call_gpu, READS, device);
    if (!call.board->mig_capable)
        END(NVML_ERROR_NOT_SUPPORTED);
    *current = call.gpu->mig_current;
    *pending = call.gpu->mig_pending;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *activation)
{
    BEGIN(call_gpu, CHANGES, device);
    END(mode > 1 ? NVML_ERROR_INVALID_ARGUMENT : mig_set_mode(call.machine, call.gpu, mode, activation));
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    BEGIN(call_gpu, READS, device);
    *count = call.board->mig_capable ? call.board->compute_slices : 0;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
    BEGIN(call_device, READS, device);
    *is_mig = call.compute != NULL;
    END(NVML_SUCCESS);
}

/* Step to the next MIG device of the GPU, by GPU instance and compute instance id. False after the last. */
static bool next_device(struct call *call, unsigned *position)
{
    for (; *position < MAX_GPU_INSTANCES * MAX_COMPUTE_INSTANCES; ++*position) {
        struct gpu_instance *instance = &call->gpu->instances[*position / MAX_COMPUTE_INSTANCES];
        struct compute_instance *compute = &instance->compute[*position % MAX_COMPUTE_INSTANCES];
        if (!instance->in_use || !compute->in_use)
            continue;
        call->instance = instance;
        call->compute = compute;
        ++*position;
        return true;
    }
    return false;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig)
{
    BEGIN(call_gpu, READS, device);
    unsigned position = 0;
    if (!call.board->mig_capable)
        END(NVML_ERROR_NOT_SUPPORTED);
    if (index >= call.board->compute_slices)
        END(NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned i = 0; i <= index; i++)
        if (!next_device(&call, &position))
            END(NVML_ERROR_NOT_FOUND);
    *mig = handle_mig(&call, call.instance, call.compute);
    END(NVML_SUCCESS);
}

/* Of a GPU: its place in the enumeration. Of a MIG device: its place on its GPU. */
EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    BEGIN(call_device, READS, device);
    const struct compute_instance *wanted = call.compute;
    unsigned position = 0, count = 0;
    while (wanted && next_device(&call, &position) && call.compute != wanted)
        count++;
    *index = wanted ? count : gpu_index(&call);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
    BEGIN(call_device, READS, mig);
    if (!call.compute)
        END(NVML_ERROR_INVALID_ARGUMENT);
    *device = handle_gpu(&call, call.gpu);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t mig, unsigned int *id)
{
    BEGIN(call_device, READS, mig);
    if (!call.compute)
        END(NVML_ERROR_NOT_SUPPORTED);
    *id = instance_id(&call);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t mig, unsigned int *id)
{
    BEGIN(call_device, READS, mig);
    if (!call.compute)
        END(NVML_ERROR_NOT_SUPPORTED);
    *id = compute_id(&call);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t mig, nvmlDeviceAttributes_t *attributes)
{
    BEGIN(call_device, READS, mig);
    if (!call.compute)
        END(NVML_ERROR_NOT_SUPPORTED);
    const struct profile *profile = call.profile;
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = profile->multiprocessors * call.compute->slices / profile->slices,
        .sharedCopyEngineCount = profile->copy_engines,
        .sharedDecoderCount = profile->decoders,
        .sharedEncoderCount = profile->encoders,
        .sharedJpegCount = profile->jpeg_engines,
        .sharedOfaCount = profile->ofa_engines,
        .gpuInstanceSliceCount = profile->slices,
        .computeInstanceSliceCount = call.compute->slices,
        .memorySizeMB = profile->memory_mib,
    };
    END(NVML_SUCCESS);
}
