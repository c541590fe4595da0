/* Settings of a GPU, who uses it, and the values read by field number. */
#include <string.h>

#include "call.h"

EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode)
{
    BEGIN(call_gpu, READS, device);
    *mode = call.gpu->compute_mode;
    END(NVML_SUCCESS);
}

/* 0 default, 2 prohibited, 3 exclusive process; 1 (exclusive thread) is gone from today's drivers. */
EXPORT nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned int mode)
{
    BEGIN(call_gpu, CHANGES, device);
    if (mode > 3)
        END(NVML_ERROR_INVALID_ARGUMENT);
    if (mode == 1)
        END(NVML_ERROR_NOT_SUPPORTED);
    call.gpu->compute_mode = mode;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int *mode)
{
    BEGIN(call_gpu, READS, device);
    *mode = call.gpu->persistence;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, unsigned int mode)
{
    BEGIN(call_gpu, CHANGES, device);
    if (mode > 1)
        END(NVML_ERROR_INVALID_ARGUMENT);
    call.gpu->persistence = mode;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, unsigned int *mode)
{
    BEGIN(call_gpu, READS, device);
    *mode = 0; /* none: the mocked machine is bare metal */
    END(NVML_SUCCESS);
}

/*
 * Time slice of a GPU: 0 default, 1 short, 2 medium, 3 long. NVML has no such call; nvidia-smi sets it in a way of its own, so these two
 * names are ours.
 */
EXPORT nvmlReturn_t mockNvmlDeviceGetTimeslice(nvmlDevice_t device, unsigned int *timeslice)
{
    BEGIN(call_gpu, READS, device);
    *timeslice = call.gpu->timeslice;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t mockNvmlDeviceSetTimeslice(nvmlDevice_t device, unsigned int timeslice)
{
    BEGIN(call_gpu, CHANGES, device);
    if (timeslice > 3)
        END(NVML_ERROR_INVALID_ARGUMENT);
    call.gpu->timeslice = timeslice;
    END(NVML_SUCCESS);
}

static bool concerns(const struct call *call, const struct process *process)
{
    if (!process->pid || process->gpu != gpu_index(call))
        return false;
    return !call->compute || (process->gi == instance_id(call) && process->ci == compute_id(call));
}

/* The count of a first call without buffer; then the processes. Too small a buffer: InsufficientSize, with the count set. */
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    BEGIN(call_device, READS, device);
    unsigned found = 0, room = infos ? *count : 0;
    for (unsigned i = 0; i < MAX_PROCESSES; i++) {
        const struct process *process = &call.machine->processes[i];
        if (!concerns(&call, process))
            continue;
        if (found < room)
            infos[found] = (nvmlProcessInfo_t){process->pid, process->used_mib << 20, process->gi, process->ci};
        found++;
    }
    *count = found;
    END(found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}

/* The call succeeds as a whole; each field has its own result. Only the recovery action is known. */
EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    BEGIN(call_gpu, READS, device);
    for (int i = 0; i < count; i++) {
        bool known = values[i].fieldId == NVML_FIELD_GPU_RECOVERY_ACTION;
        values[i].timestamp = (int64_t)state_now() * 1000;
        values[i].latencyUsec = 0;
        values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        values[i].nvmlReturn = known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
        values[i].value = known ? call.gpu->recovery_action : 0;
    }
    END(NVML_SUCCESS);
}
