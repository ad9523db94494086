/* args.h - the command line as data: every flag is a row of one table, every verb too.
 *
 * A row says where its value goes in struct cli_args, what it may be, which verbs take it and what help says of it.
 * Parsing, `--help`, defaults and suggestions are loops over the rows. What is not in the table is a usage error.
 */
#ifndef TERN_CLI_ARGS_H
#define TERN_CLI_ARGS_H

#include "base/status.h"

typedef enum cli_verb_id {
  VERB_RUN,
  VERB_CHAT,
  VERB_SERVE,
  VERB_LOGITS,
  VERB_TOKENIZE,
  VERB_DETOKENIZE,
  VERB_RENDER,
  VERB_INSPECT,
  VERB_LS,
  VERB_PULL,
  VERB_RM,
  VERB_GC,
  VERB_IMPORT,
  VERB_PREPARE,
  VERB_BENCH,
  VERB_PPL,
  VERB_PARITY,
  VERB_DOCTOR,
  VERB_COMPLETIONS,
  VERB_HELP,
  VERB_VERSION,
  VERB_COUNT
} cli_verb_id;

/* Values of choices, in the order of the table's lists. */
typedef enum cli_split { CLI_SPLIT_CANONICAL, CLI_SPLIT_MLX, CLI_SPLIT_ONE } cli_split;

/* A list of strings (borrowed from argv) or of numbers. */
typedef struct cli_strings {
  const char **items;
  size_t n, capacity;
} cli_strings;

typedef struct cli_ints {
  int *items; /* NULL: not given */
  size_t n, capacity;
} cli_ints;

enum { CLI_MAX_WORDS = 3, CLI_MAX_FLAGS = 128 };

typedef struct cli_args {
  const char *words[CLI_MAX_WORDS]; /* what is no flag: MODEL, PROMPT, ... */
  cli_verb_id verb;
  int n_words;
  bool given[CLI_MAX_FLAGS]; /* by row */

  /* the model and how it runs */
  const char *model, *simd;
  int numerics, backend; /* tern_numerics, tern_backend */
  int threads, context, prefill_step, max_kv_size, kv_bits, kv_group_size, quantized_kv_start;
  /* the prompt */
  const char *prompt, *prompt_file, *system, *chat_template, *template_args, *cache_file;
  /* sampling */
  double temp, top_p, min_p, xtc_probability, xtc_threshold;
  double repetition_penalty, presence_penalty, frequency_penalty;
  int top_k, min_tokens_to_keep, repetition_context;
  int max_tokens;
  const char *logit_bias;
  const char *json_schema;
  uint64_t seed;
  cli_strings stops, extra_eos;
  /* speculation */
  const char *draft_model;
  int draft_tokens;
  bool lookup;
  /* serving */
  const char *host;
  const char *api_key_file, *unix_socket, *tls_cert, *tls_key;
  cli_strings aliases, api_keys, origins;
  int port, rows, queue, prefixes, drain;
  const char *prefix_dir;
  int prefix_dir_mb;
  const char *tool_parser, *reasoning_parser;
  /* logits */
  const char *ids, *feed, *ids_file, *out, *trace;
  int steps, split; /* cli_split */
  /* text */
  const char *json_file, *template_file;
  /* the hub's cache */
  cli_strings include, exclude;
  /* measuring */
  cli_ints bench_prompts, bench_decodes, bench_batches, bench_depths, bench_guesses;
  const char *text_file, *against, *golden;
  int sequence_length, num_samples, repeats;
  int gpu;
  double gpu_memory;
  /* switches, in the order of the groups above */
  bool help, verbose, json, mlock, raw, default_template, ignore_eos, stats, all;
  bool no_special, pieces, skip_special, stream, as_ids, types;
  bool prepare, no_prepare, man, no_history;
  bool yes, bare_ids;
  char *prepared_dir; /* TERN_HOME/prepared, by main; NULL: there is no home */
} cli_args;

typedef struct cli_flag cli_flag;

typedef struct cli_verb {
  const char *name, *operands, *summary;
  int max_words;
  tern_status (*run)(const cli_args *a, tern_error *err);
} cli_verb;

/* By cli_verb_id. In main.c. */
extern const cli_verb cli_verbs[VERB_COUNT];

/* Reads argv[1..]. TERN_E_USAGE with one line; free with args_clear in any case. `--help` anywhere and `--version` in
 * the verb's place are answered by verb and `help` alone. */
tern_status args_parse(int argc, char **argv, cli_args *out, tern_error *err);
void args_clear(cli_args *a);
/* Whether the flag whose value stands at `offset` was on the command line. */
bool args_given_at(const cli_args *a, size_t offset);
#define ARGS_GIVEN(args, member) args_given_at(args, offsetof(cli_args, member))

/* A whole decimal number in [lo, hi]. */
bool args_read_int(const char *text, int64_t lo, int64_t hi, int64_t *out);
/* "1,2,3", blanks allowed around numbers. `what` begins the message. */
tern_status args_read_ints(const char *what, const char *text, int64_t lo, int64_t hi, cli_ints *out, tern_error *err);

/* MODEL and the one operand after it, where --model may have taken MODEL's place. *text is NULL where absent. A model
 * that is not named is NULL. */
void args_model_and_text(const cli_args *a, const char **model, const char **text);
/* The same where MODEL must be named. */
tern_status args_need_model(const cli_args *a, const char **model, const char **text, tern_error *err);

/* Help of one verb and of the whole, to stdout; see help.c. */
void help_verb(cli_verb_id verb);
void help_all(void);
/* The same as man pages; see manual.c. */
void manual_verb(cli_verb_id verb);
void manual_all(void);
/* What both say: of MODEL, and of the environment. */
extern const char *const help_model, *const help_environment;
/* Whether a flag has a default that is worth telling. */
bool help_shows_default(const cli_flag *f);
/* The verb called `name`; VERB_COUNT: none, *nearest (may be NULL) then gets the name that may have
 * been meant, or NULL. */
cli_verb_id help_find_verb(const char *name, const char **nearest);
/* The error for what it did not find; `where` begins it. */
tern_status help_unknown_verb(const char *where, const char *name, const char *nearest, tern_error *err);

/* ---- the table, for args.c and help.c ---- */

typedef enum flag_kind {
  FLAG_BOOL,    /* bool, takes no value */
  FLAG_TRUTH,   /* bool; an argument that is True or False (any case, or T, F) is its value */
  FLAG_STRING,  /* const char * */
  FLAG_STRINGS, /* cli_strings, repeatable */
  FLAG_INT,     /* int in [lo, hi] */
  FLAG_SEED,    /* uint64_t */
  FLAG_REAL,    /* double in [lo, hi] */
  FLAG_CHOICE,  /* int: which of `choices` */
  FLAG_WORD,    /* const char *: one of `choices` */
  FLAG_INTS,    /* cli_ints, each in [lo, hi] */
} flag_kind;

struct cli_flag {
  const char *names; /* "--temp|-t": the first one is the flag's, the others are aliases */
  flag_kind kind;
  uint32_t verbs; /* bits by cli_verb_id */
  size_t offset;
  double lo, hi;
  double fallback;     /* of numbers */
  const char *choices; /* "exact|native" */
  const char *value;   /* what help calls the value */
  const char *help;
};

extern const cli_flag cli_flags[];
extern const size_t cli_n_flags;

/* The verb's flag whose name may have been meant, in out; NULL: none is near. */
const char *help_nearest_flag(cli_verb_id verb, const char *name, size_t length, char out[64]);

#endif
