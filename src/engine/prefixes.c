/* prefixes.c - see prefixes.h. The list is short, so finding the best one is a walk over it. */
#include "engine/prefixes.h"

#include <string.h>

#include "base/mem.h"

typedef struct kept {
  kv_seq *state, *snapshot; /* snapshot: NULL where the model needs none */
  int32_t *ids;             /* [length] */
  int64_t length, split;
  size_t bytes;
} kept;

struct prefixes {
  model *m;
  int64_t sensitive;
  size_t most_bytes, bytes;
  int most, n;
  kept *at; /* [most], used longest ago first */
};

tern_status prefixes_open(model *m, int most, size_t most_bytes, prefixes **out, tern_error *err)
{
  prefixes *p = mem_zalloc(sizeof *p);
  kept *at = mem_array((size_t)most, sizeof *at);
  if (!p || !at) {
    mem_free(p);
    mem_free(at);
    return err_nomem(err, "prefixes");
  }
  *p = (prefixes){.m = m, .sensitive = model_sensitive_from(m), .most_bytes = most_bytes, .most = most, .at = at};
  *out = p;
  return TERN_OK;
}

static void clear(kept *k)
{
  kv_seq_close(k->state);
  kv_seq_close(k->snapshot);
  mem_free(k->ids);
  *k = (kept){0};
}

void prefixes_close(prefixes *p)
{
  if (!p)
    return;
  for (int i = 0; i < p->n; i++)
    clear(&p->at[i]);
  mem_free(p->at);
  mem_free(p);
}

static void remove_at(prefixes *p, int i)
{
  p->bytes -= p->at[i].bytes;
  clear(&p->at[i]);
  p->n--;
  memmove(&p->at[i], &p->at[i + 1], (size_t)(p->n - i) * sizeof *p->at);
}

bool prefixes_forget_one(prefixes *p)
{
  if (!p->n)
    return false;
  remove_at(p, 0);
  return true;
}

size_t prefixes_bytes(const prefixes *p)
{
  return p->bytes;
}

int prefixes_count(const prefixes *p)
{
  return p->n;
}

int prefixes_most(const prefixes *p)
{
  return p->most;
}

size_t prefixes_most_bytes(const prefixes *p)
{
  return p->most_bytes;
}

prefix_of prefixes_at(const prefixes *p, int i)
{
  const kept *k = &p->at[i];
  return (prefix_of){.state = k->state,
                     .snapshot = k->snapshot,
                     .prompt = k->ids,
                     .n = k->length,
                     .length = k->length,
                     .split = k->split};
}

/* ---- reuse ---- */

static int64_t common(const kept *k, const int32_t *ids, int64_t n)
{
  int64_t most = k->length < n ? k->length : n, i = 0;
  while (i < most && k->ids[i] == ids[i])
    i++;
  return i;
}

/* How much of `ids` it may serve; *from: which of its states does. session.c's cut_to_reusable has the same rules. */
static int64_t reusable(const prefixes *p, const kept *k, const int32_t *ids, int64_t split, const kv_seq **from)
{
  int64_t length = common(k, ids, split), first_other = k->split > p->sensitive ? k->split : p->sensitive;
  length = length < first_other ? length : first_other;
  *from = k->state;
  if (kv_seq_can_resume(k->state, length))
    return length;
  *from = k->snapshot;
  length = length < k->split ? length : k->split;
  return k->snapshot && kv_seq_can_resume(k->snapshot, length) ? length : 0;
}

static void use(prefixes *p, int i)
{
  kept k = p->at[i];
  memmove(&p->at[i], &p->at[i + 1], (size_t)(p->n - 1 - i) * sizeof k);
  p->at[p->n - 1] = k;
}

int64_t prefixes_resume(prefixes *p, kv_seq *state, const int32_t *ids, int64_t split)
{
  int64_t best = 0;
  int which = -1;
  const kv_seq *from = NULL, *one;
  for (int i = 0; i < p->n; i++) {
    int64_t length = reusable(p, &p->at[i], ids, split, &one);
    if (length > best) {
      best = length;
      which = i;
      from = one;
    }
  }
  if (which < 0 || kv_seq_clone(state, from, NULL) != TERN_OK)
    return 0;
  kv_seq_truncate(state, best);
  use(p, which);
  return best;
}

/* ---- keeping ---- */

/* Whether one that is there has all of it: then it is fresher, and that is all. */
static bool is_there(prefixes *p, const kept *k)
{
  for (int i = 0; i < p->n; i++)
    if (p->at[i].split == k->split && common(&p->at[i], k->ids, k->length) == k->length) {
      use(p, i);
      return true;
    }
  return false;
}

/* What begins the new one: its conversation went on. */
static void drop_beginnings(prefixes *p, const kept *k)
{
  for (int i = p->n - 1; i >= 0; i--)
    if (common(&p->at[i], k->ids, k->length) == p->at[i].length)
      remove_at(p, i);
}

static bool copy(const prefixes *p, const prefix_of *of, kept *k)
{
  int64_t in_prompt = of->length < of->n ? of->length : of->n;
  k->length = of->length;
  k->split = of->split;
  k->bytes = kv_store_estimate(p->m->store, of->length, 1) * (of->snapshot ? 2 : 1);
  k->ids = mem_array((size_t)of->length, sizeof *k->ids);
  if (!k->ids)
    return false;
  memcpy(k->ids, of->prompt, (size_t)in_prompt * sizeof *k->ids);
  if (of->length > in_prompt)
    memcpy(k->ids + in_prompt, of->more, (size_t)(of->length - in_prompt) * sizeof *k->ids);
  if (kv_seq_open(p->m->store, &k->state, NULL) || kv_seq_clone(k->state, of->state, NULL))
    return false;
  if (!of->snapshot)
    return true;
  return !kv_seq_open(p->m->store, &k->snapshot, NULL) && !kv_seq_clone(k->snapshot, of->snapshot, NULL);
}

void prefixes_keep(prefixes *p, const prefix_of *of)
{
  kept k = {0};
  if (!p->most || of->length < 1)
    return;
  if (!copy(p, of, &k) || k.bytes > p->most_bytes || is_there(p, &k)) {
    clear(&k);
    return;
  }
  drop_beginnings(p, &k);
  while (p->n && (p->n == p->most || p->bytes + k.bytes > p->most_bytes))
    prefixes_forget_one(p);
  p->bytes += k.bytes;
  p->at[p->n++] = k;
}
