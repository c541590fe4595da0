#ifndef MOCK_NVML_SHOW_H
#define MOCK_NVML_SHOW_H

#include "state.h"

/* Print what can change at run time as one JSON object. With the lock held. */
void show_machine(struct machine *machine);

#endif
