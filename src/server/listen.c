/* listen.c - see listen.h. The HTTP library would only say that it failed; here an error has its place and its cause.
 */
#include "server/listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 128 };

/* ---- addresses ---- */

static tern_status listen_at(const struct addrinfo *to, const char *host, int port, int *out, tern_error *err)
{
  int one = 1, fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return err_set(err, TERN_E_IO, "%s: port %d: %s", host, port, strerror(errno));
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(fd, to->ai_addr, to->ai_addrlen) || listen(fd, BACKLOG)) {
    tern_status status = err_set(err, TERN_E_IO, "%s: port %d: %s%s", host, port, strerror(errno),
                                 errno == EADDRINUSE ? " (--port chooses another one; 0: any that is free)" : "");
    close(fd);
    return status;
  }
  *out = fd;
  return TERN_OK;
}

static void note_address(server_socket *s)
{
  union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
  } at;
  socklen_t size = sizeof at;
  memset(&at, 0, sizeof at);
  if (getsockname(s->fd, &at.any, &size))
    return;
  bool v6 = at.any.sa_family == AF_INET6;
  s->port = ntohs(v6 ? at.v6.sin6_port : at.v4.sin_port);
  s->loopback = v6 ? IN6_IS_ADDR_LOOPBACK(&at.v6.sin6_addr) : ntohl(at.v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

static tern_status listen_host(const char *host, int port, server_socket *out, tern_error *err)
{
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *list;
  char service[16];
  snprintf(service, sizeof service, "%d", port);
  int failed = getaddrinfo(host, service, &hints, &list);
  if (failed)
    return err_set(err, TERN_E_IO, "--host: \"%.100s\": %s", host, gai_strerror(failed));
  tern_status status = TERN_E_IO;
  for (const struct addrinfo *a = list; a && status != TERN_OK; a = a->ai_next)
    status = listen_at(a, host, port, &out->fd, err);
  freeaddrinfo(list);
  if (status == TERN_OK)
    note_address(out);
  return status;
}

/* ---- paths ---- */

static tern_status failed_at(const char *path, const char *why, tern_error *err)
{
  return err_set(err, TERN_E_IO, "--unix-socket: %s: %s", path, why);
}

/* Whether somebody answers there. */
static bool is_alive(const struct sockaddr_un *at)
{
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool alive = fd >= 0 && connect(fd, (const struct sockaddr *)at, sizeof *at) == 0;
  if (fd >= 0)
    close(fd);
  return alive;
}

/* A socket that an earlier server left goes; all else that is in the way stays. */
static tern_status clear_path(const struct sockaddr_un *at, tern_error *err)
{
  struct stat is;
  if (lstat(at->sun_path, &is))
    return TERN_OK;
  if (!S_ISSOCK(is.st_mode))
    return failed_at(at->sun_path, "there is a file of this name", err);
  if (is_alive(at))
    return failed_at(at->sun_path, "somebody listens there", err);
  return unlink(at->sun_path) ? failed_at(at->sun_path, strerror(errno), err) : TERN_OK;
}

static tern_status listen_path(const char *path, server_socket *out, tern_error *err)
{
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  struct stat is;
  if (!*path || strlen(path) >= sizeof at.sun_path)
    return err_set(err, TERN_E_USAGE, "--unix-socket: a path of %zu bytes, from 1 to %zu", strlen(path),
                   sizeof at.sun_path - 1);
  strncpy(at.sun_path, path, sizeof at.sun_path - 1);
  TRY(clear_path(&at, err));
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return failed_at(path, strerror(errno), err);
  if (bind(fd, (const struct sockaddr *)&at, sizeof at) || listen(fd, BACKLOG) || lstat(path, &is)) {
    tern_status status = failed_at(path, strerror(errno), err);
    close(fd);
    return status;
  }
  *out = (server_socket){.fd = fd, .path = path, .device = is.st_dev, .inode = is.st_ino};
  return TERN_OK;
}

/* ---- both ---- */

tern_status server_listen(const char *host, int port, const char *path, server_socket *out, tern_error *err)
{
  *out = (server_socket){.fd = -1};
  return path ? listen_path(path, out, err) : listen_host(host, port, out, err);
}

void server_unlisten(server_socket *s)
{
  struct stat is;
  if (s->fd >= 0)
    close(s->fd);
  /* Another server may have taken the path meanwhile. */
  if (s->path && !lstat(s->path, &is) && is.st_dev == s->device && is.st_ino == s->inode)
    unlink(s->path);
  *s = (server_socket){.fd = -1};
}
