/* system.h - what the machine has left. */
#ifndef TERN_BASE_SYSTEM_H
#define TERN_BASE_SYSTEM_H

#include <stddef.h>

/* Bytes that this process may still use without swapping: the kernel's MemAvailable, or less where one of the
 * control groups that it is in says so. SIZE_MAX where nothing can be read. */
size_t system_memory_available(void);
/* The same from a tree that has proc/ and sys/ as the machine's root has. */
size_t system_memory_available_in(const char *root);

#endif
