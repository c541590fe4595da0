#ifndef MOCK_NVML_LOCATE_H
#define MOCK_NVML_LOCATE_H

#include <stddef.h>

/*
 * Path of the machine file: MOCK_NVML_STATE, else `libnvidia-mockstate.so.<version>` beside this library, where <version> is what this library's
 * own file name ends in. Empty when there is none.
 */
void locate_state(char *path, size_t length);

/* What this library's file name says after `libnvidia-ml.so.`, when that is a version and no bare SONAME number; else "". */
const char *locate_own_version(void);

/* Directory of this library, as this process sees it; "" when it cannot be told. */
void locate_own_directory(char *path, size_t length);

#endif
