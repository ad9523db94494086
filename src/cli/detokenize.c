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
  json_error_t where;
  TRY(use_text("-", &text, &length, err));
  json_t *array = json_loadb(text, length, JSON_REJECT_DUPLICATES, &where);
  mem_free(text);
  if (!json_is_array(array)) {
    json_decref(array);
    if (array)
      return err_set(err, TERN_E_FORMAT, "stdin: not a JSON array of token ids");
    return err_set(err, TERN_E_FORMAT, "stdin: line %d, column %d: not a JSON array of token ids: %s", where.line,
                   where.column, where.text);
  }
  tern_status status = TERN_OK;
  *n = json_array_size(array);
  *ids = mem_array(*n, sizeof **ids);
  if (!*ids)
    status = err_nomem(err, "token ids");
  for (size_t i = 0; i < *n && status == TERN_OK; i++) {
    const json_t *item = json_array_get(array, i);
    json_int_t id = json_integer_value(item);
    if (!json_is_integer(item) || id < 0 || id > INT32_MAX)
      status = err_set(err, TERN_E_FORMAT, "stdin: element %zu of the array is not a token id", i);
    else
      (*ids)[i] = (int32_t)id;
  }
  json_decref(array);
  if (status != TERN_OK)
    mem_free(*ids);
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
      json_array_append_new(pieces, json_stringn(text, length));
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
