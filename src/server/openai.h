/* openai.h - the OpenAI dialect: what a request says, as numbers and ids, and what goes back.
 *
 * Fields are read strictly: a wrong type, a value out of range, and a field that is not understood and could change the
 * answer are errors that name the field. docs/server.md lists what is understood and what is let be.
 */
#ifndef TERN_SERVER_OPENAI_H
#define TERN_SERVER_OPENAI_H

#include "server/choices.h"

enum { OAI_MOST_STOPS = 16, OAI_MOST_STOP_BYTES = 1024, OAI_MOST_CHOICES = 16 };

typedef struct oai_prompt {
  int32_t *ids;
  size_t n;
} oai_prompt;

typedef struct oai_request {
  bool counts;              /* set before reading: the prompt is to be counted and may be longer than the context */
  bool fills;               /* set before reading: the answer may go on until the context is full */
  tok_ask ask;              /* set before reading: whether the client waits; encoding its prompt may take long */
  const char *schema_place; /* set before reading: how messages call the schema of response_format; NULL: so */
  const char *tool_schema;  /* set before reading: and where a tool has its own; NULL: function.parameters */
  bool chat;                /* else a text completion */
  bool stream, include_usage;
  bool logprobs;
  int top_logprobs;
  int n, max_tokens; /* max_tokens 0: not said */
  bool seeded;
  tern_sampling sampling;
  const char *model; /* as it is to be called in the answer */
  const char *stops[OAI_MOST_STOPS];
  size_t n_stops;
  int32_t *bias_ids;
  float *bias_values;
  json_t *root;        /* the body: strings above point into it */
  json_t *variables;   /* of the template; NULL: none */
  const json_t *tools; /* that the template is given; NULL: none */
  bool no_tools;       /* tool_choice "none": the model is shown none */
  bool one_call;       /* the answer ends after its first call */
  bool forced;         /* it is to be calls */
  json_t *allowed;     /* an object of the names of the tools that it may call; NULL: all */
  const char *effort;  /* reasoning_effort; NULL: not said */
  bool formed;         /* the answer is to be JSON, under `schema`, which is NULL where it is to be any object */
  const json_t *schema;
  tern_grammar *grammar; /* that says so; NULL: none */
  parts_options parts;   /* how the answers are taken apart */
  oai_prompt prompts[OAI_MOST_CHOICES];
  int n_prompts;
} oai_request;

/* What is wrong with a request. */
typedef struct oai_fault {
  const char *param; /* points into the request's root, or is a literal */
  const char *code;  /* NULL: as srv_fault has it */
  int status;        /* of HTTP; 0: as the error's own */
  size_t message; /* 1 + the place in `messages` of what is wrong, where the text begins "messages[…]"; 0: no one */
  tern_error err;
} oai_fault;

/* openai_fields.c. Takes over `root`. Free with oai_clear in any case. False: *fault says why. */
bool oai_read(const server *s, json_t *root, bool is_chat, oai_request *out, oai_fault *fault);
/* How many tokens may come, where that was not said, and whether they fit behind the prompts. */
bool oai_check_context(const server *s, oai_request *r, oai_fault *fault);
/* Whether `value`, the field `name`, is a stop string or a list of some. */
bool oai_check_stops(const char *name, const json_t *value, oai_fault *fault);
void oai_clear(oai_request *r);
/* The JSON schema of such a body, for /openapi.json: new reference. */
json_t *oai_schema(bool is_chat);
/* How the model is to be called in the answer: as the field `model` (NULL: absent) has it, which is an error where it
 * is none of the names that are served. */
bool oai_check_model(const server *s, const json_t *value, const char **name, oai_fault *fault);
/* An error about a field; returns false. */
bool oai_wrong(oai_fault *fault, const char *param, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same about a field of an object within the body: `within` is "options." or the like, or "". */
bool oai_wrong_in(oai_fault *fault, const char *within, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Calls what is wrong by the name that it has where it was asked for: `made` at the text's beginning and as `param`
 * becomes `asked`. Nothing happens to another field's fault. */
void oai_rename(oai_fault *fault, const char *made, const char *asked);
/* The same where one message is at fault, which was made of an element of the field `asked`; -1: of all of it. */
void oai_rename_message(oai_fault *fault, const char *asked, long element);

/* openai_tools.c: the fields of tools and reasoning, each alone; then what they mean for this model: the template's
 * variables and tools, and how answers are taken apart, but for `opened`. */
bool oai_read_tools(const server *s, const json_t *value, oai_request *r, oai_fault *fault);
bool oai_read_tool_choice(const server *s, const json_t *value, oai_request *r, oai_fault *fault);
bool oai_read_parallel(const server *s, const json_t *value, oai_request *r, oai_fault *fault);
bool oai_read_effort(const server *s, const json_t *value, oai_request *r, oai_fault *fault);
bool oai_settle_tools(const server *s, oai_request *r, oai_fault *fault);
/* openai_format.c: response_format. */
bool oai_read_format(const server *s, const json_t *value, oai_request *r, oai_fault *fault);
/* openai_grammar.c: once the prompt is known, the grammar of the answers, where something of the request asks for one.
 */
bool oai_settle_grammar(const server *s, oai_request *r, oai_fault *fault);
/* How the model writes calls: as the server was told, as the conversion said, as the template shows, which is the
 * reference's order behind the flag. NULL: that is not known. The model has a chat. */
const calls_format *oai_calls_format(const server *s);
/* Whether the chat template, with tools or without, has the word: a variable that it may read. */
bool oai_template_has(const server *s, bool with_tools, const char *word);
/* A variable of the template for this request. */
bool oai_set_variable(const server *s, oai_request *r, const char *name, json_t *value, oai_fault *fault);

/* conversation.c: a fault as a response. */
void oai_answer_fault(srv_response *a, const oai_fault *f);

/* openai_messages.c: makes messages what templates take: text parts are joined, null content is "", arguments of tool
 * calls become objects, a developer is the system where the template knows none. In place. */
bool oai_fix_messages(const server *s, json_t *messages, oai_fault *fault);
/* The tree of a call's arguments, which are a string. A key may stand twice there, as models write and streams tell it:
 * the last one counts, as where the call was read as a whole. New reference; NULL: it is no JSON. */
json_t *oai_arguments(const json_t *text);
/* Whether arguments are what a stream leaves of a call that was never whole: nothing, or an object's beginning. */
bool oai_is_unfinished(const json_t *arguments);
/* Whether a text has what a model would have written of a call: what begins one in some format, and its name behind. */
bool oai_says_call(const char *content, const char *name);

/* openai_write.c */
typedef struct oai_writer {
  const server *server;
  const oai_request *request;
  int64_t created;
  char id[48];
  size_t offsets[OAI_MOST_CHOICES]; /* of texts so far, in characters: for text_offset */
  buf head;                         /* what events begin with; empty until the first one */
} oai_writer;

/* prefix: of the id, a literal. */
void oai_writer_open(oai_writer *w, const server *s, const oai_request *r, const char *prefix, uint64_t number);
void oai_writer_close(oai_writer *w);
/* A whole answer, as text: its beginning, every choice in turn (with what its text was taken apart into, and why it
 * ended), its end, which takes over `usage`. */
void oai_begin_whole(const oai_writer *w, buf *out);
void oai_add_whole(oai_writer *w, int index, const choice *c, const answer_parts *said, const char *finish, buf *out);
void oai_end_whole(json_t *usage, buf *out);
/* What a token that is a part of a character has in the place of its bytes: null, an empty list, or nothing, as then it
 * has no list of alternatives either where there are none. */
typedef enum oai_no_bytes { OAI_NULL, OAI_EMPTY, OAI_LEAVES_OUT } oai_no_bytes;
/* A list of tokens with their alternatives. Token by token, as text: as a tree each would take 20 kB. */
void oai_add_tokens(const server *s, const choice_token *tokens, size_t n, oai_no_bytes without, buf *out);
json_t *oai_usage(size_t prompt, size_t completion, size_t cached);
/* Events of a stream, as "data: {…}\n\n". The first one of a chat names the role. */
void oai_add_first(oai_writer *w, int index, buf *out);
/* What the choice said, with its tokens; n_calls: how many calls it had begun before. `finish`: why it ended, NULL: it
 * goes on. */
void oai_add_delta(oai_writer *w, int index, const choice_part *news, const answer_parts *said, size_t n_calls,
                   const char *finish, buf *out);
void oai_add_usage(oai_writer *w, json_t *usage, buf *out);
void oai_add_event(json_t *document, buf *out); /* takes over the reference */
void oai_add_done(buf *out);

#endif
