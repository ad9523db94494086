/* cpu.h - what the files of the cpu backend share: the kernels of each level, and handing work to the pool.
 *
 * The backend computes numerics `exact` (DT_F32 everywhere) with the reference's bits at every SIMD level, and `fast`
 * with those of fast_ref. In exact, a record of another type goes to the reference: the fp modes give one such record,
 * their embedding.
 */
#ifndef TERN_OPS_CPU_CPU_H
#define TERN_OPS_CPU_CPU_H

#include "ops/fast_ref/fast.h"
#include "ops/ops.h"

/* The ops that numerics exact has kernels of its own for, at every level. */
#define CPU_PRODUCTS(KERNEL, level)                                                                                    \
  KERNEL(linear, level)                                                                                                \
  KERNEL(rms_norm, level)                                                                                              \
  KERNEL(layer_norm, level)                                                                                            \
  KERNEL(kv_append, level)                                                                                             \
  KERNEL(attention, level)

/* Those of numerics fast, at every level. */
#define CPU_FAST(KERNEL, level)                                                                                        \
  KERNEL(rms_norm, level)                                                                                              \
  KERNEL(layer_norm, level)                                                                                            \
  KERNEL(kv_append, level)                                                                                             \
  KERNEL(attention, level)

/* Those whose kernels both share. */
#define CPU_ROWWISE(KERNEL, level)                                                                                     \
  KERNEL(rope, level)                                                                                                  \
  KERNEL(temperature, level)                                                                                           \
  KERNEL(act, level)                                                                                                   \
  KERNEL(glu, level)                                                                                                   \
  KERNEL(scale, level)                                                                                                 \
  KERNEL(softcap, level)                                                                                               \
  KERNEL(add, level)

/* Table entries for those that every level shares (copies.c). */
#define CPU_SHARED [OP_embed] = cpu_embed, [OP_regroup] = cpu_regroup, [OP_select] = cpu_select
ops_fn cpu_embed, cpu_regroup, cpu_select;

#define CPU_DECLARE(op, level) ops_fn cpu_##op##_##level;
#define CPU_DECLARE_FAST(op, level) ops_fn cpu_fast_##op##_##level;
CPU_PRODUCTS(CPU_DECLARE, baseline)
CPU_FAST(CPU_DECLARE_FAST, baseline)
CPU_ROWWISE(CPU_DECLARE, baseline)
#if defined(__x86_64__)
CPU_PRODUCTS(CPU_DECLARE, avx2)
CPU_FAST(CPU_DECLARE_FAST, avx2)
CPU_ROWWISE(CPU_DECLARE, avx2)
CPU_PRODUCTS(CPU_DECLARE, avx512)
CPU_FAST(CPU_DECLARE_FAST, avx512)
CPU_ROWWISE(CPU_DECLARE, avx512)
#elif defined(__aarch64__)
CPU_PRODUCTS(CPU_DECLARE, neon)
CPU_FAST(CPU_DECLARE_FAST, neon)
CPU_ROWWISE(CPU_DECLARE, neon)
#endif

/* Numerics fast: linear has levels of its own. */
ops_fn cpu_fast_linear_baseline, cpu_fast_linear_avx2, cpu_fast_linear_avxvnni, cpu_fast_linear_avx512,
    cpu_fast_linear_avx512vnni, cpu_fast_linear_neon, cpu_fast_linear_dotprod, cpu_fast_linear_i8mm;

enum { CPU_FAST_GROUPS = FAST_PART / 32 }; /* of weights in a part, at most */

/* Scratch for one token of k quantised inputs, laid out for matrices of so many kinds (fast_inputs.h): codes of 16 bits
 * and sums of groups, and a step a part. */
static inline size_t cpu_fast_inputs_bytes(int64_t k, int kinds)
{
  return (size_t)fast_parts(k) *
         ((size_t)kinds * (FAST_PART * sizeof(int16_t) + CPU_FAST_GROUPS * sizeof(float)) + sizeof(float));
}

/* Queries that attention carries at once, at most; reserve() makes room for their scores, a row each. */
enum { CPU_QUERIES = 4 };

/* Floats between two rows of scores for `keys` keys: whole blocks, and one to spare. */
static inline size_t cpu_scores_stride(int64_t keys)
{
  return ((size_t)keys / KV_BLOCK + 2) * KV_BLOCK;
}

static inline int cpu_workers(const ops_context *cx)
{
  return cx->workers ? pool_size(cx->workers) : 1;
}

/* What attention of numerics fast has in scratch, in floats: a desk for each worker, and room for parts that stand
 * between a chunk and their joining. */
enum {
  CPU_FAST_SET = 32,        /* queries that go together, at most */
  CPU_FAST_PART_HEAD = 16,  /* of a part, before its dims */
  CPU_FAST_PARTS = 1 << 18, /* all parts together */
};

/* Dims, rounded up to whole vectors of every level. */
static inline size_t cpu_fast_padded(int dims)
{
  return ((size_t)dims + 15) / 16 * 16;
}

static inline size_t cpu_fast_part(int value_dim)
{
  return CPU_FAST_PART_HEAD + cpu_fast_padded(value_dim);
}

/* A desk: queries, a block widened, terms, and two parts a query. */
static inline size_t cpu_fast_desk(int key_dim, int value_dim)
{
  size_t most = cpu_fast_padded(key_dim > value_dim ? key_dim : value_dim);
  return CPU_FAST_SET * cpu_fast_padded(key_dim) + KV_BLOCK * most + CPU_FAST_SET * (size_t)FAST_CHUNK +
         2 * CPU_FAST_SET * cpu_fast_part(value_dim);
}

static inline size_t cpu_fast_attention_floats(int dims, int workers)
{
  return (size_t)workers * cpu_fast_desk(dims, dims) + (workers > 1 ? CPU_FAST_PARTS : 0);
}

/* Shares that work of so many `cycles`, a rough estimate, is cut into: 1 where handing it over would cost more than it
 * gains, else a few for each worker, so that those who get on take what is left of one whose core is busy. A multiple
 * of the workers, so that all have as much to do. */
static inline int cpu_shares(const ops_context *cx, int64_t cycles)
{
  enum { LEAST_CYCLES = 20000, MOST_EACH = 8 };
  int64_t each = cycles / LEAST_CYCLES / cpu_workers(cx);
  if (!cx->workers || cycles <= LEAST_CYCLES)
    return 1;
  return cpu_workers(cx) * (int)(each < 1 ? 1 : each > MOST_EACH ? MOST_EACH : each);
}

static inline void cpu_run_shares(ops_context *cx, int shares, pool_fn *fn, void *user)
{
  if (shares > 1)
    pool_run_shares(cx->workers, shares, fn, user);
  else
    fn(user, 0, 1);
}

static inline void cpu_run(ops_context *cx, int64_t cycles, pool_fn *fn, void *user)
{
  cpu_run_shares(cx, cpu_shares(cx, cycles), fn, user);
}

#endif
