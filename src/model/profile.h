/* profile.h - what tern claims to run, and how well it is shown: resolved from the config before weights are opened.
 *
 * A profile is generic (an architecture's descriptor row, any checkpoint of it) or targeted (one exact artifact or
 * config, with execution of its own). Resolution goes from exact to generic; a targeted profile whose config
 * fingerprint does not match refuses; nothing downgrades. Today every profile is generic.
 */
#ifndef TERN_MODEL_PROFILE_H
#define TERN_MODEL_PROFILE_H

#include "model/arch.h"

typedef enum profile_tier { TIER_GENERIC, TIER_FAMILY, TIER_TARGETED } profile_tier;

typedef struct model_profile {
  const arch *arch;
  profile_tier tier;
  char id[64];          /* "generic:llama" */
  const char *fidelity; /* "L1" */
  const char *claim;    /* one sentence */
  const char *oracle;   /* "mlx-lm 0.31.3 on mlx-cpu 0.31.2" */
} model_profile;

/* Refuses model types that no row covers, with the list of those that are. */
tern_status profile_resolve(const cfg *c, tern_numerics numerics, model_profile *out, tern_error *err);
/* The same without a config: what is claimed of any checkpoint of the type. */
void profile_generic(const arch *a, tern_numerics numerics, model_profile *out);
const char *profile_tier_name(profile_tier tier);

#endif
