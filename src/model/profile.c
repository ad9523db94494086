/* profile.c - see profile.h. */
#include "model/profile.h"

#include <stdio.h>

const char *profile_tier_name(profile_tier tier)
{
  static const char *const names[] = {
      [TIER_GENERIC] = "generic", [TIER_FAMILY] = "family", [TIER_TARGETED] = "targeted"};
  return names[tier];
}

void profile_generic(const arch *a, tern_numerics numerics, model_profile *out)
{
  *out = (model_profile){
      .arch = a,
      .tier = TIER_GENERIC,
      .fidelity = "L1",
      .oracle = "mlx-lm 0.31.3 on mlx-cpu 0.31.2",
      .claim = numerics == TERN_NATIVE ? "logits bit-identical to the reference as loaded"
                                       : "logits bit-identical to the reference after set_dtype(float32)",
  };
  snprintf(out->id, sizeof out->id, "%s:%s", profile_tier_name(out->tier), a->name);
}

tern_status profile_resolve(const cfg *c, tern_numerics numerics, model_profile *out, tern_error *err)
{
  const char *type = cfg_model_type(c);
  const arch *a = arch_find(type);
  if (!a) {
    char known[1200];
    return err_set(err, TERN_E_UNSUPPORTED, "config.json: model_type %s is not supported; supported are %s", type,
                   arch_list(known, sizeof known));
  }
  if (numerics == TERN_FAST)
    return err_set(err, TERN_E_UNSUPPORTED, "numerics: fast is not available for %s; exact and native are", a->name);
  profile_generic(a, numerics, out);
  return TERN_OK;
}
