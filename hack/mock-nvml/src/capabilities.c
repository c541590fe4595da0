/* Files below <host tree>/capabilities. Content and numbers: as the driver's, checked against /proc/driver/nvidia-caps/mig-minors. */
#include "capabilities.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "locate.h"

enum { PATH_LENGTH = 512 };

unsigned capability_gi_minor(unsigned gpu_minor, unsigned gi)
{
    return 3 + 135 * gpu_minor + 9 * gi;
}

unsigned capability_ci_minor(unsigned gpu_minor, unsigned gi, unsigned ci)
{
    return capability_gi_minor(gpu_minor, gi) + 1 + ci;
}

bool capability_on_host(const struct machine *machine)
{
    char path[PATH_LENGTH];
    snprintf(path, sizeof(path), "%s/" HOST_MARKER, machine->host_tree);
    return access(path, F_OK) == 0;
}

/*
 * The tree to write to. The kernel shows a partition to everybody, whoever made it: a process in a container does not see the host's
 * /proc/driver, so that the driver root brings the tree along. False where there is none, as in a container that only uses a GPU.
 */
static bool writable_tree(char *path, const struct machine *machine)
{
    char marker[PATH_LENGTH + sizeof("/" HOST_MARKER)];
    snprintf(path, PATH_LENGTH, "%s", machine->host_tree);
    if (capability_on_host(machine))
        return true;
    locate_own_directory(path, PATH_LENGTH - sizeof("/" KERNEL_TREE));
    snprintf(path + strlen(path), sizeof("/" KERNEL_TREE), "/" KERNEL_TREE);
    snprintf(marker, sizeof(marker), "%s/" HOST_MARKER, path);
    return access(marker, F_OK) == 0;
}

/* Directory of the instance below `path`, which is continued; with `make`, each level that is missing is made. */
static void directory(char *path, unsigned gpu_minor, unsigned gi, int ci, bool make)
{
    int n = (int)strlen(path);
    n += snprintf(path + n, PATH_LENGTH - (size_t)n, "/capabilities");
    for (int level = 0; level < (ci < 0 ? 3 : 4); level++) {
        size_t room = PATH_LENGTH - (size_t)n;
        n += level == 0 ? snprintf(path + n, room, "/gpu%u", gpu_minor)
           : level == 1 ? snprintf(path + n, room, "/mig")
           : level == 2 ? snprintf(path + n, room, "/gi%u", gi)
                        : snprintf(path + n, room, "/ci%d", ci);
        if (make)
            mkdir(path, 0755);
    }
}

void capability_add(const struct machine *machine, unsigned gpu_minor, unsigned gi, int ci)
{
    char path[PATH_LENGTH], file[PATH_LENGTH + 8];
    if (!writable_tree(path, machine))
        return;
    directory(path, gpu_minor, gi, ci, true);
    snprintf(file, sizeof(file), "%s/access", path);
    FILE *access_file = fopen(file, "w");
    if (!access_file)
        return;
    unsigned minor = ci < 0 ? capability_gi_minor(gpu_minor, gi) : capability_ci_minor(gpu_minor, gi, (unsigned)ci);
    fprintf(access_file, "DeviceFileMinor: %u\nDeviceFileMode: 292\nDeviceFileModify: 1\n", minor);
    fclose(access_file);
}

void capability_remove(const struct machine *machine, unsigned gpu_minor, unsigned gi, int ci)
{
    char path[PATH_LENGTH], file[PATH_LENGTH + 8];
    if (!writable_tree(path, machine))
        return;
    directory(path, gpu_minor, gi, ci, false);
    snprintf(file, sizeof(file), "%s/access", path);
    unlink(file);
    rmdir(path);
}
