/* tok_config.c - the files beside the tokenizer: who is BOS, EOS, unknown and padding, and tokens added later.
 *
 * tokenizer_config.json names the roles (a string, or an object with "content") and, under added_tokens_decoder, lists
 * added tokens again; those that tokenizer.json does not have are appended, as is done by the loader that the
 * reference uses. special_tokens_map.json fills in roles. A role's token that the model knows but nobody declared as
 * added becomes a special added token.
 */
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "text/tok_impl.h"

enum { LARGEST = 64 << 20 }; /* bytes of a configuration file */

static tern_status read_tree(tok *t, const char *dir, const char *name, const jt **out, tern_error *err)
{
  *out = NULL;
  buf path = {0};
  buf_addf(&path, "%s/%s", dir, name);
  if (path.failed) {
    buf_free(&path);
    return err_nomem(err, "path");
  }
  tern_status status = TERN_OK;
  if (file_is_regular(path.data)) {
    char *data = NULL;
    size_t n;
    jt *tree = NULL;
    status = file_read(path.data, LARGEST, &data, &n, err);
    if (status == TERN_OK)
      status = jt_parse(path.data, data, n, &t->arena, &tree, err);
    if (status == TERN_OK && tree->kind != JT_OBJECT)
      status = err_set(err, TERN_E_FORMAT, "%s: not an object", path.data);
    mem_free(data);
    *out = tree;
  }
  buf_free(&path);
  return status;
}

static const char *const role_keys[TOK_ROLES] = {
    [TOK_BOS] = "bos_token", [TOK_EOS] = "eos_token", [TOK_UNK] = "unk_token", [TOK_PAD] = "pad_token"};

static tern_status read_roles(tok *t, const jt *config, const char *name, tern_error *err)
{
  for (int r = 0; r < TOK_ROLES; r++) {
    const jt *v = jt_get_set(config, role_keys[r]);
    if (!v || t->role_text[r])
      continue;
    if (v->kind == JT_OBJECT)
      v = jt_get_set(v, "content");
    if (!v || v->kind != JT_STRING)
      return err_set(err, TERN_E_FORMAT, "%s: %s: neither a string nor an object with \"content\"", name, role_keys[r]);
    t->role_text[r] = v->s;
  }
  return TERN_OK;
}

/* ---- tokens ---------------------------------------------------------------------------------------------------- */

static bool grow_added(tok *t, size_t more)
{
  added_token *grown = mem_realloc(t->added, (t->n_added + more + 1) * sizeof *grown);
  if (grown)
    t->added = grown;
  return grown != NULL;
}

typedef struct listed { /* an added token and the id by which the list is ordered */
  const jt *value;
  uint64_t id;
} listed;

static int by_id(const void *a, const void *b)
{
  const listed *x = a, *y = b;
  return x->id < y->id ? -1 : x->id > y->id;
}

static bool known(const strmap *have, const added_token *a)
{
  uint32_t unused;
  return strmap_get(have, a->content.s, a->content.n, &unused);
}

static tern_status note_added(const tok *t, strmap *have, tern_error *err)
{
  for (size_t i = 0; i < t->n_added; i++)
    if (!strmap_put(have, t->added[i].content.s, t->added[i].content.n, 0, NULL, NULL))
      return err_nomem(err, "added tokens");
  return TERN_OK;
}

static tern_status append_listed(tok *t, const listed *list, size_t n, strmap *have, tern_error *err)
{
  if (!grow_added(t, n))
    return err_nomem(err, "added tokens");
  for (size_t i = 0; i < n; i++) {
    added_token a;
    TRY(added_read("tokenizer_config.json", list[i].value, false, &a, err));
    if (known(have, &a))
      continue;
    if (!strmap_put(have, a.content.s, a.content.n, 0, NULL, NULL))
      return err_nomem(err, "added tokens");
    t->added[t->n_added++] = a;
  }
  return TERN_OK;
}

static tern_status read_decoder_list(tok *t, const jt *config, strmap *have, tern_error *err)
{
  const jt *all = jt_get_set(config, "added_tokens_decoder");
  if (!all)
    return TERN_OK;
  if (all->kind != JT_OBJECT)
    return err_set(err, TERN_E_FORMAT, "tokenizer_config.json: added_tokens_decoder: not an object");
  listed *list = mem_array(all->n + 1, sizeof *list);
  size_t n = 0;
  if (!list)
    return err_nomem(err, "added tokens");
  for (const jt *v = all->first; v; v = v->next)
    list[n++] = (listed){v, strtoull(v->key, NULL, 10)};
  qsort(list, n, sizeof *list, by_id);
  tern_status status = append_listed(t, list, n, have, err);
  mem_free(list);
  return status;
}

static tern_status add_roles(tok *t, strmap *have, tern_error *err)
{
  if (!grow_added(t, TOK_ROLES))
    return err_nomem(err, "added tokens");
  for (int r = 0; r < TOK_ROLES; r++) {
    if (!t->role_text[r])
      continue;
    added_token a = {.content = {t->role_text[r], strlen(t->role_text[r])}, .special = true, .id = -1};
    if (known(have, &a) || vocab_find(&t->vocab, a.content.s, a.content.n) < 0)
      continue;
    if (!strmap_put(have, a.content.s, a.content.n, 0, NULL, NULL))
      return err_nomem(err, "added tokens");
    t->added[t->n_added++] = a;
  }
  return TERN_OK;
}

tern_status tok_read_config(tok *t, const char *dir, tern_error *err)
{
  const jt *config, *roles;
  TRY(read_tree(t, dir, "tokenizer_config.json", &config, err));
  TRY(read_tree(t, dir, "special_tokens_map.json", &roles, err));
  const jt *clean = jt_get_set(config, "clean_up_tokenization_spaces");
  t->cleans_up_spaces = clean && clean->kind == JT_TRUE;
  TRY(read_roles(t, config, "tokenizer_config.json", err));
  TRY(read_roles(t, roles, "special_tokens_map.json", err));
  strmap have = {0};
  tern_status status = note_added(t, &have, err);
  if (status == TERN_OK)
    status = read_decoder_list(t, config, &have, err);
  if (status == TERN_OK)
    status = add_roles(t, &have, err);
  strmap_free(&have);
  return status;
}
