/* The library's one connection to the machine, shared by all threads of the process. */
#ifndef MOCK_NVML_SESSION_H
#define MOCK_NVML_SESSION_H

#include "nvml.h"
#include "state.h"

/* Take part in the session: NULL when the library is not initialised. Each success is answered with session_leave. */
struct machine_file *session_enter(void);
void session_leave(void);

/*
 * One thread at a time holds the machine: flock belongs to the open file, so threads of one process would share it.
 * Neither is held while a call waits for a fault or an event.
 */
void session_lock(struct machine_file *file, bool exclusive);
void session_unlock(struct machine_file *file);

/* Version of the user-space driver this library belongs to: what its file name says, else what the machine says. */
const char *session_library_version(const struct machine *machine);

#endif
