/* tok_config.c - the files beside the tokenizer: who is BOS, EOS, unknown and padding, and tokens added later.
 *
 * tokenizer_config.json names the roles (a string, or an object with "content") and, under added_tokens_decoder, lists
 * added tokens again; those that tokenizer.json does not have are appended, as is done by the loader that the
 * reference uses. special_tokens_map.json fills in roles. A role's token that the model knows but nobody declared as
 * added becomes a special added token. added_tokens.json counts for SentencePiece models only, as do the switches
 * add_bos_token and add_eos_token: a tokenizer.json says itself what is added.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/map.h"
#include "base/path.h"
#include "text/tok_impl.h"

enum { LARGEST = 64 << 20 }; /* bytes of a configuration file */

static tern_status read_tree(tok *t, const char *dir, const char *name, const jt **out, tern_error *err)
{
  *out = NULL;
  if (!dir)
    return TERN_OK;
  char *path = path_join(dir, name);
  if (!path)
    return err_nomem(err, "path");
  mode_t type;
  tern_status status = path_type(path, &type, err);
  if (status == TERN_OK && type != 0) {
    char *data = NULL;
    size_t n;
    jt *tree = NULL;
    status = file_read(path, LARGEST, &data, &n, err);
    if (status == TERN_OK)
      status = jt_parse(path, data, n, &t->arena, &tree, err);
    if (status == TERN_OK && tree->kind != JT_OBJECT)
      status = err_set(err, TERN_E_FORMAT, "%s: not an object", path);
    mem_free(data);
    *out = tree;
  }
  mem_free(path);
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
      return err_nomem(err, "the tokenizer's added tokens");
  return TERN_OK;
}

static tern_status append_listed(tok *t, const listed *list, size_t n, strmap *have, tern_error *err)
{
  if (!grow_added(t, n))
    return err_nomem(err, "the tokenizer's added tokens");
  for (size_t i = 0; i < n; i++) {
    added_token a;
    TRY(added_read("tokenizer_config.json", list[i].value, false, &a, err));
    if (known(have, &a))
      continue;
    if (!strmap_put(have, a.content.s, a.content.n, 0, NULL, NULL))
      return err_nomem(err, "the tokenizer's added tokens");
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
    return err_nomem(err, "the tokenizer's added tokens");
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
    return err_nomem(err, "the tokenizer's added tokens");
  for (int r = 0; r < TOK_ROLES; r++) {
    if (!t->role_text[r])
      continue;
    added_token a = {.content = {t->role_text[r], strlen(t->role_text[r])}, .special = true, .id = -1};
    if (known(have, &a) || vocab_find(&t->vocab, a.content.s, a.content.n) < 0)
      continue;
    if (!strmap_put(have, a.content.s, a.content.n, 0, NULL, NULL))
      return err_nomem(err, "the tokenizer's added tokens");
    t->added[t->n_added++] = a;
  }
  return TERN_OK;
}

/* ---- SentencePiece models --------------------------------------------------------------------------------------- */

/* added_tokens.json: {"token": id}. */
static tern_status read_added_file(tok *t, const char *dir, strmap *have, tern_error *err)
{
  const jt *all;
  TRY(read_tree(t, dir, "added_tokens.json", &all, err));
  if (!all)
    return TERN_OK;
  listed *list = mem_array(all->n + 1, sizeof *list);
  if (!list || !grow_added(t, all->n)) {
    mem_free(list);
    return err_nomem(err, "the tokenizer's added tokens");
  }
  size_t n = 0;
  tern_status status = TERN_OK;
  for (const jt *v = all->first; v && status == TERN_OK; v = v->next, n++) {
    list[n].value = v;
    if (!jt_integer(v, TOK_MAX_ID - 1, &list[n].id))
      status = err_set(err, TERN_E_FORMAT, "added_tokens.json: '%.80s': not an id below 4194304", v->key);
  }
  if (status == TERN_OK)
    qsort(list, n, sizeof *list, by_id);
  for (size_t i = 0; i < n && status == TERN_OK; i++) {
    added_token a = {.content = {list[i].value->key, list[i].value->key_n}, .id = (int32_t)list[i].id};
    if (known(have, &a))
      continue;
    if (!strmap_put(have, a.content.s, a.content.n, 0, NULL, NULL))
      status = err_nomem(err, "the tokenizer's added tokens");
    t->added[t->n_added++] = a;
  }
  mem_free(list);
  return status;
}

static tern_status read_switch(const jt *config, const char *key, bool absent, bool *out, tern_error *err)
{
  const jt *v = jt_get_set(config, key);
  *out = v ? v->kind == JT_TRUE : absent;
  return !v || v->kind == JT_TRUE || v->kind == JT_FALSE
             ? TERN_OK
             : err_set(err, TERN_E_FORMAT, "tokenizer_config.json: %s: not true or false", key);
}

/* BOS before the text unless add_bos_token says no, EOS behind it if add_eos_token says so. */
static tern_status make_post(tok *t, const jt *config, tern_error *err)
{
  static const char *const keys[] = {"add_bos_token", NULL, "add_eos_token"};
  static const tok_role roles[] = {TOK_BOS, TOK_ROLES, TOK_EOS};
  post_step *post = arena_zalloc(&t->arena, sizeof *post);
  if (!post || !(post->pieces = arena_zalloc(&t->arena, 3 * sizeof *post->pieces)))
    return err_nomem(err, "the tokenizer's special tokens");
  for (int i = 0; i < 3; i++) {
    post_piece piece = {.sequence = !keys[i]};
    if (keys[i]) {
      bool wanted;
      TRY(read_switch(config, keys[i], roles[i] == TOK_BOS, &wanted, err));
      const char *text = t->role_text[roles[i]];
      int32_t *id = arena_alloc(&t->arena, sizeof *id);
      if (!id)
        return err_nomem(err, "the tokenizer's special tokens");
      *id = text ? vocab_find(&t->vocab, text, strlen(text)) : -1;
      if (!wanted || *id < 0)
        continue;
      piece.ids = id;
      piece.n_ids = 1;
    }
    post->pieces[post->count++] = piece;
  }
  t->post = post;
  t->n_post = 1;
  return TERN_OK;
}

static void fill_roles(tok *t)
{
  for (int r = 0; r < TOK_ROLES; r++)
    if (!t->role_text[r])
      t->role_text[r] = t->spm_roles[r];
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
  if (t->is_spm) {
    fill_roles(t);
    TRY(make_post(t, config, err));
  }
  strmap have = {0};
  tern_status status = note_added(t, &have, err);
  if (status == TERN_OK && t->is_spm)
    status = read_added_file(t, dir, &have, err);
  if (status == TERN_OK)
    status = read_decoder_list(t, config, &have, err);
  if (status == TERN_OK)
    status = add_roles(t, &have, err);
  strmap_free(&have);
  return status;
}
