/* checkpoint.h - a directory's weights: every model*.safetensors in it, as one set of names.
 *
 * Opening reads headers only. Each tensor carries a mark which says that something was bound to it; the weight audit
 * asks for those that never were.
 *
 * Whoever opens checkpoints should have called map_guard_install (base/map.h) once, and asks ckpt_check after each unit
 * of work whether a file shrank underneath.
 */
#ifndef TERN_FORMAT_CHECKPOINT_H
#define TERN_FORMAT_CHECKPOINT_H

#include "format/st.h"

typedef struct ckpt ckpt;

/* Errors: no model*.safetensors (the line says what else is there), whatever st_open says of a shard, a tensor in two
 * shards, and a model.safetensors.index.json that disagrees with the shards. */
tern_status ckpt_open(const char *dir, ckpt **out, tern_error *err);
void ckpt_close(ckpt *c); /* NULL is fine */

size_t ckpt_count(const ckpt *c);
/* 0 <= i < ckpt_count, ordered by shard name, then by place in the shard. Valid while the checkpoint is open. */
const st_tensor *ckpt_at(const ckpt *c, size_t i);
/* NULL: not there. Does not mark. */
const st_tensor *ckpt_find(const ckpt *c, const char *name);
/* Where `t`, got from this checkpoint, is in it: ckpt_at's i. */
size_t ckpt_index(const ckpt *c, const st_tensor *t);
/* The shard's file name (no directory) that holds `t`. For messages. */
const char *ckpt_file(const ckpt *c, const st_tensor *t);
/* The shards; `i` below ckpt_files. */
size_t ckpt_files(const ckpt *c);
const st_file *ckpt_file_at(const ckpt *c, size_t i);

/* Marks a tensor as bound (or dropped by a rule). */
void ckpt_mark(ckpt *c, const st_tensor *t);
bool ckpt_marked(const ckpt *c, const st_tensor *t);
/* Takes all marks off. */
void ckpt_unmark_all(ckpt *c);

/* Bytes of all tensors. */
size_t ckpt_bytes(const ckpt *c);
/* Whether any mapping lost its file. */
bool ckpt_broken(const ckpt *c);
/* The same as an error that names the file. */
tern_status ckpt_check(const ckpt *c, tern_error *err);
/* Locks all mappings in memory. An error tells how many bytes were wanted and what the limit is. */
tern_status ckpt_lock(const ckpt *c, tern_error *err);
tern_status ckpt_lock_tensor(const ckpt *c, const st_tensor *t, tern_error *err);

#endif
