/* quant_config.h - which module is quantised, and how.
 *
 * config["quantization"] holds group_size, bits and mode for all, and entries keyed by module path for some: an object
 * replaces the globals (what it leaves out falls to its mode's defaults, not to the globals), true means the globals,
 * false means dense. A module without an entry is quantised exactly if its `.scales` is in the checkpoint.
 *
 * config["quantization_config"] counts only where "quantization" is absent, and only for what its quant_method says.
 */
#ifndef TERN_FORMAT_QUANT_CONFIG_H
#define TERN_FORMAT_QUANT_CONFIG_H

#include "format/config.h"
#include "format/st.h"

typedef enum quant_mode { QUANT_AFFINE, QUANT_MXFP4, QUANT_MXFP8, QUANT_NVFP4, QUANT_MODES } quant_mode;

typedef struct quant_params {
  quant_mode mode;
  int group_size; /* values along a row that share one scale */
  int bits;       /* of one packed value */
} quant_params;

const char *quant_mode_name(quant_mode mode); /* "affine" */

typedef struct quant_config quant_config;

/* Reads what `c` says. Always gives an object; without any quantisation in the config quant_present is false. Errors:
 * unknown modes or keys, impossible bits and groups, quant_method values that tern does not run, quantize_activations.
 * `c` may be closed before the result. */
tern_status quant_open(const cfg *c, quant_config **out, tern_error *err);
void quant_close(quant_config *q); /* NULL is fine */

bool quant_present(const quant_config *q);
/* The globals; only where quant_present. */
quant_params quant_globals(const quant_config *q);
/* "quantization" or the quant_method's name, for inspect; "" where not present. */
const char *quant_source(const quant_config *q);

/* Whether quant_method bitnet makes linears ternary. */
bool quant_is_ternary(const quant_config *q);
/* Whether quant_method bitnet makes this linear's weight packed ternary codes, and whether its scale divides. */
bool quant_ternary(const quant_config *q, const char *path, bool *inverse);

/* Decides one module. `path` is the module's path after renaming, `other` the one before (NULL: the same); the first
 * that has an entry wins. `has_scales`: whether its .scales is in the checkpoint. *quantised says yes or no, *params
 * how. Errors: scales without any quantisation in the config, scales where the config says dense, none where it says
 * quantised. Entries found are remembered for quant_unused. */
tern_status quant_find(const quant_config *q, const char *path, const char *other, bool has_scales, bool *quantised,
                       quant_params *params, tern_error *err);
/* Walks entries that no quant_find met: start with *cursor = 0; NULL ends. */
const char *quant_unused(const quant_config *q, size_t *cursor);

/* The packed shape must agree with the config: bits = words * 32 / (scale_columns * group_size). *columns gets the
 * number of values in a row. `tensor` is named in errors, with both numbers. */
tern_status quant_check_shape(const char *tensor, quant_params params, int64_t words, int64_t scale_columns,
                              int64_t *columns, tern_error *err);
/* All of one module's tensors together: U32 words, scales of the mode's dtype and of matching shape, biases exactly in
 * affine mode (NULL: absent). *columns as above. */
tern_status quant_check_tensors(quant_params params, const st_tensor *weight, const st_tensor *scales,
                                const st_tensor *biases, int64_t *columns, tern_error *err);

#endif
