/* Reader of machine descriptions: a table of keys, and where each value goes. */
#include "describe.h"

#include <stdlib.h>
#include <string.h>

enum type { TEXT, NUMBER32, NUMBER64, LIST32, LIST64, HEX_BYTES };

struct key {
    const char *name;
    enum type type;
    size_t offset, size; /* size of a text, or bytes of a list */
    size_t count_offset; /* where a list's length goes; 0: nowhere */
};

#define FIELD(structure, field) offsetof(struct structure, field), sizeof(((struct structure *)0)->field), 0
#define COUNTED(structure, field, count) offsetof(struct structure, field), sizeof(((struct structure *)0)->field), offsetof(struct structure, count)

static const struct key machine_keys[] = {
    {"driver_version", TEXT, FIELD(machine, kernel_version)},
    {"library_version", TEXT, FIELD(machine, library_version)},
    {"host_tree", TEXT, FIELD(machine, host_tree)},
    {"driver_loaded", NUMBER32, FIELD(machine, driver_loaded)},
    {"cuda_version", NUMBER32, FIELD(machine, cuda_version)},
    {"nvswitches", NUMBER32, FIELD(machine, nvswitches)},
    {"fabric_present", NUMBER32, FIELD(machine, fabric_present)},
    {"fabric_clique", NUMBER32, FIELD(machine, fabric_clique)},
    {"cluster_uuid", HEX_BYTES, FIELD(machine, cluster_uuid)},
    {"platform_slot", NUMBER32, FIELD(machine, platform_slot)},
    {"platform_tray", NUMBER32, FIELD(machine, platform_tray)},
    {"platform_host", NUMBER32, FIELD(machine, platform_host)},
    {0},
};
static const struct key numa_keys[] = {
    {"id", NUMBER32, FIELD(numa_node, id)},
    {"cpus", LIST64, FIELD(numa_node, cpus)},
    {0},
};
static const struct key board_keys[] = {
    {"product", TEXT, FIELD(board, product)},
    {"vbios", TEXT, FIELD(board, vbios)},
    {"gpu_part", TEXT, FIELD(board, gpu_part)},
    {"brand", NUMBER32, FIELD(board, brand)},
    {"architecture", NUMBER32, FIELD(board, architecture)},
    {"compute_major", NUMBER32, FIELD(board, compute_major)},
    {"compute_minor", NUMBER32, FIELD(board, compute_minor)},
    {"multiprocessors", NUMBER32, FIELD(board, multiprocessors)},
    {"pci_device", NUMBER32, FIELD(board, pci_device)},
    {"pci_subsystem", NUMBER32, FIELD(board, pci_subsystem)},
    {"pcie_generation", NUMBER32, FIELD(board, pcie_generation)},
    {"nvlinks", NUMBER32, FIELD(board, nvlinks)},
    {"addressing_mode", NUMBER32, FIELD(board, addressing_mode)},
    {"power_limit_watts", NUMBER32, FIELD(board, power_limit_watts)},
    {"clock_graphics", NUMBER32, FIELD(board, clock_graphics)},
    {"clock_memory", NUMBER32, FIELD(board, clock_memory)},
    {"clock_video", NUMBER32, FIELD(board, clock_video)},
    {"memory_mib", NUMBER64, FIELD(board, memory_mib)},
    {"reserved_mib", NUMBER64, FIELD(board, reserved_mib)},
    {"bar1_mib", NUMBER64, FIELD(board, bar1_mib)},
    {"mig_capable", NUMBER32, FIELD(board, mig_capable)},
    {"memory_slices", NUMBER32, FIELD(board, memory_slices)},
    {"compute_slices", NUMBER32, FIELD(board, compute_slices)},
    {"mode_needs_reset", NUMBER32, FIELD(board, mode_needs_reset)},
    {"mode_survives_reboot", NUMBER32, FIELD(board, mode_survives_reboot)},
    {0},
};
static const struct key profile_keys[] = {
    {"name", TEXT, FIELD(profile, name)},
    {"enum", NUMBER32, FIELD(profile, enum_index)},
    {"id", NUMBER32, FIELD(profile, id)},
    {"slices", NUMBER32, FIELD(profile, slices)},
    {"multiprocessors", NUMBER32, FIELD(profile, multiprocessors)},
    {"copy_engines", NUMBER32, FIELD(profile, copy_engines)},
    {"decoders", NUMBER32, FIELD(profile, decoders)},
    {"encoders", NUMBER32, FIELD(profile, encoders)},
    {"jpeg_engines", NUMBER32, FIELD(profile, jpeg_engines)},
    {"ofa_engines", NUMBER32, FIELD(profile, ofa_engines)},
    {"memory_mib", NUMBER64, FIELD(profile, memory_mib)},
    {"instances", NUMBER32, FIELD(profile, instances)},
    {"size", NUMBER32, FIELD(profile, size)},
    {"starts", LIST32, COUNTED(profile, starts, start_count)},
    {0},
};
static const struct key gpu_keys[] = {
    {"uuid", TEXT, FIELD(gpu, uuid)},
    {"serial", TEXT, FIELD(gpu, serial)},
    {"pcie_root", TEXT, FIELD(gpu, pcie_root)},
    {"board", NUMBER32, FIELD(gpu, board)},
    {"minor", NUMBER32, FIELD(gpu, minor)},
    {"domain", NUMBER32, FIELD(gpu, domain)},
    {"bus", NUMBER32, FIELD(gpu, bus)},
    {"device", NUMBER32, FIELD(gpu, device)},
    {"function", NUMBER32, FIELD(gpu, function)},
    {"module_id", NUMBER32, FIELD(gpu, module_id)},
    {"numa_node", NUMBER32, FIELD(gpu, numa_node)},
    {"lost", NUMBER32, FIELD(gpu, lost)},
    {"fabric_state", NUMBER32, FIELD(gpu, fabric_state)},
    {0},
};

struct section {
    const struct key *keys;
    void *base;
};

static bool store_list(const struct key *key, char *base, char *value, size_t width)
{
    uint32_t count = 0;
    for (char *word = strtok(value, " "); word; word = strtok(NULL, " "), count++) {
        uint64_t number = strtoull(word, NULL, 0);
        if ((count + 1) * width > key->size)
            return false;
        memcpy(base + key->offset + count * width, &number, width); /* both architectures here are little-endian */
    }
    if (key->count_offset)
        memcpy(base + key->count_offset, &count, sizeof(count));
    return true;
}

static bool store_bytes(uint8_t *target, size_t size, const char *value)
{
    for (size_t i = 0; i < size; i++) {
        char digits[3] = {value[0], value[0] ? value[1] : '\0', '\0'};
        if (!digits[1])
            return false;
        target[i] = (uint8_t)strtoul(digits, NULL, 16);
        value += 2;
    }
    return !*value;
}

static bool store(const struct key *key, char *base, char *value)
{
    uint64_t number;
    switch (key->type) {
    case TEXT:
        if (strlen(value) >= key->size)
            return false;
        strcpy(base + key->offset, value);
        return true;
    case NUMBER32:
    case NUMBER64:
        number = strtoull(value, NULL, 0);
        memcpy(base + key->offset, &number, key->type == NUMBER32 ? 4 : 8);
        return true;
    case LIST32:
        return store_list(key, base, value, 4);
    case LIST64:
        return store_list(key, base, value, 8);
    case HEX_BYTES:
        return store_bytes((uint8_t *)base + key->offset, key->size, value);
    }
    return false;
}

static bool open_section(struct machine *machine, const char *line, struct section *section)
{
    struct board *board = machine->board_count ? &machine->boards[machine->board_count - 1] : NULL;
    if (strcmp(line, "[machine]") == 0)
        *section = (struct section){machine_keys, machine};
    else if (strcmp(line, "[numa]") == 0 && machine->numa_count < MAX_NUMA_NODES)
        *section = (struct section){numa_keys, &machine->numa[machine->numa_count++]};
    else if (strcmp(line, "[board]") == 0 && machine->board_count < MAX_BOARDS)
        *section = (struct section){board_keys, &machine->boards[machine->board_count++]};
    else if (strcmp(line, "[profile]") == 0 && board && board->profile_count < MAX_PROFILES)
        *section = (struct section){profile_keys, &board->profiles[board->profile_count++]};
    else if (strcmp(line, "[gpu]") == 0 && machine->gpu_count < MAX_GPUS)
        *section = (struct section){gpu_keys, &machine->gpus[machine->gpu_count++]};
    else
        return false;
    return true;
}

static bool read_line(struct section *section, char *line)
{
    char *separator = strstr(line, " = ");
    if (!separator || !section->keys)
        return false;
    *separator = '\0';
    for (const struct key *key = section->keys; key->name; key++)
        if (strcmp(key->name, line) == 0)
            return store(key, section->base, separator + 3);
    return false;
}

bool describe_machine(struct machine *machine, FILE *input)
{
    struct section section = {NULL, NULL};
    char line[512], original[512];
    while (fgets(line, sizeof(line), input)) {
        line[strcspn(line, "\n")] = '\0';
        strcpy(original, line);
        if (!line[0])
            continue;
        if (line[0] == '[' ? open_section(machine, line, &section) : read_line(&section, line))
            continue;
        fprintf(stderr, "mock-nvml-ctl: cannot use line: %s\n", original);
        return false;
    }
    return true;
}
