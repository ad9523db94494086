/* chat_files.h - what chat.c and chat_files.c share: the opened templates and special tokens of one tokenizer. */
#ifndef TERN_TEXT_CHAT_FILES_H
#define TERN_TEXT_CHAT_FILES_H

#include "text/chat.h"

enum { CHAT_SPECIALS = 7 };
extern const char *const chat_special_names[CHAT_SPECIALS];

typedef struct chat_template {
  char *name, *source; /* owned; name "default" where a file holds just one */
  size_t length;
  tmpl *compiled;
} chat_template;

struct chat {
  char *where; /* the directory, for error lines */
  chat_template *v;
  size_t n, capacity;
  char *special[CHAT_SPECIALS]; /* NULL: there is none */
  char *tool_parser;            /* likewise */
};

/* The template for a request; NULL: none fits. */
const chat_template *chat_pick(const chat *c, bool with_tools);

#endif
