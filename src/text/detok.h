/* detok.h - token ids to text, as a stream: each token gives the text that is certain by now.
 *
 * Whole characters are sent at once and never taken back; of an unfinished character at most three bytes are held.
 * Broken bytes come out as one U+FFFD per maximal broken part, an unfinished rest as U+FFFD at the end. All texts of a
 * stream joined equal tok_decode of all its ids, but for byte tokens (<0xAB>) that are not UTF-8 in the end: there the
 * whole-text decoder prints one U+FFFD for each byte of the whole run, which no stream can know in time.
 *
 * The work per token does not depend on the length of the stream, and push does not allocate.
 */
#ifndef TERN_TEXT_DETOK_H
#define TERN_TEXT_DETOK_H

#include "text/tok.h"

typedef struct detok detok;

/* One stream over t, which must outlive it. Refuses a decoder whose text cannot be known until the end. */
tern_status detok_open(const tok *t, bool skip_special, detok **out, tern_error *err);
void detok_close(detok *d); /* NULL is fine */
/* The text that became certain: *length bytes of UTF-8, possibly none, valid until the next call on d. Ids beyond the
 * vocabulary give nothing, negative ones are refused. */
tern_status detok_push(detok *d, int32_t id, const char **text, size_t *length, tern_error *err);
/* The end of the stream: what was held back. The stream is then as new. */
tern_status detok_finish(detok *d, const char **text, size_t *length, tern_error *err);

#endif
