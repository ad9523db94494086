/* select.c - see select.h. The table is what the rooms format and text open, and nothing more: no second copy of the
 * weights in another format, no code, no pictures. */
#include "hub/select.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST_PATTERN = 1024 };

/* Patterns in which '*' stops at '/'. */
static const char *const engine_reads[] = {
    "config.json",       "generation_config.json", "model*.safetensors",    "model.safetensors.index.json",
    "tokenizer.json",    "tokenizer.model",        "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja",    "chat_template.json",    "additional_chat_templates/*.jinja",
};

static bool matches(const char *pattern, const char *path)
{
  char all[LONGEST_PATTERN + 2];
  size_t n = strlen(pattern);
  if (n == 0 || n > LONGEST_PATTERN)
    return false;
  snprintf(all, sizeof all, "%s%s", pattern, pattern[n - 1] == '/' ? "*" : "");
  return fnmatch(all, path, 0) == 0;
}

static bool any_matches(const char *const *patterns, size_t n, const char *path)
{
  for (size_t i = 0; i < n; i++)
    if (matches(patterns[i], path))
      return true;
  return false;
}

static bool engine_wants(const char *path)
{
  for (size_t i = 0; i < sizeof engine_reads / sizeof *engine_reads; i++)
    if (fnmatch(engine_reads[i], path, FNM_PATHNAME) == 0)
      return true;
  return false;
}

bool select_wants(const hub_patterns *p, const char *path)
{
  bool wanted = p->n_include ? any_matches(p->include, p->n_include, path) : engine_wants(path);
  return wanted && !any_matches(p->exclude, p->n_exclude, path);
}
