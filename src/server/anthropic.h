/* anthropic.h - what the two files of the Anthropic dialect share. */
#ifndef TERN_SERVER_ANTHROPIC_H
#define TERN_SERVER_ANTHROPIC_H

#include "server/conversation.h"

/* anthropic_body.c: a body of /v1/messages in OpenAI's fields, in place. False: *fault names the field. */
bool ant_translate(const server *s, json_t **root, oai_fault *fault);

/* Where a tool has its schema. */
#define ANT_TOOL_SCHEMA "input_schema"

#endif
