/* answer.h - what an answer may be, as one grammar (grammar.h): a JSON value, calls of tools, either of them, or text
 * in which calls may stand; and reasoning before it.
 *
 * Calls are written as the model's format has them (calls.h), by the forms that its readers take and models write. A
 * call names one of the tools, and its arguments are what the tool's schema lets through, by the rules of schema.h.
 */
#ifndef TERN_TEXT_ANSWER_H
#define TERN_TEXT_ANSWER_H

#include "text/calls.h"
#include "text/schema.h"

typedef struct answer_tool {
  const char *name;
  const json_t *schema; /* of its arguments; NULL: any object */
  const char *place;    /* begins messages about the schema: "tools[0].function.parameters" */
} answer_tool;

typedef struct answer_form {
  schema_frame frame; /* reasoning */
  bool value;         /* it may be a JSON value, of this schema; NULL: any object */
  const json_t *schema;
  const char *place;         /* begins messages about the value, and about the whole */
  bool text;                 /* it may be text, in which calls stand, */
  const char *again;         /* and reasoning that begins so, up to frame.end; NULL: none does */
  const calls_format *calls; /* NULL: no calls */
  const answer_tool *tools;  /* [n_tools] */
  size_t n_tools;
  bool one_call;
} answer_form;

/* Free with gram_free in any case. As schema_compile; TERN_E_UNSUPPORTED: the format of calls is none that a grammar is
 * made of here, or not beside a value or text. Nothing of the form is needed afterwards. */
tern_status answer_compile(const answer_form *form, grammar *out, tern_error *err);
/* Whether forced calls of a format are made here. */
bool answer_has_calls(const calls_format *f);
/* Whether a text is what some format writes around calls, or a part of it. */
bool answer_is_marker(const char *text, size_t n);

#endif
