/* fast_linear.h - matrix products of numerics fast at one SIMD level; fast_linear_LEVEL.c compiles it. Bits are those
 * of fast_ref/fast.h.
 *
 * Affine matrices multiply integers: the inputs of the step are quantised once (fast_inputs.h), then each worker walks
 * its outputs by parts of FAST_PART inputs (fast_pairs.h, fast_quads.h). A few tokens go straight from the words of the
 * prepared layout to the sums; more of them, and the last rows of a matrix, by a tile of pairs that is expanded once a
 * part. Without the layout the words of a part are transposed into a buffer of the same form first, and all else is
 * equal.
 *
 * Dense matrices and the fp modes expand tiles of floats (weights.h) and multiply them, fused (fast_floats.h). Ternary
 * ones are exact's.
 *
 * Parts add up the same way everywhere: into a slice, slices into the total, both in float32 memory. Work is shared by
 * outputs.
 */
#ifndef TERN_OPS_CPU_FAST_LINEAR_H
#define TERN_OPS_CPU_FAST_LINEAR_H

#include "ops/cpu/fast_floats.h"
#include "ops/cpu/fast_part.h"

#if CPU_DOTPROD
#include "ops/cpu/fast_quads.h"
#else
#include "ops/cpu/fast_pairs.h"
#endif

#include "ops/cpu/fast_inputs.h"

#if CPU_I8MM
#define FAST_NAME(name) name##_i8mm
#elif CPU_DOTPROD
#define FAST_NAME(name) name##_dotprod
#elif CPU_LEVEL == 2 && CPU_VNNI
#define FAST_NAME(name) name##_avx512vnni
#elif CPU_LEVEL == 1 && CPU_VNNI
#define FAST_NAME(name) name##_avxvnni
#else
#define FAST_NAME(name) CPU_NAME(name)
#endif

/* A part's words as the kernels have them, at every width and number of vectors. */
static void expand_tile(int bits, int nv, const fast_part *p, uint32_t *tile)
{
#define WIDTH(bits)                                                                                                    \
  case bits:                                                                                                           \
    if (nv == 2)                                                                                                       \
      expand_part(bits, 2, p, tile);                                                                                   \
    else                                                                                                               \
      expand_part(bits, 1, p, tile);                                                                                   \
    break;
  switch (bits) {
    WIDTH(2)
    WIDTH(3)
    WIDTH(4)
    WIDTH(5)
    WIDTH(6)
    WIDTH(8)
  }
#undef WIDTH
}

enum {
  SUM_TOKENS = 192, /* whose sums wait side by side */
  SUM_FLOATS = SUM_TOKENS * TILE_VECTORS * VW,
  PART_WORDS = FAST_PART / 4, /* of a row at most */
  /* Products a cycle, about. */
  SPEED = CPU_LEVEL == 0 ? 4 : VW * (CPU_VNNI || CPU_DOTPROD ? 2 : 1) + 4,
};

typedef struct fast_job {
  const struct op_linear *a;
  fast_inputs in;
  int kind[3];       /* of the inputs that matrix i wants */
  int first, tokens; /* of the step, that `in` holds */
  int unit;          /* outputs of the least share of work */
} fast_job;

/* ---- sums ---- */

typedef struct fast_sums {
  _Alignas(64) float slice[SUM_FLOATS], total[SUM_FLOATS];
} fast_sums;

/* Whether part p is the last of its slice. */
static bool ends_slice(int64_t k, int64_t p)
{
  return (p + 1) % fast_slice(k) == 0 || p + 1 == fast_parts(k);
}

static void close_slice(fast_sums *s, int vectors)
{
  for (int i = 0; i < vectors * VW; i += VW) {
    v_store(s->total + i, v_load(s->total + i) + v_load(s->slice + i));
    v_store(s->slice + i, v_set(0));
  }
}

/* Rows [t0, t0 + tokens) of outputs [n0, n0 + nv * VW) of matrix i: y = residual + (total + bias). */
static void fast_finish(const fast_job *job, int i, int t0, int tokens, int64_t n0, int nv, const float *total)
{
  const struct op_linear *a = job->a;
  for (int t = 0; t < tokens; t++) {
    for (int v = 0; v < nv; v++, total += VW) {
      int64_t n = n0 + v * VW, left = a->w[i]->n - n, at = (job->first + t0 + t) * a->w[i]->n + n;
      const float *bias = a->bias[i] ? a->bias[i] + n : NULL,
                  *residual = i == 0 && a->residual ? a->residual + at : NULL;
      float *y = a->y[i] + at;
      if (left >= VW) {
        vf x = v_load(total);
        x = bias ? x + v_load(bias) : x;
        v_store(y, residual ? v_load(residual) + x : x);
        continue;
      }
      for (int64_t lane = 0; lane < left; lane++) {
        float x = bias ? total[lane] + bias[lane] : total[lane];
        y[lane] = residual ? residual[lane] + x : x;
      }
    }
  }
}

/* ---- affine ---- */

/* A part of outputs from the mapping, in the form of the prepared layout. */
typedef struct part_buffer {
  _Alignas(64) uint32_t words[PART_WORDS * MOST_ROWS];
  _Alignas(64) float scales[PART_GROUPS * MOST_ROWS], biases[PART_GROUPS * MOST_ROWS];
} part_buffer;

/* `ahead`: the bytes of the rows behind, fetched meanwhile. */
static fast_part transposed(const ops_weight *w, const tile_rows *rows, int64_t k0, int count, int nv,
                            const uint8_t **ahead, part_buffer *b)
{
  const int words = count * w->bits / 32, groups = count / w->group;
  int64_t offset = k0 * w->bits / 8;
  for (int v = 0; v < nv; v++) {
    for (int i = 0; i < words; i += TILE_WORDS) {
      vu word[TILE_WORDS];
      int some = words - i < TILE_WORDS ? words - i : TILE_WORDS;
      load_tile_words(rows->data + v * VW, offset + i * 4, (words - i) * 4, word);
      for (int line = 0; line < some * 4 * VW; line += 64, *ahead += 64)
        __builtin_prefetch(*ahead, 0, 2);
      for (int j = 0; j < some; j++)
        *(vu_any *)(b->words + ((i + j) * nv + v) * VW) = word[j];
    }
  }
  widen_biases(w, rows->scales, k0 / w->group, groups, nv, b->scales);
  widen_biases(w, rows->biases, k0 / w->group, groups, nv, b->biases);
  int64_t line = nv * 4 * VW;
  return (fast_part){.scales = (const uint8_t *)b->scales,
                     .biases = (const uint8_t *)b->biases,
                     .words = (const uint8_t *)b->words,
                     .scale_step = line,
                     .word_step = w->group * w->bits / 32 * line,
                     .line = line,
                     .stored = DT_F32,
                     .groups = groups,
                     .units = w->group / UNIT,
                     .unit_words = w->bits};
}

#if CPU_LEVEL > 0
static fast_part prepared(const ops_weight *w, const layout_place *at, int64_t k0, int count)
{
  int64_t size = layout_scale_bytes(w), line = at->blocks * LAYOUT_BLOCK * 4,
          group = at->blocks * layout_group_bytes(w);
  const uint8_t *g = at->group + k0 / w->group * group;
  return (fast_part){.scales = g + at->row * size,
                     .biases = g + (at->blocks * LAYOUT_BLOCK + at->row) * size,
                     .words = g + 2 * at->blocks * LAYOUT_BLOCK * size + at->row * 4,
                     .scale_step = group,
                     .word_step = group,
                     .line = line,
                     .stored = w->stored,
                     .groups = count / w->group,
                     .units = w->group / UNIT,
                     .unit_words = w->bits};
}
#endif

static bool has_prepared(const ops_weight *w)
{
  return CPU_LEVEL > 0 && w->packed;
}

/* The slices of outputs for tokens from t0 on, with part p of them. */
static void add_part(const fast_job *job, int64_t p, int t0, int tokens, int nv, const float *part, fast_sums *s)
{
  const float *steps = job->in.steps + p * job->tokens + t0;
  float *slice = s->slice;
  for (int t = 0; t < tokens; t++) {
    vf step = v_set(steps[t]);
    for (int v = 0; v < nv; v++, part += VW, slice += VW)
      v_store(slice, v_fma(step, v_load(part), v_load(slice)));
  }
}

/* Rows [t0, t0 + tokens) of outputs [n0, n0 + nv * VW) of matrix i, which lie in one panel; direct, or by tiles. */
static void affine(const fast_job *job, int i, int t0, int tokens, int64_t n0, int nv, bool directly)
{
  const ops_weight *w = job->a->w[i];
  const arrangement *in = &job->in.kind[job->kind[i]];
  const uint8_t *ahead = NULL;
  _Alignas(64) uint32_t tile[FAST_PART / 2 * TILE_VECTORS * VW];
  _Alignas(64) float part[SUM_FLOATS];
  part_buffer buffer;
  fast_sums s;
  tile_rows rows;
  memset(s.slice, 0, (size_t)(tokens * nv * VW) * sizeof(float));
  memset(s.total, 0, (size_t)(tokens * nv * VW) * sizeof(float));
#if CPU_LEVEL > 0
  layout_place place;
  if (has_prepared(w))
    place = layout_find(w, n0);
  else
#endif
  {
    find_rows(w, n0, nv * VW, &rows);
    ahead = w->data + (n0 + nv * VW) * row_bytes(w);
  }
  for (int64_t p = 0, k0 = 0; k0 < w->k; p++, k0 += FAST_PART) {
    int count = w->k - k0 < FAST_PART ? (int)(w->k - k0) : FAST_PART;
    int64_t at = p * job->tokens + t0;
#if CPU_LEVEL > 0
    fast_part view =
        has_prepared(w) ? prepared(w, &place, k0, count) : transposed(w, &rows, k0, count, nv, &ahead, &buffer);
#else
    fast_part view = transposed(w, &rows, k0, count, nv, &ahead, &buffer);
#endif
    const int16_t *codes = in->codes + at * FAST_PART;
    const float *sums = in->sums + at * PART_GROUPS;
    if (directly) {
      directs(w->bits, tokens, &view, codes, sums, part);
    } else {
      expand_tile(w->bits, nv, &view, tile);
      tile_products(tokens, nv, tile, &view, codes, sums,
                    has_prepared(w) ? view.words + view.groups * view.word_step : NULL, part);
    }
    add_part(job, p, t0, tokens, nv, part, &s);
    if (ends_slice(w->k, p))
      close_slice(&s, tokens * nv);
  }
  fast_finish(job, i, t0, tokens, n0, nv, s.total);
}

/* ---- dense and fp modes ---- */

static void add_floats(const fast_job *job, int i, int64_t k0, int vectors, float *part, fast_sums *s)
{
  for (int j = 0; j < vectors * VW; j += VW) {
    v_store(s->slice + j, v_load(s->slice + j) + v_load(part + j));
    v_store(part + j, v_set(0));
  }
  if (ends_slice(job->a->w[i]->k, k0 / FAST_PART))
    close_slice(s, vectors);
}

/* Outputs [n0, n0 + ONE_VECTORS * VW) of matrix i for the only token. */
static void floats_of_one(const fast_job *job, int i, int64_t n0)
{
  const ops_weight *w = job->a->w[i];
  const float *x = job->a->x + job->first * w->k;
  const uint8_t *ahead = w->data + (n0 + ONE_VECTORS * VW) * row_bytes(w);
  float part[ONE_VECTORS * VW];
  fast_sums s;
  tile_rows rows;
  find_rows(w, n0, ONE_VECTORS * VW, &rows);
  memset(s.slice, 0, sizeof part);
  memset(s.total, 0, sizeof part);
  for (int64_t k0 = 0; k0 < w->k; k0 += FAST_PART) {
    float_one(w, &rows, k0, w->k - k0 < FAST_PART ? (int)(w->k - k0) : FAST_PART, x + k0, &ahead, part);
    add_floats(job, i, k0, ONE_VECTORS, part, &s);
  }
  fast_finish(job, i, 0, 1, n0, ONE_VECTORS, s.total);
}

static void floats(const fast_job *job, int i, int t0, int tokens, int64_t n0, int nv)
{
  const ops_weight *w = job->a->w[i];
  const float *x = job->a->x + (int64_t)(job->first + t0) * w->k;
  _Alignas(64) float tile[FLOATS_BLOCK * TILE_VECTORS * VW], part[SUM_FLOATS];
  float scales[FLOATS_GROUPS], unused[FLOATS_GROUPS];
  const size_t bytes = (size_t)(tokens * nv * VW) * sizeof(float);
  fast_sums s;
  tile_rows rows;
  find_rows(w, n0, nv * VW, &rows);
  memset(part, 0, bytes);
  memset(s.slice, 0, bytes);
  memset(s.total, 0, bytes);
  for (int64_t k0 = 0; k0 < w->k; k0 += FLOATS_BLOCK) {
    int count = w->k - k0 < FLOATS_BLOCK ? (int)(w->k - k0) : FLOATS_BLOCK;
    expand(nv, w, &rows, k0, count, scales, unused, tile);
    float_products(tokens, nv, tile, count, w->quant == Q_NONE ? 0 : w->group, x + k0, w->k, part, scales);
    if ((k0 + FLOATS_BLOCK) % FAST_PART == 0 || k0 + FLOATS_BLOCK >= w->k)
      add_floats(job, i, k0, tokens * nv, part, &s);
  }
  fast_finish(job, i, t0, tokens, n0, nv, s.total);
}

/* ---- sharing ---- */

/* Outputs [begin, end) of matrix i. */
static void fast_outputs(const fast_job *job, int i, int64_t begin, int64_t end)
{
  const ops_weight *w = job->a->w[i];
  const int tokens = job->tokens, wide = DIRECT_VECTORS(tokens);
  for (int64_t n = begin; n < end;) {
    int64_t left = end - n, in_panel = LAYOUT_PANEL - n % LAYOUT_PANEL;
    bool directly = w->quant == Q_AFFINE && tokens <= most_direct(w->bits) && left >= wide * VW;
    if (has_prepared(w))
      directly = directly && in_panel >= wide * VW && layout_blocks(w) * LAYOUT_BLOCK - n >= wide * VW;
    int nv = directly ? wide : left > VW && in_panel > VW ? 2 : 1;
    if (w->quant != Q_AFFINE && tokens == 1) {
      nv = ONE_VECTORS;
      floats_of_one(job, i, n);
    } else {
      for (int t = 0; t < tokens; t += SUM_TOKENS) {
        int some = tokens - t < SUM_TOKENS ? tokens - t : SUM_TOKENS;
        if (w->quant == Q_AFFINE)
          affine(job, i, t, some, n, nv, directly);
        else
          floats(job, i, t, some, n, nv);
      }
    }
    n += nv * VW;
  }
}

static int64_t fast_units(const fast_job *job, int i)
{
  const ops_weight *w = job->a->w[i];
  return w->quant == Q_TERNARY ? 0 : (w->n + job->unit - 1) / job->unit;
}

static void fast_share(void *user, int share, int shares)
{
  const fast_job *job = user;
  int64_t units = 0, before = 0;
  for (int i = 0; i < job->a->outputs; i++)
    units += fast_units(job, i);
  size_t begin, end;
  pool_share((size_t)units, 1, share, shares, &begin, &end);
  for (int i = 0; i < job->a->outputs; i++) {
    int64_t first = (int64_t)begin - before, last = (int64_t)end - before, own = fast_units(job, i);
    before += own;
    first = first > 0 ? first * job->unit : 0;
    last = last < own ? last * job->unit : job->a->w[i]->n;
    if (own && first < last)
      fast_outputs(job, i, first, last);
  }
}

void FAST_NAME(cpu_fast_linear)(ops_context *cx, const op_record *record, const ops_step *step)
{
  const struct op_linear *a = &record->linear;
  fast_job job = {.a = a, .in = {.k = a->w[0]->k}};
  int tokens = ops_extent(record, step), block = tokens;
  int64_t weights = 0;
  for (int i = 0; i < a->outputs; i++) {
    if (a->w[i]->quant == Q_AFFINE)
      job.kind[i] = add_kind(&job.in, a->w[i]);
    if (a->w[i]->quant == Q_TERNARY) {
      op_record exact = ops_linear_alone(record, i);
      CPU_NAME(cpu_linear)(cx, &exact, step);
      continue;
    }
    weights += a->w[i]->n * a->w[i]->k;
  }
  if (!weights)
    return;
  if (job.in.kinds) {
    size_t room = cx->scratch_bytes / cpu_fast_inputs_bytes(job.in.k, job.in.kinds);
    block = room < (size_t)tokens ? (int)room : tokens;
  }
  for (int t = 0; t < tokens; t += block) {
    job.first = t;
    job.tokens = tokens - t < block ? tokens - t : block;
    job.unit = job.tokens == 1 ? LAYOUT_PANEL : TILE_VECTORS * VW; /* whole steps of fast_outputs */
    for (int i = 0; i < a->outputs; i++)
      if (a->w[i]->quant == Q_AFFINE && job.tokens <= most_direct(a->w[i]->bits))
        job.unit = LAYOUT_PANEL;
    if (job.in.kinds)
      quantise_inputs(cx, &job.in, a->x + t * job.in.k, job.tokens);
    cpu_run(cx, weights * job.tokens / SPEED, fast_share, &job);
  }
}

#endif
