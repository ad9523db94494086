/* history.c - what a person typed, kept for the next time: see lines.h.
 *
 * A line is a JSON string, so that entries of several lines are one, and a broken line costs itself alone. Programs
 * that run side by side append whole lines in one write each. The file is for its owner's eyes.
 */
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/lines.h"
#include "cli/whole_file.h"

enum { MOST_BYTES = 64 << 20 }; /* of a file that is looked at */

/* The last HISTORY_MOST lines of the file, and what had to be left out before them. */
typedef struct tail {
  char *lines[HISTORY_MOST]; /* a ring; malloc'ed by getline */
  size_t n;                  /* lines seen */
} tail;

static void read_tail(FILE *file, tail *t)
{
  char *line = NULL;
  size_t room = 0;
  while (getline(&line, &room, file) > 0) {
    char **slot = &t->lines[t->n++ % HISTORY_MOST];
    free(*slot);
    *slot = line;
    line = NULL;
    room = 0;
  }
  free(line);
}

/* Whole or not at all; nobody is told where it fails, since the longer file serves as well. */
static void shorten(const char *path, const tail *t)
{
  whole_file f;
  if (whole_open(&f, path, NULL) == TERN_OK) {
    for (size_t i = t->n - HISTORY_MOST; i < t->n; i++)
      fputs(t->lines[i % HISTORY_MOST], f.file);
    fchmod(fileno(f.file), 0600);
    whole_finish(&f, NULL);
  }
  whole_abandon(&f);
}

void history_load(const char *path, void (*add)(void *user, const char *text, size_t length), void *user)
{
  struct stat about;
  tail *t = mem_zalloc(sizeof *t);
  int fd = t ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1; /* a pipe would keep us waiting */
  FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
  if (fd >= 0 && !file)
    close(fd);
  if (file && fstat(fileno(file), &about) == 0 && S_ISREG(about.st_mode) && about.st_size <= MOST_BYTES)
    read_tail(file, t);
  if (file)
    fclose(file);
  size_t kept = t && t->n < HISTORY_MOST ? t->n : HISTORY_MOST;
  for (size_t i = t ? t->n - kept : 0; t && i < t->n; i++) {
    json_t *entry = json_loads(t->lines[i % HISTORY_MOST], JSON_DECODE_ANY, NULL);
    if (json_is_string(entry))
      add(user, json_string_value(entry), json_string_length(entry));
    json_decref(entry);
  }
  if (t && t->n > 2 * HISTORY_MOST)
    shorten(path, t);
  for (size_t i = 0; t && i < HISTORY_MOST; i++)
    free(t->lines[i]);
  mem_free(t);
}

/* The folders above the file, as far as they are missing. */
static void make_folders(const char *path)
{
  char *folder = mem_strndup(path, strlen(path));
  for (char *at = folder ? strchr(folder + 1, '/') : NULL; at; at = strchr(at + 1, '/')) {
    *at = 0;
    mkdir(folder, 0777);
    *at = '/';
  }
  mem_free(folder);
}

void history_append(const char *path, const char *text, size_t length)
{
  json_t *entry = json_stringn(text, length);
  char *quoted = entry ? json_dumps(entry, JSON_ENCODE_ANY) : NULL;
  buf line = {0};
  if (quoted)
    buf_addc(&line, '\n'), buf_add(&line, quoted, strlen(quoted)), buf_addc(&line, '\n');
  make_folders(path);
  struct stat about;
  int fd = line.length && !line.failed ? open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600) : -1;
  if (fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) {
    char last = '\n'; /* what was cut off in the middle of a line costs itself alone */
    fchmod(fd, 0600);
    bool cut = about.st_size && pread(fd, &last, 1, about.st_size - 1) == 1 && last != '\n';
    if (write(fd, cut ? line.data : line.data + 1, line.length - !cut) < 0) {
      /* not kept */
    }
  }
  if (fd >= 0)
    close(fd);
  buf_free(&line);
  free(quoted);
  json_decref(entry);
}
