/* model_prepared.c - which file of prepared weights a model has, and handing its layouts to the matrices.
 *
 * A file is looked for where the options name a directory and the backend has a layout of its own. One that is there
 * and cannot be trusted is left aside, which the model remembers for whoever tells the user: the checkpoint gives the
 * same bits. Making one on demand refuses what cannot be made. */
#include <unistd.h>

#include "base/mem.h"
#include "model/model.h"

typedef struct matrix_list {
  ops_weight **items;
  size_t n, capacity;
} matrix_list;

static tern_status list_matrix(void *user, ops_weight *w, tern_error *err)
{
  matrix_list *l = user;
  if (!mem_grow(&l->items, &l->capacity, l->n + 1, sizeof *l->items))
    return err_nomem(err, "weights");
  l->items[l->n++] = w;
  return TERN_OK;
}

static tern_status make_prepared(model *m, const tern_model_options *o, const prepared_place *place,
                                 const prepared_watch *watch, prepared_report *report, tern_error *err)
{
  matrix_list l = {0};
  tern_status status = weights_each_product(&m->weights, m->config.layers, list_matrix, &l, err);
  if (status == TERN_OK)
    status = prepared_make(o->prepared_dir, place, m->ckpt, m->cx.backend->layout, (const ops_weight *const *)l.items,
                           l.n, watch, report, err);
  mem_free(l.items);
  return status;
}

static tern_status attach(void *user, ops_weight *w, tern_error *err)
{
  (void)err;
  model *m = user;
  w->packed = prepared_layout(m->prepared, m->ckpt, m->cx.backend->layout, w);
  return TERN_OK;
}

/* What is there and cannot be trusted is left aside: the checkpoint gives the same bits. */
static tern_status use_prepared(model *m, const prepared_place *place, tern_error *err)
{
  tern_error why = {0};
  tern_status status = prepared_open(place, m->cx.backend->layout, &m->prepared, &why);
  if (status == TERN_E_NOMEM)
    return err_nomem(err, "prepared weights");
  if (status == TERN_OK) {
    prepared_note(place, m->ckpt);
    return weights_each_product(&m->weights, m->config.layers, attach, m, err);
  }
  if (status != TERN_E_NOT_FOUND)
    m->prepared_fault = why;
  return TERN_OK;
}

static tern_status check_prepare(const model *m, const tern_model_options *o, tern_error *err)
{
  if (!m->cx.backend->layout)
    return err_set(err, TERN_E_UNSUPPORTED, "prepare: backend %s has no layout of its own", m->cx.backend->name);
  return o->prepared_dir ? TERN_OK : err_set(err, TERN_E_USAGE, "prepare: no directory to keep prepared weights in");
}

tern_status model_use_prepared(model *m, const tern_model_options *o, bool headers_only, tern_error *err)
{
  bool now = o->prepare == TERN_PREPARE_NOW && !headers_only;
  prepared_place place = {0};
  if (now)
    TRY(check_prepare(m, o, err));
  if (!m->cx.backend->layout || !o->prepared_dir || o->prepare == TERN_PREPARE_NEVER)
    return TERN_OK;
  if (!now && access(o->prepared_dir, F_OK)) /* nothing was ever made: nothing to look for */
    return TERN_OK;
  tern_error why = {0};
  tern_status status = prepared_find_place(o->prepared_dir, m->ckpt, m->cx.backend->layout, &place, &why);
  if (status != TERN_OK) {
    if (now || status == TERN_E_NOMEM)
      return err_set(err, why.status, "%s", why.text);
    m->prepared_fault = why;
    return TERN_OK;
  }
  status = now ? make_prepared(m, o, &place, NULL, NULL, err) : TERN_OK;
  if (status == TERN_OK)
    status = use_prepared(m, &place, err);
  mem_free(place.path);
  return status;
}

tern_status model_prepare(const char *dir, const tern_model_options *options, const prepared_watch *watch,
                          prepared_report *report, char **path, tern_error *err)
{
  tern_model_options o = *options;
  prepared_place place = {0};
  model *m;
  o.prepare = TERN_PREPARE_NEVER;
  o.mlock = false; /* what is locked is what steps read later, not what is read here */
  TRY(model_open(dir, &o, true, &m, err));
  tern_status status = check_prepare(m, &o, err);
  if (status == TERN_OK)
    status = prepared_find_place(o.prepared_dir, m->ckpt, m->cx.backend->layout, &place, err);
  if (status == TERN_OK)
    status = make_prepared(m, &o, &place, watch, report, err);
  if (status == TERN_OK)
    *path = place.path;
  else
    mem_free(place.path);
  model_close(m);
  return status;
}

/* ---- what steps read ---- */

/* Whether a product reads part of the tensor from the prepared file instead. */
static bool is_prepared(const matrix_list *l, const st_tensor *t)
{
  for (size_t i = 0; i < l->n; i++) {
    const ops_weight *w = l->items[i];
    const uint8_t *parts[] = {w->data, w->scales, w->biases};
    for (int p = 0; w->packed && p < 3; p++)
      if ((uintptr_t)parts[p] >= (uintptr_t)t->data && (uintptr_t)parts[p] < (uintptr_t)t->data + t->bytes)
        return true;
  }
  return false;
}

/* Whether rows of the embedding, which every token looks up, lie in the tensor. */
static bool is_table(const ops_weight *embed, const st_tensor *t)
{
  return embed->data == t->data || embed->scales == t->data || embed->biases == t->data;
}

size_t model_weight_bytes(model *m)
{
  matrix_list l = {0};
  if (!m->prepared)
    return ckpt_bytes(m->ckpt);
  size_t bytes = prepared_bytes(m->prepared);
  tern_status status = weights_each_product(&m->weights, m->config.layers, list_matrix, &l, NULL);
  for (size_t i = 0; i < ckpt_count(m->ckpt); i++)
    if (status != TERN_OK || !is_prepared(&l, ckpt_at(m->ckpt, i)))
      bytes += ckpt_at(m->ckpt, i)->bytes;
  mem_free(l.items);
  return bytes;
}

/* All that is read in a step, and each matrix once. */
tern_status model_lock(model *m, tern_error *err)
{
  matrix_list l = {0};
  if (!m->prepared)
    return ckpt_lock(m->ckpt, err);
  tern_status status = prepared_lock(m->prepared, err);
  if (status == TERN_OK)
    status = weights_each_product(&m->weights, m->config.layers, list_matrix, &l, err);
  for (size_t i = 0; i < ckpt_count(m->ckpt) && status == TERN_OK; i++)
    if (!is_prepared(&l, ckpt_at(m->ckpt, i)) || is_table(&m->weights.embed, ckpt_at(m->ckpt, i)))
      status = ckpt_lock_tensor(m->ckpt, ckpt_at(m->ckpt, i), err);
  mem_free(l.items);
  return status;
}
