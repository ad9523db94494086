/* cgroup.h - the control groups that this process is in, of either version: where their files are. */
#ifndef TERN_BASE_CGROUP_H
#define TERN_BASE_CGROUP_H

/* `dir` is a group's folder, which need not be there. */
typedef void cgroup_look(void *user, const char *dir);

/* Shows the process's own group and all above it, from the inside out. `controller`: "cpu", "memory"; `mounts`, up to a
 * NULL: where version 1 has it. `root`: "" or a tree that has proc/ and sys/ as the machine's root has. */
void cgroup_walk(const char *root, const char *controller, const char *const *mounts, cgroup_look *look, void *user);

#endif
