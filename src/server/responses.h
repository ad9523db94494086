/* responses.h - /v1/responses: what its files share.
 *
 * A request's `input` is a text or a list of items; items become the shared messages (responses_input.c), the answer
 * becomes items again (responses_events.c). What is stored for previous_response_id and for GET lies in memory, as
 * text, bounded by number and bytes: the one stored longest ago goes first, and nothing outlives the process
 * (responses_store.c).
 */
#ifndef TERN_SERVER_RESPONSES_H
#define TERN_SERVER_RESPONSES_H

#include "server/routes.h"

/* ---- items (responses_input.c) ---- */

/* `input` as a list of items, new reference: a text is one of the user's. Each gets an id that has none. NULL: the
 * fault. `id`: of the response. */
json_t *resp_items(const json_t *input, const char *id, oai_fault *fault);
/* The messages that items and instructions (which may be NULL) say, new reference. NULL: the fault. The first `earlier`
 * items are not the input's. */
json_t *resp_messages(const json_t *items, size_t earlier, const json_t *instructions, oai_fault *fault);

/* ---- what is kept (responses_store.c) ---- */

enum { RESP_ID = 40, RESP_MOST = 256, RESP_MOST_BYTES = 64 << 20 };

typedef struct resp_store resp_store;

/* NULL: no memory. */
resp_store *resp_store_open(void);
void resp_store_close(resp_store *s); /* NULL is fine */
/* Takes over three texts of JSON (mem_free): the response, {"data": its input's items}, {"data": all items up to its
 * end}. Without memory it is not kept. */
void resp_store_add(resp_store *s, const char *id, char *response, char *input, char *items);
typedef enum resp_part { RESP_RESPONSE, RESP_INPUT, RESP_ITEMS } resp_part;
/* A copy of the text (mem_free); NULL: there is none, or no memory. */
char *resp_store_get(resp_store *s, const char *id, size_t n, resp_part part);
/* False: it was not there. */
bool resp_store_delete(resp_store *s, const char *id, size_t n);

#endif
