/* fingerprint.h - a name for what a config means: the SHA-256 of the normalised configuration in a canonical text.
 *
 * The text has a line "name=value" for every member of struct model_config, in a fixed order, after the line
 * "tern-config-1" (docs/profiles.md has the grammar). It is made from the struct, not from the file: order of keys,
 * white space, aliases, defaults spelt out or left out and keys that nobody reads change nothing. Quantisation is no
 * part of it: how weights are stored is checked tensor by tensor.
 */
#ifndef TERN_MODEL_FINGERPRINT_H
#define TERN_MODEL_FINGERPRINT_H

#include "base/buf.h"
#include "base/sha256.h"
#include "model/config.h"

/* Appends the canonical text; b->failed tells whether memory ran out. */
void model_config_text(const model_config *c, buf *b);
tern_status model_config_fingerprint(const model_config *c, char out[SHA256_HEX], tern_error *err);
/* Whether the text has a line for the member at `offset` of struct model_config: tests ask for every row's fields. */
bool model_config_text_has(size_t offset);

#endif
