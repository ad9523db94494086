/* tok_post.c - the post-processor: which ids go around those of the text.
 *
 * Every kind comes down to a list of pieces, "the text" or fixed ids; ByteLevel adds none. The fixed ids are put in
 * only where the caller wants special tokens. Refused: more than one processor that adds ids, for which the reference
 * has no meaning that could be relied on.
 */
#include <string.h>

#include "text/tok_fields.h"

static tern_status add_piece(tok *t, post_step *step, const post_piece *piece, tern_error *err)
{
  if (step->count == TOK_MAX_STEPS)
    return err_set(err, TERN_E_LIMIT, "%s: post_processor: more than %d pieces", t->file, TOK_MAX_STEPS);
  step->pieces[step->count++] = *piece;
  return TERN_OK;
}

static tern_status new_step(const fields *f, post_step **out, tern_error *err)
{
  tok *t = f->t;
  if (t->n_post)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: post_processor: %s: a second processor that adds tokens", t->file,
                   f->type);
  t->post = arena_zalloc(&t->arena, sizeof *t->post);
  if (t->post)
    t->post->pieces = arena_zalloc(&t->arena, TOK_MAX_STEPS * sizeof *t->post->pieces);
  if (!t->post || !t->post->pieces)
    return err_nomem(err, "post_processor");
  t->n_post = 1;
  *out = t->post;
  return TERN_OK;
}

static tern_status read_ids(const fields *f, const jt *list, post_piece *piece, tern_error *err)
{
  if (!list || list->kind != JT_ARRAY)
    return fields_bad(f, "special_tokens", "an entry without a list \"ids\"", err);
  int32_t *ids = arena_alloc(&f->t->arena, (list->n + 1) * sizeof *ids);
  if (!ids)
    return err_nomem(err, "post_processor");
  for (const jt *v = list->first; v; v = v->next) {
    uint64_t id = 0;
    if (!jt_integer(v, INT32_MAX, &id))
      return fields_bad(f, "special_tokens", "an id that is no whole number from 0 to 2147483647", err);
    ids[piece->n_ids++] = (int32_t)id;
  }
  piece->ids = ids;
  return TERN_OK;
}

static tern_status read_template(const fields *f, tern_error *err)
{
  static const char *const known[] = {"single", "pair", "special_tokens", NULL};
  TRY(fields_only(f, known, err));
  const jt *single = jt_get(f->value, "single"), *tokens = jt_get(f->value, "special_tokens");
  post_step *step;
  if (!single || single->kind != JT_ARRAY)
    return fields_bad(f, "single", "missing, or not a list", err);
  TRY(new_step(f, &step, err));
  for (const jt *v = single->first; v; v = v->next) {
    const jt *sequence = jt_get(v, "Sequence"), *special = jt_get(v, "SpecialToken"), *id;
    post_piece piece = {.sequence = sequence != NULL};
    if (v->n != 1 || (!sequence && !special))
      return fields_bad(f, "single", "an entry that is neither Sequence nor SpecialToken", err);
    id = jt_get(sequence ? sequence : special, "id");
    if (sequence && !jt_is(id, "A"))
      return fields_bad(f, "single", "a sequence other than \"A\"", err);
    if (special) {
      if (!id || id->kind != JT_STRING || !jt_get(tokens, id->s))
        return fields_bad(f, "special_tokens", "a token that \"single\" names is missing", err);
      TRY(read_ids(f, jt_get(jt_get(tokens, id->s), "ids"), &piece, err));
    }
    TRY(add_piece(f->t, step, &piece, err));
  }
  return TERN_OK;
}

/* cls text sep; both are ["token", id]. */
static tern_status read_bert(const fields *f, bool roberta, tern_error *err)
{
  static const char *const bert[] = {"sep", "cls", NULL}, *const with_offsets[] = {"sep", "cls", "trim_offsets",
                                                                                   "add_prefix_space", NULL};
  static const char *const order[] = {"cls", NULL, "sep"};
  post_step *step;
  TRY(fields_only(f, roberta ? with_offsets : bert, err));
  TRY(new_step(f, &step, err));
  for (size_t i = 0; i < 3; i++) {
    post_piece piece = {.sequence = !order[i]};
    if (order[i]) {
      const jt *pair = jt_get(f->value, order[i]);
      uint64_t id = 0;
      int32_t *ids = arena_alloc(&f->t->arena, sizeof *ids);
      if (!ids)
        return err_nomem(err, "post_processor");
      if (!pair || pair->kind != JT_ARRAY || pair->n != 2 || !jt_integer(pair->last, INT32_MAX, &id))
        return fields_bad(f, order[i], "missing, or not [token, id]", err);
      *ids = (int32_t)id;
      piece.ids = ids;
      piece.n_ids = 1;
    }
    TRY(add_piece(f->t, step, &piece, err));
  }
  return TERN_OK;
}

static tern_status read_step(const fields *f, void *user, tern_error *err)
{
  static const char *const byte_level[] = {"add_prefix_space", "trim_offsets", "use_regex", NULL};
  (void)user;
  if (strcmp(f->type, "TemplateProcessing") == 0)
    return read_template(f, err);
  if (strcmp(f->type, "BertProcessing") == 0)
    return read_bert(f, false, err);
  if (strcmp(f->type, "RobertaProcessing") == 0)
    return read_bert(f, true, err);
  if (strcmp(f->type, "ByteLevel") == 0) /* moves offsets, which tern does not keep */
    return fields_only(f, byte_level, err);
  return fields_unknown_type(f, err);
}

tern_status post_read(tok *t, const jt *value, tern_error *err)
{
  return value ? fields_each(t, "post_processor", "processors", value, read_step, NULL, err) : TERN_OK;
}
