/* Matching, counting and waiting. */
#include "faults.h"

#include <string.h>

/* Counts of a process that may only read the state; an entry is void once its place belongs to another fault. */
static struct { uint32_t fault_id, seen; } own[MAX_FAULTS];

static uint32_t count_call(const struct machine_file *file, unsigned place)
{
    struct fault *fault = &file->machine->faults[place];
    if (file->writable) /* readers hold a shared lock only, so the count is atomic */
        return __atomic_add_fetch(&fault->seen, 1, __ATOMIC_SEQ_CST);
    if (own[place].fault_id != fault->id) {
        own[place].fault_id = fault->id;
        own[place].seen = 0;
    }
    return ++own[place].seen;
}

/* True for the symbol itself and for its name without the `_v<n>` that callers seldom write. */
static bool is_name_of(const char *name, const char *symbol)
{
    size_t length = strlen(name);
    if (strncmp(name, symbol, length) != 0)
        return false;
    const char *rest = symbol + length;
    return !*rest || (strncmp(rest, "_v", 2) == 0 && rest[2] && !rest[3]);
}

static bool names(const struct fault *fault, const char *function, int gpu)
{
    if (!fault->id || (fault->gpu >= 0 && fault->gpu != gpu))
        return false;
    return strcmp(fault->function, "*") == 0 ? gpu >= 0 : is_name_of(fault->function, function);
}

struct suffering fault_strike(const struct machine_file *file, const char *function, int gpu)
{
    struct suffering suffering = {0};
    for (unsigned i = 0; i < MAX_FAULTS; i++) {
        const struct fault *fault = &file->machine->faults[i];
        if (!names(fault, function, gpu))
            continue;
        uint32_t seen = count_call(file, i);
        bool strikes = seen > fault->after && (!fault->count || seen <= fault->after + fault->count);
        if (strikes && !suffering.fault_id)
            suffering = (struct suffering){fault->id, fault->error, fault->delay_ms, fault->hang};
    }
    return suffering;
}

static bool exists(const struct machine *machine, uint32_t id)
{
    for (unsigned i = 0; i < MAX_FAULTS; i++)
        if (__atomic_load_n(&machine->faults[i].id, __ATOMIC_SEQ_CST) == id)
            return true;
    return false;
}

void fault_wait(const struct machine_file *file, const struct suffering *suffering)
{
    const struct machine *machine = file->machine;
    uint64_t end = state_now() + suffering->delay_ms;
    for (;;) {
        uint32_t changes = __atomic_load_n(&machine->fault_changes, __ATOMIC_SEQ_CST);
        uint64_t now = state_now();
        if (!exists(machine, suffering->fault_id) || (!suffering->hang && now >= end))
            return;
        state_wait(&machine->fault_changes, changes, suffering->hang ? 1000 : end - now);
    }
}

uint32_t fault_add(struct machine *machine, const struct fault *fault)
{
    for (unsigned i = 0; i < MAX_FAULTS; i++) {
        struct fault *entry = &machine->faults[i];
        if (entry->id)
            continue;
        *entry = *fault;
        entry->seen = 0;
        entry->id = ++machine->last_fault_id;
        return entry->id;
    }
    return 0;
}

bool fault_clear(struct machine *machine, uint32_t id)
{
    bool cleared = false;
    for (unsigned i = 0; i < MAX_FAULTS; i++) {
        if (!machine->faults[i].id || (id && machine->faults[i].id != id))
            continue;
        machine->faults[i].id = 0;
        cleared = true;
    }
    state_wake(&machine->fault_changes);
    return cleared || !id;
}
