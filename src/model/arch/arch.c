/* arch.c - the register of architectures. */
#include <string.h>

#include "model/arch/rows.h"

static const arch *const rows[] = {
    &arch_llama,       &arch_smollm3,
    &arch_qwen2,       &arch_qwen3,
    &arch_mimo,        &arch_seed_oss,
    &arch_telechat3,   &arch_ministral3,
    &arch_helium,      &arch_ernie4_5,
    &arch_glm,         &arch_glm4,
    &arch_granite,     &arch_minicpm,
    &arch_internlm2,   &arch_internlm3,
    &arch_exaone,      &arch_exaone4,
    &arch_phi,         &arch_phi3,
    &arch_phi3small,   &arch_lille,
    &arch_qwen,        &arch_apertus,
    &arch_openelm,     &arch_hunyuan_v1_dense,
    &arch_bitnet,      &arch_nemotron_nas,
    &arch_llama4_text, &arch_plamo,
    &arch_nanochat,    &arch_olmo,
    &arch_olmo2,       &arch_olmo3,
    &arch_gemma,       &arch_gemma2,
    &arch_gemma3_text, &arch_starcoder2,
    &arch_stablelm,    &arch_cohere,
    &arch_cohere2,     &arch_nemotron,
    &arch_gpt_neox,    &arch_gpt2,
    &arch_gpt_bigcode, &arch_gemma3,
    &arch_mistral3,    &arch_pixtral,
    &arch_qwen2_vl,    &arch_qwen3_vl,
};

tern_status arch_heads_fill_width(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  (void)c;
  if ((int64_t)m->heads * m->head_dim == m->width)
    return TERN_OK;
  return err_set(err, TERN_E_FORMAT, "%s: num_attention_heads: %d heads of %d do not make a hidden_size of %d",
                 cfg_where(scope), m->heads, m->head_dim, m->width);
}

const arch *arch_at(size_t i)
{
  return i < sizeof rows / sizeof *rows ? rows[i] : NULL;
}

const arch *arch_find(const char *model_type)
{
  const arch *a;
  for (size_t i = 0; (a = arch_at(i)); i++) {
    if (strcmp(a->name, model_type) == 0)
      return a;
    for (int n = 0; n < ARCH_MAX_ALIASES && a->aliases[n]; n++)
      if (strcmp(a->aliases[n], model_type) == 0)
        return a;
  }
  return NULL;
}
