/* layout.c - making the prepared layout (layout.h), a panel at a time, from the rows of the mapping. */
#include "ops/cpu/layout.h"

#include <string.h>

#include "base/half.h"
#include "ops/ref/ref.h"

static bool has_layout(const ops_weight *w)
{
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
  return false;
#endif
  return w->quant == Q_AFFINE && w->dtype == DT_F32 && w->group >= 32 && 256 % w->group == 0 && w->n > 0 && w->k > 0;
}

static int64_t panel_bytes(const ops_weight *w, int64_t first)
{
  int64_t blocks = layout_blocks(w) - first / LAYOUT_BLOCK, most = LAYOUT_PANEL / LAYOUT_BLOCK;
  return (blocks < most ? blocks : most) * (w->k / w->group) * layout_group_bytes(w);
}

static size_t layout_bytes(const ops_weight *w)
{
  if (!has_layout(w))
    return 0;
  return (size_t)(LAYOUT_HEAD + layout_blocks(w) * (w->k / w->group) * layout_group_bytes(w));
}

/* weights.h has the rule; float16 always passes. */
static bool all_exact(const ops_weight *w)
{
  int64_t scales = w->n * (w->k / w->group);
  uint32_t low = (1u << w->bits) - 1, most = f32_bits(0x1.fffffep119f);
  for (int64_t i = 0; i < scales && w->stored == DT_F32; i++) {
    uint32_t u;
    memcpy(&u, w->scales + 4 * i, 4);
    if ((u & 0x7fffffff) > most || u & low)
      return false;
  }
  for (int64_t i = 0; i < scales && w->stored == DT_BF16; i++) {
    uint16_t h;
    memcpy(&h, w->scales + 2 * i, 2);
    if ((uint32_t)(h & 0x7fff) << 16 > most)
      return false;
  }
  for (int64_t i = 0; i < scales && w->stored == DT_F16; i++) {
    uint16_t h;
    memcpy(&h, w->scales + 2 * i, 2);
    if ((h & 0x7c00) == 0x7c00) /* infinity and NaN, as the kernels that look while they read have it */
      return false;
  }
  return true;
}

/* `size` bytes of each row from `rows` on, `stride` apart, so many in a panel, side by side in blocks of 16. */
static uint8_t *side_by_side(uint8_t *out, const uint8_t *rows, int64_t stride, int64_t count, int64_t blocks,
                             int64_t size)
{
  for (int64_t r = 0; r < blocks * LAYOUT_BLOCK; r++, out += size) {
    if (r < count)
      memcpy(out, rows + r * stride, (size_t)size);
    else
      memset(out, 0, (size_t)size);
  }
  return out;
}

static void make_panel(const ops_weight *w, int64_t first, uint8_t *out)
{
  int64_t groups = w->k / w->group, scale = layout_scale_bytes(w), words = w->group * w->bits / 32;
  int64_t count = w->n - first < LAYOUT_PANEL ? w->n - first : LAYOUT_PANEL;
  int64_t blocks = (count + LAYOUT_BLOCK - 1) / LAYOUT_BLOCK, row = groups * words * 4;
  for (int64_t g = 0; g < groups; g++) {
    int64_t at = (first * groups + g) * scale;
    out = side_by_side(out, w->scales + at, groups * scale, count, blocks, scale);
    out = side_by_side(out, w->biases + at, groups * scale, count, blocks, scale);
    for (int64_t i = 0; i < words; i++)
      out = side_by_side(out, w->data + first * row + (g * words + i) * 4, row, count, blocks, 4);
  }
}

static size_t make_piece(const ops_weight *w, size_t from, uint8_t *out)
{
  if (from == 0) {
    if (out) {
      memset(out, 0, LAYOUT_HEAD);
      out[0] = all_exact(w) ? LAYOUT_EXACT : 0;
    }
    return LAYOUT_HEAD;
  }
  int64_t whole = LAYOUT_PANEL / LAYOUT_BLOCK * (w->k / w->group) * layout_group_bytes(w);
  int64_t first = ((int64_t)from - LAYOUT_HEAD) / whole * LAYOUT_PANEL;
  if (out)
    make_panel(w, first, out);
  return (size_t)panel_bytes(w, first);
}

const ops_layout cpu_layout = {.version = LAYOUT_VERSION, .bytes = layout_bytes, .piece = make_piece};

/* No more than a second-level cache has room for beside what is being worked on. */
enum { EXPECTED_BYTES = 256 << 10 };

/* What a product reads of a matrix, but for scales that lie elsewhere. */
static size_t read_bytes(const ops_weight *w)
{
  if (w->packed)
    return layout_bytes(w);
  return (size_t)w->n * (size_t)(w->quant == Q_NONE ? w->k * (w->stored == DT_F32 ? 4 : 2) : ref_row_bytes(w));
}

void cpu_expect(ops_context *cx, const op_record *linear)
{
  const struct op_linear *a = &linear->linear;
  size_t all = 0;
  for (int i = 0; i < a->outputs; i++)
    all += read_bytes(a->w[i]);
  for (int worker = 0; cx->workers && worker < pool_size(cx->workers); worker++) {
    size_t from, end;
    int i = 0;
    pool_share(all, LAYOUT_HEAD, worker, pool_size(cx->workers), &from, &end);
    for (; i + 1 < a->outputs && from >= read_bytes(a->w[i]); i++) {
      from -= read_bytes(a->w[i]);
      end -= read_bytes(a->w[i]);
    }
    const ops_weight *w = a->w[i];
    size_t left = (end < read_bytes(w) ? end : read_bytes(w)) - from;
    const uint8_t *bytes = w->packed ? w->packed : w->data;
    pool_expect(cx->workers, worker, bytes + from, left < EXPECTED_BYTES ? left : EXPECTED_BYTES);
  }
}
