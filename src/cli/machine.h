/* machine.h - facts about the machine, for doctor, bench and ls. */
#ifndef TERN_CLI_MACHINE_H
#define TERN_CLI_MACHINE_H

#include "base/status.h"

/* Bytes from /proc/meminfo; 0: not known. */
uint64_t machine_memory(void);           /* installed */
uint64_t machine_memory_available(void); /* free without swapping */
/* "Intel(R) ..." into out; "" where not known. */
void machine_cpu_name(char *out, size_t size);
/* Reads memory with so many threads; 10^9 bytes a second, the best of a few passes. */
tern_status machine_bandwidth(int threads, double *gb_s, tern_error *err);

#endif
