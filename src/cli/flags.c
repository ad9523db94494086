/* flags.c - the table of flags. Names, defaults and meanings are docs/cli.md's; where mlx_lm spells a flag otherwise,
 * its spelling is an alias. A flag of something that this build cannot do has no row. */
#include <limits.h>
#include <stddef.h>

#include "cli/args.h"

#define V(verb) (1u << VERB_##verb)
#define AT(member) offsetof(cli_args, member)

enum {
  ANY = (1u << VERB_COUNT) - 1,
  ANSWERS = V(RUN) | V(CHAT),
  SAMPLES = ANSWERS | V(SERVE),
  LOADS = SAMPLES | V(LOGITS) | V(BENCH) | V(PPL) | V(PARITY), /* verbs that run a network */
  /* The common flags are taken by every verb that names a model, also where they have nothing to decide. */
  MODELS = LOADS | V(TOKENIZE) | V(DETOKENIZE) | V(RENDER) | V(INSPECT) | V(PREPARE),
  JSONS = V(RUN) | V(INSPECT) | V(LS) | V(BENCH) | V(PPL) | V(PARITY) | V(DOCTOR) | V(IMPORT) | V(PREPARE) |
          V(TOKENIZE) | V(PULL) | V(RM) | V(GC),
};

/* What may download. */
#ifdef TERN_HUB
enum { PULLS = SAMPLES | V(PULL) };
#else
enum { PULLS = 0 };
#endif

/* What a table cell cannot hold: the largest counts that are taken at face value. */
enum { MOST_THREADS = 1024, MOST_TOKENS = 1 << 30, MOST_IDS = INT_MAX, MOST_REPEATS = 1000000 };

#define FLAG(names, kind, member, verbs, value, help)                                                                  \
  {                                                                                                                    \
    names, kind, verbs, AT(member), 0, 0, 0, NULL, value, help                                                         \
  }
#define NUMBER(names, kind, member, verbs, lo, hi, fallback, value, help)                                              \
  {                                                                                                                    \
    names, kind, verbs, AT(member), lo, hi, fallback, NULL, value, help                                                \
  }
#define CHOICE(names, kind, member, verbs, choices, value, help)                                                       \
  {                                                                                                                    \
    names, kind, verbs, AT(member), 0, 0, 0, choices, value, help                                                      \
  }

const cli_flag cli_flags[] = {
    /* prompt */
    FLAG("--prompt|-p", FLAG_STRING, prompt, V(RUN), "TEXT", "the prompt, instead of the operand; - reads stdin"),
    FLAG("--file", FLAG_STRING, prompt_file, V(RUN), "PATH", "the prompt from a file"),
    FLAG("--system|--system-prompt", FLAG_STRING, system, ANSWERS, "TEXT", "the system message"),
    FLAG("--raw|--ignore-chat-template", FLAG_BOOL, raw, V(RUN), NULL,
         "the prompt as it is, without the chat template"),
    FLAG("--chat-template", FLAG_STRING, chat_template, SAMPLES, "TEXT|PATH",
         "a Jinja template, or a file that holds one, instead of the model's"),
    FLAG("--use-default-chat-template", FLAG_BOOL, default_template, SAMPLES, NULL,
         "ChatML where the model has no template"),
    FLAG("--chat-template-args|--chat-template-config", FLAG_STRING, template_args, SAMPLES, "JSON",
         "an object of variables for the template"),
    FLAG("--prompt-cache-file", FLAG_STRING, cache_file, ANSWERS, "FILE",
         "the conversation's state: taken from there where the file is, put there at the end; changes no bit"),
    /* answer */
    NUMBER("--max-tokens|-m", FLAG_INT, max_tokens, V(RUN), -1, MOST_TOKENS, 100, "N",
           "tokens to generate at most; -1: until the context is full"),
    NUMBER("--max-tokens|-m", FLAG_INT, max_tokens, V(CHAT), -1, MOST_TOKENS, 256, "N",
           "tokens of an answer at most; -1: until the context is full"),
    NUMBER("--max-tokens|-m", FLAG_INT, max_tokens, V(SERVE), 1, MOST_TOKENS, 512, "N",
           "tokens of an answer where a request does not say; fewer where the context ends"),
    FLAG("--stop", FLAG_STRINGS, stops, ANSWERS, "TEXT", "ends the answer before this text; repeatable"),
    FLAG("--ignore-eos", FLAG_BOOL, ignore_eos, ANSWERS, NULL, "the model's own stop tokens do not stop"),
    FLAG("--extra-eos-token", FLAG_STRINGS, extra_eos, ANSWERS, "TOKEN", "a token that stops too; repeatable"),
    FLAG("--no-history", FLAG_BOOL, no_history, V(CHAT), NULL, "keeps nothing of what is typed for the next time"),
    FLAG("--stats", FLAG_BOOL, stats, ANSWERS, NULL, "speed, memory and seed on stderr, after each answer"),
    /* sampling */
    NUMBER("--temp", FLAG_REAL, temp, SAMPLES, 0, 1e6, 0, "X", "temperature; 0: always the most likely token"),
    NUMBER("--top-p", FLAG_REAL, top_p, SAMPLES, 0, 1, 1, "X", "the most likely tokens that make up this share"),
    NUMBER("--top-k", FLAG_INT, top_k, SAMPLES, 0, MOST_IDS, 0, "N", "the N most likely tokens; 0: off"),
    NUMBER("--min-p", FLAG_REAL, min_p, SAMPLES, 0, 1, 0, "X", "tokens at least X times as likely as the likeliest"),
    NUMBER("--min-tokens-to-keep", FLAG_INT, min_tokens_to_keep, SAMPLES, 1, MOST_IDS, 1, "N", "that --min-p leaves"),
    NUMBER("--xtc-probability", FLAG_REAL, xtc_probability, SAMPLES, 0, 1, 0, "X",
           "how often XTC cuts the top choices"),
    NUMBER("--xtc-threshold", FLAG_REAL, xtc_threshold, SAMPLES, 0, 0.5, 0, "X", "probability that XTC cuts above"),
    FLAG("--logit-bias", FLAG_STRING, logit_bias, ANSWERS, "JSON",
         "{\"ID\": X, …}, added to the logits of these tokens"),
    FLAG("--json-schema", FLAG_STRING, json_schema, V(RUN), "FILE|TEXT",
         "the answer is JSON under this schema; {}: any JSON"),
    NUMBER("--repetition-penalty", FLAG_REAL, repetition_penalty, SAMPLES, 0, 1e6, 0, "X", "factor; 0: off"),
    NUMBER("--repetition-context-size", FLAG_INT, repetition_context, SAMPLES, 1, MOST_IDS, 20, "N",
           "tokens that the repetition penalty looks back on"),
    NUMBER("--presence-penalty", FLAG_REAL, presence_penalty, SAMPLES, -1e6, 1e6, 0, "X", "once per token; 0: off"),
    NUMBER("--frequency-penalty", FLAG_REAL, frequency_penalty, SAMPLES, -1e6, 1e6, 0, "X",
           "per occurrence of a token; 0: off"),
    NUMBER("--seed", FLAG_SEED, seed, MODELS, 0, 0, 0, "N",
           "of the random draws; drawn where absent (--stats, --json show it)"),
    /* speculation */
    FLAG("--draft-model", FLAG_STRING, draft_model, SAMPLES, "MODEL",
         "a smaller model with the same vocabulary guesses tokens ahead; changes no bit"),
    FLAG("--prompt-lookup|--lookup", FLAG_BOOL, lookup, SAMPLES, NULL,
         "tokens are guessed ahead where the text repeats itself; changes no bit"),
    NUMBER("--num-draft-tokens", FLAG_INT, draft_tokens, SAMPLES, 1, 32, 0, "N",
           "tokens that are guessed ahead at most; 3 with --draft-model, 10 with --prompt-lookup where absent"),
    /* serving */
    FLAG("--host", FLAG_STRING, host, V(SERVE), "ADDRESS", "where to listen; 127.0.0.1 where absent"),
    NUMBER("--port", FLAG_INT, port, V(SERVE), 0, 65535, 8080, "N", "0: any that is free"),
    FLAG("--unix-socket", FLAG_STRING, unix_socket, V(SERVE), "PATH", "listens there instead of host and port"),
    FLAG("--tls-cert", FLAG_STRING, tls_cert, V(SERVE), "FILE", "a certificate (chain) in PEM: HTTPS; with --tls-key"),
    FLAG("--tls-key", FLAG_STRING, tls_key, V(SERVE), "FILE", "its private key in PEM"),
    FLAG("--api-key", FLAG_STRINGS, api_keys, V(SERVE), "KEY",
         "requests need it, or another one of these; repeatable. Programs of this machine see it: better a file"),
    FLAG("--api-key-file", FLAG_STRING, api_key_file, V(SERVE), "FILE", "the same from a file, a key a line"),
    FLAG("--cors", FLAG_STRINGS, origins, V(SERVE), "ORIGIN",
         "pages from there may ask, as https://HOST; *: all pages; repeatable"),
    NUMBER("--drain", FLAG_INT, drain, V(SERVE), 0, 3600, 30, "N",
           "seconds that running answers have to end in when the server is told to"),
    FLAG("--alias", FLAG_STRINGS, aliases, V(SERVE), "NAME", "a name that requests may call the model; repeatable"),
    FLAG("--tool-parser", FLAG_STRING, tool_parser, V(SERVE), "NAME",
         "how the model writes tool calls, where its chat template does not show it (docs/server.md)"),
    FLAG("--reasoning-parser", FLAG_STRING, reasoning_parser, V(SERVE), "NAME|none",
         "what its reasoning stands between; none: reasoning is content"),
    NUMBER("--decode-concurrency", FLAG_INT, rows, V(SERVE), 1, 64, 32, "N", "answers that run together"),
    NUMBER("--prompt-cache-size", FLAG_INT, prefixes, V(SERVE), 0, 1000, 10, "N",
           "conversations whose state is kept for their next turn; changes no bit; 0: none"),
    FLAG("--prompt-cache-dir", FLAG_STRING, prefix_dir, V(SERVE), "DIR",
         "where that state outlives the server: read at the start, written at the end; changes no bit"),
    NUMBER("--prompt-cache-dir-mb", FLAG_INT, prefix_dir_mb, V(SERVE), 1, 1 << 30, 4096, "N",
           "megabytes that the files in --prompt-cache-dir may take"),
    NUMBER("--queue", FLAG_INT, queue, V(SERVE), 1, 1 << 16, 128, "N",
           "answers that wait for room; beyond that requests get status 429"),
    /* logits */
    FLAG("--ids", FLAG_STRING, ids, V(LOGITS), "1,2,3",
         "the prompt as token ids: commas or blanks between, or a JSON array"),
    FLAG("--ids-file", FLAG_STRING, ids_file, V(LOGITS), "PATH",
         "the prompt's ids from a file: numbers or a JSON array"),
    NUMBER("--steps", FLAG_INT, steps, V(LOGITS), 0, MOST_TOKENS, 0, "N", "greedy decode steps after the prompt"),
    FLAG("--feed", FLAG_STRING, feed, V(LOGITS), "4,5,6", "steps through these ids instead, written as --ids has them"),
    FLAG("--all", FLAG_BOOL, all, V(LOGITS), NULL, "a row for every prompt position, not the last alone"),
    CHOICE("--split", FLAG_CHOICE, split, V(LOGITS), "canonical|mlx|one", "HOW",
           "canonical: piece size changes no bit; mlx: the reference's pieces (but --kv-bits goes by position in any "
           "case: "
           "docs/cache.md); one: one forward"),
    FLAG("--out", FLAG_STRING, out, V(LOGITS), "FILE", "the rows, little-endian float32 [rows, vocab]"),
    FLAG("--trace", FLAG_STRING, trace, V(LOGITS), "FILE",
         "the outputs of every op in order: an index as JSON lines, and the values in FILE.f32"),
    /* text */
    FLAG("--no-special", FLAG_BOOL, no_special, V(TOKENIZE), NULL, "without the tokenizer's own BOS and EOS"),
    FLAG("--pieces", FLAG_BOOL, pieces, V(TOKENIZE), NULL,
         "a line per token: id, piece and text, both as JSON strings"),
    FLAG("--skip-special", FLAG_BOOL, skip_special, V(DETOKENIZE), NULL, "leaves special tokens out"),
    FLAG("--stream", FLAG_BOOL, stream, V(DETOKENIZE), NULL, "a JSON array of the pieces that a stream would send"),
    FLAG("--json", FLAG_STRING, json_file, V(RENDER), "FILE",
         "{\"messages\", \"tools\", \"add_generation_prompt\", \"kwargs\", \"now\"}; - reads stdin"),
    FLAG("--template", FLAG_STRING, template_file, V(RENDER), "FILE", "a Jinja template instead of the model's"),
    FLAG("--ids", FLAG_BOOL, as_ids, V(RENDER), NULL, "the token ids of the prompt instead of its text"),
    /* the hub's cache */
    FLAG("--include", FLAG_STRINGS, include, V(PULL), "GLOB",
         "files to bring, instead of what the engine reads; * goes over /; repeatable"),
    FLAG("--exclude", FLAG_STRINGS, exclude, V(PULL), "GLOB", "files to leave out; repeatable"),
    FLAG("--yes", FLAG_BOOL, yes, PULLS, NULL, "asks nothing; a MODEL of the hub that is not here is pulled"),
    FLAG("--yes", FLAG_BOOL, yes, V(RM) | V(GC), NULL, "asks nothing: what is shown goes"),
    /* measuring */
    NUMBER("-p|--prompts", FLAG_INTS, bench_prompts, V(BENCH), 0, MOST_TOKENS, 0, "N[,N]",
           "prompt sizes; 0: none [512]"),
    NUMBER("-n|--decodes", FLAG_INTS, bench_decodes, V(BENCH), 0, MOST_TOKENS, 0, "N[,N]",
           "decode counts; 0: none [128]"),
    NUMBER("-b|--batches", FLAG_INTS, bench_batches, V(BENCH), 1, 64, 0, "N[,N]", "batch sizes [1]"),
    NUMBER("-d|--depths", FLAG_INTS, bench_depths, V(BENCH), 0, MOST_TOKENS, 0, "N[,N]", "context depths [0]"),
    NUMBER("-g|--guesses", FLAG_INTS, bench_guesses, V(BENCH), 0, 32, 0, "N[,N]",
           "guesses that each decode step verifies and takes back (speculation where none is right) [0]"),
    NUMBER("-r|--repeats", FLAG_INT, repeats, V(BENCH), 1, MOST_REPEATS, 3, "N", "repeats of each measurement"),
    FLAG("--text", FLAG_STRING, text_file, V(PPL), "FILE", "UTF-8 text to measure on"),
    CHOICE("--against", FLAG_WORD, against, V(PPL), "exact", "MODE",
           "compares the chosen numerics with this one: KL divergence, top-1 agreement"),
    NUMBER("--sequence-length", FLAG_INT, sequence_length, V(PPL), 2, MOST_TOKENS, 512, "N", "tokens of a sequence"),
    NUMBER("--num-samples", FLAG_INT, num_samples, V(PPL), -1, MOST_TOKENS, 256, "N", "sequences at most; -1: all"),
    FLAG("--golden", FLAG_STRING, golden, V(PARITY), "DIR", "the goldens to replay"),
    /* how the model runs */
    FLAG("--model", FLAG_STRING, model, MODELS, "MODEL", "the model, instead of the operand"),
    CHOICE("--numerics", FLAG_CHOICE, numerics, MODELS, "exact|native|fast", "MODE",
           "exact: float32; native: the checkpoint's own type (slow); fast: quicker, close to exact (docs/fast.md)"),
    CHOICE("--backend", FLAG_CHOICE, backend, MODELS, "auto|ref|cpu|cuda", "NAME",
           "what computes; auto: a GPU where there is one, else the CPU"),
    NUMBER("--gpu", FLAG_INT, gpu, MODELS, 0, 1023, 0, "N", "which GPU, as the driver counts them"),
    NUMBER("--gpu-memory-fraction", FLAG_REAL, gpu_memory, MODELS, 0.01, 1, 1, "X",
           "the share of the GPU's memory that may be in use, other programs' included"),
    CHOICE("--simd", FLAG_WORD, simd, MODELS, "baseline|neon|dotprod|i8mm|avx2|avxvnni|avx512|avx512vnni", "LEVEL",
           "no higher SIMD level; changes no bit"),
    NUMBER("--threads", FLAG_INT, threads, MODELS | V(DOCTOR), 1, MOST_THREADS, 0, "N",
           "threads; one per core where absent"),
    NUMBER("--ctx", FLAG_INT, context, MODELS, 1, MOST_TOKENS, 0, "N", "positions; the model's where absent"),
    NUMBER("--prefill-step-size", FLAG_INT, prefill_step, MODELS & ~V(PARITY), 1, MOST_TOKENS, 2048, "N",
           "tokens in a piece of a prompt at most"),
    NUMBER("--max-kv-size", FLAG_INT, max_kv_size, MODELS & ~V(PARITY), 1, MOST_TOKENS, 0, "N",
           "keys that layers without a window keep at most"),
    NUMBER("--kv-bits", FLAG_INT, kv_bits, MODELS & ~V(PARITY), 2, 8, 0, "N",
           "quantises keys and values to 2, 3, 4, 5, 6 or 8 bits"),
    NUMBER("--kv-group-size", FLAG_INT, kv_group_size, MODELS & ~V(PARITY), 32, 128, 0, "N",
           "32, 64 or 128 values of --kv-bits share a scale; 64 where absent"),
    NUMBER("--quantized-kv-start", FLAG_INT, quantized_kv_start, MODELS & ~V(PARITY), 0, MOST_TOKENS, 0, "N",
           "the position from which --kv-bits holds; 5000 where absent"),
    FLAG("--prepare", FLAG_BOOL, prepare, LOADS | V(IMPORT), NULL,
         "prepares the weights first where that is not done yet; changes no bit"),
    FLAG("--no-prepare", FLAG_BOOL, no_prepare, MODELS & ~V(PREPARE), NULL,
         "leaves prepared weights aside; changes no bit"),
    FLAG("--mlock", FLAG_BOOL, mlock, MODELS, NULL, "locks the weights in memory"),
    /* output */
    FLAG("--types", FLAG_BOOL, types, V(LS), NULL, "the model types that this build runs, instead of models"),
    FLAG("--ids", FLAG_BOOL, bare_ids, V(LS), NULL, "only the ids that name models, one a line"),
    FLAG("--json", FLAG_BOOL, json, JSONS, NULL, "one JSON document"),
    FLAG("--man", FLAG_BOOL, man, V(HELP), NULL, "the same as a man page"),
    FLAG("--verbose|-v", FLAG_TRUTH, verbose, ANY, NULL, "tells more on stderr"),
    FLAG("--help|-h", FLAG_BOOL, help, ANY, NULL, "this text"),
};
const size_t cli_n_flags = sizeof cli_flags / sizeof *cli_flags;

_Static_assert(sizeof cli_flags / sizeof *cli_flags <= CLI_MAX_FLAGS, "cli_args.given is too small");
