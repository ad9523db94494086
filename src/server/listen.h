/* listen.h - the socket that a server listens on: an address and port, or a path of this machine. */
#ifndef TERN_SERVER_LISTEN_H
#define TERN_SERVER_LISTEN_H

#include <sys/types.h>

#include "base/status.h"

typedef struct server_socket {
  int fd; /* listens; -1: none */
  int port;
  bool loopback;    /* only this machine's programs reach it, by addresses and names */
  const char *path; /* of a socket in the file system, the caller's; NULL: none */
  dev_t device;     /* of the file that was made there */
  ino_t inode;
} server_socket;

/* Binds and listens; clients wait until somebody accepts. `path` that is not NULL: there, instead of host and port. A
 * file in the way that is a socket nobody listens on is replaced. Errors: TERN_E_IO with the place. */
tern_status server_listen(const char *host, int port, const char *path, server_socket *out, tern_error *err);
/* Closes, where that is not done, and removes the path. Idempotent. */
void server_unlisten(server_socket *s);

#endif
