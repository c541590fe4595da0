/* Where this library lies. dl_iterate_phdr, not dladdr: dladdr changed its symbol version in glibc 2.34. */
#define _GNU_SOURCE
#include "locate.h"

#include <dirent.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

static char own_path[PATH_MAX];

static int is_own(struct dl_phdr_info *info, size_t size, void *result)
{
    (void)size;
    ElfW(Addr) here = (ElfW(Addr))(uintptr_t)&own_path;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        ElfW(Addr) start = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && here >= start && here < start + segment->p_memsz) {
            *(char **)result = realpath(info->dlpi_name, own_path);
            return 1;
        }
    }
    return 0;
}

static const char *find_own_path(void)
{
    char *found = NULL;
    if (!own_path[0])
        dl_iterate_phdr(is_own, &found);
    return own_path;
}

const char *locate_own_version(void)
{
    static const char prefix[] = "/libnvidia-ml.so.";
    const char *name = strrchr(find_own_path(), '/');
    if (!name || strncmp(name, prefix, sizeof(prefix) - 1) != 0)
        return "";
    const char *version = name + sizeof(prefix) - 1;
    return strchr(version, '.') ? version : "";
}

void locate_own_directory(char *path, size_t length)
{
    const char *slash = strrchr(find_own_path(), '/');
    snprintf(path, length, "%.*s", slash ? (int)(slash - own_path) : 0, own_path);
}

/* The first machine file of any version in the directory; a library without a version in its name belongs to it. */
static void find_any(char *path, size_t length, int directory_length)
{
    char directory[PATH_MAX];
    snprintf(directory, sizeof(directory), "%.*s", directory_length, own_path);
    DIR *entries = opendir(directory);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (strncmp(entry->d_name, STATE_PREFIX ".", sizeof(STATE_PREFIX)) == 0)
            snprintf(path, length, "%s/%s", directory, entry->d_name);
    if (entries)
        closedir(entries);
}

void locate_state(char *path, size_t length)
{
    const char *chosen = getenv("MOCK_NVML_STATE");
    path[0] = '\0';
    if (chosen) {
        snprintf(path, length, "%s", chosen);
        return;
    }
    const char *slash = strrchr(find_own_path(), '/');
    int directory_length = slash ? (int)(slash - own_path) : 0;
    const char *version = locate_own_version();
    if (version[0])
        snprintf(path, length, "%.*s/" STATE_PREFIX ".%s", directory_length, own_path, version);
    else if (slash)
        find_any(path, length, directory_length);
}
