/* import.h - a GGUF file as an MLX-format directory: config.json, generation_config.json, tokenizer.json,
 * tokenizer_config.json and model.safetensors, which tern and mlx-lm load alike.
 *
 * What is promised. Tensor types with an affine form (ggml_blocks.h) keep their integers, and their scales and biases
 * are the same real numbers. Everything else becomes dense, with ggml's own values. One result has one floating type
 * for norms, scales, biases and dense tensors: float16 where that holds every one of them exactly, else float32. The
 * report says per tensor kind what became of it.
 *
 * Fails closed: an architecture, tensor, metadata key, tokenizer kind or rope scaling that is not known to be
 * reproduced is an error that names it.
 *
 * The directory appears whole or not at all: it is written under a temporary name beside OUT_DIR and renamed at the
 * end. OUT_DIR may exist only as an empty directory. */
#ifndef TERN_CONVERT_IMPORT_H
#define TERN_CONVERT_IMPORT_H

#include <signal.h>
#include <stdbool.h>

#include "base/status.h"

enum { IMPORT_MAX_KINDS = 160 };

/* Tensors of one ggml type that met the same fate. */
typedef struct import_kind {
  const char *type; /* "Q4_K" */
  size_t tensors;
  size_t values;
  uint32_t bits;     /* of the affine form; 0: dense */
  const char *dtype; /* "float16" | "float32": of the dense tensor, or of scales and biases */
  const char *how;   /* "exact", or in words what is not */
} import_kind;

typedef struct import_report {
  char architecture[32]; /* as the GGUF says it */
  char model_type[32];   /* as config.json says it */
  const char *dtype;     /* of every floating tensor of the result */
  size_t n_kinds;
  import_kind kinds[IMPORT_MAX_KINDS];
  size_t tensors_in, tensors_out;
  size_t bytes_in, bytes_out; /* of tensor data */
} import_report;

typedef struct import_options {
  /* Polled all along; once not 0 the import cleans up and fails with TERN_E_CANCELLED. A signal handler may set it. */
  const volatile sig_atomic_t *cancel;
} import_options;

/* `report` may be NULL; it is filled on success only. Its strings are static. */
tern_status import_gguf(const char *gguf_path, const char *out_dir, import_report *report, tern_error *err);
tern_status import_gguf_with(const char *gguf_path, const char *out_dir, const import_options *options,
                             import_report *report, tern_error *err);

/* What a GGUF file is, from its headers: it is not imported, and whether that would succeed is not all looked at. */
typedef struct import_look {
  char model_type[32];   /* as config.json would say it */
  char quantisation[32]; /* the type with the most bytes, "Q4_K" */
  double parameters, bytes;
  bool text, template, tools; /* a vocabulary; a chat template; one that reads tools */
} import_look;

tern_status import_look_at(const char *gguf_path, import_look *out, tern_error *err);

#endif
