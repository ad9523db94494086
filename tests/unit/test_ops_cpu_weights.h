/* test_ops_cpu_weights.h - random weights of every stored format, at odd addresses, for the tests of products. */
#ifndef TERN_TEST_OPS_CPU_WEIGHTS_H
#define TERN_TEST_OPS_CPU_WEIGHTS_H

#include "test_ops_cpu.h"

typedef struct format {
  ops_quant quant;
  int bits, group;
  ops_dtype stored;
} format;

static inline void describe(const format *f, int64_t n, int64_t k, char *out, size_t size)
{
  static const char *const quants[] = {"dense", "affine", "mxfp4", "mxfp8", "nvfp4", "ternary"};
  static const char *const types[] = {"f32", "bf16", "f16"};
  snprintf(out, size, "%s %d bits, groups of %d, %s, %lld x %lld", quants[f->quant], f->bits, f->group,
           types[f->stored], (long long)n, (long long)k);
}

/* n bytes of its own at an odd address; *base is what to free. */
static inline uint8_t *unaligned(size_t n, uint8_t **base)
{
  *base = malloc(n + 1);
  assert_non_null(*base);
  return *base + 1;
}

static inline void store_value(ops_dtype stored, uint8_t *at, int64_t i, float x)
{
  uint16_t half = stored == DT_BF16 ? bf16_from_f32(x) : f16_from_f32(x);
  if (stored == DT_F32)
    memcpy(at + 4 * i, &x, 4);
  else
    memcpy(at + 2 * i, &half, 2);
}

typedef struct weight {
  ops_weight w;
  uint8_t *base[3];
  uint8_t *packed; /* while compare_packed runs */
} weight;

static inline uint8_t *random_values(uint64_t *seed, ops_dtype stored, int64_t n, float range, uint8_t **base)
{
  uint8_t *values = unaligned((size_t)n * (stored == DT_F32 ? 4 : 2), base);
  for (int64_t i = 0; i < n; i++)
    store_value(stored, values, i, random_float(seed, range));
  return values;
}

static inline uint8_t *random_bytes(uint64_t *seed, int64_t n, int low, int high, uint8_t **base)
{
  uint8_t *bytes = unaligned((size_t)n, base);
  for (int64_t i = 0; i < n; i++)
    bytes[i] = (uint8_t)(low + (int)(next_random(seed) % (uint64_t)(high - low + 1)));
  return bytes;
}

static inline weight random_weight(uint64_t *seed, const format *f, int64_t n, int64_t k)
{
  weight x = {.w = {.name = "w", .quant = f->quant, .bits = f->bits, .group = f->group, .stored = f->stored}};
  x.w.n = n;
  x.w.k = k;
  if (f->quant == Q_NONE) {
    x.w.data = random_values(seed, f->stored, n * k, 1.0f, &x.base[0]);
    return x;
  }
  if (f->quant == Q_TERNARY) {
    x.w.data = random_bytes(seed, (n + 3) / 4 * k, 0, 255, &x.base[0]);
    x.w.factor = random_float(seed, 2);
    return x;
  }
  int64_t groups = n * (k / f->group);
  x.w.data = random_bytes(seed, n * k * f->bits / 8, 0, 255, &x.base[0]);
  if (f->quant == Q_AFFINE) {
    x.w.scales = random_values(seed, f->stored, groups, 0.02f, &x.base[1]);
    x.w.biases = random_values(seed, f->stored, groups, 0.3f, &x.base[2]);
  } else if (f->quant == Q_NVFP4) {
    x.w.scales = random_bytes(seed, groups, 0, 255, &x.base[1]);
  } else {
    x.w.scales = random_bytes(seed, groups, 110, 135, &x.base[1]);
    ((uint8_t *)x.base[1])[1] = 0; /* 2^-127 */
  }
  return x;
}

static inline void free_weight(weight *x)
{
  for (int i = 0; i < 3; i++)
    free(x->base[i]);
}

/* Gives w the prepared layout, where there is one for its format. */
static inline void pack(weight *x)
{
  const ops_layout *l = ops_cpu(ops_simd_best())->layout;
  size_t bytes = l ? l->bytes(&x->w) : 0;
  if (!bytes)
    return;
  uint8_t *out = aligned_alloc(64, (bytes + 63) / 64 * 64);
  assert_non_null(out);
  for (size_t at = 0; at < bytes;) {
    size_t piece = l->piece(&x->w, at, NULL);
    assert_true(piece > 0 && piece <= bytes - at);
    assert_int_equal(l->piece(&x->w, at, out + at), piece);
    at += piece;
  }
  x->packed = out;
}

#endif
