/* system.h - what the machine has left. */
#ifndef TERN_BASE_SYSTEM_H
#define TERN_BASE_SYSTEM_H

#include <stddef.h>

/* Bytes that this process may still use without swapping: the kernel's MemAvailable, or less where a control group
 * says so. SIZE_MAX where nothing can be read. */
size_t system_memory_available(void);

#endif
