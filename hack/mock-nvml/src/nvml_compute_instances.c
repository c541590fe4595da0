/* Compute instances: profiles, placements, life. */
#include <stdio.h>
#include <string.h>

#include "call.h"

/* Slices of the asked profile, or 0 with the reason in `result`. Only the shared engine profile exists. */
static unsigned slices_of(const struct call *call, unsigned profile, unsigned engine_profile, nvmlReturn_t *result)
{
    bool in_range = profile < NVML_COMPUTE_INSTANCE_PROFILE_COUNT && engine_profile == 0;
    *result = in_range ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
    return in_range ? mig_compute_slices(call->profile, profile) : 0;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned int enum_index, unsigned int engines,
                                                                 nvmlComputeInstanceProfileInfo_t *info)
{
    BEGIN(call_instance, READS, instance);
    nvmlReturn_t refusal;
    const struct profile *profile = call.profile;
    unsigned slices = slices_of(&call, enum_index, engines, &refusal);
    if (!slices)
        END(refusal);
    *info = (nvmlComputeInstanceProfileInfo_t){
        enum_index, slices, profile->slices / slices, profile->multiprocessors * slices / profile->slices, profile->copy_engines,
        profile->decoders, profile->encoders, profile->jpeg_engines, profile->ofa_engines,
    };
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, unsigned int enum_index, unsigned int engines,
                                                                  nvmlComputeInstanceProfileInfo_v2_t *info)
{
    BEGIN(call_instance, READS, instance);
    nvmlReturn_t refusal;
    const struct profile *profile = call.profile;
    uint32_t version = info->version;
    if (version != NVML_STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2))
        END(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    unsigned slices = slices_of(&call, enum_index, engines, &refusal);
    if (!slices)
        END(refusal);
    *info = (nvmlComputeInstanceProfileInfo_v2_t){
        .version = version, .id = enum_index, .sliceCount = slices, .instanceCount = profile->slices / slices,
        .multiprocessorCount = profile->multiprocessors * slices / profile->slices,
        .sharedCopyEngineCount = profile->copy_engines, .sharedDecoderCount = profile->decoders,
        .sharedEncoderCount = profile->encoders, .sharedJpegCount = profile->jpeg_engines, .sharedOfaCount = profile->ofa_engines,
    };
    if (slices == profile->slices)
        snprintf(info->name, sizeof(info->name), "MIG %s", profile->name);
    else
        snprintf(info->name, sizeof(info->name), "MIG %uc.%s", slices, profile->name);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t instance, unsigned int profile_id,
                                                                        nvmlPlacement_t *placements, unsigned int *count)
{
    BEGIN(call_instance, READS, instance);
    unsigned slices = mig_compute_slices(call.profile, profile_id);
    if (!slices)
        END(NVML_ERROR_NOT_SUPPORTED);
    unsigned possible = call.profile->slices - slices + 1, room = placements ? *count : possible;
    *count = possible;
    if (room < possible)
        END(NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned start = 0; placements && start < possible; start++)
        placements[start] = (nvmlPlacement_t){start, slices};
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance, unsigned int profile_id, unsigned int *count)
{
    BEGIN(call_instance, READS, instance);
    unsigned slices = mig_compute_slices(call.profile, profile_id);
    if (!slices)
        END(NVML_ERROR_NOT_SUPPORTED);
    *count = mig_compute_remaining(call.profile, call.instance, slices);
    END(NVML_SUCCESS);
}

static nvmlReturn_t create(struct call *call, unsigned profile_id, const nvmlPlacement_t *placement, nvmlComputeInstance_t *handle)
{
    unsigned slices = mig_compute_slices(call->profile, profile_id);
    struct compute_instance *compute;
    if (!slices)
        return NVML_ERROR_NOT_SUPPORTED;
    nvmlReturn_t result = mig_create_compute(call->machine, call->gpu, call->instance, slices, placement, &compute);
    if (result == NVML_SUCCESS)
        *handle = handle_compute(call, call->instance, compute);
    return result;
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned int profile_id, nvmlComputeInstance_t *compute)
{
    BEGIN(call_instance, CHANGES, instance);
    END(create(&call, profile_id, NULL, compute));
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t instance, unsigned int profile_id,
                                                                      const nvmlPlacement_t *placement, nvmlComputeInstance_t *compute)
{
    BEGIN(call_instance, CHANGES, instance);
    END(placement ? create(&call, profile_id, placement, compute) : NVML_ERROR_INVALID_ARGUMENT);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned int profile_id, nvmlComputeInstance_t *computes,
                                                       unsigned int *count)
{
    BEGIN(call_instance, READS, instance);
    unsigned slices = mig_compute_slices(call.profile, profile_id);
    if (!slices)
        END(NVML_ERROR_NOT_SUPPORTED);
    if (!computes || !count)
        END(NVML_ERROR_INVALID_ARGUMENT);
    *count = 0;
    for (unsigned i = 0; i < MAX_COMPUTE_INSTANCES; i++) {
        const struct compute_instance *compute = &call.instance->compute[i];
        if (compute->in_use && compute->slices == slices)
            computes[(*count)++] = handle_compute(&call, call.instance, compute);
    }
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id, nvmlComputeInstance_t *compute)
{
    BEGIN(call_instance, READS, instance);
    if (id >= MAX_COMPUTE_INSTANCES || !call.instance->compute[id].in_use)
        END(NVML_ERROR_NOT_FOUND);
    *compute = handle_compute(&call, call.instance, &call.instance->compute[id]);
    END(NVML_SUCCESS);
}

/* `device` is the MIG device handle: the quickest way from a new instance to its UUID. */
EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t *info)
{
    BEGIN(call_compute, READS, compute);
    *info = (nvmlComputeInstanceInfo_t){
        .device = handle_mig(&call, call.instance, call.compute),
        .gpuInstance = handle_instance(&call, call.instance),
        .id = compute_id(&call),
        .profileId = mig_compute_profile(call.compute->slices),
        .placement = {call.compute->start, call.compute->slices},
    };
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t compute)
{
    BEGIN(call_compute, CHANGES, compute);
    END(mig_destroy_compute(call.machine, call.gpu, call.instance, call.compute));
}
