/* turns.c - what requests may cost before the scheduler knows of them: memory and time of large bodies.
 *
 * Parsing, rendering and encoding take many times a body's bytes, and but for encoding cannot be cut short. So few
 * large bodies are worked on at once, those that wait look at their client and at the server's end meanwhile, and a
 * text that could not fit the context is refused unread. Small bodies never wait behind large ones.
 */
#include <poll.h>

#include "server/srv.h"

enum {
  SMALL = 64 << 10,  /* bytes of a body that takes no turn and is not counted */
  MOST_BODIES = 8,   /* times most_body: what large bodies may hold together */
  LOOK_AGAIN_MS = 10 /* while waiting for a turn */
};

/* ---- turns ---- */

static bool take_turn(server *s)
{
  pthread_mutex_lock(&s->lock);
  bool free = s->n_turns < SRV_TURNS;
  if (free)
    s->turns[s->n_turns++] = pthread_self();
  pthread_mutex_unlock(&s->lock);
  return free;
}

bool srv_turn_begin(server *s, size_t length, int fd)
{
  struct pollfd at = {.fd = fd, .events = POLLRDHUP};
  if (length <= SMALL)
    return true;
  for (int wait = 0;; wait = LOOK_AGAIN_MS) {
    if (poll(&at, 1, wait) > 0 || srv_draining(s))
      return false;
    if (take_turn(s))
      return true;
  }
}

static bool is_there(void *user)
{
  struct pollfd at = {.fd = *(const int *)user, .events = POLLRDHUP};
  return poll(&at, 1, 0) <= 0;
}

tok_ask srv_ask(const int *fd)
{
  return (tok_ask){is_there, (void *)(uintptr_t)fd};
}

void srv_turn_end(server *s)
{
  pthread_mutex_lock(&s->lock);
  for (int i = 0; i < s->n_turns; i++)
    if (pthread_equal(s->turns[i], pthread_self())) {
      s->turns[i] = s->turns[--s->n_turns];
      break;
    }
  pthread_mutex_unlock(&s->lock);
}

/* ---- bodies ---- */

bool srv_hold(server *s, size_t bytes)
{
  size_t most = s->options.most_body * MOST_BODIES;
  if (bytes <= SMALL)
    return true;
  pthread_mutex_lock(&s->lock);
  bool fits = s->held <= most && bytes <= most - s->held;
  if (fits)
    s->held += bytes;
  pthread_mutex_unlock(&s->lock);
  return fits;
}

void srv_unhold(server *s, size_t bytes)
{
  if (bytes <= SMALL)
    return;
  pthread_mutex_lock(&s->lock);
  s->held -= bytes;
  pthread_mutex_unlock(&s->lock);
}

/* ---- texts ---- */

size_t srv_longest_piece(const tern_model *m)
{
  size_t longest = 1, length;
  for (int32_t id = 0; id < tok_vocab_size(m->tok); id++)
    if (tok_piece(m->tok, id, &length) && length > longest)
      longest = length;
  return longest;
}

tern_status srv_check_length(const server *s, size_t length, tern_error *err)
{
  size_t context = (size_t)sched_context(s->scheduler);
  if (length / s->longest_piece <= context)
    return TERN_OK;
  return err_set(err, TERN_E_LIMIT,
                 "a text of %zu bytes is longer than the context: %zu positions, and no token has more than %zu bytes",
                 length, context, s->longest_piece);
}
