/*
 * Device nodes as proof of access. MOCK_NVML_ROOT may name a directory that holds `dev` and `proc` in place of the root's, for tests.
 * access(2) asks the kernel's permission check and the device cgroup without opening: the number may belong to another driver here.
 */
#include "smi_devices.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "capabilities.h"
#include "nvml_functions.h"

enum { CONTROL_MINOR = 255, CAPABILITY_CONFIG = 1, CAPABILITY_MONITOR = 2 };

static const char *root(void)
{
    const char *chosen = getenv("MOCK_NVML_ROOT");
    return chosen ? chosen : "";
}

static bool usable(const char *node, int mode)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/dev/%s", root(), node);
    return access(path, mode) == 0;
}

/* Major number of a character device by its name in /proc/devices; 0 when the list has none. */
static unsigned major_of(const char *name)
{
    char path[PATH_MAX], line[128];
    snprintf(path, sizeof(path), "%s/proc/devices", root());
    FILE *devices = fopen(path, "r");
    unsigned found = 0;
    while (devices && !found && fgets(line, sizeof(line), devices) && strncmp(line, "Block", 5) != 0) {
        char *end;
        unsigned long number = strtoul(line, &end, 10);
        line[strcspn(line, "\n")] = '\0';
        if (*end == ' ' && strcmp(end + 1, name) == 0)
            found = (unsigned)number;
    }
    if (devices)
        fclose(devices);
    return found;
}

static unsigned frontend_major(void)
{
    unsigned major = major_of("nvidia");
    return major ? major : major_of("nvidia-frontend");
}

/* A system call of its own: mknod(3) changed its symbol version in glibc 2.33. */
static void make_node(const char *node, unsigned mode, unsigned major, unsigned minor)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/dev/%s", root(), node);
    if (!major || access(path, F_OK) == 0)
        return;
    mode_t mask = umask(0);
    syscall(SYS_mknodat, AT_FDCWD, path, S_IFCHR | mode, makedev(major, minor));
    umask(mask);
}

/* This is the mocked node itself, not a container, and we are root: nothing is hidden, and what is missing is ours to make. */
static bool may_make_nodes(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/proc/driver/nvidia/" HOST_MARKER, root());
    return geteuid() == 0 && access(path, F_OK) == 0;
}

static void gpu_node(char *node, size_t length, unsigned minor)
{
    snprintf(node, length, "nvidia%u", minor);
}

static void capability_node(char *node, size_t length, unsigned minor)
{
    snprintf(node, length, "nvidia-caps/nvidia-cap%u", minor);
}

static void make_capability(unsigned minor, unsigned mode)
{
    char node[64];
    capability_node(node, sizeof(node), minor);
    make_node(node, mode, major_of("nvidia-caps"), minor);
}

static bool has_capability(unsigned minor)
{
    char node[64];
    capability_node(node, sizeof(node), minor);
    return usable(node, R_OK);
}

bool smi_has_control_node(void)
{
    if (may_make_nodes()) {
        make_node("nvidiactl", 0666, frontend_major(), CONTROL_MINOR);
        make_node("nvidia-uvm", 0666, major_of("nvidia-uvm"), 0);
        make_node("nvidia-uvm-tools", 0666, major_of("nvidia-uvm"), 1);
    }
    return usable("nvidiactl", R_OK | W_OK);
}

static void find_mig_devices(struct smi_gpu *gpu, bool on_host)
{
    unsigned max = 0, gi, ci;
    nvmlDevice_t mig;
    nvmlDeviceGetMaxMigDeviceCount(gpu->device, &max);
    for (unsigned i = 0; i < max && nvmlDeviceGetMigDeviceHandleByIndex(gpu->device, i, &mig) == NVML_SUCCESS; i++) {
        if (nvmlDeviceGetGpuInstanceId(mig, &gi) != NVML_SUCCESS || nvmlDeviceGetComputeInstanceId(mig, &ci) != NVML_SUCCESS)
            continue;
        unsigned gi_minor = capability_gi_minor(gpu->minor, gi), ci_minor = capability_ci_minor(gpu->minor, gi, ci);
        if (on_host) {
            make_capability(gi_minor, 0444);
            make_capability(ci_minor, 0444);
        }
        if ((on_host || (has_capability(gi_minor) && has_capability(ci_minor))) && gpu->mig_count < MAX_VISIBLE_MIG)
            gpu->mig[gpu->mig_count++] = mig;
    }
}

static bool look_at(struct smi_gpu *gpu, unsigned number, bool on_host)
{
    char node[64];
    nvmlPciInfo_t pci;
    memset(gpu, 0, sizeof(*gpu));
    gpu->number = number;
    gpu->state = nvmlDeviceGetHandleByIndex_v2(number, &gpu->device);
    if (gpu->state == NVML_SUCCESS)
        gpu->state = nvmlDeviceGetMinorNumber(gpu->device, &gpu->minor);
    if (gpu->state == NVML_SUCCESS)
        gpu->state = nvmlDeviceGetUUID(gpu->device, gpu->uuid, sizeof(gpu->uuid));
    if (gpu->state == NVML_SUCCESS)
        gpu->state = nvmlDeviceGetPciInfo_v3(gpu->device, &pci);
    if (gpu->state != NVML_SUCCESS)
        return on_host; /* without its minor nobody else can say whether the GPU is theirs */
    memcpy(gpu->bus_id, pci.busId, sizeof(gpu->bus_id));
    gpu_node(node, sizeof(node), gpu->minor);
    if (on_host)
        make_node(node, 0666, frontend_major(), gpu->minor);
    if (!on_host && !usable(node, R_OK | W_OK))
        return false;
    find_mig_devices(gpu, on_host);
    return true;
}

unsigned smi_find_gpus(struct smi_gpu *gpus)
{
    unsigned total = 0, found = 0;
    bool on_host = may_make_nodes();
    if (on_host) {
        char directory[PATH_MAX];
        snprintf(directory, sizeof(directory), "%s/dev/nvidia-caps", root());
        mkdir(directory, 0755);
        make_capability(CAPABILITY_CONFIG, 0400);
        make_capability(CAPABILITY_MONITOR, 0444);
    }
    nvmlDeviceGetCount_v2(&total);
    for (unsigned i = 0; i < total && found < MAX_VISIBLE; i++)
        found += look_at(&gpus[found], i, on_host);
    return found;
}
