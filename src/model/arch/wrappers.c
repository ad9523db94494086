/* wrappers.c - types that hold a text model beside towers for pictures: its tensors under "language_model.", its config
 * in text_config. The towers' tensors are dropped by name; tern runs the text alone, as the reference does.
 *
 * Newer releases put the text model under "model.language_model." and its head at the top; the pinned reference does
 * not load those, tern does (docs/parity.md). */
#include "model/arch/rows.h"

#define DROP_TOWER(name)                                                                                               \
  {                                                                                                                    \
    .pattern = name ".", .match = MATCH_PREFIX                                                                         \
  }
#define DROP_TOWERS                                                                                                    \
  DROP_TOWER("vision_tower"), DROP_TOWER("multi_modal_projector"), DROP_TOWER("model.vision_tower"),                   \
      DROP_TOWER("model.multi_modal_projector")
#define NEWER_NAMES                                                                                                    \
  {"language_model.model.", "model.language_model.", false},                                                           \
  {                                                                                                                    \
    "language_model.lm_head", "lm_head", false                                                                         \
  }

/* The vocabulary at the top wins over text_config's. */
static const cfg_field gemma3_fields[] = {
    HEADS_OR("num_attention_heads", 8),
    KV_HEADS_OR("num_key_value_heads", 4),
};
static const cfg_field gemma3_root[] = {VOCAB_OR("vocab_size", 262208)};

const arch arch_gemma3 = {
    .name = "gemma3",
    FIELDS(gemma3_fields),
    .root_fields = gemma3_root,
    .n_root_fields = 1,
    .wraps = {{NULL, &arch_gemma3_text}},
    .prefix = "language_model.",
    .renames = {NEWER_NAMES},
    .drops = {DROP_TOWERS},
};

static const cfg_field mistral3_fields[] = {TIED_OR(false)};

/* Caches are plain even for layers that slide. */
const arch arch_mistral3 = {
    .name = "mistral3",
    .aliases = {"llava"},
    FIELDS(mistral3_fields),
    .windows_by_time = true,
    .wraps = {{"ministral3", &arch_ministral3}, {NULL, &arch_llama}},
    .prefix = "language_model.",
    .renames = {NEWER_NAMES},
    .drops = {DROP_TOWERS},
};

static const cfg_field pixtral_fields[] = {NEVER(tied), HEADS_OR("num_attention_heads", 32)};

const arch arch_pixtral = {
    .name = "pixtral",
    .copied_head = true,
    FIELDS(pixtral_fields),
    .windows_by_time = true,
    .wraps = {{NULL, &arch_llama}},
    .prefix = "language_model.",
    .renames = {NEWER_NAMES},
    .drops = {DROP_TOWERS},
};

const arch arch_qwen2_vl = {
    .name = "qwen2_vl",
    .aliases = {"qwen2_5_vl"},
    .flat_config = true,
    .copied_head = true,
    .wraps = {{NULL, &arch_qwen2}},
    .prefix = "language_model.",
    .renames = {{"language_model.model.", "model.language_model.", false}, {"language_model.", "", false}},
    .drops = {DROP_TOWER("visual"), DROP_TOWER("vision_tower"), DROP_TOWER("model.visual")},
};

const arch arch_qwen3_vl = {
    .name = "qwen3_vl",
    .flat_config = true,
    .copied_head = true,
    .wraps = {{NULL, &arch_qwen3}},
    .prefix = "language_model.",
    .renames = {{"language_model.model.", "model.language_model.", false}, {"language_model.", "", false}},
    .drops = {DROP_TOWER("vision_tower"), DROP_TOWER("visual"), DROP_TOWER("model.visual")},
};
