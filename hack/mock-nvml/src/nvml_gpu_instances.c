/* GPU instances: profiles, placements, life. */
#include <stdio.h>
#include <string.h>

#include "call.h"

static const struct profile *known(const struct call *call, unsigned enum_index)
{
    return mig_profile_by_enum(call->board, enum_index);
}

/* NVML's loop over the enum meets numbers that this board has not (NotSupported) and numbers beyond it (InvalidArgument). */
static nvmlReturn_t refusal(unsigned enum_index)
{
    return enum_index < NVML_GPU_INSTANCE_PROFILE_COUNT ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int enum_index, nvmlGpuInstanceProfileInfo_t *info)
{
    BEGIN(call_gpu, READS, device);
    const struct profile *profile = known(&call, enum_index);
    if (!profile)
        END(refusal(enum_index));
    *info = (nvmlGpuInstanceProfileInfo_t){
        profile->id, 0, profile->slices, profile->instances, profile->multiprocessors, profile->copy_engines,
        profile->decoders, profile->encoders, profile->jpeg_engines, profile->ofa_engines, profile->memory_mib,
    };
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int enum_index, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    BEGIN(call_gpu, READS, device);
    uint32_t version = info->version;
    if (version != NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2))
        END(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    const struct profile *profile = known(&call, enum_index);
    if (!profile)
        END(refusal(enum_index));
    *info = (nvmlGpuInstanceProfileInfo_v2_t){
        .version = version, .id = profile->id, .sliceCount = profile->slices, .instanceCount = profile->instances,
        .multiprocessorCount = profile->multiprocessors, .copyEngineCount = profile->copy_engines,
        .decoderCount = profile->decoders, .encoderCount = profile->encoders, .jpegCount = profile->jpeg_engines,
        .ofaCount = profile->ofa_engines, .memorySizeMB = profile->memory_mib,
    };
    snprintf(info->name, sizeof(info->name), "MIG %s", profile->name);
    END(NVML_SUCCESS);
}

/* All placements of the profile, whatever is occupied. Without a buffer: their count. */
EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int profile_id,
                                                                  nvmlPlacement_t *placements, unsigned int *count)
{
    BEGIN(call_gpu, READS, device);
    const struct profile *profile = mig_profile_by_id(call.board, profile_id);
    if (!profile)
        END(NVML_ERROR_NOT_SUPPORTED);
    unsigned room = placements ? *count : profile->start_count;
    *count = profile->start_count;
    if (room < profile->start_count)
        END(NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned i = 0; placements && i < profile->start_count; i++)
        placements[i] = (nvmlPlacement_t){profile->starts[i], profile->size};
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int profile_id, unsigned int *count)
{
    BEGIN(call_gpu, READS, device);
    const struct profile *profile = mig_profile_by_id(call.board, profile_id);
    if (!profile || !call.gpu->mig_current)
        END(NVML_ERROR_NOT_SUPPORTED);
    *count = mig_remaining(call.machine, call.gpu, profile);
    END(NVML_SUCCESS);
}

static nvmlReturn_t create(struct call *call, unsigned profile_id, const nvmlPlacement_t *placement, nvmlGpuInstance_t *handle)
{
    struct profile *profile = mig_profile_by_id(call->board, profile_id);
    struct gpu_instance *instance;
    if (!profile)
        return NVML_ERROR_NOT_SUPPORTED;
    nvmlReturn_t result = mig_create(call->machine, call->gpu, profile, placement, &instance);
    if (result == NVML_SUCCESS)
        *handle = handle_instance(call, instance);
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int profile_id, nvmlGpuInstance_t *instance)
{
    BEGIN(call_gpu, CHANGES, device);
    END(create(&call, profile_id, NULL, instance));
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int profile_id, const nvmlPlacement_t *placement,
                                                             nvmlGpuInstance_t *instance)
{
    BEGIN(call_gpu, CHANGES, device);
    END(placement ? create(&call, profile_id, placement, instance) : NVML_ERROR_INVALID_ARGUMENT);
}

/* As NVML, this trusts the buffer to have room for as many instances as the profile allows; `count` is output only. */
EXPORT nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profile_id, nvmlGpuInstance_t *instances, unsigned int *count)
{
    BEGIN(call_gpu, READS, device);
    const struct profile *profile = mig_profile_by_id(call.board, profile_id);
    if (!profile || !call.gpu->mig_current)
        END(NVML_ERROR_NOT_SUPPORTED);
    if (!instances || !count)
        END(NVML_ERROR_INVALID_ARGUMENT);
    *count = 0;
    for (unsigned i = 0; i < MAX_GPU_INSTANCES; i++) {
        const struct gpu_instance *instance = &call.gpu->instances[i];
        if (instance->in_use && mig_profile_of(call.machine, call.gpu, instance) == profile)
            instances[(*count)++] = handle_instance(&call, instance);
    }
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance)
{
    BEGIN(call_gpu, READS, device);
    if (!call.gpu->mig_current)
        END(NVML_ERROR_NOT_SUPPORTED);
    if (id >= MAX_GPU_INSTANCES || !call.gpu->instances[id].in_use)
        END(NVML_ERROR_NOT_FOUND);
    *instance = handle_instance(&call, &call.gpu->instances[id]);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
    BEGIN(call_instance, READS, instance);
    *info = (nvmlGpuInstanceInfo_t){
        .device = handle_gpu(&call, call.gpu),
        .id = instance_id(&call),
        .profileId = call.profile->id,
        .placement = {call.instance->start, call.profile->size},
    };
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
    BEGIN(call_instance, CHANGES, instance);
    END(mig_destroy(call.machine, call.gpu, call.instance));
}
