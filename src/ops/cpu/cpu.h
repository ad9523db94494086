/* cpu.h - what the files of the cpu backend share: the kernels of each level, and handing work to the pool.
 *
 * The backend computes numerics `exact` (DT_F32 everywhere) with the reference's bits at every SIMD level. A record of
 * another type goes to the reference: the fp modes give one such record, their embedding.
 */
#ifndef TERN_OPS_CPU_CPU_H
#define TERN_OPS_CPU_CPU_H

#include "ops/ops.h"

/* The ops that numerics exact and fast have kernels of their own for, at every level. */
#define CPU_PRODUCTS(KERNEL, level)                                                                                    \
  KERNEL(linear, level)                                                                                                \
  KERNEL(kv_append, level)                                                                                             \
  KERNEL(attention, level)

/* Those whose kernels both share. */
#define CPU_ROWWISE(KERNEL, level)                                                                                     \
  KERNEL(rms_norm, level)                                                                                              \
  KERNEL(layer_norm, level)                                                                                            \
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
CPU_PRODUCTS(CPU_DECLARE, baseline)
CPU_ROWWISE(CPU_DECLARE, baseline)
#if defined(__x86_64__)
CPU_PRODUCTS(CPU_DECLARE, avx2)
CPU_ROWWISE(CPU_DECLARE, avx2)
CPU_PRODUCTS(CPU_DECLARE, avx512)
CPU_ROWWISE(CPU_DECLARE, avx512)
#endif

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

/* Runs fn on all workers, or on this thread alone where the work is not worth the hand-over: `cycles` is a rough
 * estimate of all of it, and handing over costs some thousands. */
static inline void cpu_run(ops_context *cx, int64_t cycles, pool_fn *fn, void *user)
{
  if (cx->workers && cycles > 20000)
    pool_run(cx->workers, fn, user);
  else
    fn(user, 0, 1);
}

#endif
