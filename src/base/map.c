/* map.c - mapping, and the SIGBUS guard.
 *
 * The guard needs a table that a signal handler can read, so it is the one piece of process-wide state in the library:
 * a fixed array of ranges, written with atomics, read by the handler without locks. A full table refuses mappings.
 */
#include "base/map.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

enum { GUARD_SLOTS = 1024 };

static struct guard_slot {
  _Atomic uintptr_t begin; /* 0: free */
  _Atomic uintptr_t end;
  atomic_bool broken;
} guard[GUARD_SLOTS];

static struct sigaction guard_previous;

static void on_sigbus(int signal_number, siginfo_t *info, void *context)
{
  int saved = errno;
  uintptr_t at = (uintptr_t)info->si_addr;
  for (int i = 0; i < GUARD_SLOTS; i++) {
    uintptr_t begin = atomic_load(&guard[i].begin), end = atomic_load(&guard[i].end);
    if (begin == 0 || at < begin || at >= end)
      continue;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = at / page * page;
    /* From the missing page to the end: what is gone, is gone up to the end of the file. */
    void *fresh = mmap((void *)start, end - start, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (fresh == MAP_FAILED)
      break;
    atomic_store(&guard[i].broken, true);
    errno = saved;
    return;
  }
  errno = saved;
  if (guard_previous.sa_flags & SA_SIGINFO)
    guard_previous.sa_sigaction(signal_number, info, context);
  else if (guard_previous.sa_handler != SIG_DFL && guard_previous.sa_handler != SIG_IGN)
    guard_previous.sa_handler(signal_number);
  else
    sigaction(signal_number, &guard_previous, NULL); /* returning faults again, now with the default action */
}

void map_guard_install(void)
{
  struct sigaction now;
  sigaction(SIGBUS, NULL, &now);
  if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_sigbus)
    return;
  guard_previous = now;
  struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, NULL);
}

static int guard_claim(uintptr_t begin, uintptr_t end)
{
  for (int i = 0; i < GUARD_SLOTS; i++) {
    uintptr_t expected = 0;
    /* `end` is written first under a claimed slot; a begin of 1 matches no address below `end` = 0. */
    if (!atomic_compare_exchange_strong(&guard[i].begin, &expected, 1))
      continue;
    atomic_store(&guard[i].broken, false);
    atomic_store(&guard[i].end, end);
    atomic_store(&guard[i].begin, begin);
    return i;
  }
  return -1;
}

static void guard_release(int slot)
{
  if (slot < 0)
    return;
  atomic_store(&guard[slot].end, 0);
  atomic_store(&guard[slot].begin, 0);
}

/* Opens a regular file for reading and tells its size. */
static tern_status open_regular(const char *path, int *fd, size_t *size, tern_error *err)
{
  /* O_NONBLOCK: opening a fifo must not hang before fstat can refuse it. */
  *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (*fd < 0)
    return err_errno(err, path, "open");
  struct stat st;
  tern_status status = TERN_OK;
  if (fstat(*fd, &st))
    status = err_errno(err, path, "stat");
  else if (!S_ISREG(st.st_mode))
    status = err_set(err, TERN_E_IO, "%s: not a regular file", path);
  if (status != TERN_OK)
    close(*fd);
  else
    *size = (size_t)st.st_size;
  return status;
}

tern_status map_open(const char *path, map *out, tern_error *err)
{
  int fd;
  size_t size;
  map_guard_install();
  TRY(open_regular(path, &fd, &size, err));
  *out = (map){.size = size, .slot = -1, .fd = -1};
  if (!size) {
    close(fd);
    return TERN_OK;
  }
  void *data = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    tern_status status = err_errno(err, path, "map");
    close(fd);
    return status;
  }
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  int slot = guard_claim((uintptr_t)data, (uintptr_t)data + (size + page - 1) / page * page);
  if (slot < 0) {
    munmap(data, size);
    close(fd);
    return err_set(err, TERN_E_LIMIT, "%s: cannot map: %d files are mapped already", path, GUARD_SLOTS);
  }
  *out = (map){.data = data, .size = size, .slot = slot, .fd = fd};
  return TERN_OK;
}

void map_close(map *m)
{
  if (m->data) {
    guard_release(m->slot);
    munmap((void *)(uintptr_t)m->data, m->size);
    close(m->fd);
  }
  *m = (map){.slot = -1, .fd = -1};
}

void map_forget(const map *m, const uint8_t *data, size_t size)
{
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  uintptr_t begin = (uintptr_t)data / page * page, end = ((uintptr_t)data + size) / page * page;
  if (m->data && begin < end && begin >= (uintptr_t)m->data && !map_broken(m)) /* the guard's zero pages must stay */
    madvise((void *)begin, end - begin, MADV_DONTNEED);
}

bool map_broken(const map *m)
{
  struct stat st;
  return m->data && (atomic_load(&guard[m->slot].broken) || fstat(m->fd, &st) || (size_t)st.st_size < m->size);
}

tern_status file_read(const char *path, size_t limit, char **data, size_t *size, tern_error *err)
{
  int fd;
  size_t expected;
  TRY(open_regular(path, &fd, &expected, err));
  if (expected > limit) {
    close(fd);
    return err_set(err, TERN_E_LIMIT, "%s: %zu bytes, more than the %zu allowed here", path, expected, limit);
  }
  char *bytes = mem_alloc(expected + 1);
  if (!bytes) {
    close(fd);
    return err_nomem(err, path);
  }
  size_t got = 0;
  while (got < expected) {
    ssize_t n = read(fd, bytes + got, expected - got);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0) {
      tern_status status = err_errno(err, path, "read");
      mem_free(bytes);
      close(fd);
      return status;
    }
    if (n == 0)
      break;
    got += (size_t)n;
  }
  close(fd);
  bytes[got] = '\0';
  *data = bytes;
  *size = got;
  return TERN_OK;
}

bool file_is_regular(const char *path)
{
  struct stat st;
  return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool file_is_directory(const char *path)
{
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}
