/* env.h - the environment, which is read here and nowhere else. */
#ifndef TERN_CLI_ENV_H
#define TERN_CLI_ENV_H

#include "base/status.h"

typedef struct cli_env {
  char *tern_home; /* TERN_HOME, else ~/.cache/tern */
  char *hub_cache; /* HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub (or below XDG_CACHE_HOME) */
  int threads;     /* TERN_THREADS; 0: not set */
} cli_env;

/* What a download goes by. Strings may be NULL where there is none. */
typedef struct cli_hub_env {
  char *endpoint;    /* HF_ENDPOINT, else https://huggingface.co; without a slash at its end */
  char *token;       /* HF_TOKEN, else what the file HF_TOKEN_PATH or HF_HOME/token holds */
  bool offline;      /* HF_HUB_OFFLINE */
  int stall_seconds; /* HF_HUB_DOWNLOAD_TIMEOUT, else 10 */
} cli_hub_env;

/* TERN_E_USAGE where TERN_THREADS is no number from 1 to 1024. The strings may be NULL where there is no home. */
tern_status env_read(cli_env *out, tern_error *err);
void env_clear(cli_env *e);
/* The same of what huggingface_hub reads too, with its meaning. Proxies are libcurl's to read. */
tern_status env_read_hub(cli_hub_env *out, tern_error *err);
void env_clear_hub(cli_hub_env *e);
/* HF_ENDPOINT alone, with its default (mem_free). NULL: no memory. */
char *env_endpoint(void);
/* Where prepared weights are kept: "TERN_HOME/prepared" (mem_free). NULL: there is no home, or no memory. */
char *env_prepared(void);
/* Where chat keeps what was typed: "TERN_HOME/history" (mem_free). NULL: there is no home, or no memory. */
char *env_history(void);
/* TERM is not set, or says that the terminal can do nothing but print. */
bool env_plain_terminal(void);
/* NO_COLOR is set and not empty. */
bool env_no_color(void);

#endif
