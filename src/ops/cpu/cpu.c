/* cpu.c - the cpu backend: which SIMD levels there are, the op table of each, and memory.
 *
 * Layouts are the reference's, so that its ops serve wherever a level has no kernel of its own. No weight is copied:
 * kernels read the mapping, or a prepared layout where a file of it is there (layout.h).
 */
#include "ops/cpu/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "ops/cpu/layout.h"
#include "ops/fast_ref/fast.h"
#include "ops/ref/ref.h"
#include "ops/ref/ref_kv.h"

const char *ops_simd_name(ops_simd level)
{
  static const char *const names[SIMD_LEVELS] = {"baseline", "neon",    "dotprod", "i8mm",
                                                 "avx2",     "avxvnni", "avx512",  "avx512vnni"};
  return names[level];
}

#if defined(__x86_64__)
/* clang's __builtin_cpu_supports has no name for it. */
static bool has_f16c(void)
{
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}

/* Nor has gcc's, for the 256 bit form: leaf 7, subleaf 1, bit 4 of eax. */
static bool has_avxvnni(void)
{
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 4 & 1;
}
#endif

bool ops_simd_has(ops_simd level)
{
#if defined(__x86_64__)
  __builtin_cpu_init();
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  switch (level) {
  case SIMD_AVX2:
    return avx2;
  case SIMD_AVXVNNI:
    return avx2 && has_avxvnni();
  case SIMD_AVX512:
    return avx512;
  case SIMD_AVX512VNNI:
    return avx512 && __builtin_cpu_supports("avx512vnni");
  default:
    return level == SIMD_BASELINE;
  }
#elif defined(__aarch64__)
  bool dotprod = getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
  return level == SIMD_BASELINE || level == SIMD_NEON || (level == SIMD_DOTPROD && dotprod) ||
         (level == SIMD_I8MM && dotprod && getauxval(AT_HWCAP2) & HWCAP2_I8MM);
#else
  return level == SIMD_BASELINE;
#endif
}

ops_simd ops_simd_best(void)
{
  ops_simd best = SIMD_BASELINE;
  for (ops_simd level = SIMD_BASELINE; level < SIMD_LEVELS; level++)
    best = ops_simd_has(level) ? level : best;
  return best;
}

/* ---- memory ---- */

/* Scores of CPU_QUERIES queries a worker; the reference's attention wants one row. */
static size_t scratch_bytes(const ops_context *cx, const ops_room *room)
{
  size_t floats, rows = (size_t)CPU_QUERIES * (size_t)cpu_workers(cx);
  return __builtin_mul_overflow(cpu_scores_stride(room->keys), rows, &floats) ? SIZE_MAX : ref_floats(floats);
}

/* ---- tables ---- */

#define ENTRY(op, level) [OP_##op] = cpu_##op##_##level,
#define TABLE(level, label, own_layout)                                                                                \
  {                                                                                                                    \
    .name = (label), .run = {CPU_PRODUCTS(ENTRY, level) CPU_ROWWISE(ENTRY, level) CPU_SHARED}, .alloc = ref_alloc,     \
    .release = ref_release, .write = ref_copy, .read = ref_copy, .kv_block_bytes = ref_kv_block_bytes,                 \
    .kv_quantise = ref_kv_quantise, .scratch_bytes = scratch_bytes, .reserve = ref_reserve, .layout = (own_layout),    \
    .expect = cpu_expect,                                                                                              \
  }

const ops_backend *ops_cpu(ops_simd level)
{
  static const ops_backend tables[SIMD_LEVELS] = {
    [SIMD_BASELINE] = TABLE(baseline, "cpu/baseline", NULL),
#if defined(__x86_64__)
    [SIMD_AVX2] = TABLE(avx2, "cpu/avx2", &cpu_layout),
    [SIMD_AVXVNNI] = TABLE(avx2, "cpu/avxvnni", &cpu_layout),
    [SIMD_AVX512] = TABLE(avx512, "cpu/avx512", &cpu_layout),
    [SIMD_AVX512VNNI] = TABLE(avx512, "cpu/avx512vnni", &cpu_layout),
#elif defined(__aarch64__)
    [SIMD_NEON] = TABLE(neon, "cpu/neon", &cpu_layout),
    [SIMD_DOTPROD] = TABLE(neon, "cpu/dotprod", &cpu_layout),
    [SIMD_I8MM] = TABLE(neon, "cpu/i8mm", &cpu_layout),
#endif
  };
  return ops_simd_has(level) ? &tables[level] : NULL;
}

/* ---- numerics fast ---- */

/* Quantised inputs of a product: as many tokens at a time as MOST bytes hold, one at least. */
static size_t fast_inputs_bytes(const ops_room *room)
{
  const size_t MOST = 8 << 20, one = cpu_fast_inputs_bytes(room->inputs, 3), all = one * (size_t)room->tokens;
  return all < MOST ? all : one < MOST ? MOST : one;
}

static size_t most_of(size_t a, size_t b)
{
  return a > b ? a : b;
}

/* What fast's products want, fast_ref for its ops, fast's attention, and exact's for quantised keys and values. */
static size_t fast_scratch_bytes(const ops_context *cx, const ops_room *room)
{
  ops_room plain = *room;
  plain.keys = room->quantised ? room->keys : 0;
  size_t bytes = most_of(fast_inputs_bytes(room), ops_fast_ref()->scratch_bytes(cx, &plain));
  bytes = most_of(bytes, ref_floats(cpu_fast_attention_floats(room->dims, cpu_workers(cx))));
  return room->quantised ? most_of(bytes, scratch_bytes(cx, room)) : bytes;
}

#define FAST_ENTRY(op, level) [OP_##op] = cpu_fast_##op##_##level,

#define FAST_TABLE(level, products, label, own_layout)                                                                 \
  {                                                                                                                    \
    .name = (label),                                                                                                   \
    .run = {CPU_FAST(FAST_ENTRY, level) CPU_ROWWISE(ENTRY, level) CPU_SHARED, [OP_linear] =                            \
                                                                                  cpu_fast_linear_##products},         \
    .alloc = ref_alloc, .release = ref_release, .write = ref_copy, .read = ref_copy,                                   \
    .kv_block_bytes = fast_kv_block_bytes, .kv_quantise = fast_kv_quantise, .scratch_bytes = fast_scratch_bytes,       \
    .reserve = ref_reserve, .layout = (own_layout), .expect = cpu_expect,                                              \
  }

const ops_backend *ops_cpu_fast(ops_simd level)
{
  static const ops_backend tables[SIMD_LEVELS] = {
    [SIMD_BASELINE] = FAST_TABLE(baseline, baseline, "cpu/baseline", NULL),
#if defined(__x86_64__)
    [SIMD_AVX2] = FAST_TABLE(avx2, avx2, "cpu/avx2", &cpu_layout),
    [SIMD_AVXVNNI] = FAST_TABLE(avx2, avxvnni, "cpu/avxvnni", &cpu_layout),
    [SIMD_AVX512] = FAST_TABLE(avx512, avx512, "cpu/avx512", &cpu_layout),
    [SIMD_AVX512VNNI] = FAST_TABLE(avx512, avx512vnni, "cpu/avx512vnni", &cpu_layout),
#elif defined(__aarch64__)
    [SIMD_NEON] = FAST_TABLE(neon, neon, "cpu/neon", &cpu_layout),
    [SIMD_DOTPROD] = FAST_TABLE(neon, dotprod, "cpu/dotprod", &cpu_layout),
    [SIMD_I8MM] = FAST_TABLE(neon, i8mm, "cpu/i8mm", &cpu_layout),
#endif
  };
  return ops_simd_has(level) ? &tables[level] : NULL;
}
