/* fast_ref.c - the backend that defines numerics `fast`: exact's reference but for what fast.h says. Runs on the
 * calling thread alone. */
#include "base/mem.h"
#include "ops/fast_ref/fast.h"
#include "ops/ref/ref_kv.h"

/* One row of an input, quantised; or the dims of a head; or exact's row of scores. */
static tern_status reserve(ops_context *cx, const ops_room *room, tern_error *err)
{
  int64_t floats = fast_parts(room->inputs) + (room->inputs + 1) / 2;
  floats = floats > room->dims ? floats : room->dims;
  return ref_grow(cx, floats > room->keys ? (size_t)floats : (size_t)room->keys, err);
}

const ops_backend *ops_fast_ref(void)
{
  static const ops_backend backend = {
      .name = "ref",
      .run =
          {
              [OP_embed] = ref_embed,
              [OP_rms_norm] = ref_rms_norm,
              [OP_layer_norm] = ref_layer_norm,
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
      .reserve = reserve,
  };
  return &backend;
}
