/* cores.h - how many threads are worth having here: the affinity mask, SMT, slow cores, and the cgroups' limits.
 *
 * Nothing here fails: what cannot be read counts as not there.
 */
#ifndef TERN_BASE_CORES_H
#define TERN_BASE_CORES_H

#include <sched.h>
#include <stddef.h>

typedef struct cores {
  int allowed;  /* processors that the affinity mask names */
  int separate; /* of these, one for each core: siblings of SMT share its arithmetic and gain nothing */
  int fast;     /* of these, without the slow ones of a hybrid part */
  double quota; /* processors' worth of time that the tightest cgroup grants; 0: no limit */
  int most;     /* threads that can run at once: `allowed`, or the quota rounded up */
  int threads;  /* threads to use where nobody says: `fast`, or the quota rounded up. At least 1 */
} cores;

void cores_find(cores *out);
/* The same from a tree that has proc/ and sys/ as the machine's root has, for a mask of `size` bytes. */
void cores_find_in(const char *root, const cpu_set_t *mask, size_t size, cores *out);

#endif
