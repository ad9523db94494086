/* verbs.h - the verbs, one file each. All take parsed arguments, print through out.h, and leave an error line. */
#ifndef TERN_CLI_VERBS_H
#define TERN_CLI_VERBS_H

#include "cli/args.h"

tern_status verb_run(const cli_args *a, tern_error *err);
tern_status verb_chat(const cli_args *a, tern_error *err);
tern_status verb_serve(const cli_args *a, tern_error *err);
tern_status verb_logits(const cli_args *a, tern_error *err);
tern_status verb_tokenize(const cli_args *a, tern_error *err);
tern_status verb_detokenize(const cli_args *a, tern_error *err);
tern_status verb_render(const cli_args *a, tern_error *err);
tern_status verb_inspect(const cli_args *a, tern_error *err);
tern_status verb_ls(const cli_args *a, tern_error *err);
tern_status verb_pull(const cli_args *a, tern_error *err);
tern_status verb_rm(const cli_args *a, tern_error *err);
tern_status verb_gc(const cli_args *a, tern_error *err);
tern_status verb_import(const cli_args *a, tern_error *err);
tern_status verb_prepare(const cli_args *a, tern_error *err);
tern_status verb_bench(const cli_args *a, tern_error *err);
tern_status verb_ppl(const cli_args *a, tern_error *err);
tern_status verb_parity(const cli_args *a, tern_error *err);
tern_status verb_doctor(const cli_args *a, tern_error *err);
tern_status verb_completions(const cli_args *a, tern_error *err);
tern_status verb_help(const cli_args *a, tern_error *err);
tern_status verb_version(const cli_args *a, tern_error *err);

#endif
