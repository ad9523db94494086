/* prepared.h - a file of prepared layouts: what a backend's `layout` makes of a checkpoint's matrices, made once,
 * mapped by every later open and shared between processes. The bits of all results are the same with it and without it.
 *
 * It stands at DIR/IDENTITY/weights. The identity is a SHA-256 over the version of this format and of the layout and,
 * for each shard, its name, size, time of change, header, and 64 bytes from every 4 MiB, the middle and the end
 * of each tensor: what a checkpoint is, as far as can be seen without reading it all. (Shards of the same header, size
 * and time that differ outside those bytes alone pass for one another; prepared_make compares everything.)
 *
 *   head      struct prepared_head
 *   entries   struct prepared_entry each: which rows of which shard, and where their layout stands in this file
 *   layouts   from a multiple of 4096 on, each at a multiple of 64
 *
 * Integers as the machine has them: layouts exist on little-endian machines alone.
 *
 * Beside it stands DIR/IDENTITY/sources: the directories that it was prepared for or used from, each ended by a NUL,
 * with
 * "//" behind the folder that the file system they are on is mounted at (where that is not the root). Whether a file is
 * still of use is asked of these (cli/derived.h); a process that has it open holds a shared lock (flock) on it.
 *
 * Whoever makes one writes it beside its place, reads it back against the sums of its entries, and renames it, so that
 * a file under the name is whole. Opening checks size, versions, identity, the digest of head and entries, that all
 * places lie within, and a sample of each layout; prepared_verify reads the rest too. Whatever does not hold is
 * TERN_E_FORMAT, and the caller goes on from the checkpoint.
 */
#ifndef TERN_MODEL_PREPARED_H
#define TERN_MODEL_PREPARED_H

#include <signal.h>

#include "base/sha256.h"
#include "format/checkpoint.h"
#include "model/weights.h"

enum { PREPARED_FORMAT = 2, PREPARED_PAGE = 4096, PREPARED_MOST = 1 << 20 /* entries */ };

typedef struct prepared_head {
  char magic[8]; /* "TERNPREP" */
  uint32_t format, layout;
  uint64_t bytes; /* of the file */
  uint32_t entries, reserved;
  char identity[64]; /* hexadecimal, no NUL */
  char digest[64];   /* SHA-256 of head and entries, computed with zeros here */
} prepared_head;

typedef struct prepared_entry {
  uint64_t source; /* offset of the first row's codes in its shard */
  uint32_t shard;  /* ckpt_file_at */
  uint32_t bits, group, stored;
  uint64_t n, k;
  uint64_t at, bytes; /* in this file */
  uint64_t sum;       /* prepared_sum of the layout */
  uint64_t sample;    /* prepared_sum of its first, middle and last 64 bytes: what an open looks at */
} prepared_entry;

/* Where a checkpoint's file is, whether it is there or not. */
typedef struct prepared_place {
  char identity[SHA256_HEX];
  char *path; /* mem_free */
} prepared_place;

tern_status prepared_find_place(const char *dir, const ckpt *c, const ops_layout *layout, prepared_place *out,
                                tern_error *err);

typedef struct prepared prepared;

/* TERN_E_NOT_FOUND: there is none. TERN_E_FORMAT: there is one that cannot be trusted; the line says why. */
tern_status prepared_open(const prepared_place *place, const ops_layout *layout, prepared **out, tern_error *err);
void prepared_close(prepared *p); /* NULL is fine */
const char *prepared_path(const prepared *p);
size_t prepared_bytes(const prepared *p);
/* The layout of w, a matrix of this checkpoint, or NULL. Valid while the file is open. */
const void *prepared_layout(const prepared *p, const ckpt *c, const ops_layout *layout, const ops_weight *w);
/* Whether the file says that w's layout has this prepared_sum. */
bool prepared_has_sum(const prepared *p, const ckpt *c, const ops_weight *w, uint64_t sum);
/* As ckpt_check. */
tern_status prepared_check(const prepared *p, tern_error *err);
/* Reads everything: TERN_E_FORMAT where a layout is not what was written. */
tern_status prepared_verify(const prepared *p, tern_error *err);
tern_status prepared_lock(const prepared *p, tern_error *err); /* in memory, as ckpt_lock */

/* ---- whose it is ---- */

/* The head of the file alone; TERN_E_FORMAT where it is none, of whatever version. */
tern_status prepared_read_head(const char *path, prepared_head *out, tern_error *err);
/* Whether a process has it open. */
bool prepared_is_held(const char *path);
/* Notes the checkpoint's directory beside the file. One that cannot be noted is prepared and used all the same. */
void prepared_note(const prepared_place *place, const ckpt *c);
/* What stands in FOLDER/sources: *n bytes (mem_free), each path ended by a NUL. *known: it can be all. False where
 * nothing was noted, and where no more fits. */
tern_status prepared_sources(const char *folder, char **paths, size_t *n, bool *known, tern_error *err);
/* Whether nothing stands at one of these, and the file system that it was on is there to tell. */
bool prepared_source_is_gone(const char *path);

/* ---- making ---- */

typedef struct prepared_watch {
  const volatile sig_atomic_t *cancel;                        /* NULL, or polled: not 0 ends it, TERN_E_CANCELLED */
  void (*progress)(void *user, size_t done, size_t of_bytes); /* may be NULL */
  void *user;
} prepared_watch;

typedef struct prepared_report {
  size_t bytes, matrices;
  bool was_there; /* whole already, and what this checkpoint gives, byte for byte */
} prepared_report;

/* Makes the file of `place`, with the layouts of those of the n weights that have one. One that is there and verifies
 * is kept, a bad one is replaced. Two processes at once: the second waits, and finds the first one's. On failure
 * nothing is left under the name but what was there; what a killed process leaves (.weights.part-*) goes when the next
 * file is made under the same DIR. TERN_E_UNSUPPORTED: no weight has a layout. TERN_E_LIMIT: the disk has not the room.
 */
tern_status prepared_make(const char *dir, const prepared_place *place, const ckpt *c, const ops_layout *layout,
                          const ops_weight *const *weights, size_t n, const prepared_watch *watch,
                          prepared_report *report, tern_error *err);

/* ---- for both sides, and tests ---- */

/* A sum over bytes whose number is a multiple of 64, taken on over several pieces; starts zeroed. */
typedef struct prepared_sum {
  uint64_t lane[8];
} prepared_sum;
void prepared_sum_add(prepared_sum *s, const uint8_t *data, size_t n);
uint64_t prepared_sum_end(const prepared_sum *s);
/* Of a layout's first, middle and last 64 bytes. */
uint64_t prepared_sample(const uint8_t *layout, size_t bytes);
/* Fills head->digest. */
void prepared_digest(prepared_head *head, const prepared_entry *entries, char out[SHA256_HEX]);
/* Which shard the matrix is in, and where. False: in none (a copy in memory). */
bool prepared_source(const ckpt *c, const ops_weight *w, uint32_t *shard, uint64_t *source);

#endif
