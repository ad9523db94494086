/* fast_attention.c - keys and values in float16, and attention in chunks, one head of one token after another. fast.h
 * has the formulas. */
#include <math.h>

#include "ops/fast_ref/fast.h"
#include "ops/ref/ref_kv.h"
#include "ops/visible.h"

/* ---- blocks ---- */

size_t fast_kv_block_bytes(const ops_kv_shape *s)
{
  if (s->quant.bits)
    return ref_kv_block_bytes(s);
  return (size_t)s->kv_heads * KV_BLOCK * (size_t)(s->key_dim + s->value_dim) * sizeof(uint16_t);
}

void fast_append_row(const struct op_kv_append *a, const ops_row *row, int t, int h)
{
  int64_t position = row->position + t, token = row->first + t;
  uint16_t *block = row->slots[a->slot].blocks[position / KV_BLOCK];
  int i = (int)(position % KV_BLOCK);
  if (ops_quantised(&a->quant, row)) {
    ref_append_row(a, row, t, h);
    return;
  }
  const float *k = a->k + (token * a->kv_heads + h) * a->key_dim;
  const float *v = a->v + (token * a->kv_heads + h) * a->value_dim;
  uint16_t *key = block + ref_block_key(h, a->key_dim, i);
  uint16_t *value = block + ref_block_value(a->kv_heads, a->key_dim, h, a->value_dim, i);
  for (int e = 0; e < a->key_dim; e++)
    key[(size_t)e * KV_BLOCK] = fast_half(k[e]);
  for (int e = 0; e < a->value_dim; e++)
    value[e] = fast_half(v[e]);
}

void fast_kv_append(ops_context *cx, const op_record *record, const ops_step *step)
{
  (void)cx;
  const struct op_kv_append *a = &record->kv_append;
  for (int r = 0; r < step->rows; r++)
    for (int t = 0; t < step->row[r].count; t++)
      for (int h = 0; h < a->kv_heads; h++)
        fast_append_row(a, &step->row[r], t, h);
}

/* A row at a time, through the scratch: this runs once in the life of a block. */
void fast_kv_quantise(ops_context *cx, const ops_kv_shape *s, const void *plain, void *quantised, int count)
{
  const uint16_t *from = plain;
  const ops_kv_quant *q = &s->quant;
  float *row = cx->scratch;
  for (int h = 0; h < s->kv_heads; h++) {
    ref_packed keys = ref_packed_keys(q, quantised, h, s->key_dim);
    ref_packed values = ref_packed_values(q, quantised, s->kv_heads, s->key_dim, h, s->value_dim);
    for (int i = 0; i < count; i++) {
      for (int e = 0; e < s->key_dim; e++)
        row[e] = f16_to_f32(from[ref_block_key(h, s->key_dim, i) + (size_t)e * KV_BLOCK]);
      ref_pack_key(q, keys, i, row, 1);
      for (int e = 0; e < s->value_dim; e++)
        row[e] = f16_to_f32(from[ref_block_value(s->kv_heads, s->key_dim, h, s->value_dim, i) + (size_t)e]);
      ref_pack_value(q, values, i, row);
    }
  }
}

/* ---- one head of one token ---- */

typedef struct query {
  const struct op_attention *a;
  const ops_kv_view *kv;
  const float *q; /* [key_dim] */
  int head, kv_head;
  int64_t position;
  ops_range ranges[VISIBLE_MOST];
  int n_ranges;
} query;

static bool sees(const query *at, int64_t p)
{
  bool in = false;
  for (int r = 0; r < at->n_ranges; r++)
    in = in || (p >= at->ranges[r].first && p < at->ranges[r].first + at->ranges[r].count);
  return in && ref_sees(at->a, at->head, at->position, p);
}

static float score(const query *at, int64_t p)
{
  const struct op_attention *a = at->a;
  const uint16_t *key =
      (const uint16_t *)at->kv->blocks[p / KV_BLOCK] + ref_block_key(at->kv_head, a->key_dim, (int)(p % KV_BLOCK));
  float sum = 0;
  for (int e = 0; e < a->key_dim; e++)
    sum = fmaf(a->scale * at->q[e], f16_to_f32(key[(size_t)e * KV_BLOCK]), sum);
  return a->softcap != 0 ? ref_cap(DT_F32, a->softcap, sum) : sum;
}

/* What a chunk, or several joined ones, come to: most, sum, out [value_dim]. */
typedef struct part {
  float most, sum, *out;
} part;

/* The sum of terms by lanes: term[j] is position j's of the chunk, 0 where it is not seen. */
static float fold(const float *term)
{
  float lane[FAST_LANES] = {0};
  for (int j = 0; j < FAST_CHUNK; j++)
    lane[j % FAST_LANES] += term[j];
  for (int half = FAST_LANES / 2; half; half /= 2)
    for (int i = 0; i < half; i++)
      lane[i] += lane[i + half];
  return lane[0];
}

/* False: no key of the chunk from position `first` on is seen. */
static bool chunk(const query *at, int64_t first, part *c)
{
  const struct op_attention *a = at->a;
  float term[FAST_CHUNK];
  bool seen[FAST_CHUNK], any = false;
  for (int j = 0; j < FAST_CHUNK; j++) {
    seen[j] = sees(at, first + j);
    if (!seen[j])
      continue;
    term[j] = score(at, first + j);
    c->most = any && !(term[j] > c->most) ? c->most : term[j];
    any = true;
  }
  if (!any)
    return false;
  memset(c->out, 0, (size_t)a->value_dim * sizeof *c->out);
  for (int j = 0; j < FAST_CHUNK; j++) {
    term[j] = seen[j] ? math_exp(term[j] - c->most) : 0;
    if (!seen[j])
      continue;
    int64_t p = first + j;
    const uint16_t *value = (const uint16_t *)at->kv->blocks[p / KV_BLOCK] +
                            ref_block_value(a->kv_heads, a->key_dim, at->kv_head, a->value_dim, (int)(p % KV_BLOCK));
    for (int e = 0; e < a->value_dim; e++)
      c->out[e] = fmaf(term[j], f16_to_f32(value[e]), c->out[e]);
  }
  c->sum = fold(term);
  return true;
}

static void join(part *all, const part *c, int dims)
{
  float most = c->most > all->most ? c->most : all->most;
  float a = math_exp(all->most - most), b = math_exp(c->most - most);
  all->most = most;
  all->sum = fmaf(all->sum, a, c->sum * b);
  for (int e = 0; e < dims; e++)
    all->out[e] = fmaf(all->out[e], a, c->out[e] * b);
}

static void attend(const query *at, float *scratch, float *out)
{
  int dims = at->a->value_dim;
  part all = {.out = out};
  bool any = false;
  for (int64_t first = 0; first <= at->position; first += FAST_CHUNK) {
    part c = {.out = any ? scratch : out};
    if (!chunk(at, first, &c))
      continue;
    if (any)
      join(&all, &c, dims);
    else
      all = c;
    any = true;
  }
  float reciprocal = 1.0f / all.sum;
  for (int e = 0; e < dims; e++)
    out[e] *= reciprocal;
}

/* The row's part of the record, over quantised keys and values. */
static void attend_quantised(ops_context *cx, const op_record *record, const ops_step *step, int r)
{
  ops_step alone = *step;
  alone.row = &step->row[r];
  alone.rows = 1;
  ref_attention(cx, record, &alone);
}

void fast_attention(ops_context *cx, const op_record *record, const ops_step *step)
{
  const struct op_attention *a = &record->attention;
  int repeats = a->heads / a->kv_heads;
  for (int r = 0; r < step->rows; r++) {
    const ops_row *row = &step->row[r];
    if (ops_quantised(&a->quant, row)) {
      attend_quantised(cx, record, step, r);
      continue;
    }
    for (int t = 0; t < row->count; t++) {
      for (int h = 0; h < a->heads; h++) {
        int64_t token = (int64_t)(row->first + t) * a->heads + h;
        query at = {.a = a,
                    .kv = &row->slots[a->slot],
                    .q = a->q + token * a->key_dim,
                    .head = h,
                    .kv_head = h / repeats,
                    .position = row->position + t};
        at.n_ranges =
            ops_visible(a->window, a->keep, at.position, row->split, a->by_time ? ROW_READ : row->kind, at.ranges);
        attend(&at, cx->scratch, a->out + token * a->value_dim);
      }
    }
  }
}
