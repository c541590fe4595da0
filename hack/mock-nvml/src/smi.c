/*
 * nvidia-smi for the mocked machine: what scripts and people read from it, with the exit codes of the real one.
 *
 * In a container it lists only what the container's /dev lets it use, so a pod shows from inside what its claim gave it. On the node
 * itself, with CAP_SYS_ADMIN, it sees everything and makes device nodes that are missing, as nvidia-modprobe would.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

enum { EXIT_BAD_ARGUMENT = 2, EXIT_NOT_SUPPORTED = 3, EXIT_NO_PERMISSION = 4, EXIT_NOT_FOUND = 6, EXIT_NO_DRIVER = 9, EXIT_MISMATCH = 18 };

static const char *const timeslice_names[] = {"Default", "Short", "Medium", "Long"};

struct options {
    const char *gpu; /* -i: index, UUID or PCI bus id; NULL: all */
    const char *compute_mode, *timeslice;
    bool list, query, version, policy, policy_list;
};

static int explain(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS:
        return 0;
    case NVML_ERROR_DRIVER_NOT_LOADED:
        printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
               "Make sure that the latest NVIDIA driver is installed and running.\n\n");
        return EXIT_NO_DRIVER;
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        printf("Failed to initialize NVML: Driver/library version mismatch\n");
        return EXIT_MISMATCH;
    case NVML_ERROR_NOT_FOUND:
        printf("No devices were found\n");
        return EXIT_NOT_FOUND;
    default:
        printf("NVML: %s\n", nvmlErrorString(result));
        return (int)result;
    }
}

static void list_partitions(const struct smi_gpu *gpu)
{
    unsigned most = 0, shown = 0;
    if (nvmlDeviceGetMaxMigDeviceCount(gpu->device, &most) != NVML_SUCCESS)
        return;
    for (unsigned i = 0; i < most; i++) {
        struct smi_partition partition;
        if (smi_partition(gpu, i, &partition))
            printf("  MIG %-12s Device %2u: (UUID: %s)\n", partition.profile, shown++, partition.uuid);
    }
}

static int list(const struct smi_gpu *gpus, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        printf("GPU %u: %s (UUID: %s)\n", gpus[i].index, gpus[i].name, gpus[i].uuid);
        list_partitions(&gpus[i]);
    }
    return 0;
}

static int version(void)
{
    char driver[80] = "?", library[80] = "?";
    int cuda = 0;
    nvmlSystemGetDriverVersion(driver, sizeof(driver));
    nvmlSystemGetNVMLVersion(library, sizeof(library));
    nvmlSystemGetCudaDriverVersion_v2(&cuda);
    printf("NVIDIA-SMI version  : %s\nNVML version        : %s\nDRIVER version      : %s\nCUDA Version        : %d.%d\n", driver, library,
           driver, cuda / 1000, cuda % 1000 / 10);
    return 0;
}

static const char *on_off(unsigned value)
{
    return value ? "Enabled" : "Disabled";
}

static void query_gpu(const struct smi_gpu *gpu)
{
    nvmlMemory_t memory = {0};
    unsigned current = 0, pending = 0, minor = 0, mode = 0;
    bool mig = nvmlDeviceGetMigMode(gpu->device, &current, &pending) == NVML_SUCCESS;
    nvmlDeviceGetMemoryInfo(gpu->device, &memory);
    nvmlDeviceGetMinorNumber(gpu->device, &minor);
    nvmlDeviceGetComputeMode(gpu->device, &mode);
    printf("GPU %s\n", gpu->bus_id);
    printf("    Product Name                          : %s\n", gpu->name);
    printf("    MIG Mode\n");
    printf("        Current                           : %s\n", mig ? on_off(current) : "N/A");
    printf("        Pending                           : %s\n", mig ? on_off(pending) : "N/A");
    printf("    GPU UUID                              : %s\n", gpu->uuid);
    printf("    Minor Number                          : %u\n", minor);
    printf("    FB Memory Usage\n");
    printf("        Total                             : %llu MiB\n", (unsigned long long)(memory.total >> 20));
    printf("        Used                              : %llu MiB\n", (unsigned long long)(memory.used >> 20));
    printf("        Free                              : %llu MiB\n", (unsigned long long)(memory.free >> 20));
    printf("    Compute Mode                          : %s\n", mode == 3 ? "Exclusive_Process" : mode == 2 ? "Prohibited" : "Default");
}

static int query(const struct smi_gpu *gpus, unsigned count)
{
    char driver[80] = "?";
    int cuda = 0;
    nvmlSystemGetDriverVersion(driver, sizeof(driver));
    nvmlSystemGetCudaDriverVersion_v2(&cuda);
    printf("\n==============NVSMI LOG==============\n\n");
    printf("Driver Version                            : %s\nCUDA Version                              : %d.%d\n\n", driver, cuda / 1000,
           cuda % 1000 / 10);
    printf("Attached GPUs                             : %u\n", count);
    for (unsigned i = 0; i < count; i++)
        query_gpu(&gpus[i]);
    return 0;
}

static int set_compute_mode(const struct smi_gpu *gpu, const char *wanted)
{
    static const char *const names[] = {"DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS"};
    for (unsigned mode = 0; mode < 4; mode++) {
        char number[2] = {(char)('0' + mode), '\0'};
        if (strcmp(wanted, names[mode]) != 0 && strcmp(wanted, number) != 0)
            continue;
        nvmlReturn_t result = nvmlDeviceSetComputeMode(gpu->device, mode);
        if (result == NVML_ERROR_NOT_SUPPORTED) {
            printf("Setting compute mode to %s is not supported.\nUnable to set the compute mode for GPU %s: Not Supported\n", names[mode],
                   gpu->bus_id);
            return EXIT_NOT_SUPPORTED;
        }
        if (result != NVML_SUCCESS)
            return explain(result);
        printf("Set compute mode to %s for GPU %s.\nAll done.\n", names[mode], gpu->bus_id);
        return 0;
    }
    printf("Invalid compute mode: \"%s\"\n", wanted);
    return EXIT_BAD_ARGUMENT;
}

static int set_timeslice(const struct smi_gpu *gpu, const char *wanted)
{
    char *end;
    unsigned long value = strtoul(wanted, &end, 10);
    if (*end || !*wanted || value > 3) {
        printf("Invalid timeslice: \"%s\"; 0 default, 1 short, 2 medium, 3 long\n", wanted);
        return EXIT_BAD_ARGUMENT;
    }
    nvmlReturn_t result = mockNvmlDeviceSetTimeslice(gpu->device, (unsigned)value);
    if (result == NVML_ERROR_NOT_SUPPORTED) {
        printf("Setting timeslice is not supported for GPU %s\n", gpu->bus_id);
        return EXIT_NOT_SUPPORTED;
    }
    if (result != NVML_SUCCESS)
        return explain(result);
    printf("Successfully set timeslice for GPU %s to %s\n", gpu->bus_id, timeslice_names[value]);
    return 0;
}

static int list_policy(const struct smi_gpu *gpu)
{
    unsigned value = 0;
    nvmlReturn_t result = mockNvmlDeviceGetTimeslice(gpu->device, &value);
    printf("GPU %s\n    Timeslice : %s\n", gpu->bus_id, result == NVML_SUCCESS ? timeslice_names[value & 3] : "N/A");
    return 0;
}

static int run(const struct options *options)
{
    struct smi_gpu gpus[SMI_MOST_GPUS];
    unsigned count = smi_find_gpus(gpus, options->gpu);
    if (!count)
        return explain(NVML_ERROR_NOT_FOUND);
    if (options->query)
        return query(gpus, count);
    if (options->list)
        return list(gpus, count);
    for (unsigned i = 0; i < count; i++) {
        int status = 0;
        if (options->compute_mode)
            status = set_compute_mode(&gpus[i], options->compute_mode);
        else if (options->timeslice)
            status = set_timeslice(&gpus[i], options->timeslice);
        else if (options->policy_list)
            status = list_policy(&gpus[i]);
        if (status)
            return status;
    }
    return options->compute_mode || options->timeslice || options->policy_list ? 0 : query(gpus, count);
}

/* The option's value, from the same word after '=' or from the next one; NULL when the word is another option. */
static const char *value_of(const char *option, char **argument)
{
    size_t length = strlen(option);
    if (strncmp(*argument, option, length) != 0)
        return NULL;
    if ((*argument)[length] == '=')
        return *argument + length + 1;
    return (*argument)[length] == '\0' ? argument[1] : NULL;
}

static bool parse(struct options *options, char **argument)
{
    for (; *argument; argument++) {
        const char *word = *argument, *value;
        if (!strcmp(word, "compute-policy"))
            options->policy = true;
        else if (!strcmp(word, "-L") || !strcmp(word, "--list-gpus"))
            options->list = true;
        else if (options->policy && (!strcmp(word, "--list") || !strcmp(word, "-l")))
            options->policy_list = true;
        else if (!strcmp(word, "-q") || !strcmp(word, "--query"))
            options->query = true;
        else if (!strcmp(word, "--version"))
            options->version = true;
        else if ((value = value_of("-i", argument)) || (value = value_of("--id", argument)))
            options->gpu = value, argument += value == argument[1];
        else if ((value = value_of("-c", argument)) || (value = value_of("--compute-mode", argument)))
            options->compute_mode = value, argument += value == argument[1];
        else if (options->policy && (value = value_of("--set-timeslice", argument)))
            options->timeslice = value, argument += value == argument[1];
        else {
            printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n");
            return false;
        }
    }
    return true;
}

int main(int count, char **arguments)
{
    struct options options = {0};
    (void)count;
    if (!parse(&options, arguments + 1))
        return EXIT_BAD_ARGUMENT;
    nvmlReturn_t result = smi_open();
    if (result != NVML_SUCCESS)
        return explain(result);
    return options.version ? version() : run(&options);
}
