/* GPU instances. Compute instances are in mig_compute.c. */
#include "mig.h"

#include <string.h>

#include "capabilities.h"

static unsigned gpu_number(const struct machine *machine, const struct gpu *gpu)
{
    return (unsigned)(gpu - machine->gpus);
}

static unsigned instance_id(const struct gpu *gpu, const struct gpu_instance *instance)
{
    return (unsigned)(instance - gpu->instances);
}

struct board *mig_board(struct machine *machine, const struct gpu *gpu)
{
    return &machine->boards[gpu->board];
}

struct profile *mig_profile_by_enum(struct board *board, unsigned enum_index)
{
    for (unsigned i = 0; i < board->profile_count; i++)
        if (board->profiles[i].enum_index == enum_index)
            return &board->profiles[i];
    return NULL;
}

struct profile *mig_profile_by_id(struct board *board, unsigned id)
{
    for (unsigned i = 0; i < board->profile_count; i++)
        if (board->profiles[i].id == id)
            return &board->profiles[i];
    return NULL;
}

struct profile *mig_profile_of(struct machine *machine, const struct gpu *gpu, const struct gpu_instance *instance)
{
    return &mig_board(machine, gpu)->profiles[instance->profile];
}

static bool has_instances(const struct gpu *gpu)
{
    for (unsigned i = 0; i < MAX_GPU_INSTANCES; i++)
        if (gpu->instances[i].in_use)
            return true;
    return false;
}

static bool has_processes(const struct machine *machine, const struct gpu *gpu)
{
    for (unsigned i = 0; i < MAX_PROCESSES; i++)
        if (machine->processes[i].pid && machine->processes[i].gpu == gpu_number(machine, gpu))
            return true;
    return false;
}

nvmlReturn_t mig_set_mode(struct machine *machine, struct gpu *gpu, bool enabled, nvmlReturn_t *activation)
{
    const struct board *board = mig_board(machine, gpu);
    if (!board->mig_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    *activation = NVML_SUCCESS;
    if (gpu->mig_current == enabled) {
        gpu->mig_pending = enabled;
        return NVML_SUCCESS;
    }
    if (has_processes(machine, gpu) || has_instances(gpu)) {
        *activation = NVML_ERROR_IN_USE;
        return NVML_SUCCESS;
    }
    gpu->mig_pending = enabled;
    if (board->mode_needs_reset)
        *activation = NVML_ERROR_RESET_REQUIRED;
    else
        gpu->mig_current = enabled;
    return NVML_SUCCESS;
}

/*
 * Ids come from one range per size (7g: 0, halves: 1-2, quarters: 3-6, eighths: 7-14) and go up from the middle of the memory
 * axis, wrapping round, as NVIDIA's guide shows for A100: 3g at 4 is 1, 3g at 0 is 2; 1g at 4 is 7, at 0 is 11.
 */
static unsigned id_at(const struct board *board, const struct profile *profile, unsigned start)
{
    unsigned total = board->memory_slices, size = profile->size;
    unsigned first = total / size - 1;
    return size == total ? 0 : first + (start + total / 2) % total / size;
}

struct load {
    uint32_t memory; /* bit per occupied memory slice */
    unsigned slices, decoders, encoders, jpeg_engines, ofa_engines, same_profile;
};

static uint32_t memory_bits(unsigned start, unsigned size)
{
    return ((1u << size) - 1u) << start;
}

static void add_load(struct load *load, const struct profile *profile, unsigned start)
{
    load->memory |= memory_bits(start, profile->size);
    load->slices += profile->slices;
    load->decoders += profile->decoders;
    load->encoders += profile->encoders;
    load->jpeg_engines += profile->jpeg_engines;
    load->ofa_engines += profile->ofa_engines;
}

static struct load current_load(struct machine *machine, const struct gpu *gpu, const struct profile *wanted)
{
    struct load load = {0};
    for (unsigned i = 0; i < MAX_GPU_INSTANCES; i++) {
        if (!gpu->instances[i].in_use)
            continue;
        const struct profile *profile = mig_profile_of(machine, gpu, &gpu->instances[i]);
        add_load(&load, profile, gpu->instances[i].start);
        load.same_profile += profile == wanted;
    }
    return load;
}

/* The engines of the whole GPU: what the profile that has most of each kind holds. */
static struct profile whole_gpu(const struct board *board)
{
    struct profile whole = {0};
    for (unsigned i = 0; i < board->profile_count; i++) {
        const struct profile *profile = &board->profiles[i];
        whole.decoders = profile->decoders > whole.decoders ? profile->decoders : whole.decoders;
        whole.encoders = profile->encoders > whole.encoders ? profile->encoders : whole.encoders;
        whole.jpeg_engines = profile->jpeg_engines > whole.jpeg_engines ? profile->jpeg_engines : whole.jpeg_engines;
        whole.ofa_engines = profile->ofa_engines > whole.ofa_engines ? profile->ofa_engines : whole.ofa_engines;
    }
    return whole;
}

static bool fits(const struct board *board, const struct load *load, const struct profile *profile, unsigned start)
{
    struct profile whole = whole_gpu(board);
    return !(load->memory & memory_bits(start, profile->size)) && load->same_profile < profile->instances
        && load->slices + profile->slices <= board->compute_slices
        && load->decoders + profile->decoders <= whole.decoders && load->encoders + profile->encoders <= whole.encoders
        && load->jpeg_engines + profile->jpeg_engines <= whole.jpeg_engines
        && load->ofa_engines + profile->ofa_engines <= whole.ofa_engines;
}

/* Where the driver would put the next instance: the free placement with the lowest id. False when there is none. */
static bool choose_start(const struct board *board, const struct load *load, const struct profile *profile, unsigned *chosen)
{
    bool found = false;
    for (unsigned i = 0; i < profile->start_count; i++) {
        unsigned start = profile->starts[i];
        if (fits(board, load, profile, start) && (!found || id_at(board, profile, start) < id_at(board, profile, *chosen))) {
            *chosen = start;
            found = true;
        }
    }
    return found;
}

unsigned mig_remaining(struct machine *machine, struct gpu *gpu, const struct profile *profile)
{
    const struct board *board = mig_board(machine, gpu);
    struct load load = current_load(machine, gpu, profile);
    unsigned count = 0, start = 0;
    while (choose_start(board, &load, profile, &start)) {
        add_load(&load, profile, start);
        load.same_profile++;
        count++;
    }
    return count;
}

static bool is_possible(const struct profile *profile, const nvmlPlacement_t *placement)
{
    for (unsigned i = 0; i < profile->start_count; i++)
        if (profile->starts[i] == placement->start && profile->size == placement->size)
            return true;
    return false;
}

nvmlReturn_t mig_create(struct machine *machine, struct gpu *gpu, struct profile *profile, const nvmlPlacement_t *placement,
                        struct gpu_instance **created)
{
    if (!gpu->mig_current)
        return NVML_ERROR_NOT_SUPPORTED;
    struct board *board = mig_board(machine, gpu);
    struct load load = current_load(machine, gpu, profile);
    unsigned start = placement ? placement->start : 0;
    if (placement && !is_possible(profile, placement))
        return NVML_ERROR_INVALID_ARGUMENT;
    bool free = placement ? fits(board, &load, profile, start) : choose_start(board, &load, profile, &start);
    if (!free)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    struct gpu_instance *instance = &gpu->instances[id_at(board, profile, start)];
    memset(instance, 0, sizeof(*instance));
    instance->profile = (uint32_t)(profile - board->profiles);
    instance->start = start;
    instance->serial = ++machine->created;
    instance->in_use = 1;
    capability_add(machine, gpu->minor, instance_id(gpu, instance), -1);
    *created = instance;
    return NVML_SUCCESS;
}

nvmlReturn_t mig_destroy(struct machine *machine, struct gpu *gpu, struct gpu_instance *instance)
{
    for (unsigned i = 0; i < MAX_COMPUTE_INSTANCES; i++)
        if (instance->compute[i].in_use)
            return NVML_ERROR_IN_USE;
    instance->in_use = 0;
    capability_remove(machine, gpu->minor, instance_id(gpu, instance), -1);
    return NVML_SUCCESS;
}

static void remove_partitions(struct machine *machine, struct gpu *gpu)
{
    for (unsigned g = 0; g < MAX_GPU_INSTANCES; g++) {
        struct gpu_instance *instance = &gpu->instances[g];
        for (int c = 0; instance->in_use && c < MAX_COMPUTE_INSTANCES; c++)
            if (instance->compute[c].in_use) {
                instance->compute[c].in_use = 0;
                capability_remove(machine, gpu->minor, g, c);
            }
        if (instance->in_use)
            mig_destroy(machine, gpu, instance);
    }
}

void mig_reset(struct machine *machine, struct gpu *gpu)
{
    remove_partitions(machine, gpu);
    gpu->mig_current = gpu->mig_pending;
}

void mig_reboot(struct machine *machine, struct gpu *gpu)
{
    remove_partitions(machine, gpu);
    if (!mig_board(machine, gpu)->mode_survives_reboot)
        gpu->mig_pending = 0;
    gpu->mig_current = gpu->mig_pending;
}
