/* describe.h - words for what a checkpoint is, shared by ls and inspect. */
#ifndef TERN_CLI_DESCRIBE_H
#define TERN_CLI_DESCRIBE_H

#include "format/checkpoint.h"
#include "format/quant_config.h"

/* "affine 4-bit g64", or the dtype that config.json names ("bfloat16"), or "dense". Returns out. */
const char *describe_quantisation(const cfg *c, const quant_config *q, char out[64]);
/* "12.3 MB". Returns out. */
const char *describe_bytes(double bytes, char out[32]);

#endif
