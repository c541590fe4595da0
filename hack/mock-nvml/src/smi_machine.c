/* Which GPUs and partitions this /dev lets us use, and the device nodes that the node's own nvidia-smi makes. */
#include "smi.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capabilities.h"

enum { PATH_LENGTH = 64, CONTROL_MINOR = 255 };

static bool on_node; /* this is the mocked node itself, not a container */

static unsigned major_of(const char *wanted)
{
    char line[128], name[96];
    unsigned major, found = 0;
    bool characters = false;
    FILE *devices = fopen("/proc/devices", "r");
    while (devices && fgets(line, sizeof(line), devices)) {
        if (!strncmp(line, "Block devices:", 14))
            characters = false;
        else if (!strncmp(line, "Character devices:", 18))
            characters = true;
        else if (characters && sscanf(line, "%u %95s", &major, name) == 2 && !strcmp(name, wanted))
            found = major;
    }
    if (devices)
        fclose(devices);
    return found;
}

/* System calls by number: glibc gave stat and mknod new symbol versions in 2.33, which older base images lack. */
static bool is_node(const char *path)
{
    struct stat state;
    return syscall(SYS_newfstatat, AT_FDCWD, path, &state, 0) == 0 && S_ISCHR(state.st_mode);
}

static void make_node(const char *path, unsigned major, unsigned minor)
{
    if (is_node(path) || !major)
        return;
    unsigned number = major << 8 | (minor & 0xff) | (minor & ~0xffu) << 12; /* the kernel's 32-bit dev_t */
    if (syscall(SYS_mknodat, AT_FDCWD, path, S_IFCHR | 0666, number) == 0 && chmod(path, 0666) != 0)
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
}

/* There is a node that this process may use; on the node itself it is made when it is missing. */
static bool usable(const char *path, const char *driver, unsigned minor)
{
    if (on_node)
        make_node(path, major_of(driver), minor);
    return is_node(path);
}

nvmlReturn_t smi_open(void)
{
    on_node = access("/proc/driver/nvidia/" HOST_MARKER, F_OK) == 0 && geteuid() == 0;
    nvmlReturn_t result = nvmlInitWithFlags(NVML_INIT_FLAG_NO_GPUS);
    if (result != NVML_SUCCESS)
        return result;
    if (on_node) {
        make_node("/dev/nvidia-uvm", major_of("nvidia-uvm"), 0);
        make_node("/dev/nvidia-uvm-tools", major_of("nvidia-uvm"), 1);
    }
    return usable("/dev/nvidiactl", "nvidia", CONTROL_MINOR) ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;
}

static bool describe(struct smi_gpu *gpu, unsigned nvml_index)
{
    char path[PATH_LENGTH];
    nvmlPciInfo_t pci;
    if (nvmlDeviceGetHandleByIndex_v2(nvml_index, &gpu->device) != NVML_SUCCESS)
        return false;
    if (nvmlDeviceGetMinorNumber(gpu->device, &gpu->minor) != NVML_SUCCESS)
        return false;
    snprintf(path, sizeof(path), "/dev/nvidia%u", gpu->minor);
    if (!usable(path, "nvidia", gpu->minor))
        return false;
    if (nvmlDeviceGetName(gpu->device, gpu->name, sizeof(gpu->name)) != NVML_SUCCESS ||
        nvmlDeviceGetUUID(gpu->device, gpu->uuid, sizeof(gpu->uuid)) != NVML_SUCCESS ||
        nvmlDeviceGetPciInfo_v3(gpu->device, &pci) != NVML_SUCCESS)
        return false;
    snprintf(gpu->bus_id, sizeof(gpu->bus_id), "%s", pci.busId);
    return true;
}

static bool is_wanted(const struct smi_gpu *gpu, const char *wanted)
{
    char *end;
    unsigned long index;
    if (!wanted || !strcmp(wanted, gpu->uuid) || !strcmp(wanted, gpu->bus_id))
        return true;
    index = strtoul(wanted, &end, 10);
    return *wanted && !*end && index == gpu->index;
}

unsigned smi_find_gpus(struct smi_gpu *gpus, const char *wanted)
{
    unsigned all = 0, seen = 0, count = 0;
    nvmlDeviceGetCount_v2(&all);
    for (unsigned i = 0; i < all && count < SMI_MOST_GPUS; i++) {
        if (!describe(&gpus[count], i))
            continue;
        gpus[count].index = seen++;
        if (is_wanted(&gpus[count], wanted))
            count++;
    }
    return count;
}

bool smi_partition(const struct smi_gpu *gpu, unsigned index, struct smi_partition *partition)
{
    char path[PATH_LENGTH], name[192];
    unsigned gi, ci, minor;
    nvmlDevice_t mig;
    if (nvmlDeviceGetMigDeviceHandleByIndex(gpu->device, index, &mig) != NVML_SUCCESS ||
        nvmlDeviceGetGpuInstanceId(mig, &gi) != NVML_SUCCESS || nvmlDeviceGetComputeInstanceId(mig, &ci) != NVML_SUCCESS)
        return false;
    minor = capability_gi_minor(gpu->minor, gi);
    snprintf(path, sizeof(path), "/dev/nvidia-caps/nvidia-cap%u", minor);
    if (!usable(path, "nvidia-caps", minor))
        return false;
    minor = capability_ci_minor(gpu->minor, gi, ci);
    snprintf(path, sizeof(path), "/dev/nvidia-caps/nvidia-cap%u", minor);
    if (!usable(path, "nvidia-caps", minor))
        return false;
    if (nvmlDeviceGetName(mig, name, sizeof(name)) != NVML_SUCCESS ||
        nvmlDeviceGetUUID(mig, partition->uuid, sizeof(partition->uuid)) != NVML_SUCCESS)
        return false;
    const char *profile = strstr(name, " MIG ");
    snprintf(partition->profile, sizeof(partition->profile), "%.31s", profile ? profile + 5 : name);
    return true;
}
