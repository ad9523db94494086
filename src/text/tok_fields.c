/* tok_fields.c - see tok_fields.h. */
#include "text/tok_fields.h"

#include <string.h>

#include "base/utf8.h"

tern_status fields_bad(const fields *f, const char *key, const char *what, tern_error *err)
{
  return err_set(err, TERN_E_FORMAT, "%s: %s: %.80s.%s: %s", f->t->file, f->stage, f->type, key, what);
}

tern_status fields_open(tok *t, const char *stage, const jt *value, fields *out, tern_error *err)
{
  *out = (fields){t, stage, "", value};
  if (value->kind != JT_OBJECT)
    return err_set(err, TERN_E_FORMAT, "%s: %s: not an object", t->file, stage);
  const jt *type = jt_get(value, "type");
  if (!type || type->kind != JT_STRING)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: %s: no \"type\": written by a version too old", t->file, stage);
  out->type = type->s;
  return TERN_OK;
}

tern_status fields_only(const fields *f, const char *const *known, tern_error *err)
{
  for (const jt *m = f->value->first; m; m = m->next) {
    size_t i = 0;
    while (known[i] && strcmp(known[i], m->key) != 0)
      i++;
    if (!known[i] && strcmp(m->key, "type") != 0)
      return err_set(err, TERN_E_UNSUPPORTED, "%s: %s: %.80s.%.80s: unknown key", f->t->file, f->stage, f->type,
                     m->key);
  }
  return TERN_OK;
}

tern_status fields_unknown_type(const fields *f, tern_error *err)
{
  return err_set(err, TERN_E_UNSUPPORTED, "%s: %s: unknown type '%.80s'", f->t->file, f->stage, f->type);
}

tern_status fields_flag_or(const fields *f, const char *key, bool absent, bool *out, tern_error *err)
{
  const jt *v = jt_get(f->value, key);
  *out = v ? v->kind == JT_TRUE : absent;
  return !v || v->kind == JT_TRUE || v->kind == JT_FALSE ? TERN_OK : fields_bad(f, key, "not true or false", err);
}

tern_status fields_flag(const fields *f, const char *key, bool *out, tern_error *err)
{
  return jt_get(f->value, key) ? fields_flag_or(f, key, false, out, err) : fields_bad(f, key, "missing", err);
}

tern_status fields_text(const fields *f, const char *key, tok_span *out, tern_error *err)
{
  const jt *v = jt_get(f->value, key);
  if (!v || v->kind != JT_STRING)
    return fields_bad(f, key, v ? "not a string" : "missing", err);
  *out = (tok_span){v->s, v->n};
  return TERN_OK;
}

tern_status fields_character(const fields *f, const char *key, uint32_t *out, tern_error *err)
{
  tok_span text = {0};
  TRY(fields_text(f, key, &text, err));
  size_t n = utf8_decode(text.s, text.n, out);
  return n && n == text.n ? TERN_OK : fields_bad(f, key, "not one character", err);
}

tern_status fields_size(const fields *f, const char *key, size_t *out, tern_error *err)
{
  uint64_t x = 0;
  if (!jt_integer(jt_get(f->value, key), UINT32_MAX, &x))
    return fields_bad(f, key, "missing, or not a whole number", err);
  *out = x;
  return TERN_OK;
}

tern_status fields_pattern(const fields *f, const char *key, tok_pattern **out, tern_error *err)
{
  const jt *v = jt_get(f->value, key), *text = v && v->kind == JT_OBJECT && v->n == 1 ? v->first : NULL;
  bool regex = text && strcmp(text->key, "Regex") == 0;
  if (!text || text->kind != JT_STRING || (!regex && strcmp(text->key, "String") != 0))
    return fields_bad(f, key, "neither {\"String\": text} nor {\"Regex\": text}", err);
  tern_status status =
      regex ? pattern_regex(f->t->file, text->s, text->n, out, err) : pattern_literal(text->s, text->n, out, err);
  if (status == TERN_OK)
    pattern_link(&f->t->patterns, *out);
  return status;
}

tern_status fields_behavior(const fields *f, const char *key, split_behavior *out, tern_error *err)
{
  static const char *const names[] = {
      [SPLIT_REMOVED] = "Removed",
      [SPLIT_ISOLATED] = "Isolated",
      [SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
      [SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
      [SPLIT_CONTIGUOUS] = "Contiguous",
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (jt_is(jt_get(f->value, key), names[i])) {
      *out = (split_behavior)i;
      return TERN_OK;
    }
  return fields_bad(f, key, "missing, or an unknown behavior", err);
}

tern_status fields_each(tok *t, const char *stage, const char *list, const jt *value, fields_step *one, void *user,
                        tern_error *err)
{
  fields f;
  TRY(fields_open(t, stage, value, &f, err));
  if (strcmp(f.type, "Sequence") != 0)
    return one(&f, user, err);
  const char *const known[] = {list, NULL};
  TRY(fields_only(&f, known, err));
  const jt *steps = jt_get(value, list);
  if (!steps || steps->kind != JT_ARRAY)
    return fields_bad(&f, list, "missing, or not a list", err);
  for (const jt *step = steps->first; step; step = step->next) /* depth: the parser allows 64 levels */
    TRY(fields_each(t, stage, list, step, one, user, err));
  return TERN_OK;
}
