/* cpu.c - the cpu backend: which SIMD levels there are, the op table of each, and memory.
 *
 * Layouts are the reference's, so that its ops serve wherever a level has no kernel of its own. No weight is copied:
 * kernels read the mapping, or a prepared layout where a file of it is there (layout.h).
 */
#include "ops/cpu/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/mem.h"
#include "ops/cpu/layout.h"
#include "ops/ref/ref.h"
#include "ops/ref/ref_kv.h"

const char *ops_simd_name(ops_simd level)
{
  static const char *const names[SIMD_LEVELS] = {"baseline", "avx2", "avx512"};
  return names[level];
}

#if defined(__x86_64__)
/* clang's __builtin_cpu_supports has no name for it. */
static bool has_f16c(void)
{
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}
#endif

ops_simd ops_simd_best(void)
{
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c())
    return SIMD_BASELINE;
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
             ? SIMD_AVX512
             : SIMD_AVX2;
#else
  return SIMD_BASELINE;
#endif
}

/* ---- memory ---- */

/* Scores of CPU_QUERIES queries a worker; the reference's attention wants one row. */
static tern_status reserve(ops_context *cx, int tokens, int64_t keys, int heads, tern_error *err)
{
  (void)tokens;
  (void)heads;
  size_t rows = (size_t)CPU_QUERIES * (size_t)cpu_workers(cx), bytes;
  if (__builtin_mul_overflow(cpu_scores_stride(keys), rows * sizeof(float), &bytes))
    return err_nomem(err, "attention scores");
  if (bytes <= cx->scratch_bytes)
    return TERN_OK;
  void *scratch = mem_aligned(64, bytes);
  if (!scratch)
    return err_nomem(err, "attention scores");
  mem_free(cx->scratch);
  cx->scratch = scratch;
  cx->scratch_bytes = bytes;
  return TERN_OK;
}

/* ---- tables ---- */

#define ENTRY(op, level) [OP_##op] = cpu_##op##_##level,
#define TABLE(level, label, own_layout)                                                                                \
  {                                                                                                                    \
    .name = (label), .run = {CPU_KERNELS(ENTRY, level) CPU_SHARED}, .alloc = ref_alloc, .release = ref_release,        \
    .write = ref_copy, .read = ref_copy, .kv_block_bytes = ref_kv_block_bytes, .kv_quantise = ref_kv_quantise,         \
    .reserve = reserve, .layout = (own_layout),                                                                        \
  }

const ops_backend *ops_cpu(ops_simd level)
{
  static const ops_backend tables[] = {
    [SIMD_BASELINE] = TABLE(baseline, "cpu/baseline", NULL),
#if defined(__x86_64__)
    [SIMD_AVX2] = TABLE(avx2, "cpu/avx2", &cpu_layout),
    [SIMD_AVX512] = TABLE(avx512, "cpu/avx512", &cpu_layout),
#endif
  };
  return level <= ops_simd_best() ? &tables[level] : NULL;
}
