/* tokenize.c - text to ids: one JSON array, or with --pieces a line per token. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/out.h"
#include "cli/use.h"
#include "cli/verbs.h"
#include "text/tok.h"

static json_t *string(const char *text, size_t n)
{
  return text ? json_stringn(text, n) : json_null();
}

/* {"id", "piece", "text"}; new reference, NULL: no memory. */
static tern_status piece_row(const tok *t, int32_t id, json_t **row, tern_error *err)
{
  size_t piece_length = 0, length;
  char *text;
  const char *piece = tok_piece(t, id, &piece_length);
  TRY(tok_decode(t, &id, 1, false, &text, &length, err));
  *row = json_pack("{si so so}", "id", (int)id, "piece", string(piece, piece_length), "text", string(text, length));
  mem_free(text);
  return *row ? TERN_OK : err_nomem(err, "pieces");
}

static tern_status print_pieces(const tok *t, const int32_t *ids, size_t n, bool json, tern_error *err)
{
  json_t *all = json ? json_array() : NULL, *row;
  for (size_t i = 0; i < n && out_ok(); i++) {
    tern_status status = piece_row(t, ids[i], &row, err);
    if (status != TERN_OK) {
      json_decref(all);
      return status;
    }
    if (json) {
      out_append(&all, row);
      continue;
    }
    char *piece_json = json_dumps(json_object_get(row, "piece"), JSON_ENCODE_ANY);
    char *text_json = json_dumps(json_object_get(row, "text"), JSON_ENCODE_ANY);
    out_printf("%d\t%s\t%s\n", (int)ids[i], piece_json ? piece_json : "?", text_json ? text_json : "?");
    free(piece_json); /* jansson's own allocations */
    free(text_json);
    json_decref(row);
  }
  if (json)
    out_json(all);
  return TERN_OK;
}

tern_status verb_tokenize(const cli_args *a, tern_error *err)
{
  const char *name, *operand;
  char *dir = NULL, *text = NULL;
  size_t length, n = 0;
  int32_t *ids = NULL;
  tok *t = NULL;
  TRY(args_need_model(a, &name, &operand, err));
  TRY(use_operand(operand, &text, &length, err));
  bool from_stdin = !operand || !strcmp(operand, "-");
  tern_status status = use_check_utf8(from_stdin ? "stdin" : "text", text, length, err);
  if (status == TERN_OK)
    status = use_dir(a, name, NEED_TEXT, &dir, err);
  if (status == TERN_OK)
    status = tok_open(dir, &t, err);
  if (status == TERN_OK)
    status = tok_encode(t, text, length, !a->no_special, &ids, &n, err);
  if (status == TERN_OK && a->pieces)
    status = print_pieces(t, ids, n, a->json, err);
  else if (status == TERN_OK)
    out_json(use_ids_json(ids, n));
  mem_free(ids);
  tok_close(t);
  mem_free(text);
  mem_free(dir);
  return status;
}
