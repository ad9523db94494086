/* serve.c - the server in the terminal: names, flags, signals.
 *
 * The model is served under the name of its repository or directory; what was typed and every --alias are accepted too.
 * SIGINT and SIGTERM let running answers end, for a while, and the exit status is 0; a second one kills. Where the
 * worker dies the server ends with its error.
 */
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "cli/answer.h"
#include "cli/library.h"
#include "cli/out.h"
#include "cli/serve_secrets.h"
#include "cli/signals.h"
#include "cli/verbs.h"
#include "server/server.h"

/* "org/name" for .../models--org--name/snapshots/HASH, else the directory's own name. mem_free. */
static char *name_of(const char *dir)
{
  static const char hub[] = "/models--", snapshots[] = "/snapshots/";
  const char *at = strstr(dir, hub), *end = at ? strstr(at, snapshots) : NULL;
  if (end) {
    at += sizeof hub - 1;
    char *name = mem_strndup(at, (size_t)(end - at)), *dashes = name ? strstr(name, "--") : NULL;
    if (dashes) {
      *dashes = '/';
      memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
    }
    return name;
  }
  size_t n = strlen(dir);
  while (n > 1 && dir[n - 1] == '/')
    n--;
  const char *last = dir + n;
  while (last > dir && last[-1] != '/')
    last--;
  return mem_strndup(last, n - (size_t)(last - dir));
}

static bool is_text(const char *name)
{
  return utf8_valid(name, strlen(name), NULL);
}

/* Requests do not wait for who reads the log: while a pipe is full lines are lost, and then counted. */
static void log_line(void *user, const char *line)
{
  size_t *lost = user;
  struct pollfd to = {.fd = STDERR_FILENO, .events = POLLOUT};
  if (poll(&to, 1, 0) != 1 || !(to.revents & POLLOUT)) {
    ++*lost;
    return;
  }
  if (*lost)
    say_more("%zu lines lost: nobody read them", *lost);
  *lost = 0;
  say_more("%s", line);
}

/* A connection takes two descriptors, and the usual soft limit is less than all of them want. */
static void raise_file_limit(void)
{
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur >= SERVER_WANTED_FILES)
    return;
  files.rlim_cur = files.rlim_max < SERVER_WANTED_FILES ? files.rlim_max : SERVER_WANTED_FILES;
  setrlimit(RLIMIT_NOFILE, &files);
}

static const char *host_of(const cli_args *a)
{
  return a->host ? a->host : "127.0.0.1";
}

static void say_where(const cli_args *a, const char *name, const server_socket *at)
{
  bool v6 = strchr(host_of(a), ':');
  const char *scheme = a->tls_cert ? "https" : "http";
  if (at->path)
    say("serving %s at %s over %s", name, scheme, at->path);
  else
    say("serving %s at %s://%s%s%s:%d", name, scheme, v6 ? "[" : "", host_of(a), v6 ? "]" : "", at->port);
}

static void tell_prefix_dir(void *user, const char *line)
{
  (void)user;
  say_warning("%s", line);
}

/* Until a signal came or the worker died. */
static tern_status serve(const cli_args *a, const answerer *r, const serve_secrets *secrets, server_socket *at,
                         const char *const *names, size_t n_names, size_t n_unlisted, tern_error *err)
{
  server *s;
  size_t lost_lines = 0;
  server_socket where = *at;
  prefix_dir kept = {.path = a->prefix_dir, .most_bytes = (size_t)a->prefix_dir_mb * 1000000, .tell = tell_prefix_dir};
  server_options options = {
      .host = host_of(a),
      .names = names,
      .n_names = n_names,
      .n_unlisted = n_unlisted,
      .keys = (const char *const *)secrets->keys,
      .n_keys = secrets->n_keys,
      .origins = a->origins.items,
      .n_origins = a->origins.n,
      .certificate = secrets->certificate,
      .private_key = secrets->private_key,
      .sampling = r->options.sampling,
      .seeded = ARGS_GIVEN(a, seed),
      .max_tokens = a->max_tokens,
      .variables = r->variables,
      .tool_parser = a->tool_parser,
      .reasoning_parser = a->reasoning_parser,
      .scheduling = {.context = a->context,
                     .rows = a->rows,
                     .queue = a->queue,
                     .prefixes = a->prefixes,
                     .prefix_dir = a->prefix_dir ? &kept : NULL,
                     .draft = r->draft},
      .log = log_line,
      .library = library_list,
      .user = &lost_lines,
  };
  options.sampling.seed = a->seed;
  raise_file_limit();
  TRY(server_open(r->model, &options, at, &s, err));
  say_where(a, names[0], &where);
  tern_status status = sig_await(server_death_fd(s)) ? server_death(s, err) : TERN_OK;
  if (status == TERN_OK)
    say_more("closing: answers may take %d s to end", a->drain);
  server_close(s, status == TERN_OK ? a->drain : 0);
  return status;
}

static tern_status serve_named(const cli_args *a, const answerer *r, const serve_secrets *secrets, server_socket *at,
                               const char *dir, const char *typed, tern_error *err)
{
  size_t n = 0;
  char *whole = realpath(dir, NULL), *name = name_of(whole ? whole : dir); /* "." has a name too */
  const char **names = mem_array(2 + a->aliases.n, sizeof *names);
  tern_status status = name && names ? TERN_OK : err_nomem(err, "names");
  if (status == TERN_OK) {
    if (!is_text(name)) /* requests are UTF-8, and so are answers: '?' stands for what is not */
      err_clean(name);
    bool unlisted = typed && strcmp(typed, name) != 0 && is_text(typed); /* it is the same model */
    names[n++] = name;
    for (size_t i = 0; i < a->aliases.n; i++)
      names[n++] = a->aliases.items[i];
    if (unlisted)
      names[n++] = typed;
    sig_hold();
    status = serve(a, r, secrets, at, names, n, unlisted, err);
    sig_release();
  }
  mem_free(names);
  mem_free(name);
  free(whole);
  return status;
}

/* A connection is a thread: without a bound each would reserve an arena of 64 MB of addresses for its few kilobytes, of
 * which none comes back, and a flood would leave the server without any. */
static void share_arenas(void)
{
#ifdef M_ARENA_MAX
  mallopt(M_ARENA_MAX, 4);
#endif
}

tern_status verb_serve(const cli_args *a, tern_error *err)
{
  const char *name, *nothing;
  char *dir;
  answerer r = {0};
  serve_secrets secrets = {0};
  server_socket at = {.fd = -1};
  if (a->unix_socket && (a->host || ARGS_GIVEN(a, port)))
    return err_set(err, TERN_E_USAGE, "--unix-socket: is instead of --host and --port");
  share_arenas();
  args_model_and_text(a, &name, &nothing);
  if (ARGS_GIVEN(a, prefix_dir_mb) && !a->prefix_dir)
    return err_set(err, TERN_E_USAGE, "--prompt-cache-dir-mb: changes nothing without --prompt-cache-dir");
  TRY(use_dir(a, name, NEED_WEIGHTS, &dir, err));
  tern_status status = serve_read_secrets(a, &secrets, err);
  if (status == TERN_OK) /* before the model is read: an address that is taken is told at once */
    status = server_listen(host_of(a), a->port, a->unix_socket, &at, err);
  if (status == TERN_OK)
    status = answer_open(a, dir, &r, err);
  if (status == TERN_OK)
    status = serve_named(a, &r, &secrets, &at, dir, name, err);
  server_unlisten(&at);
  answer_close(&r);
  serve_free_secrets(&secrets);
  mem_free(dir);
  return status;
}
