/* version.c - tern --version and tern help. */
#include <string.h>

#include "base/buf.h"
#include "cli/out.h"
#include "cli/verbs.h"
#include "ops/cuda/plugin.h"
#include "ops/ops.h"

#ifndef TERN_COMMIT
#define TERN_COMMIT "unknown"
#endif

/* "baseline avx2 avx512" of the levels that this build and machine have. */
static void levels(buf *out)
{
  for (int i = 0; i < SIMD_LEVELS; i++)
    if (ops_cpu((ops_simd)i))
      buf_addf(out, "%s%s", out->length ? " " : "", ops_simd_name((ops_simd)i));
}

tern_status verb_version(const cli_args *a, tern_error *err)
{
  const cuda_plugin *plugin;
  buf usable = {0};
  (void)a;
  levels(&usable);
  if (usable.failed)
    return err_nomem(err, "version");
  out_printf("tern %s (%s)\nbackends: ref cpu%s\n"
             "simd: %s usable here of baseline neon dotprod i8mm avx2 avxvnni avx512 avx512vnni; in use %s\n",
             tern_version(), TERN_COMMIT, cuda_load(&plugin, NULL) == TERN_OK ? " cuda" : "",
             usable.data ? usable.data : "none", ops_simd_name(ops_simd_best()));
  buf_free(&usable);
  return TERN_OK;
}

tern_status verb_help(const cli_args *a, tern_error *err)
{
  const char *nearest = NULL;
  if (a->n_words == 0) {
    (a->man ? manual_all : help_all)();
    return TERN_OK;
  }
  cli_verb_id verb = help_find_verb(a->words[0], &nearest);
  if (verb == VERB_COUNT)
    return help_unknown_verb("help: ", a->words[0], nearest, err);
  (a->man ? manual_verb : help_verb)(verb);
  return TERN_OK;
}
