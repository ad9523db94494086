/* stop.h - stop strings over a stream of text: what may be sent, what must wait, and where the answer ends.
 *
 * Text is held back exactly as long as it could be the beginning of a stop string. The answer ends before the first
 * place where any stop string occurs; where two begin at one place it does not matter which.
 */
#ifndef TERN_ENGINE_STOP_H
#define TERN_ENGINE_STOP_H

#include "base/buf.h"
#include "base/status.h"

typedef struct stop_scan {
  const char *const *stops; /* not owned, none empty */
  size_t n_stops;
  buf text;        /* everything so far; after a stop, what precedes it */
  size_t sent;     /* bytes of `text` that were given out */
  const char *hit; /* the stop string that ended the text; NULL: none has */
} stop_scan;

/* The strings must outlive the scan. Refuses empty ones. */
tern_status stop_open(stop_scan *s, const char *const *stops, size_t n_stops, tern_error *err);
void stop_close(stop_scan *s);
/* Adds text. *ready, *length: what may go out now (valid until the next call); returns true if a stop string ended it.
 */
bool stop_add(stop_scan *s, const char *text, size_t n, const char **ready, size_t *length);
/* At the end of the stream: what was held back. */
void stop_finish(stop_scan *s, const char **ready, size_t *length);

#endif
