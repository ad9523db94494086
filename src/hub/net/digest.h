/* digest.h - the hash that a blob is named after, taken as its bytes pass: SHA-256, or git's SHA-1 of "blob SIZE\0" and
 * the bytes. nettle has both, with the processor's own instructions where there are some. */
#ifndef TERN_HUB_NET_DIGEST_H
#define TERN_HUB_NET_DIGEST_H

#include <nettle/sha1.h>
#include <nettle/sha2.h>
#include <stdio.h>

#include "hub/listing.h"

typedef struct digest {
  bool lfs;
  union {
    struct sha256_ctx sha256;
    struct sha1_ctx sha1;
  };
} digest;

static inline void digest_start(digest *d, const hub_file *f)
{
  char head[40];
  d->lfs = hub_file_is_lfs(f);
  if (d->lfs) {
    sha256_init(&d->sha256);
    return;
  }
  int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)f->size);
  sha1_init(&d->sha1);
  sha1_update(&d->sha1, (size_t)n + 1, (const uint8_t *)head); /* its NUL too */
}

static inline void digest_add(digest *d, const void *data, size_t n)
{
  if (d->lfs)
    sha256_update(&d->sha256, n, data);
  else
    sha1_update(&d->sha1, n, data);
}

/* Lower-case digits; the digest is then to be started again. */
static inline void digest_end(digest *d, char out[LISTING_ETAG_ROOM])
{
  uint8_t raw[SHA256_DIGEST_SIZE];
  size_t n = d->lfs ? SHA256_DIGEST_SIZE : SHA1_DIGEST_SIZE;
  if (d->lfs)
    sha256_digest(&d->sha256, n, raw);
  else
    sha1_digest(&d->sha1, n, raw);
  for (size_t i = 0; i < n; i++)
    snprintf(out + 2 * i, 3, "%02x", raw[i]);
}

#endif
