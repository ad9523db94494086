/* fast_append.h - float16 in and out, and storing keys and values for numerics fast, at one SIMD level; compiled with
 * fast_attention.h. */
#ifndef TERN_OPS_CPU_FAST_APPEND_H
#define TERN_OPS_CPU_FAST_APPEND_H

#include "ops/cpu/cpu.h"
#include "ops/cpu/vec.h"
#include "ops/fast_ref/fast.h"
#include "ops/ref/ref.h"
#include "ops/ref/ref_kv.h"

INLINE vf load_half(const uint16_t *p)
{
#if CPU_LEVEL > 0
  return v_load_f16((const uint8_t *)p);
#else
  return v_from_f16((vu){p[0], p[1], p[2], p[3]});
#endif
}

/* fast_half of n values. The instruction keeps a NaN's payload, which the definition does not. */
static void store_halves(const float *x, int n, uint16_t *out)
{
  int e = 0;
#if CPU_LEVEL > 0
  for (; e + VW <= n; e += VW) {
    vf v = v_load(x + e);
    if (v_any(v_nan(v - v))) { /* infinities too */
      for (int i = e; i < e + VW; i++)
        out[i] = fast_half(x[i]);
      continue;
    }
    v = v_max(v_set(-65504.0f), v_min(v_set(65504.0f), v));
#if CPU_LEVEL == 2
    _mm256_storeu_si256((void *)(out + e), _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif CPU_LEVEL == 3
    vst1_u16(out + e, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v)));
#else
    _mm_storeu_si128((void *)(out + e), _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
#endif
  }
#endif
  for (; e < n; e++)
    out[e] = fast_half(x[e]);
}

typedef struct append_job {
  const struct op_kv_append *a;
  const ops_step *step;
} append_job;

/* Head h of token t of a row: its value is a row of the block, its key a column. */
static void append_plain(const struct op_kv_append *a, const ops_row *row, int t, int h)
{
  enum { PIECE = 128 };
  int64_t position = row->position + t, token = row->first + t;
  uint16_t *block = row->slots[a->slot].blocks[position / KV_BLOCK];
  int i = (int)(position % KV_BLOCK);
  const float *k = a->k + (token * a->kv_heads + h) * a->key_dim;
  const float *v = a->v + (token * a->kv_heads + h) * a->value_dim;
  uint16_t *key = block + ref_block_key(h, a->key_dim, i), halves[PIECE];
  for (int e = 0; e < a->key_dim; e += PIECE) {
    int n = a->key_dim - e < PIECE ? a->key_dim - e : PIECE;
    store_halves(k + e, n, halves);
    for (int j = 0; j < n; j++)
      key[(size_t)(e + j) * KV_BLOCK] = halves[j];
  }
  store_halves(v, a->value_dim, block + ref_block_value(a->kv_heads, a->key_dim, h, a->value_dim, i));
}

static void append_share(void *user, int share, int shares)
{
  const append_job *job = user;
  const struct op_kv_append *a = job->a;
  size_t begin, end;
  pool_share((size_t)a->kv_heads, 1, share, shares, &begin, &end);
  for (int r = 0; r < job->step->rows; r++) {
    const ops_row *row = &job->step->row[r];
    bool quantised = ops_quantised(&a->quant, row);
    for (int h = (int)begin; h < (int)end; h++)
      for (int t = 0; t < row->count; t++)
        if (quantised)
          ref_append_row(a, row, t, h);
        else
          append_plain(a, row, t, h);
  }
}

void CPU_NAME(cpu_fast_kv_append)(ops_context *cx, const op_record *record, const ops_step *step)
{
  const struct op_kv_append *a = &record->kv_append;
  append_job job = {a, step};
  int64_t cost = a->quant.bits ? 16 : 2; /* cycles a value */
  cpu_run(cx, cost * step->tokens * a->kv_heads * (a->key_dim + a->value_dim), append_share, &job);
}

#endif
