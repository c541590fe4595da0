#ifndef MOCK_NVML_DESCRIBE_H
#define MOCK_NVML_DESCRIBE_H

#include <stdio.h>

#include "state.h"

/*
 * Fill a zeroed machine from a text: sections `[machine]`, `[numa]`, `[board]`, `[profile]` (of the board before it) and `[gpu]`, each of lines
 * `key = value`. Numbers are decimal or 0x-hex; lists are separated by blanks. Written by hack/testbed/mock_nvml.py from a profile.
 * On an error the line is told on stderr and false returned.
 */
bool describe_machine(struct machine *machine, FILE *input);

#endif
