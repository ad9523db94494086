/* describe.h - words for numbers and for what a checkpoint is, shared by ls and inspect. */
#ifndef TERN_CLI_DESCRIBE_H
#define TERN_CLI_DESCRIBE_H

#include "format/checkpoint.h"
#include "format/quant_config.h"

/* "12.3 MB". Returns out. */
const char *describe_bytes(double bytes, char out[32]);

#endif
