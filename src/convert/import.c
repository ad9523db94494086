/* import.c - the import as a whole: read everything, decide everything, then write. Nothing touches the disk before
 * the file is known to be importable; see import.h for what is promised. */
#include "convert/import.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "convert/import_model.h"
#include "convert/outdir.h"

/* All that an import holds; released in one place. */
typedef struct import {
  gguf g;
  import_hyper hyper;
  import_vocab vocab;
  import_weights *weights;
  buf tokenizer, tokenizer_config, config, generation;
  outdir out;
} import;

static tern_status check_vocab_size(const import *i, tern_error *err)
{
  if (i->vocab.n > i->hyper.vocab)
    return err_set(err, TERN_E_FORMAT, "%s: %zu tokens, but tensor token_embd.weight has %" PRIu32 " rows", i->g.path,
                   i->vocab.n, i->hyper.vocab);
  return TERN_OK;
}

static tern_status read_all(import *i, const char *path, const volatile sig_atomic_t *cancel, tern_error *err)
{
  TRY(gguf_open(path, &i->g, err));
  TRY(import_read_hyper(&i->g, &i->hyper, err));
  TRY(import_read_vocab(&i->g, &i->vocab, err));
  TRY(check_vocab_size(i, err));
  TRY(import_plan_weights(&i->g, &i->hyper, cancel, &i->weights, err));
  TRY(import_config(&i->g, &i->hyper, &i->vocab, i->weights, &i->config, err));
  TRY(import_generation_config(&i->vocab, &i->generation, err));
  TRY(import_tokenizer_json(&i->g, &i->vocab, &i->tokenizer, err));
  return import_tokenizer_config(&i->g, &i->hyper, &i->vocab, &i->tokenizer_config, err);
}

static tern_status write_all(import *i, const char *out_dir, import_report *report, tern_error *err)
{
  TRY(outdir_begin(out_dir, &i->out, err));
  const struct {
    const char *name;
    const buf *text;
  } files[] = {
      {"config.json", &i->config},
      {"generation_config.json", &i->generation},
      {"tokenizer.json", &i->tokenizer},
      {"tokenizer_config.json", &i->tokenizer_config},
  };
  for (size_t f = 0; f < sizeof files / sizeof *files; f++)
    TRY(outdir_write(&i->out, files[f].name, files[f].text->data, files[f].text->length, err));
  char *weights = outdir_file(&i->out, "model.safetensors");
  if (!weights)
    return err_nomem(err, out_dir);
  tern_status status = import_write_weights(i->weights, weights, report, err);
  mem_free(weights);
  return status == TERN_OK ? outdir_commit(&i->out, err) : status;
}

static void release(import *i)
{
  outdir_abandon(&i->out);
  import_weights_free(i->weights);
  import_vocab_free(&i->vocab);
  buf_free(&i->tokenizer);
  buf_free(&i->tokenizer_config);
  buf_free(&i->config);
  buf_free(&i->generation);
  gguf_close(&i->g);
}

tern_status import_gguf_with(const char *gguf_path, const char *out_dir, const import_options *options,
                             import_report *report, tern_error *err)
{
  struct import i = {0};
  import_report r = {0};
  tern_status status = read_all(&i, gguf_path, options ? options->cancel : NULL, err);
  if (status == TERN_OK) {
    snprintf(r.architecture, sizeof r.architecture, "%s", i.hyper.arch->name);
    snprintf(r.model_type, sizeof r.model_type, "%s", i.hyper.arch->model_type);
    status = write_all(&i, out_dir, &r, err);
  }
  release(&i);
  if (status == TERN_OK && report)
    *report = r;
  return status;
}

tern_status import_gguf(const char *gguf_path, const char *out_dir, import_report *report, tern_error *err)
{
  return import_gguf_with(gguf_path, out_dir, NULL, report, err);
}
