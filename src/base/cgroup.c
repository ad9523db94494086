/* cgroup.c - see cgroup.h.
 *
 * Looked for at the places where distributions mount them. In a container without a cgroup namespace /proc/self/cgroup
 * names a path of the host that is not there; the walk upward then ends at the mount, which is the container's own.
 */
#include "base/cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MOST_TEXT = 4096 };

/* The groups from `path` up to the mount. */
static void climb(const char *root, const char *mount, const char *path, cgroup_look *look, void *user)
{
  char dir[MOST_TEXT];
  size_t top = strlen(root) + strlen(mount);
  if (snprintf(dir, sizeof dir, "%s%s%s", root, mount, path) >= (int)sizeof dir)
    return;
  for (;;) {
    look(user, dir);
    char *slash = strrchr(dir, '/');
    if (strlen(dir) <= top)
      return;
    *(slash < dir + top ? dir + top : slash) = 0;
  }
}

/* Whether the comma-separated list of controllers has this one. */
static bool has(const char *list, size_t length, const char *controller)
{
  for (const char *at = list, *end = list + length; at < end;) {
    size_t n = strcspn(at, ",:");
    if (n == strlen(controller) && !memcmp(at, controller, n))
      return true;
    at += n + 1;
  }
  return false;
}

void cgroup_walk(const char *root, const char *controller, const char *const *mounts, cgroup_look *look, void *user)
{
  char text[MOST_TEXT], *next;
  FILE *f = snprintf(text, sizeof text, "%s/proc/self/cgroup", root) < (int)sizeof text ? fopen(text, "re") : NULL;
  if (!f)
    return;
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  fclose(f);
  for (char *line = text; *line; line = next) { /* NUMBER:CONTROLLERS:PATH, and 0::PATH for version 2 */
    size_t length = strcspn(line, "\n");
    next = line + length + (line[length] == '\n');
    line[length] = 0;
    char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
    if (!path)
      continue;
    list++;
    if (path == list) {
      climb(root, "/sys/fs/cgroup", path + 1, look, user);
      climb(root, "/sys/fs/cgroup/unified", path + 1, look, user);
    } else if (has(list, (size_t)(path - list), controller)) {
      for (size_t i = 0; mounts[i]; i++)
        climb(root, mounts[i], path + 1, look, user);
    }
  }
}
