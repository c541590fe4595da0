/*
 * Event sets. A set belongs to the process; it remembers how far it has read the machine's ring, so each set gets every event once, even where the
 * state is read-only. An event from before the registration of its GPU is not delivered.
 */
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "session.h"

static const uint64_t supported = NVML_EVENT_SINGLE_BIT_ECC | NVML_EVENT_DOUBLE_BIT_ECC | NVML_EVENT_XID
                                | NVML_EVENT_GPU_UNAVAILABLE | NVML_EVENT_RECOVERY_ACTION;

struct nvmlEventSet_st {
    uint32_t next; /* number of the next event to look at */
    struct {
        uint64_t types;
        uint32_t since;
    } gpus[MAX_GPUS];
};

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    BEGIN(call_system, READS);
    *set = calloc(1, sizeof(**set));
    if (!*set)
        END(NVML_ERROR_MEMORY);
    (*set)->next = call.machine->event_count;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    BEGIN(call_system, READS);
    free(set);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    BEGIN(call_gpu, READS, device);
    *types = supported;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
    BEGIN(call_gpu, READS, device);
    if (!set)
        END(NVML_ERROR_INVALID_ARGUMENT);
    if (types & ~supported)
        END(NVML_ERROR_NOT_SUPPORTED);
    if (!set->gpus[gpu_index(&call)].types)
        set->gpus[gpu_index(&call)].since = call.machine->event_count;
    set->gpus[gpu_index(&call)].types |= types;
    END(NVML_SUCCESS);
}

/* Move the set to the next event it wants. False when there is none yet. With the lock held. */
static bool read_next(const struct call *call, nvmlEventSet_t set, nvmlEventData_t *data)
{
    const struct machine *machine = call->machine;
    if (machine->event_count - set->next > MAX_EVENTS)
        set->next = machine->event_count - MAX_EVENTS; /* overtaken: the oldest are gone */
    while (set->next != machine->event_count) {
        uint32_t number = set->next++;
        const struct event *event = &machine->events[number % MAX_EVENTS];
        if (!(set->gpus[event->gpu].types & event->type) || (int32_t)(number - set->gpus[event->gpu].since) < 0)
            continue;
        *data = (nvmlEventData_t){handle_gpu(call, &machine->gpus[event->gpu]), event->type, event->data, event->gi, event->ci};
        return true;
    }
    return false;
}

/* Timeout is the normal answer. The lock is free while waiting; faults strike on entry only. */
EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    uint64_t end = state_now() + timeout_ms;
    BEGIN(call_system, READS);
    if (!set || !data)
        END(NVML_ERROR_INVALID_ARGUMENT);
    while (!read_next(&call, set, data)) {
        uint32_t seen = call.machine->event_count;
        uint64_t now = state_now();
        if (now >= end)
            END(NVML_ERROR_TIMEOUT);
        session_unlock(call.file);
        state_wait(&call.machine->event_count, seen, end - now);
        session_lock(call.file, false);
    }
    END(NVML_SUCCESS);
}
