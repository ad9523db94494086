/* fit.c - see fit.h. */
#include "engine/fit.h"

#include <stdio.h>

#include "engine/session.h"

static size_t add(size_t a, size_t b)
{
  return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

static int piece_of(const model *m)
{
  int most = m->opened ? m->plan.max_tokens : model_max_tokens(&m->config);
  return m->prefill_step && m->prefill_step < most ? m->prefill_step : most;
}

/* Layers by window, in the order in which they come up. */
static void sort_kinds(const model *m, int piece, fit *f)
{
  for (int i = 0; i < m->plan.n_slots; i++) {
    int window = m->plan.slots[i].window, k = 0;
    while (k < f->n_kinds && f->kinds[k].window != window)
      k++;
    if (k == FIT_MOST_KINDS)
      k--;
    else if (k == f->n_kinds)
      f->kinds[f->n_kinds++] = (fit_kind){.window = window};
    f->kinds[k].layers++;
    f->kinds[k].token += kv_store_slot_token_bytes(m->store, i);
    f->kinds[k].bytes = add(f->kinds[k].bytes, kv_store_slot_estimate(m->store, i, f->context, piece));
  }
}

/* What a model takes beside its keys and values. */
static void add_parts(model *m, fit *f)
{
  f->weights = model_weight_bytes(m);
  f->owned = m->weights.owned_bytes;
  f->scratch = m->opened ? m->plan.memory_bytes + model_scratch_bytes(m, 1)
                         : plan_bytes_per_token(&m->config) * (size_t)piece_of(m);
}

static size_t with_context(const model *m, const fit *f, int context)
{
  return add(add(f->weights, f->owned), add(f->scratch, kv_store_estimate(m->store, context, piece_of(m))));
}

/* A model and the one that guesses for it: what they take together. */
typedef struct pair {
  const model *m, *draft; /* draft NULL: none */
  const fit *own, *drafts;
} pair;

static size_t draft_with_context(const pair *p, int context)
{
  return p->draft ? with_context(p->draft, p->drafts, context) : 0;
}

/* By halving: more positions never take less. */
static int largest_context(const pair *p, int most)
{
  int fits = 0, beyond = most + 1;
  while (beyond - fits > 1) {
    int middle = fits + (beyond - fits) / 2;
    if (add(with_context(p->m, p->own, middle), draft_with_context(p, middle)) <= p->own->room)
      fits = middle;
    else
      beyond = middle;
  }
  return fits;
}

static size_t held_by(const model *m)
{
  return m && m->opened ? m->plan.memory_bytes + m->weights.owned_bytes : 0;
}

void fit_of(model *m, model *draft, int context, fit *out)
{
  int piece = piece_of(m), own = session_default_context(&m->config);
  fit drafts = {0};
  const pair both = {m, draft, out, &drafts};
  *out = (fit){.context = context ? context : own};
  add_parts(m, out);
  if (draft)
    add_parts(draft, &drafts);
  out->kv_token = kv_store_token_bytes(m->store);
  out->kv = kv_store_estimate(m->store, out->context, piece);
  out->draft = draft_with_context(&both, out->context);
  out->total = add(with_context(m, out, out->context), out->draft);
  out->room = add(model_memory_available(m), held_by(m) + held_by(draft));
  out->largest = largest_context(&both, out->context > own ? out->context : own);
  sort_kinds(m, piece, out);
}

tern_status fit_check(model *m, model *draft, int context, tern_error *err)
{
  fit f;
  char beside[64] = "";
  if (m->cx.backend->own_memory) /* a device was asked when its weights were put there, and is at each reserve */
    return TERN_OK;
  fit_of(m, draft, context, &f);
  if (f.largest >= (context ? context : 1))
    return TERN_OK;
  if (draft)
    snprintf(beside, sizeof beside, ", the draft model %zu MB", f.draft >> 20);
  if (!f.largest)
    return err_set(
        err, TERN_E_LIMIT,
        "memory: weights need %zu MB (%zu of them copies), scratch %zu MB%s, and %zu MB are free: no context fits",
        add(f.weights, f.owned) >> 20, f.owned >> 20, f.scratch >> 20, beside, f.room >> 20);
  return err_set(err, TERN_E_LIMIT,
                 "memory: a context of %d needs %zu MB of keys and values (%zu bytes a token) beside %zu MB of weights "
                 "and %zu MB of scratch%s, and %zu MB are free: --ctx %d is the largest that fits",
                 f.context, f.kv >> 20, f.kv_token, add(f.weights, f.owned) >> 20, f.scratch >> 20, beside,
                 f.room >> 20, f.largest);
}
