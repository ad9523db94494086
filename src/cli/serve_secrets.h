/* serve_secrets.h - what `tern serve` reads of files beside the model: keys of clients, certificates. */
#ifndef TERN_CLI_SERVE_SECRETS_H
#define TERN_CLI_SERVE_SECRETS_H

#include "cli/args.h"

typedef struct serve_secrets {
  char **keys; /* [n_keys]: of --api-key and of --api-key-file */
  size_t n_keys, capacity;
  char *certificate, *private_key; /* texts; NULL: none */
} serve_secrets;

/* Errors name the flag and the file: one of the TLS flags without the other, an empty file, what cannot be read. Free
 * with serve_free_secrets in any case. */
tern_status serve_read_secrets(const cli_args *a, serve_secrets *out, tern_error *err);
/* Wipes them first. */
void serve_free_secrets(serve_secrets *s);

#endif
