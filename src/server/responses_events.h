/* responses_events.h - one response of /v1/responses, from its body to its last item.
 *
 * responses.c makes it of a request, responses_events.c fills it as the answer comes.
 */
#ifndef TERN_SERVER_RESPONSES_EVENTS_H
#define TERN_SERVER_RESPONSES_EVENTS_H

#include "server/conversation.h"
#include "server/responses.h"

/* Tokens of the answer's text. */
typedef struct resp_span {
  size_t first, n;
} resp_span;

typedef struct response {
  char id[RESP_ID];
  json_t *body;     /* as it came, checked */
  json_t *input;    /* its items */
  json_t *items;    /* all items up to the answer */
  json_t *output;   /* items of the answer that are whole, without tokens */
  resp_span *spans; /* [of output] the tokens of each */
  size_t spans_capacity;
  bool store;
  int sequence;   /* of the next event */
  bool open;      /* an item is under way */
  part_kind kind; /* of it: text or reasoning */
  char item_id[RESP_ID + 16];
  buf text;             /* of it, or of a call's arguments; failed: of this response no end is told */
  tool_call call;       /* under way; without a name there is none */
  choice_token *tokens; /* [n_tokens] of the answer's texts */
  size_t n_tokens, capacity;
  size_t first; /* of the text that is under way or comes next */
  size_t told;  /* tokens whose events are out */
  size_t reasoning_tokens;
} response;

/* Frees a response, whatever of it is there. */
void resp_free(void *data);

extern const dialect resp_dialect; /* whose conversations have a response of their own */

#endif
