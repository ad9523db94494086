/* render.c - a request (messages, tools, kwargs, clock) to the prompt that the chat template makes of it: the prompt
 * and nothing more, or its token ids. With --template a model is not needed; where one is named its special tokens
 * count.
 */

#include "base/mem.h"
#include "cli/out.h"
#include "cli/use.h"
#include "cli/verbs.h"
#include "text/chat.h"
#include "text/tok.h"

static tern_status open_chat(const cli_args *a, const char *dir, chat **out, tern_error *err)
{
  char *source = NULL;
  size_t length = 0;
  tern_status status = TERN_OK;
  *out = NULL;
  if (a->template_file)
    TRY(use_text(a->template_file, &source, &length, err));
  if (dir)
    status = chat_open(dir, out, err);
  if (status == TERN_OK && source)
    status = *out ? chat_set_template(*out, source, length, err) : chat_from_template(source, length, out, err);
  mem_free(source);
  return status;
}

/* The template writes special tokens itself, so the tokenizer adds none. */
static tern_status print_ids(const char *dir, const char *prompt, size_t length, tern_error *err)
{
  tok *t;
  int32_t *ids;
  size_t n;
  TRY(tok_open(dir, &t, err));
  tern_status status = tok_encode(t, prompt, length, false, &ids, &n, err);
  if (status == TERN_OK) {
    out_json(use_ids_json(ids, n));
    mem_free(ids);
  }
  tok_close(t);
  return status;
}

static tern_status render(const cli_args *a, const char *dir, const char *request, size_t size, tern_error *err)
{
  chat *c;
  char *prompt;
  size_t length;
  tern_status status = open_chat(a, dir, &c, err);
  if (status == TERN_OK) {
    status = chat_render(c, request, size, &prompt, &length, err);
    if (status == TERN_E_FORMAT)
      err_prefix(err, status, "%s", a->json_file);
  }
  chat_close(c);
  if (status != TERN_OK)
    return status;
  if (a->as_ids)
    status = print_ids(dir, prompt, length, err);
  else
    out_write(prompt, length);
  mem_free(prompt);
  return status;
}

tern_status verb_render(const cli_args *a, tern_error *err)
{
  const char *name, *ignored;
  char *dir = NULL, *request;
  size_t size;
  args_model_and_text(a, &name, &ignored);
  if (!a->json_file)
    return err_set(err, TERN_E_USAGE, "render: --json names the file with the messages");
  if (!name && (!a->template_file || a->as_ids))
    return err_set(err, TERN_E_USAGE, "render: no MODEL: needed for %s",
                   a->as_ids ? "--ids" : "its template (or give --template)");
  TRY(use_text(a->json_file, &request, &size, err));
  tern_status status = name ? use_dir(a, name, NEED_TEXT, &dir, err) : TERN_OK;
  if (status == TERN_OK)
    status = render(a, dir, request, size, err);
  mem_free(request);
  mem_free(dir);
  return status;
}
