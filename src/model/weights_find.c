/* weights_find.c - names: patterns with holes, a wrapper's prefix, other spellings of the same tensor; and the audit of
 * what is missing and what is left. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "model/weights_impl.h"

/* "model.layers.{}.x" with the numbers put in, behind the wrapper's prefix. */
static void expand(const binder *b, const char *pattern, weight_place at, const char *suffix, char out[NAME_BYTES])
{
  const arch *w = b->config->wrapper;
  size_t n = (size_t)snprintf(out, NAME_BYTES, "%s", w ? w->prefix : "");
  for (const char *p = pattern; *p && n + 1 < NAME_BYTES;) {
    bool layer = strncmp(p, "{}", 2) == 0, head = strncmp(p, "{h}", 3) == 0;
    if (layer || head)
      n += (size_t)snprintf(out + n, NAME_BYTES - n, "%d", layer ? at.layer : at.head);
    else
      out[n++] = *p;
    p += layer ? 2 : head ? 3 : 1;
  }
  if (n < NAME_BYTES)
    snprintf(out + n, NAME_BYTES - n, "%s", suffix);
}

static const st_tensor *find_spelling(const binder *b, const arch_rename *r, const char *name, char out[NAME_BYTES])
{
  size_t n = strlen(r->to);
  if (strncmp(name, r->to, n) != 0)
    return NULL;
  snprintf(out, NAME_BYTES, "%s%s", r->from, name + n);
  return ckpt_find(b->c, out);
}

static weight_found look(const binder *b, const char *pattern, weight_place at, const char *suffix)
{
  const arch *a = b->config->wrapper ? b->config->wrapper : b->config->arch;
  weight_found f = {0};
  expand(b, pattern, at, suffix, f.path);
  f.tensor = ckpt_find(b->c, f.path);
  for (int i = 0; !f.tensor && i < ARCH_MAX_RENAMES && a->renames[i].to; i++) {
    f.tensor = find_spelling(b, &a->renames[i], f.path, f.other);
    f.transposed = f.tensor && a->renames[i].transposed;
  }
  if (!f.tensor)
    f.other[0] = '\0';
  return f;
}

weight_found weights_find(binder *b, const char *pattern, weight_place at, const char *suffix)
{
  weight_found f = look(b, pattern, at, suffix);
  if (f.tensor)
    ckpt_mark(b->c, f.tensor);
  return f;
}

bool weights_have(const binder *b, const char *pattern, weight_place at, const char *suffix)
{
  return look(b, pattern, at, suffix).tensor != NULL;
}

static void note(weights_names *list, const char *name)
{
  if (list->count < WEIGHTS_NAMED)
    list->names[list->count] = mem_strdup(name);
  list->count++;
}

void weights_note_missing(binder *b, const char *name)
{
  note(&b->missing, name);
}

static void free_names(weights_names *list)
{
  for (size_t i = 0; i < WEIGHTS_NAMED; i++)
    mem_free(list->names[i]);
  *list = (weights_names){0};
}

void weights_gap_free(weights_gap *gap)
{
  free_names(&gap->missing);
  free_names(&gap->left);
}

/* "a, b and 4 more". Returns the text, "" where memory ran out; buf_free. */
static const char *join(const weights_names *list, buf *out)
{
  for (size_t i = 0; i < list->count && i < WEIGHTS_NAMED; i++)
    buf_addf(out, "%s%s", i ? ", " : "", list->names[i] ? list->names[i] : "?");
  if (list->count > WEIGHTS_NAMED)
    buf_addf(out, " and %zu more", list->count - WEIGHTS_NAMED);
  return out->failed || !out->data ? "" : out->data;
}

/* ---- the audit ---- */

static bool ends_with(const char *name, const char *end)
{
  size_t n = strlen(name), k = strlen(end);
  return n >= k && strcmp(name + n - k, end) == 0;
}

static bool is_part_of(const char *name, const char *module)
{
  static const char *const parts[] = {".weight", ".scales", ".biases"};
  size_t n = strlen(module);
  if (strncmp(name, module, n) != 0)
    return false;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (strcmp(name + n, parts[i]) == 0)
      return true;
  return false;
}

static bool matches(const arch_drop *d, const char *name)
{
  switch (d->match) {
  case MATCH_MODULE:
    return is_part_of(name, d->pattern);
  case MATCH_EXACT:
    return strcmp(d->pattern, name) == 0;
  case MATCH_PREFIX:
    return strncmp(d->pattern, name, strlen(d->pattern)) == 0;
  case MATCH_SUFFIX:
    return ends_with(name, d->pattern);
  default:
    return strstr(name, d->pattern) != NULL;
  }
}

static void list_drops(const arch *a, model_weights *w)
{
  for (int i = 0; a && i < ARCH_MAX_DROPS && a->drops[i].pattern; i++)
    w->drops[w->n_drops++] = (weight_drop){.rule = &a->drops[i]};
}

/* Whether t is the embedding's tensor of the same part, byte for byte. */
static bool copies_embedding(const binder *b, const st_tensor *t)
{
  const st_tensor *e = look(b, b->config->arch->names->embed, (weight_place){0}, strrchr(t->name, '.')).tensor;
  if (!e || e->dtype != t->dtype || e->rank != t->rank || e->bytes != t->bytes)
    return false;
  for (int i = 0; i < e->rank; i++)
    if (e->shape[i] != t->shape[i])
      return false;
  if (b->names_alone)
    return true;
  return memcmp(e->data, t->data, t->bytes) == 0 && ckpt_check(b->c, NULL) == TERN_OK;
}

static bool applies(const binder *b, const arch_drop *d, const st_tensor *t)
{
  if (d->when == DROP_ALWAYS)
    return true;
  bool copy = d->when == DROP_IF_COPY || (b->config->wrapper && b->config->wrapper->copied_head);
  return b->out->tied && (!copy || copies_embedding(b, t));
}

/* A name as rules of a wrapped text model speak of it: without the prefix. */
static const char *bare_name(const binder *b, const char *name)
{
  const arch *wrapper = b->config->wrapper;
  size_t n = wrapper ? strlen(wrapper->prefix) : 0;
  return wrapper && strncmp(name, wrapper->prefix, n) == 0 ? name + n : name;
}

static bool dropped(const binder *b, const st_tensor *t)
{
  const char *name = t->name, *bare = bare_name(b, name);
  for (size_t i = 0; i < b->out->n_drops; i++) {
    weight_drop *d = &b->out->drops[i];
    if ((!matches(d->rule, name) && !matches(d->rule, bare)) || !applies(b, d->rule, t))
      continue;
    d->matched++;
    return true;
  }
  return false;
}

static const char *title(const binder *b)
{
  return b->config->wrapper ? b->config->wrapper->name : b->config->arch->name;
}

static tern_status audit_missing(binder *b)
{
  size_t n = b->missing.count;
  if (!n)
    return TERN_OK;
  buf names = {0};
  tern_status status =
      err_set(b->err, TERN_E_FORMAT, "weights: %zu tensor%s that %s needs %s not in the checkpoint: %s", n,
              n > 1 ? "s" : "", title(b), n > 1 ? "are" : "is", join(&b->missing, &names));
  buf_free(&names);
  return status;
}

void weights_list_left(binder *b)
{
  list_drops(b->config->wrapper, b->out);
  list_drops(b->config->arch, b->out);
  for (size_t i = 0; i < ckpt_count(b->c); i++) {
    const st_tensor *t = ckpt_at(b->c, i);
    if (!ckpt_marked(b->c, t) && !dropped(b, t))
      note(&b->left, t->name);
  }
}

static tern_status audit_left(binder *b)
{
  weights_list_left(b);
  size_t n = b->left.count;
  if (!n)
    return TERN_OK;
  buf names = {0};
  tern_status status = err_set(b->err, TERN_E_FORMAT, "weights: %zu tensor%s in the checkpoint %s no part of %s: %s", n,
                               n > 1 ? "s" : "", n > 1 ? "have" : "has", title(b), join(&b->left, &names));
  buf_free(&names);
  return status;
}

/* Whether an entry of the quantisation config speaks of a module whose tensors are always dropped: a tower's. */
static bool of_dropped_module(const binder *b, const char *path)
{
  for (size_t i = 0; i < b->out->n_drops; i++) {
    const arch_drop *d = b->out->drops[i].rule;
    if (d->when == DROP_ALWAYS && d->match == MATCH_PREFIX && matches(d, path))
      return true;
  }
  return false;
}

tern_status weights_audit(binder *b)
{
  TRY(audit_missing(b));
  TRY(audit_left(b));
  size_t cursor = 0;
  const char *unused;
  while ((unused = quant_unused(b->quant, &cursor)) && of_dropped_module(b, unused))
    ;
  if (unused)
    return err_set(b->err, TERN_E_FORMAT, "config.json: quantization: %s: no such module in %s", unused, title(b));
  return TERN_OK;
}
