/* engine.h - what tern.h's opaque objects are: a network with its text side. For cli/ and tests; others use tern.h. */
#ifndef TERN_ENGINE_ENGINE_H
#define TERN_ENGINE_ENGINE_H

#include <pthread.h>

#include "engine/rng.h"
#include "engine/session.h"
#include "text/chat.h"
#include "text/tok.h"
#include "text/tok_bytes.h"

struct tern_model {
  model *net;
  tok *tok;
  chat *chat; /* NULL: its files are broken in the way that chat_error tells, whenever it is asked for */
  tern_error chat_error;
  int32_t *stop_ids; /* the union of generation_config.json, config.json and the tokenizer's eos token */
  size_t n_stop_ids;
  tern_model_info info;
  /* What grammars are held against: made when the first one is (constraint.h), under the lock; then they stand. */
  pthread_mutex_t bytes_lock;
  tok_bytes *bytes, *first_bytes; /* first_bytes NULL: an answer's first token writes what others do */
};

struct tern_session {
  tern_model *model;
  session *timeline;
  struct drafter *drafter; /* NULL: no speculation */
  rng_key key;             /* random numbers after the last answer */
  bool drew;
};

/* tern_generate, but a cancel counts that has come since the caller's own session_uncancel. */
tern_status engine_generate(tern_session *s, const int32_t *ids, size_t n, const tern_generate_options *opt,
                            tern_result *result, tern_error *err);

#endif
