/* `-L`, `--version`, `-q`, `compute-policy --list` and the plain table. Wording of the first three: as nvidia-smi's. */
#include "smi_print.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "nvml_functions.h"

enum { MIB_SHIFT = 20 };

static const char *enabled(unsigned mode)
{
    return mode ? "Enabled" : "Disabled";
}

/* "580.105.08" is NVML version "580.105". */
static void short_version(char *text)
{
    char *first = strchr(text, '.');
    char *second = first ? strchr(first + 1, '.') : NULL;
    if (second)
        *second = '\0';
}

void smi_print_versions(void)
{
    char library[64], nvml[64], driver[96] = "N/A";
    int cuda = 0;
    mockNvmlLibraryVersion(library, sizeof(library));
    strcpy(nvml, library);
    short_version(nvml);
    nvmlSystemGetDriverVersion(driver, sizeof(driver));
    nvmlSystemGetCudaDriverVersion_v2(&cuda);
    printf("NVIDIA-SMI version  : %s\nNVML version        : %s\nDRIVER version      : %s\n", library, nvml, driver);
    printf("CUDA Version        : %d.%d\n", cuda / 1000, cuda % 1000 / 10);
}

/* Tell of a GPU that gives no handle. False when it gives one. */
static bool print_lost(const struct smi_gpu *gpu)
{
    if (gpu->state == NVML_SUCCESS)
        return false;
    printf("Unable to determine the device handle for GPU%u: %s\n", gpu->number, nvmlErrorString(gpu->state));
    return true;
}

static void print_mig(nvmlDevice_t mig, unsigned number)
{
    char name[192] = "", uuid[96] = "";
    nvmlDeviceGetName(mig, name, sizeof(name));
    nvmlDeviceGetUUID(mig, uuid, sizeof(uuid));
    const char *profile = strstr(name, " MIG ");
    printf("  MIG %-11s Device %2u: (UUID: %s)\n", profile ? profile + 5 : name, number, uuid);
}

void smi_print_list(const struct smi_gpu *gpus, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char name[192] = "";
        if (print_lost(&gpus[i]))
            continue;
        nvmlDeviceGetName(gpus[i].device, name, sizeof(name));
        printf("GPU %u: %s (UUID: %s)\n", i, name, gpus[i].uuid);
        for (unsigned m = 0; m < gpus[i].mig_count; m++)
            print_mig(gpus[i].mig[m], m);
    }
}

static void line(int depth, const char *key, const char *value)
{
    printf("%*s%-*s : %s\n", 4 * depth, "", 41 - 4 * depth, key, value);
}

static void mebibytes(int depth, const char *key, uint64_t bytes)
{
    char text[32];
    snprintf(text, sizeof(text), "%llu MiB", (unsigned long long)(bytes >> MIB_SHIFT));
    line(depth, key, text);
}

static const char *architecture_name(unsigned architecture)
{
    switch (architecture) {
    case 6: return "Turing";
    case 7: return "Ampere";
    case 8: return "Ada Lovelace";
    case 9: return "Hopper";
    case 10: return "Blackwell";
    case 13: return "Rubin";
    default: return "Unknown";
    }
}

static void query_identity(const struct smi_gpu *gpu)
{
    char text[192] = "";
    unsigned number = 0, pending = 0;
    nvmlDeviceGetName(gpu->device, text, sizeof(text));
    line(1, "Product Name", text);
    nvmlDeviceGetArchitecture(gpu->device, &number);
    line(1, "Product Architecture", architecture_name(number));
    nvmlDeviceGetPersistenceMode(gpu->device, &number);
    line(1, "Persistence Mode", enabled(number));
    nvmlDeviceAddressingMode_t addressing = {.version = NVML_STRUCT_VERSION(nvmlDeviceAddressingMode_t, 1)};
    nvmlReturn_t result = nvmlDeviceGetAddressingMode(gpu->device, &addressing);
    const char *modes[] = {"None", "HMM", "ATS"};
    line(1, "Addressing Mode", result == NVML_SUCCESS && addressing.value < 3 ? modes[addressing.value] : "N/A");
    result = nvmlDeviceGetMigMode(gpu->device, &number, &pending);
    printf("    MIG Mode\n");
    line(2, "Current", result == NVML_SUCCESS ? enabled(number) : "N/A");
    line(2, "Pending", result == NVML_SUCCESS ? enabled(pending) : "N/A");
    nvmlDeviceGetSerial(gpu->device, text, sizeof(text));
    line(1, "Serial Number", text);
    line(1, "GPU UUID", gpu->uuid);
    snprintf(text, sizeof(text), "%u", gpu->minor);
    line(1, "Minor Number", text);
    nvmlDeviceGetVbiosVersion(gpu->device, text, sizeof(text));
    line(1, "VBIOS Version", text);
    nvmlDeviceGetBoardPartNumber(gpu->device, text, sizeof(text));
    line(1, "GPU Part Number", text);
}

static void query_amounts(const struct smi_gpu *gpu)
{
    nvmlMemory_v2_t memory = {.version = NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)};
    unsigned mode = 0;
    const char *modes[] = {"Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"};
    printf("    PCI\n");
    line(2, "Bus Id", gpu->bus_id);
    nvmlDeviceGetMemoryInfo_v2(gpu->device, &memory);
    printf("    FB Memory Usage\n");
    mebibytes(2, "Total", memory.total);
    mebibytes(2, "Reserved", memory.reserved);
    mebibytes(2, "Used", memory.used);
    mebibytes(2, "Free", memory.free);
    nvmlDeviceGetComputeMode(gpu->device, &mode);
    line(1, "Compute Mode", mode < 4 ? modes[mode] : "Unknown");
}

static void query_heading(unsigned count)
{
    char driver[96] = "N/A", number[32];
    int cuda = 0;
    time_t now = time(NULL);
    char stamp[64];
    strftime(stamp, sizeof(stamp), "%a %b %e %H:%M:%S %Y", localtime(&now));
    nvmlSystemGetDriverVersion(driver, sizeof(driver));
    nvmlSystemGetCudaDriverVersion_v2(&cuda);
    printf("\n==============NVSMI LOG==============\n\n");
    line(0, "Timestamp", stamp);
    line(0, "Driver Version", driver);
    snprintf(number, sizeof(number), "%d.%d", cuda / 1000, cuda % 1000 / 10);
    line(0, "CUDA Version", number);
    printf("\n");
    snprintf(number, sizeof(number), "%u", count);
    line(0, "Attached GPUs", number);
}

void smi_print_query(const struct smi_gpu *gpus, unsigned count)
{
    query_heading(count);
    for (unsigned i = 0; i < count; i++) {
        if (print_lost(&gpus[i]))
            continue;
        printf("GPU %s\n", gpus[i].bus_id);
        query_identity(&gpus[i]);
        query_amounts(&gpus[i]);
        printf("\n");
    }
}

void smi_print_table(const struct smi_gpu *gpus, unsigned count)
{
    char driver[96] = "", library[64] = "";
    int cuda = 0;
    nvmlSystemGetDriverVersion(driver, sizeof(driver));
    mockNvmlLibraryVersion(library, sizeof(library));
    nvmlSystemGetCudaDriverVersion_v2(&cuda);
    printf("| NVIDIA-SMI %-20s Driver Version: %-16s CUDA Version: %d.%d |\n", library, driver, cuda / 1000, cuda % 1000 / 10);
    for (unsigned i = 0; i < count; i++) {
        char name[192] = "";
        nvmlMemory_v2_t memory = {.version = NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)};
        if (print_lost(&gpus[i]))
            continue;
        nvmlDeviceGetName(gpus[i].device, name, sizeof(name));
        nvmlDeviceGetMemoryInfo_v2(gpus[i].device, &memory);
        printf("| %3u  %-32s %s  %lluMiB / %lluMiB |\n", i, name, gpus[i].bus_id, (unsigned long long)((memory.used + memory.reserved) >> MIB_SHIFT),
               (unsigned long long)(memory.total >> MIB_SHIFT));
    }
}

void smi_print_policies(const struct smi_gpu *gpus, unsigned count)
{
    static const char *const slices[] = {"Default", "Short", "Medium", "Long"};
    printf("GPU compute policies:\n  GPU  Bus Id            Policy      Value\n");
    for (unsigned i = 0; i < count; i++) {
        unsigned timeslice = 0;
        if (print_lost(&gpus[i]))
            continue;
        mockNvmlDeviceGetTimeslice(gpus[i].device, &timeslice);
        printf("  %3u  %s  Time-slice  %s\n", i, gpus[i].bus_id, slices[timeslice & 3]);
    }
}
