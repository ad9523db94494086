/* fast.h - the arithmetic of numerics `fast`: what every backend that offers it must give, bit for bit.
 *
 * Four things differ from `exact`; every other op of the mode is exact's own.
 *
 * Affine matrices multiply integers. The input is quantised to 16 bits, in parts of FAST_PART values with one step each
 * (fast_quantise). The dot product of codes inside a group of the weights is a whole number, so its order means
 * nothing:
 *
 *     part = fma(scale, dot, part), then fma(bias, sum, part)     scale, bias of the group; sum of the input's codes
 *     slice = fma(step, part, slice)                              step: what one code of the input stands for
 *
 * in a tree that is a function of K alone: groups ascending in a part, from zero; parts ascending in a slice of
 * fast_slice(K) parts, from zero; slices ascending, from zero, by plain additions. (8 bits a value would do half the
 * work, as other engines do. They were measured first, with steps for every 16 to 64 values and with outliers apart:
 * docs/fast.md.)
 *
 * Other matrices multiply floats, fused: part = fma(x, w, part) over the same tree, k ascending, slice + part. The fp
 * modes have group = fma(x, value, group) from zero, then part = fma(scale, group, part). Ternary matrices are exact's.
 *
 * Keys and values are float16 (fast_half), and attention goes in chunks of FAST_CHUNK positions, by position: the order
 * of ops/visible.h does not count, only which keys are seen. With q' = scale * q, inside a chunk:
 *
 *     s_j = fma over dims, ascending, of q' and key j, from zero; capped as the model caps
 *     m = the most of them; e_j = exp(s_j - m)
 *     l = the sum of e_j in 16 lanes by position, each ascending, then folded in halves: lane i takes lane i + 8, ...
 *     o = fma over keys, ascending, of e_j and value j, from zero, a dim each
 *
 * Chunks are joined ascending, from (M, L, O) = those of the first: with M' the larger of M and m, a = exp(M - M') and
 * b = exp(m - M'): L = fma(L, a, l * b), O = fma(O, a, o * b). The output is O * (1 / L).
 *
 * Sums of norms run in FAST_NORM_LANES lanes: lane i has elements i, i + FAST_NORM_LANES, ... of the row, ascending,
 * from zero, by plain additions for a mean and by lane = fma(d, d, lane) for squares (d: the element, less the mean in
 * a layer norm); then lanes are folded in halves. The rest of a norm is exact's.
 *
 * With --kv-bits, rows from quant.start on are quantised as they are and attend as in exact; positions before it had
 * been float16 when they were quantised.
 *
 * Products and attention round to no type but float32, whatever the record's types say, and a bias is added last,
 * turned or not: `fast` is defined over float32 activations.
 *
 * So a row's bits do not depend on its neighbours, on threads, on registers, or on how chunks are shared out.
 */
#ifndef TERN_OPS_FAST_REF_FAST_H
#define TERN_OPS_FAST_REF_FAST_H

#include "ops/ref/ref.h"

enum {
  FAST_PART = 512,  /* inputs; whole groups */
  FAST_CHUNK = 256, /* positions: whole blocks */
  FAST_LANES = 16,
  FAST_NORM_LANES = 64,
};

ops_fn fast_linear, fast_rms_norm, fast_layer_norm, fast_kv_append, fast_attention;

/* ---- linear ---- */

static inline ON_DEVICE int64_t fast_parts(int64_t k)
{
  return (k + FAST_PART - 1) / FAST_PART;
}

/* Parts of a slice: as even as slices of at most 8 can be, so that a machine may give each to a worker of its own. */
static inline ON_DEVICE int64_t fast_slice(int64_t k)
{
  int64_t slices = (fast_parts(k) + 7) / 8;
  return (fast_parts(k) + slices - 1) / slices;
}

/* Codes are FAST_MOST at most, so that a machine that multiplies bytes may take one as two signed ones: code = 256 *
 * high + low, high of -127..127 and low of -128..127. A dot of a group stays within 32 bits: 128 * 255 * FAST_MOST <
 * 2^31. */
enum { FAST_MOST = 127 * 256 };

/* x [n] -> codes and the step: the largest magnitude / FAST_MOST. Codes are x * (FAST_MOST / largest), to nearest, ties
 * to even. All zero where the largest is below 2^-100 (step 0) or not finite (step NaN: and so every output). */
float fast_quantise(const float *x, int n, int16_t *codes);

/* ---- keys and values ---- */

/* Finite values beyond the largest float16 become that. Infinities and NaN stay: they tell of damage. */
static inline ON_DEVICE uint16_t fast_half(float x)
{
  if (x - x == 0) {
    x = x > 65504.0f ? 65504.0f : x;
    x = x < -65504.0f ? -65504.0f : x;
  }
  return f16_from_f32(x);
}

/* A block: keys [G][key_dim][64], values [G][64][value_dim], as ref.h has them, of float16. Quantised: ref_kv.h. */
size_t fast_kv_block_bytes(const ops_kv_shape *shape);
void fast_kv_quantise(ops_context *cx, const ops_kv_shape *shape, const void *plain, void *quantised, int count);
void fast_append_row(const struct op_kv_append *a, const ops_row *row, int t, int h);

#endif
