/* prompt.h - from a conversation to the ids of its prompt, in the one way that tern.h and the command line share.
 *
 * A chat template is rendered with what mlx-lm gives it: add_generation_prompt, and enable_thinking, which is true for
 * tokenizers with thinking tokens unless the caller says otherwise. */
#ifndef TERN_ENGINE_PROMPT_H
#define TERN_ENGINE_PROMPT_H

#include <jansson.h>

#include "engine/engine.h"

/* The error that the model's broken template files gave when it was opened. */
tern_status prompt_check_chat(const tern_model *m, tern_error *err);

/* Text that is to be read by the model: as tok_encode_while (`ask` may be NULL), but TERN_E_LIMIT where an added token
 * lies beyond the vocabulary, with the token. */
tern_status prompt_encode(const tern_model *m, const tok_ask *ask, const char *text, size_t length, bool add_special,
                          int32_t **ids, size_t *n, tern_error *err);

/* messages: a list of {"role", "content"}; variables: an object of further template variables, or NULL. *ids: n values,
 * mem_free. TERN_E_NOT_FOUND where there is no template. */
tern_status prompt_chat_ids(const tern_model *m, const json_t *messages, const json_t *variables, int32_t **ids,
                            size_t *n, tern_error *err);
/* The same prompt as text (mem_free), before it is encoded; with a list of tools, or NULL. */
tern_status prompt_chat_text(const tern_model *m, const json_t *messages, const json_t *tools, const json_t *variables,
                             char **text, size_t *length, tern_error *err);
/* Whether the prompt is to end inside the last message (continue_final_message). */
bool prompt_continues(const json_t *variables);
/* What prompt_chat_text gave, encoded: the two together are prompt_chat_ids. */
tern_status prompt_encode_chat(const tern_model *m, const tok_ask *ask, const char *text, size_t length, int32_t **ids,
                               size_t *n, tern_error *err);

#endif
