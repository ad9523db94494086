/* format_files.h - temporary folders and files for the tests of src/format, and the loops that all of them run: every
 * allocation failing in turn, and files damaged by seeded chance. */
#ifndef TERN_TESTS_FORMAT_FILES_H
#define TERN_TESTS_FORMAT_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/status.h"

static char folder[200]; /* this test's own */

static inline const char *in_folder(const char *name)
{
  static char paths[4][600];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

static inline void empty_folder(void)
{
  DIR *d = opendir(folder);
  if (!d)
    return;
  for (struct dirent *e; (e = readdir(d));)
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
      remove(in_folder(e->d_name));
  closedir(d);
}

static inline int make_folder(void **state)
{
  (void)state;
  const char *base = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%.150s/tern-test-XXXXXX", base ? base : "/tmp");
  return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
  (void)state;
  empty_folder();
  return rmdir(folder);
}

static inline void put_file(const char *path, const void *data, size_t n)
{
  unlink(path); /* a new file: emptying an old one makes some file systems wait for the disk */
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(data, 1, n, f), n);
  assert_int_equal(fclose(f), 0);
}

static inline void put_text(const char *name, const char *text)
{
  put_file(in_folder(name), text, strlen(text));
}

static inline bool exists(const char *path)
{
  return access(path, F_OK) == 0;
}

/* A safetensors file from a header and n bytes of data counting up from 0. Returns its size; `out` must be large. */
static inline size_t st_bytes(uint8_t *out, const char *header, size_t data_bytes)
{
  uint64_t n = strlen(header);
  for (int i = 0; i < 8; i++)
    out[i] = (uint8_t)(n >> (8 * i));
  memcpy(out + 8, header, n);
  for (size_t i = 0; i < data_bytes; i++)
    out[8 + n + i] = (uint8_t)i;
  return 8 + n + data_bytes;
}

static inline void put_st(const char *name, const char *header, size_t data_bytes)
{
  uint8_t *bytes = malloc(strlen(header) + data_bytes + 8);
  assert_non_null(bytes);
  put_file(in_folder(name), bytes, st_bytes(bytes, header, data_bytes));
  free(bytes);
}

/* One line, not empty, of the kind that users see. */
static inline void assert_one_line(const tern_error *err, tern_status status)
{
  assert_int_equal(err->status, status);
  assert_true(err->text[0] != '\0');
  assert_null(strchr(err->text, '\n'));
  assert_true(err->text[strlen(err->text) - 1] != '.');
}

/* The error has this status and names all parts of `parts`, which are separated by '|'. */
static inline void assert_error(const tern_error *err, tern_status got, tern_status want, const char *parts)
{
  if (got != want)
    print_error("status %s instead of %s: %s\n", tern_status_name(got), tern_status_name(want), err->text);
  assert_int_equal(got, want);
  assert_one_line(err, want);
  while (*parts) {
    char part[200];
    size_t n = strcspn(parts, "|");
    snprintf(part, sizeof part, "%.*s", (int)n, parts);
    if (!strstr(err->text, part))
      print_error("\"%s\" is not in: %s\n", part, err->text);
    assert_non_null(strstr(err->text, part));
    parts += n + (parts[n] == '|');
  }
}

/* Calls `attempt` with the first, second, ... allocation failing until it succeeds; every failure must be reported. */
static inline void with_failing_allocations(tern_status (*attempt)(tern_error *err))
{
  for (int64_t n = 0;; n++) {
    tern_error err = {0};
    mem_fail_after(n);
    tern_status status = attempt(&err);
    mem_fail_after(-1);
    if (status == TERN_OK) {
      assert_true(n > 0);
      return;
    }
    assert_one_line(&err, status);
    assert_true(n < 100000);
  }
}

typedef struct chance {
  uint64_t x;
} chance;

static inline uint32_t draw(chance *c, uint32_t below)
{
  c->x = c->x * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((c->x >> 33) % below);
}

/* Damages a copy of `good` in `out` (room for n + 16): bytes changed, a part cut out, doubled or cut off. Returns its
 * size. */
static inline size_t damage(chance *c, const uint8_t *good, size_t n, uint8_t *out)
{
  static const uint8_t favourites[] = {0, 1, 0x7f, 0x80, 0xff, '"', '\\', '{', '}', '[', ']', ',', ':', '-', '0', '9'};
  memcpy(out, good, n);
  for (uint32_t times = 1 + draw(c, 4); times; times--) {
    size_t at = draw(c, (uint32_t)n), room = n - at;
    switch (draw(c, 6)) {
    case 0:
      out[at] ^= (uint8_t)(1u << draw(c, 8));
      break;
    case 1:
      out[at] = (uint8_t)draw(c, 256);
      break;
    case 2:
    case 3:
      out[at] = favourites[draw(c, sizeof favourites)];
      break;
    case 4: {
      size_t cut = 1 + draw(c, room < 8 ? (uint32_t)room : 8);
      memmove(out + at, out + at + cut, room - cut);
      n -= cut;
      break;
    }
    default:
      n = draw(c, 4) ? n : at + 1;
    }
    if (n == 0)
      return 0;
  }
  return n;
}

#endif
