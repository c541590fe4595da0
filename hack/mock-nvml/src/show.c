/* The machine's changing state as JSON. Every text in it is a version, a UUID, a symbol or a profile name, so nothing needs escaping. */
#include "show.h"

#include <stdio.h>

#include "capabilities.h"
#include "mig.h"

static void show_compute(const struct gpu *gpu, unsigned gi, unsigned ci, const struct compute_instance *compute)
{
    printf("{\"id\": %u, \"slices\": %u, \"start\": %u, \"uuid\": \"%s\", \"capability_minor\": %u}", ci, compute->slices, compute->start,
           compute->uuid, capability_ci_minor(gpu->minor, gi, ci));
}

static void show_instance(struct machine *machine, const struct gpu *gpu, unsigned gi)
{
    const struct gpu_instance *instance = &gpu->instances[gi];
    const struct profile *profile = mig_profile_of(machine, gpu, instance);
    printf("{\"id\": %u, \"profile\": \"%s\", \"profile_id\": %u, \"start\": %u, \"size\": %u, \"capability_minor\": %u, \"compute_instances\": [",
           gi, profile->name, profile->id, instance->start, profile->size, capability_gi_minor(gpu->minor, gi));
    const char *separator = "";
    for (unsigned ci = 0; ci < MAX_COMPUTE_INSTANCES; ci++) {
        if (!instance->compute[ci].in_use)
            continue;
        printf("%s", separator);
        show_compute(gpu, gi, ci, &instance->compute[ci]);
        separator = ", ";
    }
    printf("]}");
}

static void show_gpu(struct machine *machine, const struct gpu *gpu)
{
    printf("{\"minor\": %u, \"uuid\": \"%s\", \"lost\": %s, \"mig_current\": %s, \"mig_pending\": %s, ", gpu->minor, gpu->uuid,
           gpu->lost ? "true" : "false", gpu->mig_current ? "true" : "false", gpu->mig_pending ? "true" : "false");
    printf("\"compute_mode\": %u, \"timeslice\": %u, \"persistence\": %u, \"recovery_action\": %u, \"gpu_instances\": [", gpu->compute_mode,
           gpu->timeslice, gpu->persistence, gpu->recovery_action);
    const char *separator = "";
    for (unsigned gi = 0; gi < MAX_GPU_INSTANCES; gi++) {
        if (!gpu->instances[gi].in_use)
            continue;
        printf("%s", separator);
        show_instance(machine, gpu, gi);
        separator = ", ";
    }
    printf("]}");
}

static void show_faults(const struct machine *machine)
{
    const char *separator = "";
    for (unsigned i = 0; i < MAX_FAULTS; i++) {
        const struct fault *fault = &machine->faults[i];
        if (!fault->id)
            continue;
        printf("%s{\"id\": %u, \"function\": \"%s\", \"gpu\": %d, \"error\": %u, \"after\": %u, \"count\": %u, ", separator, fault->id,
               fault->function, fault->gpu, fault->error, fault->after, fault->count);
        printf("\"delay_ms\": %u, \"hang\": %s, \"seen\": %u}", fault->delay_ms, fault->hang ? "true" : "false", fault->seen);
        separator = ", ";
    }
}

void show_machine(struct machine *machine)
{
    printf("{\"driver_version\": \"%s\", \"library_version\": \"%s\", \"driver_loaded\": %s, \"boots\": %u, \"events\": %u, \"gpus\": [",
           machine->kernel_version, machine->library_version, machine->driver_loaded ? "true" : "false", machine->boots,
           machine->event_count);
    for (unsigned i = 0; i < machine->gpu_count; i++) {
        printf("%s", i ? ", " : "");
        show_gpu(machine, &machine->gpus[i]);
    }
    printf("], \"faults\": [");
    show_faults(machine);
    printf("]}\n");
}
