/* stop.c - see stop.h. Only the tail that a stop string could reach into is searched again. */
#include "engine/stop.h"

#include <string.h>

tern_status stop_open(stop_scan *s, const char *const *stops, size_t n_stops, tern_error *err)
{
  *s = (stop_scan){.stops = stops, .n_stops = n_stops};
  for (size_t i = 0; i < n_stops; i++) {
    if (!*stops[i])
      return err_set(err, TERN_E_USAGE, "stop: an empty stop string would end every answer");
  }
  return TERN_OK;
}

void stop_close(stop_scan *s)
{
  buf_free(&s->text);
}

/* The first place at or after `from` where a stop string occurs, or SIZE_MAX; `hit` is then the string. */
static size_t first_stop(stop_scan *s, size_t from)
{
  size_t best = SIZE_MAX;
  for (size_t i = 0; i < s->n_stops; i++) {
    const char *at = memmem(s->text.data + from, s->text.length - from, s->stops[i], strlen(s->stops[i]));
    if (at && (size_t)(at - s->text.data) < best) {
      best = (size_t)(at - s->text.data);
      s->hit = s->stops[i];
    }
  }
  return best;
}

/* Length of the longest end of the text that begins a stop string. None begins within what was sent, so a long stop
 * string costs no more than what is held back of it. */
static size_t held_back(const stop_scan *s)
{
  size_t held = 0, most = s->text.length - s->sent;
  for (size_t i = 0; i < s->n_stops; i++) {
    size_t n = strlen(s->stops[i]) - 1;
    for (n = n < most ? n : most; n > held; n--)
      if (memcmp(s->text.data + s->text.length - n, s->stops[i], n) == 0)
        held = n;
  }
  return held;
}

static void hand_out(stop_scan *s, size_t end, const char **ready, size_t *length)
{
  *ready = s->text.data ? s->text.data + s->sent : "";
  *length = end > s->sent ? end - s->sent : 0;
  s->sent += *length;
}

bool stop_add(stop_scan *s, const char *text, size_t n, const char **ready, size_t *length)
{
  buf_add(&s->text, text, n);
  if (!s->n_stops || s->text.failed) {
    hand_out(s, s->text.length, ready, length);
    return false;
  }
  /* What was sent cannot be part of a stop string, so none begins before `sent`. */
  size_t at = first_stop(s, s->sent);
  if (at != SIZE_MAX) {
    s->text.length = at;
    s->text.data[at] = '\0';
    hand_out(s, at, ready, length);
    return true;
  }
  hand_out(s, s->text.length - held_back(s), ready, length);
  return false;
}

void stop_finish(stop_scan *s, const char **ready, size_t *length)
{
  hand_out(s, s->text.length, ready, length);
}
