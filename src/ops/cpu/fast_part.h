/* fast_part.h - what the integer kernels of numerics fast read: a part of k of some outputs, and fields of its words; a
 * part of fast_linear.h.
 *
 * 32 codes fill whole words at every width: a unit. The kernels that read it: fast_pairs.h, fast_quads.h.
 */
#ifndef TERN_OPS_CPU_FAST_PART_H
#define TERN_OPS_CPU_FAST_PART_H

#include "ops/cpu/cpu.h"
#include "ops/cpu/packed.h"
#include "ops/fast_ref/fast.h"

#ifndef CPU_VNNI
#define CPU_VNNI 0
#endif
#ifndef CPU_DOTPROD
#define CPU_DOTPROD 0
#endif
#ifndef CPU_I8MM
#define CPU_I8MM 0
#endif

enum {
  UNIT = 32,                     /* codes */
  PART_GROUPS = CPU_FAST_GROUPS, /* of a part at most */
};

typedef uint16_t vu16 __attribute__((vector_size(4 * VW)));

/* A part of k of some outputs. Group g has its scales at scales + g * scale_step, a vector after another, and word i of
 * it stands at words + g * word_step + i * line. */
typedef struct fast_part {
  const uint8_t *scales, *biases, *words;
  int64_t scale_step, word_step, line;
  ops_dtype stored;              /* of scales and biases */
  int groups, units, unit_words; /* units of a group */
} fast_part;

INLINE vf part_scale(const fast_part *p, const uint8_t *at)
{
#if CPU_LEVEL > 0
  return packed_scales(p->stored, at);
#else
  (void)p;
  return (vf)v_load_words(at); /* only the prepared layout has halves here */
#endif
}

INLINE int64_t part_scale_bytes(const fast_part *p)
{
  return p->stored == DT_F32 ? 4 : 2;
}

/* ---- fields ---- */

/* Bits [shift, shift + bits) of both halves of each lane. */
INLINE vu v_fields(const int bits, vu x, const int shift)
{
  const uint32_t mask = ((1u << bits) - 1) * 0x10001u;
  if (shift + bits == 16)
    return (vu)((vu16)x >> shift);
  return (shift ? x >> shift : x) & mask;
}

/* Halves i and i + bits of the words of a unit, side by side. */
INLINE vu v_halves(const int bits, const vu *word, const int i)
{
  vu a = word[i / 2], b = word[(i + bits) / 2];
  vu low = i % 2 ? a >> 16 : a & 0xffff, high = (i + bits) % 2 ? b & 0xffff0000 : b << 16;
  return low | high;
}

/* Pair j of a unit of 3, 5 or 6 bits, from those halves. */
INLINE vu v_pair_of(const int bits, const vu *halves, const int j)
{
  const int at = j * bits, shift = at % 16;
  vu x = halves[at / 16];
  if (shift + bits <= 16)
    return v_fields(bits, x, shift);
  vu16 across = (vu16)x >> shift | (vu16)halves[at / 16 + 1] << (16 - shift);
  return (vu)across & ((1u << bits) - 1) * 0x10001u;
}

#endif
