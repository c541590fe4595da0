/* Events of the machine. Posting is the control program's; each event set reads the ring on its own, so each gets every event once. */
#ifndef MOCK_NVML_EVENTS_H
#define MOCK_NVML_EVENTS_H

#include "state.h"

/* Append an event and wake all who wait. With the lock held. */
void event_post(struct machine *machine, uint64_t type, uint64_t data, uint32_t gpu, uint32_t gi, uint32_t ci);

#endif
