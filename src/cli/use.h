/* use.h - what several verbs do alike: find the model, open it, read a text, measure time and memory. */
#ifndef TERN_CLI_USE_H
#define TERN_CLI_USE_H

#include <jansson.h>

#include "cli/args.h"
#include "cli/models.h"
#include "model/model.h"

/* MODEL's directory (mem_free). */
tern_status use_dir(const cli_args *a, const char *model, models_need need, char **dir, tern_error *err);
/* Options of the command line, TERN_THREADS counted in. Warns where there are more threads than cores. */
tern_status use_options(const cli_args *a, tern_model_options *out, tern_error *err);
/* What --prepare asks for: makes prepared weights where there are none, with a bar, and leaves options for opening. */
tern_status use_prepare(const char *dir, tern_model_options *o, tern_error *err);
/* Makes them in any case of `o`. *path: mem_free. */
tern_status use_make_prepared(const char *dir, const tern_model_options *o, prepared_report *report, char **path,
                              tern_error *err);
/* Warns where a GPU is there and not used. An empty `fault`: there is nothing to warn of. */
void use_warn_backend(const char *fault);
/* Warns where prepared weights are there and left aside. An empty `fault`: they are not. */
void use_warn_prepared(const char *fault);
/* Where numerics are native and the model is not small: says that this lane is slow. */
void use_hint_native(const model *m);
/* A network without its text side, in numerics `o` says. */
tern_status use_network(const char *dir, const tern_model_options *o, model **out, tern_error *err);

/* The words "exact", "native", "fast". */
const char *use_numerics_name(tern_numerics numerics);

/* A whole text (mem_free, NUL-terminated) from a file, or from stdin where path is "-". */
tern_status use_text(const char *path, char **text, size_t *length, tern_error *err);
/* An operand: the text itself, or stdin where it is "-" or NULL. */
tern_status use_operand(const char *operand, char **text, size_t *length, tern_error *err);

/* `name` is where the text comes from. */
tern_status use_check_utf8(const char *name, const char *text, size_t length, tern_error *err);

/* A JSON array of token ids and nothing more; `name` begins the messages. *ids: mem_free; NULL on failure alone. */
tern_status use_ids_array(const char *name, const char *text, size_t length, int32_t **ids, size_t *n, tern_error *err);
/* Token ids between blanks or commas. out->items: mem_free, on failure too. */
tern_status use_ids_list(const char *name, char *text, size_t length, cli_ints *out, tern_error *err);
/* Token ids as a JSON array. New reference; NULL: no memory. */
json_t *use_ids_json(const int32_t *ids, size_t n);

double use_seconds(void); /* a clock that only goes forward */
double use_peak_mb(void); /* the largest resident size so far, in 10^6 bytes */
/* count / seconds, 0 where no time passed. */
double use_rate(double count, double seconds);

#endif
