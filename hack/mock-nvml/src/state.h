/*
 * The machine: one file of fixed layout that every process maps.
 *
 * The library, nvidia-smi and the control program see the same pages, so what one changes all others see at once, in containers
 * too: the file carries the name of a driver library (`libnvidia-mockstate.so.<driver version>`), lies beside libnvidia-ml, and
 * comes into a container by the same mounts as the driver's libraries do. Its first page is a small ELF header, so tools that walk library
 * directories (ldconfig, CDI generators) take it for what its name says.
 *
 * Access is guarded by flock(2) on the file: the kernel releases it when a holder dies, and it works on a descriptor opened
 * read-only. Within a critical section the field that makes a change visible is written last, so a holder that is killed
 * leaves either the old or the new machine.
 */
#ifndef MOCK_NVML_STATE_H
#define MOCK_NVML_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STATE_MAGIC 0x4C4D564E6B636F4Dull /* "MockNVML" */
#define STATE_LAYOUT 1u
#define STATE_PREFIX "libnvidia-mockstate.so"

enum {
    ELF_PAGE = 4096,
    MAX_BOARDS = 4,
    MAX_PROFILES = 18,
    MAX_STARTS = 8,
    MAX_GPUS = 32,
    MAX_GPU_INSTANCES = 15,
    MAX_COMPUTE_INSTANCES = 8,
    MAX_PROCESSES = 32,
    MAX_NUMA_NODES = 16,
    CPU_WORDS = 8,
    MAX_FAULTS = 64,
    MAX_EVENTS = 256,
};

struct profile {
    char name[32];
    uint32_t enum_index, id, slices, multiprocessors, copy_engines, decoders, encoders, jpeg_engines, ofa_engines;
    uint32_t instances, size, start_count, starts[MAX_STARTS];
    uint64_t memory_mib;
};

struct board {
    char product[96], vbios[32], gpu_part[32];
    uint32_t brand, architecture, compute_major, compute_minor, multiprocessors;
    uint32_t pci_device, pci_subsystem, pcie_generation, nvlinks, addressing_mode, power_limit_watts;
    uint32_t clock_graphics, clock_memory, clock_video;
    uint64_t memory_mib, reserved_mib, bar1_mib;
    uint32_t mig_capable, memory_slices, compute_slices, mode_needs_reset, mode_survives_reboot, profile_count;
    struct profile profiles[MAX_PROFILES];
};

struct compute_instance {
    uint32_t in_use, slices, start;
    uint64_t serial; /* tells this instance from an earlier one with the same id */
    char uuid[48];
};

struct gpu_instance {
    uint32_t in_use, profile, start; /* profile: position in the board's table */
    uint64_t serial;
    struct compute_instance compute[MAX_COMPUTE_INSTANCES];
};

struct gpu {
    char uuid[48], serial[32], pcie_root[32];
    uint32_t board, minor, domain, bus, device, function, module_id;
    int32_t numa_node;
    uint32_t lost, mig_current, mig_pending, compute_mode, timeslice, persistence, recovery_action;
    uint32_t fabric_state, fabric_status;
    struct gpu_instance instances[MAX_GPU_INSTANCES];
};

struct process {
    uint32_t pid, gpu, gi, ci; /* gi and ci are NVML_NO_INSTANCE on a whole GPU; pid 0: free entry */
    uint64_t used_mib;
};

struct numa_node {
    uint32_t id;
    uint64_t cpus[CPU_WORDS];
};

struct fault {
    uint32_t id; /* 0: free entry; ids are never used again */
    char function[64]; /* symbol, or "*" for every call about a GPU */
    int32_t gpu; /* -1: any, and calls about no GPU */
    uint32_t error, after, count, delay_ms, hang; /* count 0: for ever */
    uint32_t seen;
};

struct event {
    uint64_t type, data;
    uint32_t gpu, gi, ci;
};

struct machine {
    uint8_t elf[ELF_PAGE];
    uint64_t magic;
    uint32_t layout, size;
    char library_version[32]; /* of the user-space driver, when the library's own file name does not say it */
    char kernel_version[32];  /* of the loaded kernel module */
    char host_tree[256];      /* directory of /proc/driver/nvidia as processes on the node see it */
    uint32_t driver_loaded, cuda_version;
    uint32_t nvswitches, fabric_present, fabric_clique, platform_slot, platform_tray, platform_host;
    uint8_t cluster_uuid[16];
    uint32_t gpu_count, board_count, numa_count;
    uint64_t created;       /* instances made since the machine was described; source of serials and UUIDs */
    uint32_t boots;
    uint32_t fault_changes; /* futex: moves when a fault is added or cleared */
    uint32_t event_count;   /* futex: number of events ever posted */
    uint32_t last_fault_id;
    struct board boards[MAX_BOARDS];
    struct numa_node numa[MAX_NUMA_NODES];
    struct process processes[MAX_PROCESSES];
    struct fault faults[MAX_FAULTS];
    struct event events[MAX_EVENTS]; /* ring; event n is at n % MAX_EVENTS */
    struct gpu gpus[MAX_GPUS];
};

struct machine_file {
    struct machine *machine;
    int descriptor;
    bool writable;
};

/* Map an existing machine; read-only where the file or the mount does not let us write. False when there is none. */
bool state_open(struct machine_file *file, const char *path);

/* Make the file (or take the one that is there, keeping its inode) and map it, zeroed but for the ELF page. */
bool state_create(struct machine_file *file, const char *path);

void state_close(struct machine_file *file);
void state_lock(const struct machine_file *file, bool exclusive);
void state_unlock(const struct machine_file *file);

/* Sleep until *word is no longer `seen`, or for `milliseconds`. May return early. Works on a read-only mapping. */
void state_wait(const uint32_t *word, uint32_t seen, uint64_t milliseconds);
void state_wake(uint32_t *word);

/* Monotonic clock in milliseconds. */
uint64_t state_now(void);

#endif
