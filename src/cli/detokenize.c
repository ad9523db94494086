/* detokenize.c - ids, a JSON array on stdin, to text: the text and nothing more, or the pieces that a stream would
 * send. */

#include "base/mem.h"
#include "cli/out.h"
#include "cli/use.h"
#include "cli/verbs.h"
#include "text/detok.h"

static tern_status read_ids(int32_t **ids, size_t *n, tern_error *err)
{
  char *text;
  size_t length;
  TRY(use_text("-", &text, &length, err));
  tern_status status = use_ids_array("stdin", text, length, ids, n, err);
  mem_free(text);
  return status;
}

static tern_status print_stream(const tok *t, const int32_t *ids, size_t n, bool skip_special, tern_error *err)
{
  detok *d;
  const char *text;
  size_t length;
  TRY(detok_open(t, skip_special, &d, err));
  json_t *pieces = json_array();
  tern_status status = TERN_OK;
  for (size_t i = 0; i <= n && status == TERN_OK; i++) {
    status = i < n ? detok_push(d, ids[i], &text, &length, err) : detok_finish(d, &text, &length, err);
    if (status == TERN_OK && length)
      out_append(&pieces, json_stringn(text, length));
  }
  detok_close(d);
  if (status == TERN_OK)
    out_json(pieces);
  else
    json_decref(pieces);
  return status;
}

static tern_status print_text(const tok *t, const int32_t *ids, size_t n, bool skip_special, tern_error *err)
{
  char *text;
  size_t length;
  TRY(tok_decode(t, ids, n, skip_special, &text, &length, err));
  out_write(text, length);
  mem_free(text);
  return TERN_OK;
}

tern_status verb_detokenize(const cli_args *a, tern_error *err)
{
  const char *name;
  char *dir = NULL;
  int32_t *ids = NULL;
  size_t n = 0;
  tok *t = NULL;
  TRY(args_need_model(a, &name, NULL, err));
  TRY(read_ids(&ids, &n, err));
  tern_status status = use_dir(a, name, NEED_TEXT, &dir, err);
  if (status == TERN_OK)
    status = tok_open(dir, &t, err);
  if (status == TERN_OK)
    status = (a->stream ? print_stream : print_text)(t, ids, n, a->skip_special, err);
  tok_close(t);
  mem_free(ids);
  mem_free(dir);
  return status;
}
