/* What a GPU (or MIG device) is, and what memory it has. */
#include <stdio.h>
#include <string.h>

#include "call.h"

#define MIB (1024ull * 1024ull)

/* "MIG 1g.10gb", with the `<n>c.` of a compute instance that does not fill its GPU instance. */
static void mig_name(char *text, size_t length, const struct call *call)
{
    if (call->compute->slices == call->profile->slices)
        snprintf(text, length, "MIG %s", call->profile->name);
    else
        snprintf(text, length, "MIG %uc.%s", call->compute->slices, call->profile->name);
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    BEGIN(call_device, READS, device);
    char text[192], partition[64] = "";
    if (call.compute)
        mig_name(partition, sizeof(partition), &call);
    snprintf(text, sizeof(text), "%s%s%s", call.board->product, call.compute ? " " : "", partition);
    END(copy_text(name, length, text));
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    BEGIN(call_device, READS, device);
    END(copy_text(uuid, length, call.compute ? call.compute->uuid : call.gpu->uuid));
}

EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
    BEGIN(call_gpu, READS, device);
    END(copy_text(serial, length, call.gpu->serial));
}

EXPORT nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length)
{
    BEGIN(call_gpu, READS, device);
    END(copy_text(version, length, call.board->vbios));
}

EXPORT nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char *part, unsigned int length)
{
    BEGIN(call_gpu, READS, device);
    END(copy_text(part, length, call.board->gpu_part));
}

EXPORT nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned int *brand)
{
    BEGIN(call_device, READS, device);
    *brand = call.board->brand;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    BEGIN(call_gpu, READS, device);
    *minor = call.gpu->minor;
    END(NVML_SUCCESS);
}

/* Domain, bus and device packed as NVML does: 0x80600 is 0008:06:00. */
EXPORT nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int *board_id)
{
    BEGIN(call_gpu, READS, device);
    *board_id = call.gpu->domain << 16 | call.gpu->bus << 8 | call.gpu->device;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t device, unsigned int *module_id)
{
    BEGIN(call_gpu, READS, device);
    *module_id = call.gpu->module_id;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture)
{
    BEGIN(call_device, READS, device);
    *architecture = call.board->architecture;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    BEGIN(call_device, READS, device);
    *major = (int)call.board->compute_major;
    *minor = (int)call.board->compute_minor;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    BEGIN(call_gpu, READS, device);
    const struct gpu *gpu = call.gpu;
    memset(info, 0, sizeof(*info));
    info->domain = gpu->domain;
    info->bus = gpu->bus;
    info->device = gpu->device;
    info->pciDeviceId = call.board->pci_device;
    info->pciSubSystemId = call.board->pci_subsystem;
    snprintf(info->busId, sizeof(info->busId), "%08X:%02X:%02X.%X", gpu->domain, gpu->bus, gpu->device, gpu->function);
    snprintf(info->busIdLegacy, sizeof(info->busIdLegacy), "%04X:%02X:%02X.%X", gpu->domain & 0xFFFF, gpu->bus & 0xFF,
             gpu->device & 0x1F, gpu->function & 7);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t device, nvmlDeviceAddressingMode_t *mode)
{
    BEGIN(call_gpu, READS, device);
    if (mode->version != NVML_STRUCT_VERSION(nvmlDeviceAddressingMode_t, 1))
        END(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    mode->value = call.board->addressing_mode;
    END(NVML_SUCCESS);
}

/* Rack position; only machines of a rack-scale fabric know theirs. Version 1 has the same size and the same bytes from `slotNumber` on. */
EXPORT nvmlReturn_t nvmlDeviceGetPlatformInfo(nvmlDevice_t device, nvmlPlatformInfo_t *info)
{
    BEGIN(call_gpu, READS, device);
    if (info->version != NVML_STRUCT_VERSION(nvmlPlatformInfo_t, 1) && info->version != NVML_STRUCT_VERSION(nvmlPlatformInfo_t, 2))
        END(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    if (!call.machine->platform_slot)
        END(NVML_ERROR_NOT_SUPPORTED);
    memset(info->ibGuid, 0, sizeof(info->ibGuid));
    memset(info->chassisSerialNumber, 0, sizeof(info->chassisSerialNumber));
    info->slotNumber = (uint8_t)call.machine->platform_slot;
    info->trayIndex = (uint8_t)call.machine->platform_tray;
    info->hostId = (uint8_t)call.machine->platform_host;
    info->peerType = 1; /* connected through a switch */
    info->moduleId = (uint8_t)call.gpu->module_id;
    END(NVML_SUCCESS);
}

static uint64_t used_mib(const struct call *call)
{
    uint64_t used = 0;
    for (unsigned i = 0; i < MAX_PROCESSES; i++) {
        const struct process *process = &call->machine->processes[i];
        bool inside = !call->compute || process->gi == instance_id(call);
        if (process->pid && process->gpu == gpu_index(call) && inside)
            used += process->used_mib;
    }
    return used;
}

static nvmlMemory_v2_t memory(const struct call *call)
{
    uint64_t total = call->compute ? call->profile->memory_mib : call->board->memory_mib;
    uint64_t reserved = call->compute ? 0 : call->board->reserved_mib;
    uint64_t used = used_mib(call);
    return (nvmlMemory_v2_t){.total = total * MIB, .reserved = reserved * MIB, .used = used * MIB, .free = (total - reserved - used) * MIB};
}

/* The first version knows no reserved memory and counts it as used. */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *info)
{
    BEGIN(call_device, READS, device);
    nvmlMemory_v2_t now = memory(&call);
    *info = (nvmlMemory_t){.total = now.total, .free = now.free, .used = now.used + now.reserved};
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *info)
{
    BEGIN(call_device, READS, device);
    uint32_t version = info->version;
    if (version != NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2))
        END(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    *info = memory(&call);
    info->version = version;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *info)
{
    BEGIN(call_gpu, READS, device);
    uint64_t total = call.board->bar1_mib * MIB, used = 1 * MIB; /* the driver itself always maps a little */
    *info = (nvmlBAR1Memory_t){.total = total, .free = total - used, .used = used};
    END(NVML_SUCCESS);
}
