/*
 * nvidia-smi of the mocked machine: the options that operators and drivers use, on this mock's libnvidia-ml.so.1.
 *
 *     nvidia-smi [-i ID[,ID…]] [-L | -q | --version | -c MODE | -pm 0|1]
 *     nvidia-smi compute-policy [-i ID] --list | --set-timeslice 0|1|2|3
 *
 * Exit codes as nvidia-smi's: NVML's own code, where 6 is "no such device" and 9 "driver not loaded"; 2 for a wrong argument.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "nvml_functions.h"
#include "smi_devices.h"
#include "smi_print.h"

enum action { TABLE, LIST, QUERY, VERSIONS, SET_COMPUTE_MODE, SET_PERSISTENCE, LIST_POLICIES, SET_TIMESLICE };

struct request {
    enum action action;
    const char *ids;   /* -i; NULL: all */
    const char *value; /* of a setting */
    bool policy;
};

struct option {
    const char *name, *long_name;
    enum action action;
    bool has_value, is_policy;
};

static const struct option options[] = {
    {"-L", "--list-gpus", LIST, false, false},
    {"-q", "--query", QUERY, false, false},
    {"--version", "--version", VERSIONS, false, false},
    {"-c", "--compute-mode", SET_COMPUTE_MODE, true, false},
    {"-pm", "--persistence-mode", SET_PERSISTENCE, true, false},
    {"-l", "--list", LIST_POLICIES, false, true},
    {"--set-timeslice", "--set-timeslice", SET_TIMESLICE, true, true},
};

/* True when `word` is the option; its value, from `--name=value` or the next word, goes to `value`. */
static bool matches(const char *word, const char *name, const char *long_name, const char *next, const char **value, bool *took_next)
{
    size_t length = strlen(long_name);
    *took_next = false;
    if (strncmp(word, long_name, length) == 0 && word[length] == '=') {
        *value = word + length + 1;
        return true;
    }
    *value = next;
    *took_next = true;
    return strcmp(word, name) == 0 || strcmp(word, long_name) == 0;
}

static bool read_option(struct request *request, const char *word, const char *next, bool *took_next)
{
    const char *value;
    if (matches(word, "-i", "--id", next, &value, took_next)) {
        request->ids = value;
        return value != NULL;
    }
    for (unsigned i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        const struct option *option = &options[i];
        if (option->is_policy != request->policy || !matches(word, option->name, option->long_name, next, &value, took_next))
            continue;
        request->action = option->action;
        request->value = option->has_value ? value : NULL;
        *took_next = *took_next && option->has_value;
        return !option->has_value || value;
    }
    return false;
}

static bool read_arguments(struct request *request, int argc, char **argv)
{
    int first = 1;
    *request = (struct request){.action = TABLE};
    if (argc > 1 && strcmp(argv[1], "compute-policy") == 0) {
        *request = (struct request){.action = LIST_POLICIES, .policy = true};
        first = 2;
    }
    for (int i = first; i < argc; i++) {
        bool took_next;
        if (!read_option(request, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &took_next)) {
            printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n");
            return false;
        }
        i += took_next;
    }
    return true;
}

static bool is_called(const struct smi_gpu *gpu, unsigned number, const char *id, size_t length)
{
    char text[16];
    snprintf(text, sizeof(text), "%u", number);
    const char *names[] = {text, gpu->uuid, gpu->bus_id, gpu->bus_id + (strlen(gpu->bus_id) > 4 ? 4 : 0)};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i]) == length && strncasecmp(names[i], id, length) == 0)
            return true;
    return false;
}

/* Keep those GPUs that `ids` names by index, UUID or bus id; their count. */
static unsigned choose(struct smi_gpu *gpus, unsigned count, const char *ids)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < count; i++) {
        bool wanted = !ids;
        for (const char *id = ids; id && *id; id += strcspn(id, ","), id += *id == ',')
            wanted = wanted || is_called(&gpus[i], i, id, strcspn(id, ","));
        if (wanted)
            gpus[kept++] = gpus[i];
    }
    return kept;
}

static nvmlReturn_t no_driver(void)
{
    printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
           "Make sure that the latest NVIDIA driver is installed and running.\n\n");
    return NVML_ERROR_DRIVER_NOT_LOADED;
}

static nvmlReturn_t connect_driver(void)
{
    if (!smi_has_control_node())
        return no_driver();
    nvmlReturn_t result = nvmlInitWithFlags(NVML_INIT_FLAG_NO_GPUS);
    if (result == NVML_ERROR_DRIVER_NOT_LOADED)
        return no_driver();
    if (result == NVML_SUCCESS)
        return result;
    printf("Failed to initialize NVML: %s\n", nvmlErrorString(result));
    if (result == NVML_ERROR_LIB_RM_VERSION_MISMATCH) {
        char version[64];
        mockNvmlLibraryVersion(version, sizeof(version));
        printf("NVML library version: %s\n", version);
    }
    return result;
}

static int mode_number(const char *text, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcasecmp(text, names[i]) == 0 || (text[0] == '0' + i && !text[1]))
            return i;
    return -1;
}

static nvmlReturn_t set_one(const struct smi_gpu *gpu, enum action action, unsigned number)
{
    if (gpu->state != NVML_SUCCESS)
        return gpu->state;
    switch (action) {
    case SET_COMPUTE_MODE: return nvmlDeviceSetComputeMode(gpu->device, number);
    case SET_PERSISTENCE: return nvmlDeviceSetPersistenceMode(gpu->device, number);
    default: return mockNvmlDeviceSetTimeslice(gpu->device, number);
    }
}

static nvmlReturn_t set_all(const struct smi_gpu *gpus, unsigned count, const struct request *request)
{
    static const char *const compute[] = {"DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS"};
    static const char *const persistence[] = {"DISABLED", "ENABLED"};
    static const char *const timeslices[] = {"DEFAULT", "SHORT", "MEDIUM", "LONG"};
    const char *what = "timeslice";
    const char *const *names = timeslices;
    int choices = 4;
    if (request->action == SET_COMPUTE_MODE) {
        what = "compute mode";
        names = compute;
    } else if (request->action == SET_PERSISTENCE) {
        what = "persistence mode";
        names = persistence;
        choices = 2;
    }
    int number = mode_number(request->value, names, choices);
    if (number < 0) {
        printf("Unable to set %s: \"%s\" is not a valid value\n", what, request->value);
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (unsigned i = 0; i < count; i++) {
        nvmlReturn_t result = set_one(&gpus[i], request->action, (unsigned)number);
        if (result != NVML_SUCCESS) {
            printf("Unable to set the %s for GPU %s: %s\n", what, gpus[i].bus_id, nvmlErrorString(result));
            return result;
        }
        printf("Set %s to %s for GPU %s.\n", what, names[number], gpus[i].bus_id);
    }
    printf("All done.\n");
    return NVML_SUCCESS;
}

static nvmlReturn_t show(const struct smi_gpu *gpus, unsigned count, enum action action)
{
    switch (action) {
    case LIST: smi_print_list(gpus, count); break;
    case QUERY: smi_print_query(gpus, count); break;
    case LIST_POLICIES: smi_print_policies(gpus, count); break;
    default: smi_print_table(gpus, count); break;
    }
    for (unsigned i = 0; i < count; i++)
        if (gpus[i].state != NVML_SUCCESS)
            return gpus[i].state;
    return NVML_SUCCESS;
}

int main(int argc, char **argv)
{
    static struct smi_gpu gpus[MAX_VISIBLE];
    struct request request;
    if (!read_arguments(&request, argc, argv))
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = connect_driver();
    if (result != NVML_SUCCESS)
        return (int)result;
    if (request.action == VERSIONS) {
        smi_print_versions();
        return NVML_SUCCESS;
    }
    unsigned count = choose(gpus, smi_find_gpus(gpus), request.ids);
    if (!count) {
        printf("No devices were found\n");
        return NVML_ERROR_NOT_FOUND;
    }
    return (int)(request.value ? set_all(gpus, count, &request) : show(gpus, count, request.action));
}
