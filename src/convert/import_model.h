/* import_model.h - what the parts of the GGUF import share: the architecture's row, the hyperparameters, and the
 * functions that turn them into files. Private to import*.c. */
#ifndef TERN_CONVERT_IMPORT_MODEL_H
#define TERN_CONVERT_IMPORT_MODEL_H

#include "base/buf.h"
#include "base/mem.h"
#include "convert/import.h"
#include "format/gguf.h"

typedef enum import_arch_bit {
  ARCH_LLAMA = 1,
  ARCH_QWEN2 = 2,
  ARCH_QWEN3 = 4,
  ARCH_GEMMA3 = 8,
  ARCH_ALL = 15
} import_arch_bit;

typedef struct import_arch {
  const char *name;       /* general.architecture */
  const char *model_type; /* config.json */
  const char *class_name; /* "LlamaForCausalLM" */
  import_arch_bit bit;
} import_arch;

typedef struct import_hyper {
  const import_arch *arch;
  uint32_t layers, width, hidden, heads, kv_heads, head_dim, context;
  uint32_t vocab; /* rows of the embedding table */
  double eps, rope_base;
  bool tied;           /* no output.weight */
  bool attention_bias; /* llama: q, k, v and o have biases */
  /* gemma3 */
  uint32_t window, window_pattern;
  double rope_local_base;
} import_hyper;

/* Reads and checks every `ARCH.*` key; a key that is not known is an error. */
tern_status import_read_hyper(const gguf *g, import_hyper *out, tern_error *err);

/* The "rope_scaling" value as JSON into `out`, or nothing where rope is plain. */
tern_status import_rope_scaling(const gguf *g, const import_hyper *h, buf *out, tern_error *err);

/* The token ids and flags that several files need. -1: not given. */
typedef struct import_vocab {
  gguf_string *tokens; /* [n] */
  int32_t *types;      /* [n], NULL: not given (all normal) */
  size_t n;
  bool spm; /* scores and byte fallback; otherwise byte-level merges */
  bool add_bos, add_eos;
  int64_t bos, eos, unk, pad;
  int64_t stops[16]; /* eos first, then every other end-of-turn id, ascending */
  size_t n_stops;
} import_vocab;

enum { TOKEN_NORMAL = 1, TOKEN_UNKNOWN = 2, TOKEN_CONTROL = 3, TOKEN_USER = 4, TOKEN_UNUSED = 5, TOKEN_BYTE = 6 };

tern_status import_read_vocab(const gguf *g, import_vocab *out, tern_error *err);
void import_vocab_free(import_vocab *v);

/* tokenizer.json, tokenizer_config.json, generation_config.json. */
tern_status import_tokenizer_json(const gguf *g, const import_vocab *v, buf *out, tern_error *err);
tern_status import_tokenizer_config(const gguf *g, const import_hyper *h, const import_vocab *v, buf *out,
                                    tern_error *err);
tern_status import_generation_config(const import_vocab *v, buf *out, tern_error *err);

bool import_string_is(gguf_string s, const char *text);
int32_t import_token_type(const import_vocab *v, size_t id);
/* A name made up for an embedding row without a token; left out of the vocabulary. */
bool import_is_filler(const import_vocab *v, size_t id);
/* A SentencePiece vocabulary's user-defined run of spaces: the file has spaces, the model U+2581 as for any space. */
bool import_spells_spaces(const import_vocab *v, size_t id);
/* Whether the pre-tokenizer's family adds BOS where the file does not say. */
bool import_pre_adds_bos(const gguf *g);

/* The merges as JSON pairs into `out`: implied by scores, or as listed. */
tern_status import_spm_merges(const gguf *g, const import_vocab *v, const float *scores, buf *out, tern_error *err);
tern_status import_listed_merges(const gguf *g, const import_vocab *v, buf *out, tern_error *err);

/* The weights: every tensor of the GGUF matched with one rule, shapes checked, the common dtype chosen. */
typedef struct import_weights import_weights;
tern_status import_plan_weights(const gguf *g, const import_hyper *h, const volatile sig_atomic_t *cancel,
                                import_weights **out, tern_error *err);
void import_weights_free(import_weights *w);
const char *import_weights_dtype(const import_weights *w);
/* The "quantization" object into `out`, or nothing where no tensor is quantised. */
void import_quantization(const import_weights *w, buf *out);
tern_status import_write_weights(import_weights *w, const char *path, import_report *report, tern_error *err);

/* config.json */
tern_status import_config(const gguf *g, const import_hyper *h, const import_vocab *v, const import_weights *w,
                          buf *out, tern_error *err);

#endif
