/* Posting to the ring. Reading it: nvml_events.c. */
#include "events.h"

void event_post(struct machine *machine, uint64_t type, uint64_t data, uint32_t gpu, uint32_t gi, uint32_t ci)
{
    machine->events[machine->event_count % MAX_EVENTS] = (struct event){type, data, gpu, gi, ci};
    state_wake(&machine->event_count);
}
