/* Questions about the driver as a whole, and the texts of error codes. */
#include <stdio.h>

#include "call.h"
#include "session.h"

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    BEGIN(call_system, READS);
    END(copy_text(version, length, call.machine->kernel_version));
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    BEGIN(call_system, READS);
    *version = (int)call.machine->cuda_version;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

/* CUDA's major number before the driver's version: "13.580.105.08". */
EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    BEGIN(call_system, READS);
    char text[64];
    snprintf(text, sizeof(text), "%u.%s", call.machine->cuda_version / 1000, session_library_version(call.machine));
    END(copy_text(version, length, text));
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    BEGIN(call_system, READS);
    *count = call.machine->gpu_count;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    BEGIN(call_index, READS, index);
    *device = handle_gpu(&call, call.gpu);
    END(NVML_SUCCESS);
}

/* Accepts the UUID of a GPU or of a MIG device. */
EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    BEGIN(call_uuid, READS, uuid);
    *device = call.compute ? handle_mig(&call, call.instance, call.compute) : handle_gpu(&call, call.gpu);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    BEGIN(call_pci, READS, bus_id);
    *device = handle_gpu(&call, call.gpu);
    END(NVML_SUCCESS);
}

static const struct {
    unsigned code;
    const char *text;
} texts[] = {
    {0, "Success"},
    {1, "Uninitialized"},
    {2, "Invalid Argument"},
    {3, "Not Supported"},
    {4, "Insufficient Permissions"},
    {5, "Already Initialized"},
    {6, "Not Found"},
    {7, "Insufficient Size"},
    {8, "Insufficient External Power"},
    {9, "Driver Not Loaded"},
    {10, "Timeout"},
    {11, "Interrupt Request Issue"},
    {12, "NVML Shared Library Not Found"},
    {13, "Function Not Found"},
    {14, "Corrupted infoROM"},
    {15, "GPU is lost"},
    {16, "GPU requires reset"},
    {17, "The operating system has blocked the request."},
    {18, "Driver/library version mismatch"},
    {19, "In use by another client"},
    {20, "Insufficient Memory"},
    {21, "No data"},
    {22, "The requested vgpu operation is not available on target device, becasue ECC is enabled"},
    {23, "Insufficient Resources"},
    {24, "Frequency is not supported"},
    {25, "Argument version mismatch"},
    {26, "The requested functionality has been deprecated"},
    {27, "The system is not ready for the request"},
    {28, "GPU not found"},
    {29, "Invalid state"},
    {999, "Unknown Error"},
};

/* Works before nvmlInit, as NVML's does. */
EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (texts[i].code == (unsigned)result)
            return texts[i].text;
    return "Unknown Error";
}
