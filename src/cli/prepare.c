/* prepare.c - tern prepare: the weights of a model laid out for this processor's kernels, in a file under TERN_HOME. */
#include "base/mem.h"
#include "cli/describe.h"
#include "cli/out.h"
#include "cli/use.h"
#include "cli/verbs.h"

tern_status verb_prepare(const cli_args *a, tern_error *err)
{
  const char *name;
  char *dir, *path, bytes[32], shown[ERR_CLEAN_PATH];
  tern_model_options options;
  prepared_report report;
  TRY(args_need_model(a, &name, NULL, err));
  TRY(use_options(a, &options, err));
  TRY(use_dir(a, name, NEED_WEIGHTS, &dir, err));
  double start = use_seconds();
  tern_status status = use_make_prepared(dir, &options, &report, &path, err);
  double seconds = use_seconds() - start;
  mem_free(dir);
  TRY(status);
  if (a->json)
    out_json(json_pack("{so sI sI sb sf}", "path", out_text(path), "bytes", (json_int_t)report.bytes, "matrices",
                       (json_int_t)report.matrices, "was_there", (int)report.was_there, "seconds", seconds));
  else
    out_printf("%s: %zu matrices, %s, %s in %.1f s\n", err_clean_copy(path, shown, sizeof shown), report.matrices,
               describe_bytes((double)report.bytes, bytes), report.was_there ? "there already, verified" : "made",
               seconds);
  mem_free(path);
  return TERN_OK;
}
