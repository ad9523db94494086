/* kv.h - state slots of kind KV and RING: keys and values in shared blocks.
 *
 * A kv_store belongs to a model: the list of its slots and the blocks in free lists. A kv_seq belongs to a session: for
 * each slot a table of blocks, one for every 64 positions. A full block is immutable and counted by reference, so
 * cloning a sequence copies tables, not keys; a block that is only partly filled is copied on the first write after a
 * clone. A ring (slot with a window) is the same table whose blocks behind the window go back to the free list:
 * positions stay absolute, nothing moves, and rolling back is cutting the table. What was written in the last step can
 * be rolled back token by token in any case; a ring keeps KV_SLACK positions more than it must, so that a few steps
 * can.
 *
 * A slot may be quantised from a position on (ops_kv_quant.start). A sequence then holds plain blocks until a step
 * begins at or behind that position: kv_seq_prepare quantises all it has into fresh blocks and gives the plain ones
 * back to the system. There is no way back but to the beginning, since the values are gone.
 *
 * A slot of kind REC (fixed-size recurrent tensors) fits the same shape when it comes: a table of one block which is
 * replaced instead of appended to, whose clones are the checkpoints that rolling back needs.
 *
 * Positions are counted once per sequence, by the session; kv_seq does not know them. Memory grows by blocks and is
 * obtained in kv_seq_reserve alone, so that the token loop never asks for any.
 *
 * One thread at a time per store.
 */
#ifndef TERN_CACHE_KV_H
#define TERN_CACHE_KV_H

#include "ops/ops.h"

typedef struct kv_slot {
  int kv_heads, key_dim, value_dim;
  int window;         /* 0: KV, all positions; else RING, the last `window` */
  int keep;           /* first positions that a ring never drops */
  bool by_time;       /* keys are summed by time always: reads and steps have the same bits */
  ops_kv_quant quant; /* of slots that let go of no block: no window, or one by_time */
} kv_slot;

/* From which position on the bits of a token depend on whether it was read or stepped; INT64_MAX: nowhere. */
int64_t kv_slot_sensitive_from(const kv_slot *slot);

/* Tokens by which a ring can be rolled back over several steps. */
enum { KV_SLACK = 32 };

typedef struct kv_store kv_store;
typedef struct kv_seq kv_seq;

/* Copies the slots. cx must outlive the store. */
tern_status kv_store_open(ops_context *cx, const kv_slot *slots, int n_slots, kv_store **out, tern_error *err);
/* Every sequence must be closed before. */
void kv_store_close(kv_store *store);
size_t kv_store_bytes(const kv_store *store); /* of all blocks, used and free */
size_t kv_store_held(const kv_store *store);  /* of those that sequences hold or were promised */
/* Bytes of blocks that one sequence of `positions` needs in steps of up to `piece` tokens. */
size_t kv_store_estimate(const kv_store *store, int64_t positions, int piece);

/* Bytes that one more position takes in a sequence past every start. */
size_t kv_store_token_bytes(const kv_store *store);
/* The same two of one slot. */
size_t kv_store_slot_estimate(const kv_store *store, int slot, int64_t positions, int piece);
size_t kv_store_slot_token_bytes(const kv_store *store, int slot);

tern_status kv_seq_open(kv_store *store, kv_seq **out, tern_error *err);
void kv_seq_close(kv_seq *seq); /* NULL is fine */

/* Makes sure that positions [from, to), written in steps of up to `piece` tokens, find their blocks: the free lists
 * then hold what will be needed, promised to this sequence alone until its next reserve or its close. Fails with
 * TERN_E_NOMEM; the sequence keeps what it holds and has no promise. */
/* (kv_seq_shortage: the bytes that this would ask of the system.) */
size_t kv_seq_shortage(const kv_seq *seq, int64_t from, int64_t to, int piece);
tern_status kv_seq_reserve(kv_seq *seq, int64_t from, int64_t to, int piece, tern_error *err);
/* Before a step that writes positions [first, first + count): gives each a block of its own and lets go of blocks that
 * no token from `first` on can see; quantises what the sequence holds where a slot's start is reached. Takes blocks
 * from the free lists only; TERN_E_INTERNAL if they were not reserved, or if the step lies on both sides of a start. */
tern_status kv_seq_prepare(kv_seq *seq, int64_t first, int count, tern_error *err);
/* The tables, [n_slots]; valid until the next call on this sequence. */
const ops_kv_view *kv_seq_views(const kv_seq *seq);
/* Forgets positions from `length` on; all of them where what remains is quantised and `length` lies before the start
 * (kv_seq_can_resume said so). */
void kv_seq_truncate(kv_seq *seq, int64_t length);
/* Whether a token at `length` would find every position that it sees. False where a ring dropped some of them, or where
 * they are quantised and it has to see plain ones. */
bool kv_seq_can_resume(const kv_seq *seq, int64_t length);
/* Makes `to` hold what `from` holds, by reference. What `to` held is released. TERN_E_NOMEM: `to` is then empty. */
tern_status kv_seq_clone(kv_seq *to, const kv_seq *from, tern_error *err);

/* ---- images: what a file keeps of a sequence ---- */

/* One slot's table. A place is a block of its own, nothing, or the block that another sequence has at this place. */
enum { KV_NOTHING, KV_OWN, KV_SHARED };
typedef struct kv_table {
  bool quantised;
  size_t size, first;    /* `first`: of a ring, as it stands in the sequence */
  const uint8_t *places; /* [size] KV_... */
} kv_table;

int kv_store_slots(const kv_store *store);
/* Bytes of a block, 0 where the slot is never so. */
size_t kv_store_block_bytes(const kv_store *store, int slot, bool quantised);
/* The table of a slot, without the places; and those: places [size], SHARED where `with` (may be NULL) has the block.
 */
kv_table kv_seq_table(const kv_seq *seq, int slot);
void kv_seq_places(const kv_seq *seq, int slot, const kv_seq *with, uint8_t *places);
/* One block's bytes, to and from the host. */
void kv_seq_read_block(const kv_seq *seq, int slot, size_t i, void *to);
void kv_seq_write_block(kv_seq *seq, int slot, size_t i, const void *from);
/* Gives an empty sequence such tables [slots]; blocks of its own are there and not yet written. TERN_E_FORMAT: no
 * sequence of `length` tokens looks like that. On failure it is empty. */
tern_status kv_seq_restore(kv_seq *seq, const kv_table *tables, const kv_seq *with, int64_t length, tern_error *err);

#endif
