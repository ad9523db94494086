/* conversation.h - a request that generates, from its body to the end of its answer, in any dialect.
 *
 * All dialects share one internal request (oai_request: OpenAI's fields say what the others' do, and more) and one way
 * to wait, to leave and to stream; a dialect reads its own body into the one and writes answers in its own shape.
 *
 * The whole answer waits until all choices have ended. A stream begins once the first of them was admitted, so that a
 * refusal still has its HTTP status; from then on events go out whenever the worker rings, a comment when it was silent
 * for long, and an error as an event.
 */
#ifndef TERN_SERVER_CONVERSATION_H
#define TERN_SERVER_CONVERSATION_H

#include "server/fields.h"

typedef struct conversation conversation;

typedef struct dialect {
  const char *prefix;      /* of ids */
  const char *call_prefix; /* of the ids of calls */
  bool chat;
  /* The body in OpenAI's fields, in place or anew: takes over *root and puts a reference there, on failure too. NULL:
   * it has them already. */
  bool (*translate)(const server *s, json_t **root, oai_fault *fault);
  void (*whole)(conversation *v, buf *out); /* all of choice i is in v->said[i] */
  /* Parts of a stream, none of them under the choices' lock. `delta` is called for choices whose end is not out, with
   * what came of them, which may be nothing: tokens in `news`, and in v->said[index] what their text and that before it
   * was taken apart into. `end` that is not NULL is now to be told. */
  void (*begin)(conversation *v, buf *out);
  void (*delta)(conversation *v, int index, const choice_part *news, const sched_end *end, buf *out);
  void (*finish)(conversation *v, buf *out);
  void (*fail)(conversation *v, int status, const char *message, buf *out);
  bool whole_calls;        /* its streams have no pieces of calls */
  const char *tool_schema; /* where a tool has its schema; NULL: function.parameters */
} dialect;

typedef struct conversation_name {
  const char *made, *asked;
} conversation_name;

/* What a dialect keeps of a request, and wants of it, beside the shared fields; freed with the conversation. */
typedef struct conversation_own {
  void *data;
  void (*free)(void *data); /* NULL: there is nothing to free */
  bool fills;               /* the answer may go on until the context is full */
  /* What the dialect calls shared fields, where it does not call them so: pairs that end with a NULL, and tables of
   * fields, whose list ends with one. Either may be NULL. */
  const conversation_name *names;
  const srv_fields *const *fields;
  const char *schema_place; /* where the schema stands that became response_format's; NULL: there */
} conversation_own;

struct conversation {
  server *server;
  const dialect *dialect;
  oai_request request;
  oai_writer writer;
  choices *set;
  conversation_own own;
  int fd;
  uint64_t number;               /* of the request */
  bool lines;                    /* a stream of lines: silence is not told by comments, which they have none of */
  bool begun;                    /* the stream's first events are out */
  size_t told[OAI_MOST_CHOICES]; /* tokens of each choice's `taken` that are out */
  bool ended[OAI_MOST_CHOICES];  /* choices of which nothing more will come: `taken` is their last */
  bool closed[OAI_MOST_CHOICES]; /* choices whose end is out */
  parts_reader *readers[OAI_MOST_CHOICES];
  answer_parts said[OAI_MOST_CHOICES];  /* since the last event, or in all; every call has an id */
  size_t begun_calls[OAI_MOST_CHOICES]; /* calls that the choice has begun, those in `said` included */
  size_t calls[OAI_MOST_CHOICES];       /* and those that are whole */
  json_t *call_ids[OAI_MOST_CHOICES];   /* an object of those that the model gave; NULL: none */
  struct {
    int n; /* begun */
    bool open;
    part_kind kind; /* of the open one */
  } blocks;         /* of a stream of the Anthropic dialect */
};

/* Why a choice ended, in OpenAI's words: "tool_calls" where it made some and went no further by itself. */
const char *conversation_finish(const conversation *v, int index, const sched_end *end);

/* The whole of such a route. */
void conversation_run(server *s, const srv_request *q, const dialect *d, srv_response *a);
/* The same behind srv_body, for routes that look at the body first: takes over `root` and `own`.
 * a->type that is not NULL: what a stream is, where it is none of events. */
void conversation_answer(server *s, const srv_request *q, json_t *root, conversation_own own, const dialect *d,
                         srv_response *a);

/* Tokens of all prompts, and of all answers so far that have ended. */
size_t conversation_prompt_tokens(const conversation *v);
size_t conversation_cached_tokens(const conversation *v); /* of the prompts' */
size_t conversation_answer_tokens(const conversation *v);
/* Of these, those of reasoning; false: there is none to be told of, or its ends are no tokens of their own. */
bool conversation_reasoning_tokens(const conversation *v, size_t *n);

#endif
