/*
 * Faults on command. A fault belongs to a function (or to every call about a GPU), to one GPU or to any, lets the first `after` calls pass, and
 * then waits and/or answers with an error, `count` times or for ever.
 */
#ifndef MOCK_NVML_FAULTS_H
#define MOCK_NVML_FAULTS_H

#include "state.h"

/* What a call has to suffer. `fault_id` is 0 when nothing applies. */
struct suffering {
    uint32_t fault_id, error, delay_ms, hang;
};

/*
 * Count this call on every fault that names it and return the first that strikes. With the lock held; `gpu` is -1 for a call about no
 * GPU. A process that cannot write the state counts for itself alone.
 */
struct suffering fault_strike(const struct machine_file *file, const char *function, int gpu);

/* Wait as the fault says; ends early when it is cleared. Without the lock. */
void fault_wait(const struct machine_file *file, const struct suffering *suffering);

/* Add a fault; its id, or 0 when there is no room. */
uint32_t fault_add(struct machine *machine, const struct fault *fault);
/* Clear one fault, or all with id 0. False when there was none. */
bool fault_clear(struct machine *machine, uint32_t id);

#endif
