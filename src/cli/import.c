/* import.c - tern import: a GGUF file as an MLX-format directory, and what became of its tensors. */
#include "convert/import.h"

#include "cli/describe.h"
#include "cli/out.h"
#include "cli/signals.h"
#include "cli/use.h"
#include "cli/verbs.h"

static void print_text(const import_report *r, const char *dir)
{
  char in[32], out[32], shown[ERR_CLEAN_PATH];
  out_printf("%s: %s as %s, %zu tensors, %s -> %s, floats as %s\n", err_clean_copy(dir, shown, sizeof shown),
             r->architecture, r->model_type, r->tensors_out, describe_bytes((double)r->bytes_in, in),
             describe_bytes((double)r->bytes_out, out), r->dtype);
  for (size_t i = 0; i < r->n_kinds; i++) {
    const import_kind *k = &r->kinds[i];
    char form[64];
    if (k->bits)
      snprintf(form, sizeof form, "affine %u-bit g32, %s scales", k->bits, k->dtype);
    else
      snprintf(form, sizeof form, "dense %s", k->dtype);
    out_printf("  %-6s %5zu tensor%s  %-36s %s\n", k->type, k->tensors, k->tensors == 1 ? " " : "s", form, k->how);
  }
}

static void print_json(const import_report *r, const char *dir)
{
  json_t *kinds = json_array();
  for (size_t i = 0; i < r->n_kinds; i++) {
    const import_kind *k = &r->kinds[i];
    out_append(&kinds, json_pack("{ss sI sI si ss ss}", "type", k->type, "tensors", (json_int_t)k->tensors, "values",
                                 (json_int_t)k->values, "bits", (int)k->bits, "dtype", k->dtype, "how", k->how));
  }
  out_json(json_pack("{so ss ss ss sI sI sI sI so}", "path", out_text(dir), "architecture", r->architecture,
                     "model_type", r->model_type, "dtype", r->dtype, "tensors_in", (json_int_t)r->tensors_in,
                     "tensors_out", (json_int_t)r->tensors_out, "bytes_in", (json_int_t)r->bytes_in, "bytes_out",
                     (json_int_t)r->bytes_out, "kinds", kinds));
}

tern_status verb_import(const cli_args *a, tern_error *err)
{
  import_report report;
  if (a->n_words < 2)
    return err_set(err, TERN_E_USAGE,
                   "import: needs a GGUF file and a directory to make: tern import FILE.gguf OUTDIR");
  import_options options = {.cancel = sig_hold()};
  tern_status status = import_gguf_with(a->words[0], a->words[1], &options, &report, err);
  sig_release();
  if (status != TERN_OK)
    return status;
  tern_model_options run;
  TRY(use_options(a, &run, err));
  TRY(use_prepare(a->words[1], &run, err));
  if (a->json)
    print_json(&report, a->words[1]);
  else
    print_text(&report, a->words[1]);
  return TERN_OK;
}
