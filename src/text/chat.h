/* chat.h - from a conversation to the prompt text: finds a model's chat template and its special tokens, normalises
 * messages as transformers does, renders.
 *
 * Where templates come from, first that exists: chat_template.jinja (with additional_chat_templates/NAME.jinja),
 * chat_template.json, "chat_template" of tokenizer_config.json (a string, or a list of named ones). Of several,
 * "tool_use" is taken when tools are given, else "default".
 *
 * A chat is immutable once open; threads may render with it at the same time. */
#ifndef TERN_TEXT_CHAT_H
#define TERN_TEXT_CHAT_H

#include "text/tmpl.h"

typedef struct chat chat;

/* Opens the tokenizer files of a directory. A directory without any template is fine: chat_has_template says so and
 * rendering is TERN_E_NOT_FOUND. Errors name the file; a template that does not compile is TERN_E_TEMPLATE. */
tern_status chat_open(const char *dir, chat **out, tern_error *err);
/* A chat from a template's text alone, without special tokens. */
tern_status chat_from_template(const char *source, size_t n, chat **out, tern_error *err);
/* Replaces the templates by one source; the special tokens stay. */
tern_status chat_set_template(chat *c, const char *source, size_t n, tern_error *err);
void chat_close(chat *c);

bool chat_has_template(const chat *c);
/* The template's source that a request with or without tools would take; NULL: none. Valid while the chat lives. */
const char *chat_template_source(const chat *c, bool with_tools, size_t *n);
/* The text of a special token: "bos_token", "eos_token", ...; NULL: the tokenizer has none. */
const char *chat_special_token(const chat *c, const char *name);

/* "tool_parser_type" of tokenizer_config.json, by which mlx-lm's conversions say how the model writes tool calls; NULL:
 * it says nothing. */
const char *chat_tool_parser(const chat *c);

/* Renders one request, a JSON object:
 *   "messages" (list, required), "tools" (list or null), "add_generation_prompt" (bool, default false),
 *   "kwargs" (object: further variables; documents and special tokens count here too; continue_final_message, true or
 * the name of a field, makes the prompt end inside the last message), "now" ("2026-01-15T12:00:00"). Any other key is
 * an error. Message keys whose value is null are dropped; the first of reasoning_content, thinking and reasoning that a
 * message has is given to the template as reasoning_content, and as thinking if that is missing. *out is NUL-terminated
 * and goes back through mem_free; `length` may be NULL. Errors: TERN_E_TEMPLATE (raise_exception's message is part of
 * the line), TERN_E_LIMIT, TERN_E_FORMAT for the request.
 */
tern_status chat_render(const chat *c, const char *request, size_t n, char **out, size_t *length, tern_error *err);

#endif
