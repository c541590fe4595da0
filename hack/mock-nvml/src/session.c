/* Initialising and leaving the library. */
#include "session.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "call.h"
#include "faults.h"
#include "locate.h"
#include "nvml_functions.h"

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;   /* guards what follows */
static pthread_mutex_t holder = PTHREAD_MUTEX_INITIALIZER; /* held with the machine's lock */
static struct machine_file open_machine;
static unsigned references; /* successful nvmlInit calls not yet answered by nvmlShutdown */
static unsigned inside;     /* calls in progress; the mapping outlives them */

struct machine_file *session_enter(void)
{
    pthread_mutex_lock(&gate);
    struct machine_file *file = references ? &open_machine : NULL;
    if (file)
        inside++;
    pthread_mutex_unlock(&gate);
    return file;
}

static void close_when_unused(void)
{
    if (!references && !inside && open_machine.machine)
        state_close(&open_machine);
}

void session_leave(void)
{
    pthread_mutex_lock(&gate);
    inside--;
    close_when_unused();
    pthread_mutex_unlock(&gate);
}

void session_lock(struct machine_file *file, bool exclusive)
{
    pthread_mutex_lock(&holder);
    state_lock(file, exclusive);
}

void session_unlock(struct machine_file *file)
{
    state_unlock(file);
    pthread_mutex_unlock(&holder);
}

const char *session_library_version(const struct machine *machine)
{
    const char *own = locate_own_version();
    return own[0] ? own : machine->library_version;
}

static nvmlReturn_t admit(const struct machine_file *file, unsigned flags)
{
    const struct machine *machine = file->machine;
    if (!machine->driver_loaded)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (strcmp(session_library_version(machine), machine->kernel_version) != 0)
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    return machine->gpu_count || (flags & NVML_INIT_FLAG_NO_GPUS) ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

/* Faults of initialisation, then the driver's own conditions. The gate is open while a fault makes us wait. */
static nvmlReturn_t suffer_and_admit(struct machine_file *file, const char *function, unsigned flags)
{
    session_lock(file, false);
    struct suffering suffering = fault_strike(file, function, -1);
    session_unlock(file);
    if (suffering.fault_id)
        fault_wait(file, &suffering);
    if (suffering.error)
        return (nvmlReturn_t)suffering.error;
    session_lock(file, false);
    nvmlReturn_t result = admit(file, flags);
    session_unlock(file);
    return result;
}

/* Every entry point of initialisation counts as `nvmlInitWithFlags` for faults. */
static nvmlReturn_t initialise(unsigned flags)
{
    char path[PATH_MAX];
    pthread_mutex_lock(&gate);
    if (!open_machine.machine) {
        locate_state(path, sizeof(path));
        if (!state_open(&open_machine, path)) {
            open_machine.machine = NULL;
            pthread_mutex_unlock(&gate);
            return NVML_ERROR_DRIVER_NOT_LOADED;
        }
    }
    inside++;
    pthread_mutex_unlock(&gate);
    nvmlReturn_t result = suffer_and_admit(&open_machine, "nvmlInitWithFlags", flags);
    pthread_mutex_lock(&gate);
    inside--;
    references += result == NVML_SUCCESS;
    close_when_unused();
    pthread_mutex_unlock(&gate);
    return result;
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    return initialise(flags);
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return initialise(0);
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&gate);
    nvmlReturn_t result = references ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (references)
        references--;
    close_when_unused();
    pthread_mutex_unlock(&gate);
    return result;
}

EXPORT void mockNvmlLibraryVersion(char *version, unsigned int length)
{
    char path[PATH_MAX];
    struct machine_file file;
    version[0] = '\0';
    locate_state(path, sizeof(path));
    if (!state_open(&file, path))
        return;
    snprintf(version, length, "%s", session_library_version(file.machine));
    state_close(&file);
}
