/* tern.h - the public interface of tern.
 *
 * Two opaque objects. A tern_model is a checkpoint opened once: mapped weights, tokenizer, chat template.
 * A tern_session is one mutable timeline over it: tokens consumed so far and the state they left.
 * The caller always passes whole texts or whole token lists; the session finds out what is new.
 *
 * Errors. Every call that can fail returns a tern_status and, where `err` is not NULL, writes one line that names the
 * file, key, tensor or number concerned. Outputs are untouched on failure unless said otherwise. No call exits,
 * aborts or prints.
 *
 * Ownership. What a call hands out through a `**` argument belongs to the caller and goes back through the matching
 * tern_*_close or tern_free. A model must outlive its sessions.
 *
 * Threads. A model may be shared by threads that only read it (tokenize, detokenize, render). A session, and any two
 * sessions of one model that run forwards, belong to one thread at a time. tern_session_cancel alone may be called
 * from anywhere, signal handlers included. A thread that runs forwards needs 256 KB of stack.
 */
#ifndef TERN_H
#define TERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TERN_VERSION "0.1.0"

#if defined(__GNUC__)
#define TERN_API __attribute__((visibility("default")))
#else
#define TERN_API
#endif

/* ---- status ---------------------------------------------------------------------------------------------------- */

typedef enum tern_status {
  TERN_OK = 0,
  TERN_E_USAGE,       /* the call itself is wrong: an argument out of range, options that exclude each other */
  TERN_E_IO,          /* the system refused: open, read, map, write, no space */
  TERN_E_FORMAT,      /* a file breaks its format: truncated, malformed, inconsistent */
  TERN_E_UNSUPPORTED, /* well-formed, but not something tern runs */
  TERN_E_LIMIT,       /* does not fit: context, memory, template limits */
  TERN_E_NOMEM,       /* the allocator failed */
  TERN_E_TEMPLATE,    /* a chat template raised an error, or is wrong */
  TERN_E_CANCELLED,   /* tern_session_cancel was called */
  TERN_E_NOT_FOUND,   /* a file, a model, a name that is not there */
  TERN_E_INTERNAL,    /* a broken promise inside tern; please report */
  TERN_E_BUSY,        /* there is no room for it now: try again later */
} tern_status;

/* text: UTF-8, NUL-terminated, one line, no trailing newline; cut at a whole character if longer. */
typedef struct tern_error {
  tern_status status;
  char text[1000];
} tern_error;

/* A stable lower-case name: "ok", "usage", "io", ... Never NULL. */
TERN_API const char *tern_status_name(tern_status status);
/* "0.1.0" */
TERN_API const char *tern_version(void);
/* Frees what a call of this header handed out (strings, id arrays). NULL is fine. */
TERN_API void tern_free(void *p);

/* ---- model ----------------------------------------------------------------------------------------------------- */

typedef enum tern_numerics { TERN_EXACT = 0, TERN_NATIVE, TERN_FAST } tern_numerics;
typedef enum tern_backend { TERN_BACKEND_AUTO = 0, TERN_BACKEND_REF, TERN_BACKEND_CPU, TERN_BACKEND_CUDA } tern_backend;

/* Prepared weights: the same numbers in an order that the processor reads faster, kept in a file of its own that is
 * made once a checkpoint and shared by all processes. They change no bit. */
typedef enum tern_prepare {
  TERN_PREPARE_AUTO,  /* used where they are there */
  TERN_PREPARE_NEVER, /* not used */
  TERN_PREPARE_NOW,   /* made first where they are not there: takes as much disk as the checkpoint, and seconds a GB */
} tern_prepare;

typedef struct tern_model_options {
  tern_numerics numerics; /* TERN_EXACT: float32, bits equal the reference's after set_dtype(float32). TERN_FAST: other
                             arithmetic, close to that */
  tern_backend backend;   /* AUTO: a GPU where there is one that works, else cpu; ref for native */
  int threads;            /* 0: one per fast core that this process may use, within its cgroups' limits */
  int prefill_step;       /* upper bound of tokens in one piece of a prompt; 0: what fits. Changes no bits. */
  int max_kv_size;        /* > 0: models without windows of their own keep only so many keys (the first 4 pinned) */
  int kv_bits;            /* 2, 3, 4, 5, 6 or 8: keys and values are quantised; 0: never */
  int kv_group_size;      /* of values that share a scale: 32, 64 or 128; 0 means 64. Has to divide the heads' dims */
  int quantized_kv_start; /* tokens from this position on see quantised keys and values, those before plain ones */
  bool mlock;             /* lock the mapped weights in memory */
  const char *simd;       /* NULL: best this machine has; "baseline", "neon", "dotprod", "avx2", "avxvnni",
                             "avx512", "avx512vnni": that */
  int gpu;                /* cuda: which GPU, as CUDA counts them; calls leave it the thread's current device */
  double gpu_memory;      /* cuda: the share of its memory that may be in use in all; 0: all of it */
  tern_prepare prepare;
  const char *prepared_dir; /* where prepared weights are kept; NULL: none are used or made */
} tern_model_options;

typedef struct tern_model tern_model;

/* Opens a directory with config.json, tokenizer files and *.safetensors. `opt` may be NULL. */
TERN_API tern_status tern_model_open(const char *dir, const tern_model_options *opt, tern_model **out, tern_error *err);
TERN_API void tern_model_close(tern_model *model);

typedef struct tern_model_info {
  const char *model_type; /* as in config.json */
  const char *profile;    /* "generic:llama" */
  const char *numerics;   /* "exact" | "native" | "fast" */
  const char *backend;    /* "ref" | "cpu/avx512vnni" ... */
  int vocab;              /* rows of the logits */
  int context;            /* positions the config declares; 0: not declared */
  int layers, width;
  int threads;
  size_t weight_bytes;  /* mapped */
  size_t owned_bytes;   /* in memory of this process: vectors and copies */
  const char *prepared; /* the file of prepared weights in use; NULL: none */
  size_t prepared_bytes;
  const char *prepared_fault; /* why one that is there is not used; NULL: no such */
  const char *backend_fault;  /* why a GPU that is there is not used (backend AUTO); NULL: no such */
} tern_model_info;
/* Valid while the model lives. */
TERN_API const tern_model_info *tern_model_get_info(const tern_model *model);

/* ---- text ------------------------------------------------------------------------------------------------------ */

/* `text` is `length` bytes of UTF-8. add_special: with the tokenizer's own BOS/EOS rules. *ids: n values. */
TERN_API tern_status tern_tokenize(const tern_model *model, const char *text, size_t length, bool add_special,
                                   int32_t **ids, size_t *n, tern_error *err);
TERN_API tern_status tern_detokenize(const tern_model *model, const int32_t *ids, size_t n, bool skip_special,
                                     char **text, tern_error *err);

typedef struct tern_message {
  const char *role;    /* "system", "user", "assistant", ... */
  const char *content; /* UTF-8 */
} tern_message;

/* Renders the model's chat template with add_generation_prompt and returns the ids of the result, BOS never doubled.
 * The template's enable_thinking is, as in mlx-lm, whether the tokenizer has thinking tokens. */
TERN_API tern_status tern_chat(const tern_model *model, const tern_message *messages, size_t n_messages, int32_t **ids,
                               size_t *n, tern_error *err);

/* ---- session --------------------------------------------------------------------------------------------------- */

typedef struct tern_session tern_session;

/* Speculation: tokens that may come next are guessed and verified in one forward. A guess counts where it is the very
 * token that would have been drawn, so answers are the same in every bit, with or without; it is a matter of speed. One
 * of the three ways; zeroed: none. */
typedef struct tern_draft {
  bool lookup;       /* what followed the last tokens where they stood before, in the prompt or the answer */
  tern_model *model; /* a smaller model with the same vocabulary; must outlive the session. One session or scheduler
                        at a time uses it */
  /* The caller's own: fills out[0..most) with guesses of what follows ids[0..n) and returns how many there are. */
  int (*guess)(void *user, const int32_t *ids, size_t n, int32_t *out, int most);
  void *user;
  int tokens;  /* at most so many are guessed ahead, up to 32; 0: 3 of a model, as in mlx-lm, else 10 */
  bool always; /* so many each time. Else fewer, or none, where former guesses tell that it does not pay */
} tern_draft;

typedef struct tern_session_options {
  int context;      /* positions admitted; 0: the model's own limit, or 1 << 20 where it declares none */
  tern_draft draft; /* TERN_E_UNSUPPORTED where its model has another vocabulary, with the first difference */
} tern_session_options;

TERN_API tern_status tern_session_open(tern_model *model, const tern_session_options *opt, tern_session **out,
                                       tern_error *err);
TERN_API void tern_session_close(tern_session *session);
/* Makes the running generate or sync stop within one token with TERN_E_CANCELLED. Async-signal-safe. */
TERN_API void tern_session_cancel(tern_session *session);

/* ---- generate -------------------------------------------------------------------------------------------------- */

/* Names, defaults, order and random draws are those of mlx-lm 0.31.3. Zero is "off" everywhere. */
typedef struct tern_sampling {
  double temp;  /* 0: the most likely token */
  double top_p; /* 0 or 1: off */
  double min_p;
  int min_tokens_to_keep; /* 0 means 1 */
  int top_k;
  double xtc_probability, xtc_threshold;
  const int32_t *xtc_special; /* ids exempt from xtc beside the newline's and the stop ids, n_xtc_special of them */
  size_t n_xtc_special;
  double repetition_penalty, presence_penalty, frequency_penalty;
  int repetition_context, presence_context, frequency_context; /* 0 means 20 */
  const int32_t *bias_ids;                                     /* logit bias, n_bias pairs */
  const float *bias_values;
  size_t n_bias;
  uint64_t seed;
  bool continue_draws; /* go on with the random numbers of this session's last answer; seed then means nothing */
} tern_sampling;

/* What an answer may be: JSON under a schema. Immutable; of one model, which must outlive it. */
typedef struct tern_grammar tern_grammar;

/* schema: a JSON Schema; NULL: any object. TERN_E_USAGE: it is none, or has a keyword that is not enforced, which the
 * line names. TERN_E_LIMIT: too large or costly. TERN_E_UNSUPPORTED: the model's tokens cannot be held against a
 * grammar. */
TERN_API tern_status tern_grammar_open(tern_model *model, const char *schema, size_t length, tern_grammar **out,
                                       tern_error *err);
TERN_API void tern_grammar_close(tern_grammar *grammar);

typedef struct tern_generate_options {
  tern_sampling sampling;
  const tern_grammar
      *grammar;             /* NULL: none. Else the answer ends where it is whole, or is the beginning of one (finish:
                               "length"); its text is not trimmed. Not with ignore_eos. Must outlive the call */
  int max_tokens;           /* 0 means 256; < 0: until the context is full */
  const char *const *stops; /* stop strings, n_stops of them; the text ends before the first match */
  size_t n_stops;
  const int32_t *stop_ids; /* in addition to the model's own; each below the model's vocab */
  size_t n_stop_ids;
  bool ignore_eos; /* the model's own stop ids do not stop */
  /* Called with whole characters as they become final; text is `length` bytes, not terminated. May be NULL.
   * Returning false ends the answer (finish: "cancelled"). */
  bool (*on_text)(void *user, const char *text, size_t length);
  /* Called after each piece of the prompt that was read: `done` of its `total` tokens have been. May be NULL. */
  void (*on_prompt)(void *user, size_t done, size_t total);
  void *user;
} tern_generate_options;

typedef struct tern_result {
  const char *finish; /* "stop" | "length" | "cancelled" */
  char *text;         /* the whole answer; tern_free */
  int32_t *ids;       /* generated ids, a final stop id left out; tern_free */
  size_t n_ids;
  size_t prompt_tokens, cached_tokens;    /* cached: prompt tokens whose state was reused */
  size_t drafted_tokens, accepted_tokens; /* guessed ahead; those that became part of the answer */
  double prompt_seconds, decode_seconds;
} tern_result;

/* Continues after `ids` (the whole timeline, at least one id). On failure *result is zeroed. */
TERN_API tern_status tern_generate(tern_session *session, const int32_t *ids, size_t n,
                                   const tern_generate_options *opt, tern_result *result, tern_error *err);
TERN_API void tern_result_clear(tern_result *result);

#ifdef __cplusplus
}
#endif
#endif
