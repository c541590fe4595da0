/* The common beginning and end of a call; encoding of handles. */
#include "call.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "faults.h"
#include "session.h"

enum kind { KIND_GPU = 1, KIND_INSTANCE, KIND_COMPUTE, KIND_MIG, KIND_MARK = 0x40 };

/* 8 bits each of kind, GPU, GPU instance, compute instance, then 32 bits of serial. The mark keeps any handle apart from small integers. */
static uint64_t encode(enum kind kind, unsigned gpu, unsigned gi, unsigned ci, uint64_t serial)
{
    return (uint64_t)(KIND_MARK | kind) << 56 | (uint64_t)gpu << 48 | (uint64_t)gi << 40 | (uint64_t)ci << 32 | (serial & 0xFFFFFFFF);
}

static unsigned byte_of(uint64_t handle, unsigned shift)
{
    return (unsigned)(handle >> shift) & 0xFF;
}

unsigned gpu_index(const struct call *call)
{
    return (unsigned)(call->gpu - call->machine->gpus);
}

unsigned instance_id(const struct call *call)
{
    return (unsigned)(call->instance - call->gpu->instances);
}

unsigned compute_id(const struct call *call)
{
    return (unsigned)(call->compute - call->instance->compute);
}

static void *handle_of(const struct call *call, enum kind kind, const struct gpu_instance *instance,
                       const struct compute_instance *compute)
{
    unsigned gi = (unsigned)(instance - call->gpu->instances);
    unsigned ci = compute ? (unsigned)(compute - instance->compute) : 0;
    uint64_t serial = compute ? compute->serial : instance->serial;
    return (void *)(uintptr_t)encode(kind, gpu_index(call), gi, ci, serial);
}

nvmlDevice_t handle_gpu(const struct call *call, const struct gpu *gpu)
{
    return (nvmlDevice_t)(uintptr_t)encode(KIND_GPU, (unsigned)(gpu - call->machine->gpus), 0, 0, 0);
}

nvmlDevice_t handle_mig(const struct call *call, const struct gpu_instance *instance, const struct compute_instance *compute)
{
    return handle_of(call, KIND_MIG, instance, compute);
}

nvmlGpuInstance_t handle_instance(const struct call *call, const struct gpu_instance *instance)
{
    return handle_of(call, KIND_INSTANCE, instance, NULL);
}

nvmlComputeInstance_t handle_compute(const struct call *call, const struct gpu_instance *instance,
                                     const struct compute_instance *compute)
{
    return handle_of(call, KIND_COMPUTE, instance, compute);
}

static nvmlReturn_t open_call(struct call *call, enum access access)
{
    memset(call, 0, sizeof(*call));
    call->file = session_enter();
    if (!call->file)
        return NVML_ERROR_UNINITIALIZED;
    call->machine = call->file->machine;
    session_lock(call->file, access == CHANGES);
    return NVML_SUCCESS;
}

nvmlReturn_t call_end(struct call *call, nvmlReturn_t result)
{
    session_unlock(call->file);
    session_leave();
    return result;
}

static void point_at_gpu(struct call *call, unsigned index)
{
    call->gpu = &call->machine->gpus[index];
    call->board = mig_board(call->machine, call->gpu);
}

static void point_at_instance(struct call *call, struct gpu_instance *instance, struct compute_instance *compute)
{
    call->instance = instance;
    call->compute = compute;
    call->profile = mig_profile_of(call->machine, call->gpu, instance);
}

/*
 * Suffer the faults of this call, then ask what can be asked of any GPU. Waiting happens without the lock, so another process can clear the
 * fault, and other threads go on.
 */
static nvmlReturn_t pass(struct call *call, const char *function, enum access access)
{
    struct suffering suffering = fault_strike(call->file, function, call->gpu ? (int)gpu_index(call) : -1);
    if (suffering.delay_ms || suffering.hang) {
        session_unlock(call->file);
        fault_wait(call->file, &suffering);
        session_lock(call->file, access == CHANGES);
    }
    if (suffering.error)
        return (nvmlReturn_t)suffering.error;
    if (call->gpu && call->gpu->lost)
        return NVML_ERROR_GPU_IS_LOST;
    return access == CHANGES && !call->file->writable ? NVML_ERROR_NO_PERMISSION : NVML_SUCCESS;
}

static nvmlReturn_t finish(struct call *call, nvmlReturn_t result)
{
    return result == NVML_SUCCESS ? NVML_SUCCESS : call_end(call, result);
}

nvmlReturn_t call_system(struct call *call, const char *function, enum access access)
{
    nvmlReturn_t result = open_call(call, access);
    return result == NVML_SUCCESS ? finish(call, pass(call, function, access)) : result;
}

nvmlReturn_t call_index(struct call *call, const char *function, enum access access, unsigned index)
{
    nvmlReturn_t result = open_call(call, access);
    if (result != NVML_SUCCESS)
        return result;
    bool exists = index < call->machine->gpu_count;
    if (exists)
        point_at_gpu(call, index);
    result = pass(call, function, access);
    return finish(call, result == NVML_SUCCESS && !exists ? NVML_ERROR_INVALID_ARGUMENT : result);
}

static bool find_mig_uuid(struct call *call, const char *uuid)
{
    for (unsigned g = 0; g < MAX_GPU_INSTANCES; g++)
        for (unsigned c = 0; c < MAX_COMPUTE_INSTANCES; c++) {
            struct gpu_instance *instance = &call->gpu->instances[g];
            if (!instance->in_use || !instance->compute[c].in_use || strcasecmp(instance->compute[c].uuid, uuid) != 0)
                continue;
            point_at_instance(call, instance, &instance->compute[c]);
            return true;
        }
    return false;
}

static bool find_uuid(struct call *call, const char *uuid)
{
    for (unsigned i = 0; i < call->machine->gpu_count; i++) {
        point_at_gpu(call, i);
        if (strcasecmp(call->gpu->uuid, uuid) == 0 || find_mig_uuid(call, uuid))
            return true;
    }
    call->gpu = NULL;
    return false;
}

nvmlReturn_t call_uuid(struct call *call, const char *function, enum access access, const char *uuid)
{
    if (!uuid)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = open_call(call, access);
    if (result != NVML_SUCCESS)
        return result;
    bool exists = find_uuid(call, uuid);
    result = pass(call, function, access);
    return finish(call, result == NVML_SUCCESS && !exists ? NVML_ERROR_NOT_FOUND : result);
}

/* Read `[domain:]bus:device[.function]` in hex. False when the text is no address. */
static bool read_address(const char *text, unsigned long part[4])
{
    unsigned long numbers[5] = {0};
    int count = 0, colons = 0;
    while (*text && count < 4) {
        char *end;
        if (!isxdigit((unsigned char)*text))
            return false;
        numbers[count++] = strtoul(text, &end, 16);
        colons += *end == ':';
        text = *end ? end + 1 : end;
    }
    const unsigned long *local = colons == 2 ? numbers + 1 : numbers;
    part[0] = colons == 2 ? numbers[0] : 0;
    memcpy(&part[1], local, 3 * sizeof(*local));
    return colons == 1 || colons == 2;
}

static bool find_address(struct call *call, const char *bus_id)
{
    unsigned long part[4];
    if (!read_address(bus_id, part))
        return false;
    for (unsigned i = 0; i < call->machine->gpu_count; i++) {
        const struct gpu *gpu = &call->machine->gpus[i];
        if (gpu->domain != part[0] || gpu->bus != part[1] || gpu->device != part[2] || gpu->function != part[3])
            continue;
        point_at_gpu(call, i);
        return true;
    }
    return false;
}

nvmlReturn_t call_pci(struct call *call, const char *function, enum access access, const char *bus_id)
{
    if (!bus_id)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = open_call(call, access);
    if (result != NVML_SUCCESS)
        return result;
    bool exists = find_address(call, bus_id);
    result = pass(call, function, access);
    return finish(call, result == NVML_SUCCESS && !exists ? NVML_ERROR_NOT_FOUND : result);
}

/* Follow a handle as far as it goes. InvalidArgument for a number that is no such handle, NotFound when the instance is gone. */
static nvmlReturn_t follow(struct call *call, uint64_t handle, enum kind kind)
{
    if (byte_of(handle, 56) != (KIND_MARK | (unsigned)kind) || byte_of(handle, 48) >= call->machine->gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    point_at_gpu(call, byte_of(handle, 48));
    if (kind == KIND_GPU)
        return NVML_SUCCESS;
    unsigned gi = byte_of(handle, 40), ci = byte_of(handle, 32);
    if (gi >= MAX_GPU_INSTANCES || ci >= MAX_COMPUTE_INSTANCES)
        return NVML_ERROR_INVALID_ARGUMENT;
    struct gpu_instance *instance = &call->gpu->instances[gi];
    struct compute_instance *compute = kind == KIND_INSTANCE ? NULL : &instance->compute[ci];
    uint64_t serial = compute ? compute->serial : instance->serial;
    if (!instance->in_use || (compute && !compute->in_use) || (serial & 0xFFFFFFFF) != (handle & 0xFFFFFFFF))
        return NVML_ERROR_NOT_FOUND;
    point_at_instance(call, instance, compute);
    return NVML_SUCCESS;
}

static nvmlReturn_t call_handle(struct call *call, const char *function, enum access access, uint64_t handle, enum kind kind)
{
    nvmlReturn_t result = open_call(call, access);
    if (result != NVML_SUCCESS)
        return result;
    nvmlReturn_t followed = follow(call, handle, kind);
    result = pass(call, function, access);
    if (result == NVML_SUCCESS && followed == NVML_SUCCESS) /* again: the world may have changed while a fault made us wait */
        followed = follow(call, handle, kind);
    return finish(call, result == NVML_SUCCESS ? followed : result);
}

static bool is_mig(uint64_t handle)
{
    return byte_of(handle, 56) == (KIND_MARK | KIND_MIG);
}

nvmlReturn_t call_device(struct call *call, const char *function, enum access access, nvmlDevice_t device)
{
    uint64_t handle = (uintptr_t)device;
    return call_handle(call, function, access, handle, is_mig(handle) ? KIND_MIG : KIND_GPU);
}

nvmlReturn_t call_gpu(struct call *call, const char *function, enum access access, nvmlDevice_t device)
{
    nvmlReturn_t result = call_device(call, function, access, device);
    return result == NVML_SUCCESS && call->compute ? call_end(call, NVML_ERROR_NOT_SUPPORTED) : result;
}

nvmlReturn_t call_instance(struct call *call, const char *function, enum access access, nvmlGpuInstance_t instance)
{
    return call_handle(call, function, access, (uintptr_t)instance, KIND_INSTANCE);
}

nvmlReturn_t call_compute(struct call *call, const char *function, enum access access, nvmlComputeInstance_t compute)
{
    return call_handle(call, function, access, (uintptr_t)compute, KIND_COMPUTE);
}

nvmlReturn_t copy_text(char *buffer, unsigned length, const char *text)
{
    if (!buffer)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return NVML_SUCCESS;
}
