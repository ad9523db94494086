/* main.c - the dispatch table, and what every verb has in common: how it begins and how it ends.
 *
 * A verb is a function from arguments to a status. It prints results through out.h and leaves its error, one line, in
 * `err`; here the line is printed and the exit status chosen: 0, 1 bad input, 2 bad usage, 128 + signal after a signal
 * that stopped it (130 for SIGINT).
 */
#include <stdlib.h>

#include "base/mem.h"
#include "cli/args.h"
#include "cli/env.h"
#include "cli/out.h"
#include "cli/signals.h"
#include "cli/verbs.h"

const cli_verb cli_verbs[VERB_COUNT] = {
    [VERB_RUN] = {"run", "[MODEL] [PROMPT|-]", "One answer, streamed to stdout.", 2, verb_run},
    [VERB_CHAT] = {"chat", "[MODEL]", "A conversation in the terminal.", 1, verb_chat},
#ifdef TERN_SERVER
    [VERB_SERVE] = {"serve", "[MODEL]", "An HTTP server for OpenAI's, Anthropic's and Ollama's clients.", 1,
                    verb_serve},
#endif
    [VERB_LOGITS] = {"logits", "MODEL --ids 1,2,3 | --ids-file F", "The logits after a list of token ids.", 1,
                     verb_logits},
    [VERB_TOKENIZE] = {"tokenize", "MODEL [TEXT|-]", "Text to token ids, as a JSON array.", 2, verb_tokenize},
    [VERB_DETOKENIZE] = {"detokenize", "MODEL", "A JSON array of token ids on stdin to text.", 1, verb_detokenize},
    [VERB_RENDER] = {"render", "[MODEL] --json FILE", "Messages to the prompt that the chat template makes.", 1,
                     verb_render},
    [VERB_INSPECT] = {"inspect", "MODEL", "What a checkpoint is: config, tensors, audit, memory.", 1, verb_inspect},
    [VERB_LS] = {"ls", "", "The models that are found.", 0, verb_ls},
#ifdef TERN_HUB
    [VERB_PULL] = {"pull", "ORG/NAME[@REV]", "Downloads a model into the Hugging Face cache (docs/hub.md).", 1,
                   verb_pull},
#endif
    [VERB_RM] = {"rm", "MODEL[@REV]", "Removes a model, or one revision of it, and what was made of it.", 1, verb_rm},
    [VERB_GC] = {"gc", "", "Removes what no model uses from the cache and TERN_HOME.", 0, verb_gc},
    [VERB_IMPORT] = {"import", "FILE.gguf OUTDIR", "A GGUF file as an MLX-format directory.", 2, verb_import},
    [VERB_PREPARE] = {"prepare", "MODEL", "Lays the weights out so that they are read faster; changes no bit.", 1,
                      verb_prepare},
    [VERB_BENCH] = {"bench", "MODEL", "Speed of prompts and decoding.", 1, verb_bench},
    [VERB_PPL] = {"ppl", "MODEL --text FILE", "Perplexity of a text, by mlx-lm's method.", 1, verb_ppl},
    [VERB_PARITY] = {"parity", "MODEL --golden DIR", "Replays stored goldens, bit for bit.", 1, verb_parity},
    [VERB_DOCTOR] = {"doctor", "", "What this machine offers, and what the build uses of it.", 0, verb_doctor},
    [VERB_COMPLETIONS] = {"completions", "bash|zsh|fish", "A script that completes tern's command lines in a shell.", 1,
                          verb_completions},
    [VERB_HELP] = {"help", "[VERB]", "This text, or the flags of a verb.", 1, verb_help},
    [VERB_VERSION] = {"version", "", "Version, commit, backends and SIMD levels (also tern --version).", 0,
                      verb_version},
};

static int exit_code(tern_status status)
{
  switch (status) {
  case TERN_OK:
    return 0;
  case TERN_E_USAGE:
    return 2;
  default:
    return 1;
  }
}

static tern_status run(int argc, char **argv, cli_args *a, tern_error *err)
{
  TRY(args_parse(argc, argv, a, err));
  out_set_verbose(a->verbose);
  a->prepared_dir = env_prepared();
  if (a->help) {
    help_verb(a->verb);
    return TERN_OK;
  }
  return cli_verbs[a->verb].run(a, err);
}

int main(int argc, char **argv)
{
  cli_args args;
  tern_error err = {0};
  out_start(env_no_color(), env_plain_terminal());
  sig_start();
  tern_status status = run(argc, argv, &args, &err);
  mem_free(args.prepared_dir);
  args_clear(&args);
  say_progress_end();
  if (status == TERN_E_CANCELLED && sig_caught() && args.verb != VERB_CHAT && out_err_is_terminal())
    say("%s", ""); /* the shell's prompt stands on a line of its own */
  if (status == TERN_E_CANCELLED && sig_caught())
    return 128 + sig_caught();
  if (out_reader_gone())
    return 0;
  if (status == TERN_OK)
    status = out_finish(&err);
  else
    out_finish(NULL);
  if (status != TERN_OK && *err.text) /* none: the verb told it */
    say_error(err.text);
  return exit_code(status);
}
