/*
 * mock-nvml-ctl: describe the mocked machine, look at it, and do to it what happens to real ones.
 *
 *     mock-nvml-ctl STATE COMMAND [ARGUMENT…]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "describe.h"
#include "events.h"
#include "faults.h"
#include "mig.h"
#include "show.h"

enum { XID_OFF_THE_BUS = 79 };

struct arguments {
    int count;
    char **words;
};

struct command {
    const char *name, *usage;
    int required;
    int (*run)(struct machine *machine, const struct arguments *arguments);
};

static int complain(const char *what, const char *word)
{
    fprintf(stderr, "mock-nvml-ctl: %s: %s\n", what, word);
    return 1;
}

static uint32_t number(const struct arguments *arguments, int position, uint32_t otherwise)
{
    return position < arguments->count ? (uint32_t)strtoul(arguments->words[position], NULL, 0) : otherwise;
}

/* The GPU that argument 0 is the index of; NULL, told on stderr, when there is none. */
static struct gpu *the_gpu(struct machine *machine, const struct arguments *arguments)
{
    uint32_t index = number(arguments, 0, 0);
    if (index < machine->gpu_count)
        return &machine->gpus[index];
    complain("no GPU with index", arguments->words[0]);
    return NULL;
}

static int show(struct machine *machine, const struct arguments *arguments)
{
    (void)arguments;
    show_machine(machine);
    return 0;
}

/* True when `word` is `name` or `name=…`. */
static bool is_property(const char *word, const char *name)
{
    size_t length = strcspn(word, "=");
    return strlen(name) == length && strncmp(word, name, length) == 0;
}

static int add_fault(struct machine *machine, const struct arguments *arguments)
{
    struct fault fault = {.gpu = -1};
    if (strlen(arguments->words[0]) >= sizeof(fault.function))
        return complain("no such symbol", arguments->words[0]);
    strcpy(fault.function, arguments->words[0]);
    for (int i = 1; i < arguments->count; i++) {
        char *word = arguments->words[i], *value = strchr(word, '=');
        uint32_t amount = value ? (uint32_t)strtoul(value + 1, NULL, 0) : 1;
        if (is_property(word, "gpu"))
            fault.gpu = (int32_t)amount;
        else if (is_property(word, "error"))
            fault.error = amount;
        else if (is_property(word, "after"))
            fault.after = amount;
        else if (is_property(word, "count"))
            fault.count = amount;
        else if (is_property(word, "delay_ms"))
            fault.delay_ms = amount;
        else if (is_property(word, "hang"))
            fault.hang = 1;
        else
            return complain("unknown property of a fault", word);
    }
    uint32_t id = fault_add(machine, &fault);
    printf("%u\n", id);
    return id ? 0 : complain("too many faults at once, cannot add", fault.function);
}

static int clear_fault(struct machine *machine, const struct arguments *arguments)
{
    return fault_clear(machine, number(arguments, 0, 0)) ? 0 : complain("no fault with id", arguments->words[0]);
}

static int lose(struct machine *machine, const struct arguments *arguments)
{
    struct gpu *gpu = the_gpu(machine, arguments);
    if (!gpu)
        return 1;
    uint32_t index = number(arguments, 0, 0);
    gpu->lost = 1;
    event_post(machine, NVML_EVENT_XID, XID_OFF_THE_BUS, index, NVML_NO_INSTANCE, NVML_NO_INSTANCE);
    event_post(machine, NVML_EVENT_GPU_UNAVAILABLE, 0, index, NVML_NO_INSTANCE, NVML_NO_INSTANCE);
    return 0;
}

static int restore(struct machine *machine, const struct arguments *arguments)
{
    struct gpu *gpu = the_gpu(machine, arguments);
    if (gpu)
        gpu->lost = 0;
    return gpu ? 0 : 1;
}

static int xid(struct machine *machine, const struct arguments *arguments)
{
    if (!the_gpu(machine, arguments))
        return 1;
    event_post(machine, NVML_EVENT_XID, number(arguments, 1, 0), number(arguments, 0, 0), number(arguments, 2, NVML_NO_INSTANCE),
               number(arguments, 3, NVML_NO_INSTANCE));
    return 0;
}

static int ecc(struct machine *machine, const struct arguments *arguments)
{
    if (!the_gpu(machine, arguments))
        return 1;
    uint64_t type = number(arguments, 1, 2) == 1 ? NVML_EVENT_SINGLE_BIT_ECC : NVML_EVENT_DOUBLE_BIT_ECC;
    event_post(machine, type, 0, number(arguments, 0, 0), NVML_NO_INSTANCE, NVML_NO_INSTANCE);
    return 0;
}

static int recovery(struct machine *machine, const struct arguments *arguments)
{
    struct gpu *gpu = the_gpu(machine, arguments);
    if (!gpu)
        return 1;
    gpu->recovery_action = number(arguments, 1, 0);
    event_post(machine, NVML_EVENT_RECOVERY_ACTION, gpu->recovery_action, number(arguments, 0, 0), NVML_NO_INSTANCE, NVML_NO_INSTANCE);
    return 0;
}

static int reset(struct machine *machine, const struct arguments *arguments)
{
    struct gpu *gpu = the_gpu(machine, arguments);
    if (!gpu)
        return 1;
    mig_reset(machine, gpu);
    gpu->recovery_action = 0;
    gpu->lost = 0;
    return 0;
}

/* Faults on command stay: they are the test's, not the machine's. */
static int reboot(struct machine *machine, const struct arguments *arguments)
{
    (void)arguments;
    memset(machine->processes, 0, sizeof(machine->processes));
    for (unsigned i = 0; i < machine->gpu_count; i++) {
        struct gpu *gpu = &machine->gpus[i];
        mig_reboot(machine, gpu);
        gpu->lost = gpu->compute_mode = gpu->timeslice = gpu->persistence = gpu->recovery_action = 0;
    }
    machine->driver_loaded = 1;
    machine->boots++;
    return 0;
}

static int driver_version(struct machine *machine, const struct arguments *arguments)
{
    if (strlen(arguments->words[0]) >= sizeof(machine->kernel_version))
        return complain("no version", arguments->words[0]);
    strcpy(machine->kernel_version, arguments->words[0]);
    strcpy(machine->library_version, arguments->words[0]);
    return 0;
}

static int kernel_version(struct machine *machine, const struct arguments *arguments)
{
    if (strlen(arguments->words[0]) >= sizeof(machine->kernel_version))
        return complain("no version", arguments->words[0]);
    strcpy(machine->kernel_version, arguments->words[0]);
    return 0;
}

static int driver_loaded(struct machine *machine, const struct arguments *arguments)
{
    machine->driver_loaded = number(arguments, 0, 1) != 0;
    return 0;
}

static int fabric(struct machine *machine, const struct arguments *arguments)
{
    struct gpu *gpu = the_gpu(machine, arguments);
    if (!gpu)
        return 1;
    gpu->fabric_state = number(arguments, 1, 0);
    gpu->fabric_status = number(arguments, 2, 0);
    return 0;
}

static int add_process(struct machine *machine, const struct arguments *arguments)
{
    if (!the_gpu(machine, arguments))
        return 1;
    for (unsigned i = 0; i < MAX_PROCESSES; i++) {
        struct process *process = &machine->processes[i];
        if (process->pid)
            continue;
        process->gpu = number(arguments, 0, 0);
        process->used_mib = number(arguments, 2, 0);
        process->gi = number(arguments, 3, NVML_NO_INSTANCE);
        process->ci = number(arguments, 4, NVML_NO_INSTANCE);
        process->pid = number(arguments, 1, 0);
        return 0;
    }
    return complain("too many processes at once, cannot add", arguments->words[1]);
}

static int end_process(struct machine *machine, const struct arguments *arguments)
{
    for (unsigned i = 0; i < MAX_PROCESSES; i++)
        if (machine->processes[i].pid == number(arguments, 0, 0))
            machine->processes[i].pid = 0;
    return 0;
}

static int report(nvmlReturn_t result, const char *what)
{
    if (result != NVML_SUCCESS)
        fprintf(stderr, "mock-nvml-ctl: %s: NVML error %d\n", what, (int)result);
    return result == NVML_SUCCESS ? 0 : 1;
}

static int mig_mode(struct machine *machine, const struct arguments *arguments)
{
    struct gpu *gpu = the_gpu(machine, arguments);
    nvmlReturn_t activation = NVML_SUCCESS;
    if (!gpu)
        return 1;
    nvmlReturn_t result = mig_set_mode(machine, gpu, strcmp(arguments->words[1], "on") == 0, &activation);
    if (result == NVML_SUCCESS && activation != NVML_ERROR_RESET_REQUIRED)
        result = activation;
    return report(result, "cannot set the MIG mode");
}

/* PROFILE_ID[:START]; the instance gets one compute instance that fills it. Prints its ids and the UUID. */
static int mig_create_device(struct machine *machine, const struct arguments *arguments)
{
    struct gpu *gpu = the_gpu(machine, arguments);
    if (!gpu)
        return 1;
    char *rest;
    struct profile *profile = mig_profile_by_id(mig_board(machine, gpu), (unsigned)strtoul(arguments->words[1], &rest, 0));
    if (!profile)
        return complain("no GPU-instance profile with id", arguments->words[1]);
    nvmlPlacement_t placement = {.start = *rest == ':' ? (uint32_t)strtoul(rest + 1, NULL, 0) : 0, .size = profile->size};
    struct gpu_instance *instance;
    struct compute_instance *compute;
    nvmlReturn_t result = mig_create(machine, gpu, profile, *rest == ':' ? &placement : NULL, &instance);
    if (result == NVML_SUCCESS)
        result = mig_create_compute(machine, gpu, instance, profile->slices, NULL, &compute);
    if (result == NVML_SUCCESS)
        printf("%u %u %s\n", (unsigned)(instance - gpu->instances), (unsigned)(compute - instance->compute), compute->uuid);
    return report(result, "cannot make the MIG device");
}

static int mig_destroy_devices(struct machine *machine, const struct arguments *arguments)
{
    struct gpu *gpu = the_gpu(machine, arguments);
    uint32_t id = number(arguments, 1, 0);
    if (!gpu)
        return 1;
    if (id >= MAX_GPU_INSTANCES || !gpu->instances[id].in_use)
        return complain("no GPU instance with id", arguments->words[1]);
    struct gpu_instance *instance = &gpu->instances[id];
    nvmlReturn_t result = NVML_SUCCESS;
    for (unsigned i = 0; i < MAX_COMPUTE_INSTANCES && result == NVML_SUCCESS; i++)
        if (instance->compute[i].in_use)
            result = mig_destroy_compute(machine, gpu, instance, &instance->compute[i]);
    return report(result == NVML_SUCCESS ? mig_destroy(machine, gpu, instance) : result, "cannot destroy the GPU instance");
}

static const struct command commands[] = {
    {"show", "", 0, show},
    {"fault-add", "SYMBOL|* [gpu=N] [error=CODE] [after=N] [count=N] [delay_ms=N] [hang]", 1, add_fault},
    {"fault-clear", "[ID]", 0, clear_fault},
    {"lose", "GPU", 1, lose},
    {"restore", "GPU", 1, restore},
    {"xid", "GPU CODE [GI CI]", 2, xid},
    {"ecc", "GPU 1|2", 2, ecc},
    {"recovery", "GPU ACTION", 2, recovery},
    {"reset", "GPU", 1, reset},
    {"reboot", "", 0, reboot},
    {"driver-version", "VERSION", 1, driver_version},
    {"kernel-version", "VERSION", 1, kernel_version},
    {"driver-loaded", "0|1", 1, driver_loaded},
    {"fabric", "GPU STATE [STATUS]", 2, fabric},
    {"process-add", "GPU PID MIB [GI CI]", 3, add_process},
    {"process-end", "PID", 1, end_process},
    {"mig-mode", "GPU on|off", 2, mig_mode},
    {"mig-create", "GPU PROFILE_ID[:START]", 2, mig_create_device},
    {"mig-destroy", "GPU GI", 2, mig_destroy_devices},
};

static int usage(void)
{
    fprintf(stderr, "usage: mock-nvml-ctl STATE COMMAND [ARGUMENT...]\n  init    (description on standard input)\n");
    for (unsigned i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        fprintf(stderr, "  %s %s\n", commands[i].name, commands[i].usage);
    return 2;
}

static int init(const char *path)
{
    struct machine_file file;
    if (!state_create(&file, path))
        return complain("cannot write", path);
    state_lock(&file, true);
    bool described = describe_machine(file.machine, stdin);
    state_unlock(&file);
    return described ? 0 : 1;
}

static int run(const struct command *command, const char *path, const struct arguments *arguments)
{
    struct machine_file file;
    if (!state_open(&file, path) || !file.writable)
        return complain("no machine, or not writable", path);
    state_lock(&file, true);
    int status = command->run(file.machine, arguments);
    state_unlock(&file);
    return status;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[2], "init") == 0)
        return init(argv[1]);
    for (unsigned i = 0; argc >= 3 && i < sizeof(commands) / sizeof(commands[0]); i++)
        if (strcmp(commands[i].name, argv[2]) == 0 && argc - 3 >= commands[i].required)
            return run(&commands[i], argv[1], &(struct arguments){argc - 3, argv + 3});
    return usage();
}
