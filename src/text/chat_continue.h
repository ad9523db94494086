/* chat_continue.h - continue_final_message: a prompt that ends inside the last message, so that the model goes on with
 * it. */
#ifndef TERN_TEXT_CHAT_CONTINUE_H
#define TERN_TEXT_CHAT_CONTINUE_H

#include "text/tmpl_value.h"

/* The names under which a message's reasoning may stand. */
enum { CHAT_REASONING_KEYS = 3 };
extern const char *const chat_reasoning_keys[CHAT_REASONING_KEYS];

typedef struct chat_continue {
  const tstr *text; /* what is to be continued; NULL: nothing, the whole prompt is wanted */
} chat_continue;

/* Puts a mark behind the text of the last of `messages` (dicts made for this rendering). `option`: the value of
 * continue_final_message, true for the content or the name of a field. `source`: the template, which must read the
 * field. */
bool chat_continue_mark(tmpl_rt *r, tlist *messages, tv option, const char *source, size_t n, chat_continue *out);
/* Cuts the rendered prompt at the mark. */
bool chat_continue_cut(tmpl_rt *r, const chat_continue *c, char *prompt, size_t *length);

#endif
