/* fast_ref.c - the backend that defines numerics `fast`: exact's reference but for what fast.h says. Runs on the
 * calling thread alone. */
#include "base/mem.h"
#include "ops/fast_ref/fast.h"
#include "ops/ref/ref_kv.h"

/* One row of an input, quantised; or the dims of a head; or exact's row of scores. */
static size_t scratch_bytes(const ops_context *cx, const ops_room *room)
{
  (void)cx;
  size_t floats = (size_t)(fast_parts(room->inputs) + (room->inputs + 1) / 2);
  floats = floats > (size_t)room->dims ? floats : (size_t)room->dims;
  return ref_floats(floats > (size_t)room->keys ? floats : (size_t)room->keys);
}

const ops_backend *ops_fast_ref(void)
{
  static const ops_backend backend = {
      .name = "ref",
      .run =
          {
              [OP_embed] = ref_embed,
              [OP_rms_norm] = fast_rms_norm,
              [OP_layer_norm] = fast_layer_norm,
              [OP_linear] = fast_linear,
              [OP_regroup] = ref_regroup,
              [OP_rope] = ref_rope,
              [OP_temperature] = ref_temperature,
              [OP_kv_append] = fast_kv_append,
              [OP_attention] = fast_attention,
              [OP_act] = ref_act,
              [OP_glu] = ref_glu,
              [OP_scale] = ref_scale,
              [OP_softcap] = ref_softcap,
              [OP_add] = ref_add,
              [OP_select] = ref_select,
          },
      .alloc = ref_alloc,
      .release = ref_release,
      .write = ref_copy,
      .read = ref_copy,
      .kv_block_bytes = fast_kv_block_bytes,
      .kv_quantise = fast_kv_quantise,
      .scratch_bytes = scratch_bytes,
      .reserve = ref_reserve,
  };
  return &backend;
}
