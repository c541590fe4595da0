/* Compute instances: how a GPU instance is divided again. */
#include <stdio.h>
#include <string.h>

#include "capabilities.h"
#include "mig.h"

/* Widths of the compute-instance profiles, by NVML's enum; a profile's id is the same number. 7 is the +me variant, which no board here has. */
static const unsigned widths[] = {1, 2, 3, 4, 7, 8, 6};

unsigned mig_compute_slices(const struct profile *profile, unsigned compute_profile)
{
    if (compute_profile >= sizeof(widths) / sizeof(widths[0]))
        return 0;
    unsigned width = widths[compute_profile];
    /* Seen in `nvidia-smi mig -lcip`: any narrower width, save that a 4-slice instance has no 3-slice profile. */
    bool offered = width <= profile->slices && width <= 7 && !(profile->slices == 4 && width == 3);
    return offered ? width : 0;
}

unsigned mig_compute_profile(unsigned slices)
{
    unsigned profile = 0;
    while (widths[profile] != slices)
        profile++;
    return profile;
}

static unsigned occupied(const struct gpu_instance *instance)
{
    unsigned bits = 0;
    for (unsigned i = 0; i < MAX_COMPUTE_INSTANCES; i++)
        if (instance->compute[i].in_use)
            bits |= ((1u << instance->compute[i].slices) - 1u) << instance->compute[i].start;
    return bits;
}

/* First start from which `slices` compute slices are free; -1 when there is none. */
static int free_start(const struct profile *profile, unsigned bits, unsigned slices)
{
    for (unsigned start = 0; start + slices <= profile->slices; start++)
        if (!(bits & (((1u << slices) - 1u) << start)))
            return (int)start;
    return -1;
}

unsigned mig_compute_remaining(const struct profile *profile, const struct gpu_instance *instance, unsigned slices)
{
    unsigned bits = occupied(instance), count = 0;
    for (int start; (start = free_start(profile, bits, slices)) >= 0; count++)
        bits |= ((1u << slices) - 1u) << start;
    return count;
}

static uint64_t mix(uint64_t value)
{
    value ^= value >> 30;
    value *= 0xBF58476D1CE4E5B9ull;
    value ^= value >> 27;
    value *= 0x94D049BB133111EBull;
    return value ^ value >> 31;
}

/* A well-formed version 4 UUID that depends on the GPU and on when the instance was made, so a re-made device gets a new one. */
static void write_uuid(char *text, size_t length, const struct gpu *gpu, uint64_t serial)
{
    uint64_t seed = 0xCBF29CE484222325ull;
    for (const char *c = gpu->uuid; *c; c++)
        seed = (seed ^ (uint8_t)*c) * 0x100000001B3ull;
    uint64_t high = mix(seed + serial * 0x9E3779B97F4A7C15ull), low = mix(high + 0x9E3779B97F4A7C15ull);
    snprintf(text, length, "MIG-%08x-%04x-4%03x-%04x-%012llx", (unsigned)(high >> 32), (unsigned)(high >> 16) & 0xFFFF,
             (unsigned)high & 0xFFF, (unsigned)(low >> 50 & 0x3FFF) | 0x8000, (unsigned long long)(low & 0xFFFFFFFFFFFFull));
}

nvmlReturn_t mig_create_compute(struct machine *machine, struct gpu *gpu, struct gpu_instance *instance, unsigned slices,
                                const nvmlPlacement_t *placement, struct compute_instance **created)
{
    const struct profile *profile = mig_profile_of(machine, gpu, instance);
    if (placement && (placement->size != slices || placement->start + slices > profile->slices))
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned bits = occupied(instance);
    int start = free_start(profile, bits, slices);
    if (placement)
        start = bits & (((1u << slices) - 1u) << placement->start) ? -1 : (int)placement->start;
    if (start < 0)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    int id = 0; /* eight entries and at most seven slices: one is always free */
    while (instance->compute[id].in_use)
        id++;
    struct compute_instance *compute = &instance->compute[id];
    compute->slices = slices;
    compute->start = (uint32_t)start;
    compute->serial = ++machine->created;
    write_uuid(compute->uuid, sizeof(compute->uuid), gpu, compute->serial);
    compute->in_use = 1;
    capability_add(machine, gpu->minor, (unsigned)(instance - gpu->instances), id);
    *created = compute;
    return NVML_SUCCESS;
}

nvmlReturn_t mig_destroy_compute(struct machine *machine, struct gpu *gpu, struct gpu_instance *instance,
                                 struct compute_instance *compute)
{
    unsigned gpu_number = (unsigned)(gpu - machine->gpus), gi = (unsigned)(instance - gpu->instances);
    unsigned ci = (unsigned)(compute - instance->compute);
    for (unsigned i = 0; i < MAX_PROCESSES; i++) {
        const struct process *process = &machine->processes[i];
        if (process->pid && process->gpu == gpu_number && process->gi == gi && process->ci == ci)
            return NVML_ERROR_IN_USE;
    }
    compute->in_use = 0;
    capability_remove(machine, gpu->minor, gi, (int)ci);
    return NVML_SUCCESS;
}
