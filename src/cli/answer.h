/* answer.h - what run and chat do alike: messages to ids, flags to sampling options, results to a line of numbers. */
#ifndef TERN_CLI_ANSWER_H
#define TERN_CLI_ANSWER_H

#include "cli/use.h"
#include "engine/engine.h"

typedef struct answerer {
  const cli_args *args;
  tern_model *model;
  tern_model *draft_model; /* --draft-model; NULL: none */
  tern_draft draft;        /* the flags of speculation */
  double open_ms;
  json_t *variables;             /* --chat-template-args */
  tern_generate_options options; /* callbacks are the verb's */
  int32_t *bias_ids, *stop_ids;
  tern_grammar *grammar; /* --json-schema; NULL: none */
  float *bias_values;
} answerer;

/* Opens the model in `dir` and reads the flags. Free with answer_close in any case. */
tern_status answer_open(const cli_args *a, const char *dir, answerer *out, tern_error *err);
void answer_close(answerer *r);

/* Also true for one that is broken: its error comes when it is used. */
bool answer_has_template(const answerer *r);
/* --seed, or one that is drawn. */
uint64_t answer_seed(const cli_args *a);

/* Messages (a JSON list) to the ids of the prompt. TERN_E_NOT_FOUND where there is no template. */
tern_status answer_chat_ids(const answerer *r, const json_t *messages, int32_t **ids, size_t *n, tern_error *err);
/* A text without a template, with the tokenizer's own special ids. */
tern_status answer_raw_ids(const answerer *r, const char *text, size_t length, int32_t **ids, size_t *n,
                           tern_error *err);

/* --json-schema, of answers to that prompt; it may end inside of reasoning, where the model's template makes it so. */
tern_status answer_open_grammar(answerer *r, const int32_t *ids, size_t n, bool templated, tern_error *err);

/* Generates with SIGINT stopping it. max_tokens 0 gives an empty answer, as the words say. */
tern_status answer_generate(const answerer *r, tern_session *s, const int32_t *ids, size_t n, uint64_t seed,
                            bool (*on_text)(void *user, const char *text, size_t length), void *user,
                            tern_result *result, tern_error *err);

/* {"role": role, "content": text} at the end of a list, or at its start where the role is system. */
tern_status answer_add_message(json_t *messages, const char *role, const char *text, size_t length, tern_error *err);
/* Says at a terminal that the answer was cut by --max-tokens, where it was. */
void answer_hint_length(const cli_args *a, const tern_result *result);
/* The line of --stats, on stderr. */
void answer_say_stats(const tern_result *result, uint64_t seed);
double answer_prompt_rate(const tern_result *result);
double answer_decode_rate(const tern_result *result);

#endif
