/* survey.c - see survey.h. */
#include "cli/survey.h"

#include <stdio.h>

#include "base/path.h"
#include "cli/describe.h"

static tern_status look(const cfg *c, const char *dir, quant_config **q, survey *s)
{
  model_profile profile;
  model_config config;
  profile_artifact artifact = {0};
  const arch *a;
  snprintf(s->type, sizeof s->type, "%.63s", cfg_model_type(c));
  TRY(quant_open(c, q, &s->why));
  describe_quantisation(c, *q, s->quantisation);
  TRY(profile_arch(c, NULL, &a, &s->why));
  TRY(model_config_read(c, a, &config, &s->why));
  if (dir)
    profile_artifact_of(dir, &artifact);
  const profile_subject subject = {
      .arch = a, .config = &config, .ternary = quant_is_ternary(*q), .numerics = TERN_EXACT, .artifact = &artifact};
  TRY(profile_resolve(profile_builtin(), &subject, &profile, &s->why));
  s->tier = profile_tier_name(profile.tier);
  s->fidelity = profile.fidelity;
  s->needs = profile.needs;
  return TERN_OK;
}

static survey unknown(void)
{
  return (survey){.type = "-", .quantisation = "-", .tier = "-", .fidelity = "-"};
}

void survey_config(const cfg *c, const char *dir, survey *out)
{
  quant_config *q = NULL;
  *out = unknown();
  out->runs = path_place(dir ? dir : "", look(c, dir, &q, out), dir ? &out->why : NULL) == TERN_OK;
  quant_close(q);
}

void survey_dir(const char *dir, survey *out)
{
  cfg *c = NULL;
  tern_error why = {0};
  if (path_place(dir, cfg_open(dir, &c, &why), &why) == TERN_OK) {
    survey_config(c, dir, out);
  } else {
    *out = unknown();
    out->why = why;
  }
  cfg_close(c);
}
