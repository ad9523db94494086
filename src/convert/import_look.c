/* import_look.c - what lists say of a GGUF file that was not imported yet. Headers alone are read. */
#include <stdio.h>
#include <string.h>

#include "convert/import_model.h"

/* The type that most of the bytes have. */
static const char *main_type(const gguf *g)
{
  double bytes[GGML_TYPES] = {0};
  size_t most = 0;
  for (size_t i = 0; i < g->n_tensors; i++)
    bytes[g->tensors[i].type] += (double)g->tensors[i].bytes;
  for (size_t t = 0; t < GGML_TYPES; t++)
    most = bytes[t] > bytes[most] ? t : most;
  const ggml_type_info *info = g->n_tensors ? ggml_type_get((uint32_t)most) : NULL;
  return info && info->name ? info->name : "-";
}

static tern_status look(const gguf *g, import_look *out, tern_error *err)
{
  import_hyper h = {0};
  gguf_string source = {0};
  bool present;
  TRY(import_read_hyper(g, &h, err));
  TRY(gguf_get_string(g, "tokenizer.chat_template", &source, &present, err));
  snprintf(out->model_type, sizeof out->model_type, "%s", h.arch->model_type);
  snprintf(out->quantisation, sizeof out->quantisation, "%s", main_type(g));
  for (size_t i = 0; i < g->n_tensors; i++) {
    const gguf_tensor *t = &g->tensors[i];
    out->parameters += (double)t->size[0] * (double)t->size[1] * (double)t->size[2] * (double)t->size[3];
  }
  out->text = gguf_find(g, "tokenizer.ggml.tokens") != NULL;
  out->template = present && source.size;
  out->tools = out->template && memmem(source.data, source.size, "tools", strlen("tools"));
  return TERN_OK;
}

tern_status import_look_at(const char *gguf_path, import_look *out, tern_error *err)
{
  gguf g = {0};
  *out = (import_look){.quantisation = "-"};
  tern_status status = gguf_open(gguf_path, &g, err);
  if (status == TERN_OK)
    status = look(&g, out, err);
  if (status == TERN_OK)
    out->bytes = (double)g.file.size;
  gguf_close(&g);
  return status;
}
