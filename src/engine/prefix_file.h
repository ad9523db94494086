/* prefix_file.h - one kept prefix (prefixes.h) as a file: its ids, and the blocks of its state as the backend has them.
 *
 *   head     struct prefix_head
 *   ids      int32_t [length]
 *   tables   for the state, then for the snapshot if there is one, for each slot: struct prefix_table, then its places,
 *            a byte each (cache/kv.h)
 *   blocks   of all places that are a sequence's own, in the order of the tables
 *
 * Every part begins at a multiple of 64. Integers as the machine has them; another byte order does not find the magic.
 *
 * Bits come back as they went only where everything that they depend on is the same, so the head carries a key: a
 * SHA-256 over this format's version, the sources that the build's arithmetic comes from, the checkpoint's identity
 * (model/prepared.h), the normalised config, numerics, the backend with its SIMD level, and the scheme of keys and
 * values. A file with another key is another model's. The head has a digest of itself and a sum over all the rest: a
 * file that holds neither is damaged.
 *
 * Reading takes any bytes: sizes are checked before they are believed. Who can write the file can still give a model
 * other states; its folder has to be its user's own.
 */
#ifndef TERN_ENGINE_PREFIX_FILE_H
#define TERN_ENGINE_PREFIX_FILE_H

#include "base/map.h"
#include "base/sha256.h"
#include "engine/prefixes.h"

enum { PREFIX_FORMAT = 1 };

typedef struct prefix_head {
  char magic[8]; /* "TERNPFIX" */
  uint32_t format, slots;
  uint64_t bytes; /* of the file */
  int64_t length, split;
  uint32_t sequences, reserved; /* 2: with a snapshot */
  uint64_t sum;                 /* prepared_sum of all behind the head */
  char key[64];                 /* hexadecimal, no NUL */
  char digest[64];              /* SHA-256 of the head, computed with zeros here */
  char blank[8];
} prefix_head;

typedef struct prefix_table {
  uint32_t quantised, reserved;
  uint64_t size, first;
  char blank[40];
} prefix_table;

/* The key of this model as it was opened. */
tern_status prefix_file_key(const model *m, char key[SHA256_HEX], tern_error *err);

/* Bytes of the file. */
size_t prefix_file_bytes(const model *m, const prefix_of *of);
/* Writes it to a file descriptor, from its beginning. TERN_E_IO: the system refused (no space, too large). */
tern_status prefix_file_write(int fd, const char *name, const model *m, const char *key, const prefix_of *of,
                              tern_error *err);

/* What a file holds, checked; points into its bytes. */
typedef struct prefix_image {
  const prefix_head *head;
  const int32_t *ids;    /* [head->length] */
  kv_table *tables;      /* [sequences * slots]; mem_free */
  const uint8_t *blocks; /* the first one */
} prefix_image;

/* TERN_E_FORMAT: it is not whole, or not this model's. data: 64-byte aligned. */
tern_status prefix_file_parse(const model *m, const char *key, const uint8_t *data, size_t size, prefix_image *out,
                              tern_error *err);
/* Makes the states: *snapshot is NULL where the file has none. TERN_E_NOMEM, or TERN_E_FORMAT. */
tern_status prefix_file_restore(model *m, const prefix_image *image, kv_seq **state, kv_seq **snapshot,
                                tern_error *err);
/* Whose file or folder it is: its user's own, or root's, and nobody else's to write. Who writes there gives the model
 * states, and key and sums are no secrets. */
tern_status prefix_check_owner(int fd, const char *path, tern_error *err);

/* A file of one's own and of this model, read: what it holds, valid until prefix_file_close, which is due in any case.
 */
typedef struct prefix_loaded {
  map file;
  prefix_image image;
  kv_seq *state, *snapshot;
  prefix_of of;
} prefix_loaded;
tern_status prefix_file_open(const char *path, model *m, const char *key, prefix_loaded *out, tern_error *err);
void prefix_file_close(prefix_loaded *l);

/* Fills head->digest. */
void prefix_file_seal(prefix_head *head);

#endif
