/* sha256.h - SHA-256 (FIPS 180-4), to tell whether a file is the one that was meant. */
#ifndef TERN_BASE_SHA256_H
#define TERN_BASE_SHA256_H

#include <stddef.h>

enum { SHA256_HEX = 65 };

/* The digest of n bytes as lower-case hexadecimal digits and a NUL. */
void sha256_hex(const void *data, size_t n, char out[SHA256_HEX]);

#endif
