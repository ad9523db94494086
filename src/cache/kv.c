/* kv.c - blocks, tables and free lists. See kv.h for what they promise. */
#include "cache/kv.h"

#include <string.h>

#include "base/mem.h"

/* Memory of many blocks that were asked for together, in huge pages where the system has them: attention at depth reads
 * all of it for every token, and lost a fifth of its time to address translation. Given back when the last block is. */
typedef struct slab {
  void *data;
  size_t blocks;
} slab;

enum { SLAB_LEAST = 8 << 20 }; /* bytes; less is taken block by block */

typedef struct block {
  void *data; /* backend memory */
  slab *slab; /* that it is part of; NULL: it stands alone */
  struct block *next;
  int references;
} block;

typedef enum form { PLAIN, QUANTISED, FORMS } form;

/* Free blocks of one form. `promised` of them are spoken for by sequences that reserved them. */
typedef struct shelf {
  size_t block_bytes;
  block *free;
  size_t count, promised;
} shelf;

/* One per slot. */
typedef struct lane {
  kv_slot slot;
  shelf shelves[FORMS];
} lane;

struct kv_store {
  ops_context *cx;
  int n_lanes;
  lane *lanes;
  size_t bytes;
};

typedef struct table {
  block **blocks; /* [size]; NULL: nothing there */
  void **data;    /* [size]: blocks[i]->data, as the ops want it */
  size_t size;
  size_t first;          /* of a ring: entries below it, beyond the kept head, are empty */
  size_t promise[FORMS]; /* blocks that this sequence may still take */
  form form;             /* of all its blocks */
} table;

struct kv_seq {
  kv_store *store;
  table *tables;      /* [n_lanes] */
  ops_kv_view *views; /* [n_lanes] */
};

int64_t kv_slot_sensitive_from(const kv_slot *slot)
{
  return slot->window && !slot->by_time ? slot->window : INT64_MAX;
}

/* What a sequence without positions holds. */
static form first_form(const kv_slot *slot)
{
  return slot->quant.bits && slot->quant.start == 0 ? QUANTISED : PLAIN;
}

static ops_kv_shape shape_of(const kv_slot *slot, form f)
{
  ops_kv_shape shape = {slot->kv_heads, slot->key_dim, slot->value_dim, slot->quant};
  if (f == PLAIN)
    shape.quant.bits = 0;
  return shape;
}

static size_t blocks_for(int64_t positions)
{
  return (size_t)((positions + KV_BLOCK - 1) / KV_BLOCK);
}

/* ---- the store ---- */

tern_status kv_store_open(ops_context *cx, const kv_slot *slots, int n_slots, kv_store **out, tern_error *err)
{
  kv_store *store = mem_zalloc(sizeof *store);
  lane *lanes = mem_array((size_t)n_slots, sizeof *lanes);
  if (!store || !lanes) {
    mem_free(store);
    mem_free(lanes);
    return err_nomem(err, "key/value store");
  }
  for (int i = 0; i < n_slots; i++) {
    lanes[i].slot = slots[i];
    for (form f = PLAIN; f < FORMS; f++) {
      ops_kv_shape shape = shape_of(&slots[i], f);
      lanes[i].shelves[f].block_bytes = cx->backend->kv_block_bytes(&shape);
    }
  }
  *store = (kv_store){.cx = cx, .n_lanes = n_slots, .lanes = lanes};
  *out = store;
  return TERN_OK;
}

static void release_block(kv_store *store, block *b)
{
  if (!b->slab) {
    store->cx->backend->release(store->cx, b->data);
  } else if (--b->slab->blocks == 0) {
    store->cx->backend->release(store->cx, b->slab->data);
    mem_free(b->slab);
  }
  mem_free(b);
}

/* Gives free blocks that nobody was promised back to the system. */
static void clear_shelf(kv_store *store, shelf *s)
{
  while (s->count > s->promised) {
    block *b = s->free;
    s->free = b->next;
    s->count--;
    store->bytes -= s->block_bytes;
    release_block(store, b);
  }
}

void kv_store_close(kv_store *store)
{
  if (!store)
    return;
  for (int i = 0; i < store->n_lanes; i++)
    for (form f = PLAIN; f < FORMS; f++)
      clear_shelf(store, &store->lanes[i].shelves[f]);
  mem_free(store->lanes);
  mem_free(store);
}

size_t kv_store_bytes(const kv_store *store)
{
  return store->bytes;
}

size_t kv_store_held(const kv_store *store)
{
  size_t bytes = store->bytes;
  for (int i = 0; i < store->n_lanes; i++)
    for (form f = PLAIN; f < FORMS; f++) {
      const shelf *s = &store->lanes[i].shelves[f];
      bytes -= (s->count - s->promised) * s->block_bytes;
    }
  return bytes;
}

/* Blocks that a sequence of `positions` may hold at once in this lane, a copy of its last one included. */
static size_t need_of(const lane *l, int64_t positions, int piece)
{
  size_t all = blocks_for(positions) + 1;
  if (!l->slot.window)
    return all;
  /* The window and its slack, the piece being written, the kept head; each may straddle one block more. */
  size_t ring = blocks_for(l->slot.window + KV_SLACK) + blocks_for(piece) + blocks_for(l->slot.keep) + 4;
  return ring < all ? ring : all;
}

/* The same of each form. A sequence that passes a start has both for a moment. */
static size_t lane_need(const lane *l, form f, int64_t positions, int piece)
{
  const ops_kv_quant *q = &l->slot.quant;
  int64_t start = q->bits ? q->start : positions, plain = positions < start ? positions : start;
  if (f == PLAIN)
    return plain || !q->bits ? need_of(l, plain, piece) : 0;
  return positions > start ? need_of(l, positions, piece) : 0;
}

size_t kv_store_slot_estimate(const kv_store *store, int slot, int64_t positions, int piece)
{
  const lane *l = &store->lanes[slot];
  size_t bytes = 0;
  for (form f = PLAIN; f < FORMS; f++)
    bytes += lane_need(l, f, positions, piece) * l->shelves[f].block_bytes;
  return bytes;
}

size_t kv_store_slot_token_bytes(const kv_store *store, int slot)
{
  const lane *l = &store->lanes[slot];
  return l->shelves[l->slot.quant.bits ? QUANTISED : PLAIN].block_bytes / KV_BLOCK;
}

size_t kv_store_estimate(const kv_store *store, int64_t positions, int piece)
{
  size_t bytes = 0;
  for (int i = 0; i < store->n_lanes; i++)
    bytes += kv_store_slot_estimate(store, i, positions, piece);
  return bytes;
}

size_t kv_store_token_bytes(const kv_store *store)
{
  size_t bytes = 0;
  for (int i = 0; i < store->n_lanes; i++)
    bytes += kv_store_slot_token_bytes(store, i);
  return bytes;
}

static tern_status add_block(kv_store *store, shelf *s, void *data, slab *from, tern_error *err)
{
  block *b = mem_zalloc(sizeof *b);
  if (!b)
    return err_nomem(err, "key/value blocks");
  *b = (block){.data = data, .slab = from, .next = s->free};
  s->free = b;
  s->count++;
  store->bytes += s->block_bytes;
  return TERN_OK;
}

/* `n` blocks at once, the first of which is taken first. */
static tern_status add_slab(kv_store *store, shelf *s, size_t n, tern_error *err)
{
  const ops_backend *backend = store->cx->backend;
  size_t stride = (s->block_bytes + 63) / 64 * 64;
  slab *from = mem_zalloc(sizeof *from);
  void *data = from ? backend->alloc(store->cx, n * stride) : NULL;
  if (!data) {
    tern_status status =
        from ? ops_nomem(store->cx, "key/value blocks", n * stride, err) : err_nomem(err, "key/value blocks");
    mem_free(from);
    return status;
  }
  if (!backend->own_memory)
    mem_advise_huge(data, n * stride);
  *from = (slab){.data = data};
  for (size_t i = n; i--;) {
    tern_status status = add_block(store, s, (char *)data + i * stride, from, err);
    if (status == TERN_OK) {
      from->blocks++;
      continue;
    }
    if (!from->blocks) {
      backend->release(store->cx, data);
      mem_free(from);
    }
    return status;
  }
  return TERN_OK;
}

static tern_status add_blocks(kv_store *store, shelf *s, size_t n, tern_error *err)
{
  if (n > 1 && (store->cx->backend->own_memory || n >= SLAB_LEAST / s->block_bytes))
    return add_slab(store, s, n, err);
  for (; n; n--) {
    void *data = store->cx->backend->alloc(store->cx, s->block_bytes);
    if (!data)
      return ops_nomem(store->cx, "key/value blocks", s->block_bytes, err);
    tern_status status = add_block(store, s, data, NULL, err);
    if (status != TERN_OK) {
      store->cx->backend->release(store->cx, data);
      return status;
    }
  }
  return TERN_OK;
}

static void set_promise(lane *l, table *t, form f, size_t promise)
{
  l->shelves[f].promised += promise - t->promise[f];
  t->promise[f] = promise;
}

/* A free block out of the sequence's promise, or NULL. */
static block *take(lane *l, table *t, form f)
{
  shelf *s = &l->shelves[f];
  block *b = s->free;
  if (!b || !t->promise[f])
    return NULL;
  set_promise(l, t, f, t->promise[f] - 1);
  s->free = b->next;
  s->count--;
  b->references = 1;
  return b;
}

/* Lets go of one reference; whether that freed the block. */
static bool drop(shelf *s, block *b)
{
  if (!b || --b->references > 0)
    return false;
  b->next = s->free;
  s->free = b;
  s->count++;
  return true;
}

/* ---- sequences ---- */

tern_status kv_seq_open(kv_store *store, kv_seq **out, tern_error *err)
{
  kv_seq *seq = mem_zalloc(sizeof *seq);
  table *tables = mem_array((size_t)store->n_lanes, sizeof *tables);
  ops_kv_view *views = mem_array((size_t)store->n_lanes, sizeof *views);
  if (!seq || !tables || !views) {
    mem_free(seq);
    mem_free(tables);
    mem_free(views);
    return err_nomem(err, "key/value tables");
  }
  *seq = (kv_seq){store, tables, views};
  for (int i = 0; i < store->n_lanes; i++)
    tables[i].form = first_form(&store->lanes[i].slot);
  *out = seq;
  return TERN_OK;
}

static void put(table *t, size_t i, block *b)
{
  t->blocks[i] = b;
  t->data[i] = b ? b->data : NULL;
}

/* Empties entries [begin, end); returns how many blocks that freed. */
static size_t drop_range(kv_seq *seq, int lane_index, size_t begin, size_t end)
{
  table *t = &seq->tables[lane_index];
  size_t freed = 0;
  for (size_t i = begin; i < end && i < t->size; i++) {
    freed += drop(&seq->store->lanes[lane_index].shelves[t->form], t->blocks[i]);
    put(t, i, NULL);
  }
  return freed;
}

static void drop_promises(kv_seq *seq)
{
  for (int i = 0; i < seq->store->n_lanes; i++)
    for (form f = PLAIN; f < FORMS; f++)
      set_promise(&seq->store->lanes[i], &seq->tables[i], f, 0);
}

void kv_seq_close(kv_seq *seq)
{
  if (!seq)
    return;
  drop_promises(seq);
  for (int i = 0; i < seq->store->n_lanes; i++) {
    drop_range(seq, i, 0, seq->tables[i].size);
    mem_free(seq->tables[i].blocks);
    mem_free(seq->tables[i].data);
  }
  mem_free(seq->tables);
  mem_free(seq->views);
  mem_free(seq);
}

static bool widen(kv_seq *seq, int i, size_t size)
{
  table *t = &seq->tables[i];
  if (size <= t->size)
    return true;
  block **blocks = mem_realloc(t->blocks, size * sizeof *blocks);
  if (!blocks)
    return false;
  t->blocks = blocks;
  void **data = mem_realloc(t->data, size * sizeof *data);
  if (!data)
    return false;
  t->data = data;
  memset(blocks + t->size, 0, (size - t->size) * sizeof *blocks);
  memset(data + t->size, 0, (size - t->size) * sizeof *data);
  t->size = size;
  seq->views[i].blocks = data;
  return true;
}

static size_t held_alone(const table *t, size_t begin)
{
  size_t n = 0;
  for (size_t i = begin; i < t->size; i++)
    n += t->blocks[i] && t->blocks[i]->references == 1;
  return n;
}

/* Blocks that the sequence must be able to take for positions [from, to). A KV slot needs what they span beyond what it
 * holds for itself; a ring recycles, so its whole need less what it holds for itself. What is still to be quantised
 * needs blocks from the first position on. */
static size_t still_needed(const lane *l, const table *t, form f, int64_t from, int64_t to, int piece)
{
  size_t need = lane_need(l, f, to, piece), first = l->slot.window ? 0 : (size_t)(from / KV_BLOCK);
  bool past = l->slot.quant.bits && from >= l->slot.quant.start;
  if (f == PLAIN && (t->form == QUANTISED || past))
    return 0;
  if (f != t->form)
    return need;
  size_t have = held_alone(t, first) + (first < need ? first : need);
  return need > have ? need - have : 0;
}

size_t kv_seq_shortage(const kv_seq *seq, int64_t from, int64_t to, int piece)
{
  size_t bytes = 0;
  for (int i = 0; i < seq->store->n_lanes; i++) {
    const lane *l = &seq->store->lanes[i];
    const table *t = &seq->tables[i];
    for (form f = PLAIN; f < FORMS; f++) {
      const shelf *s = &l->shelves[f];
      size_t promised = s->promised - t->promise[f] + still_needed(l, t, f, from, to, piece);
      if (promised > s->count)
        bytes += (promised - s->count) * s->block_bytes;
    }
  }
  return bytes;
}

static tern_status reserve_lane(kv_seq *seq, int i, int64_t from, int64_t to, int piece, tern_error *err)
{
  lane *l = &seq->store->lanes[i];
  table *t = &seq->tables[i];
  if (!widen(seq, i, blocks_for(to)))
    return err_nomem(err, "key/value tables");
  for (form f = PLAIN; f < FORMS; f++) {
    set_promise(l, t, f, still_needed(l, t, f, from, to, piece));
    if (l->shelves[f].count < l->shelves[f].promised)
      TRY(add_blocks(seq->store, &l->shelves[f], l->shelves[f].promised - l->shelves[f].count, err));
  }
  return TERN_OK;
}

tern_status kv_seq_reserve(kv_seq *seq, int64_t from, int64_t to, int piece, tern_error *err)
{
  for (int i = 0; i < seq->store->n_lanes; i++) {
    tern_status status = reserve_lane(seq, i, from, to, piece, err);
    if (status != TERN_OK) {
      drop_promises(seq);
      return status;
    }
  }
  return TERN_OK;
}

/* Gives table entry i a block that no other sequence shares; keeps the contents where `keep_contents`. */
static tern_status own_block(kv_seq *seq, int lane_index, size_t i, bool keep_contents, tern_error *err)
{
  lane *l = &seq->store->lanes[lane_index];
  table *t = &seq->tables[lane_index];
  block *old = t->blocks[i];
  if (old && old->references == 1)
    return TERN_OK;
  block *fresh = take(l, t, t->form);
  if (!fresh)
    return err_set(err, TERN_E_INTERNAL, "key/value slot %d: no block reserved for position %zu", lane_index,
                   i * KV_BLOCK);
  if (old && keep_contents) {
    ops_context *cx = seq->store->cx;
    cx->backend->write(cx, fresh->data, old->data, l->shelves[t->form].block_bytes);
  }
  drop(&l->shelves[t->form], old);
  put(t, i, fresh);
  return TERN_OK;
}

/* Quantises the sequence where a step at `first` is the first one past the slot's start. */
static tern_status reach_start(kv_seq *seq, int lane_index, int64_t first, int count, tern_error *err)
{
  lane *l = &seq->store->lanes[lane_index];
  table *t = &seq->tables[lane_index];
  const ops_kv_quant *q = &l->slot.quant;
  if (!q->bits || first + count <= q->start || t->form == QUANTISED)
    return TERN_OK;
  size_t held = 0, end = blocks_for(first);
  for (size_t i = 0; i < end && i < t->size; i++)
    held += t->blocks[i] != NULL;
  if (first < q->start || held > t->promise[QUANTISED])
    return err_set(err, TERN_E_INTERNAL, "key/value slot %d: %d tokens at %lld, but rows are quantised from %lld on",
                   lane_index, count, (long long)first, (long long)q->start);
  ops_context *cx = seq->store->cx;
  ops_kv_shape shape = shape_of(&l->slot, QUANTISED);
  for (size_t i = 0; i < t->size; i++) {
    block *plain = t->blocks[i], *fresh = NULL;
    int64_t rows = first - (int64_t)i * KV_BLOCK;
    if (plain && rows > 0) {
      fresh = take(l, t, QUANTISED);
      cx->backend->kv_quantise(cx, &shape, plain->data, fresh->data, (int)(rows < KV_BLOCK ? rows : KV_BLOCK));
    }
    drop(&l->shelves[PLAIN], plain);
    put(t, i, fresh);
  }
  t->form = QUANTISED;
  set_promise(l, t, PLAIN, 0);
  clear_shelf(seq->store, &l->shelves[PLAIN]);
  return TERN_OK;
}

tern_status kv_seq_prepare(kv_seq *seq, int64_t first, int count, tern_error *err)
{
  for (int n = 0; n < seq->store->n_lanes; n++) {
    const kv_slot *slot = &seq->store->lanes[n].slot;
    if (slot->window) {
      /* The token at `first` sees positions from first + 1 - window on, besides the kept ones. */
      int64_t unseen = first + 1 - slot->window - KV_SLACK;
      if (unseen > 0) { /* what a ring frees, it may take again */
        table *t = &seq->tables[n];
        size_t kept = blocks_for(slot->keep), end = (size_t)(unseen / KV_BLOCK);
        size_t freed = drop_range(seq, n, t->first > kept ? t->first : kept, end);
        set_promise(&seq->store->lanes[n], t, t->form, t->promise[t->form] + freed);
        t->first = end > t->first ? end : t->first;
      }
    }
    TRY(reach_start(seq, n, first, count, err));
    size_t begin = (size_t)(first / KV_BLOCK), end = blocks_for(first + count);
    if (end > seq->tables[n].size)
      return err_set(err, TERN_E_INTERNAL, "key/value slot %d: position %lld was not reserved", n,
                     (long long)(first + count - 1));
    for (size_t i = begin; i < end; i++)
      TRY(own_block(seq, n, i, (int64_t)i * KV_BLOCK < first, err));
  }
  return TERN_OK;
}

const ops_kv_view *kv_seq_views(const kv_seq *seq)
{
  return seq->views;
}

void kv_seq_truncate(kv_seq *seq, int64_t length)
{
  for (int i = 0; i < seq->store->n_lanes; i++) {
    lane *l = &seq->store->lanes[i];
    table *t = &seq->tables[i];
    bool lost = t->form == QUANTISED && length < l->slot.quant.start;
    size_t freed = drop_range(seq, i, lost ? 0 : blocks_for(length), t->size);
    set_promise(l, t, t->form, t->promise[t->form] + freed); /* what it had reserved, it may take again */
    if (lost)
      t->form = first_form(&l->slot);
    if (t->first > blocks_for(length))
      t->first = 0;
  }
}

bool kv_seq_can_resume(const kv_seq *seq, int64_t length)
{
  for (int n = 0; n < seq->store->n_lanes; n++) {
    const kv_slot *slot = &seq->store->lanes[n].slot;
    const table *t = &seq->tables[n];
    int64_t oldest = slot->window && length + 1 > slot->window ? length + 1 - slot->window : 0;
    if (blocks_for(length) > t->size || (length && t->form == QUANTISED && length < slot->quant.start))
      return false;
    for (size_t i = (size_t)(oldest / KV_BLOCK); i < blocks_for(length); i++)
      if (!t->blocks[i])
        return false;
    for (size_t i = 0; i < blocks_for(slot->keep < length ? slot->keep : length); i++)
      if (!t->blocks[i])
        return false;
  }
  return true;
}

tern_status kv_seq_clone(kv_seq *to, const kv_seq *from, tern_error *err)
{
  kv_seq_truncate(to, 0);
  for (int n = 0; n < from->store->n_lanes; n++) {
    const table *source = &from->tables[n];
    if (!widen(to, n, source->size)) {
      kv_seq_truncate(to, 0);
      return err_nomem(err, "key/value tables");
    }
    for (size_t i = 0; i < source->size; i++) {
      if (source->blocks[i])
        source->blocks[i]->references++;
      put(&to->tables[n], i, source->blocks[i]);
    }
    to->tables[n].first = source->first;
    to->tables[n].form = source->form;
  }
  return TERN_OK;
}

/* ---- images ---- */

int kv_store_slots(const kv_store *store)
{
  return store->n_lanes;
}

size_t kv_store_block_bytes(const kv_store *store, int slot, bool quantised)
{
  const lane *l = &store->lanes[slot];
  return quantised && !l->slot.quant.bits ? 0 : l->shelves[quantised ? QUANTISED : PLAIN].block_bytes;
}

kv_table kv_seq_table(const kv_seq *seq, int slot)
{
  const table *t = &seq->tables[slot];
  return (kv_table){.quantised = t->form == QUANTISED, .size = t->size, .first = t->first};
}

void kv_seq_places(const kv_seq *seq, int slot, const kv_seq *with, uint8_t *places)
{
  const table *t = &seq->tables[slot], *other = with ? &with->tables[slot] : NULL;
  for (size_t i = 0; i < t->size; i++) {
    bool shared = other && i < other->size && other->blocks[i] == t->blocks[i];
    places[i] = !t->blocks[i] ? KV_NOTHING : shared ? KV_SHARED : KV_OWN;
  }
}

void kv_seq_read_block(const kv_seq *seq, int slot, size_t i, void *to)
{
  const table *t = &seq->tables[slot];
  ops_context *cx = seq->store->cx;
  cx->backend->read(cx, to, t->data[i], seq->store->lanes[slot].shelves[t->form].block_bytes);
}

void kv_seq_write_block(kv_seq *seq, int slot, size_t i, const void *from)
{
  table *t = &seq->tables[slot];
  ops_context *cx = seq->store->cx;
  cx->backend->write(cx, t->data[i], from, seq->store->lanes[slot].shelves[t->form].block_bytes);
}

/* Whether `length` tokens may have such a table: in the right form, and no block behind them. */
static bool plausible(const lane *l, const kv_table *image, int64_t length)
{
  const ops_kv_quant *q = &l->slot.quant;
  bool plain = !q->bits || (q->start > 0 && length <= q->start), quantised = q->bits && length >= q->start;
  if (!(image->quantised ? quantised : plain) || image->first > image->size || (image->first && !l->slot.window))
    return false;
  for (size_t i = blocks_for(length); i < image->size; i++)
    if (image->places[i] != KV_NOTHING)
      return false;
  return true;
}

static tern_status restore_lane(kv_seq *seq, int slot, const kv_table *image, const kv_seq *with, tern_error *err)
{
  lane *l = &seq->store->lanes[slot];
  table *t = &seq->tables[slot];
  const table *other = with ? &with->tables[slot] : NULL;
  size_t own = 0;
  t->form = image->quantised ? QUANTISED : PLAIN;
  for (size_t i = 0; i < image->size; i++)
    own += image->places[i] == KV_OWN;
  if (!widen(seq, slot, image->size))
    return err_nomem(err, "key/value tables");
  set_promise(l, t, t->form, own);
  const shelf *s = &l->shelves[t->form];
  if (s->count < s->promised)
    TRY(add_blocks(seq->store, &l->shelves[t->form], s->promised - s->count, err));
  t->first = image->first;
  for (size_t i = 0; i < image->size; i++) {
    bool there = other && i < other->size && other->blocks[i] && other->form == t->form;
    if (image->places[i] == KV_OWN)
      put(t, i, take(l, t, t->form));
    else if (image->places[i] == KV_SHARED && there) {
      other->blocks[i]->references++;
      put(t, i, other->blocks[i]);
    } else if (image->places[i] != KV_NOTHING)
      return err_set(err, TERN_E_FORMAT, "key/value slot %d: place %zu is of no known kind", slot, i);
  }
  return TERN_OK;
}

tern_status kv_seq_restore(kv_seq *seq, const kv_table *tables, const kv_seq *with, int64_t length, tern_error *err)
{
  tern_status status = TERN_OK;
  kv_seq_truncate(seq, 0);
  for (int i = 0; i < seq->store->n_lanes && status == TERN_OK; i++)
    status = plausible(&seq->store->lanes[i], &tables[i], length)
                 ? restore_lane(seq, i, &tables[i], with, err)
                 : err_set(err, TERN_E_FORMAT, "key/value slot %d: not the table of %lld tokens", i, (long long)length);
  if (status == TERN_OK && !kv_seq_can_resume(seq, length))
    status = err_set(err, TERN_E_FORMAT, "keys and values: blocks of %lld tokens are missing", (long long)length);
  if (status != TERN_OK) {
    drop_promises(seq);
    for (int i = 0; i < seq->store->n_lanes; i++)
      drop_range(seq, i, 0, seq->tables[i].size);
    for (int i = 0; i < seq->store->n_lanes; i++) {
      seq->tables[i].form = first_form(&seq->store->lanes[i].slot);
      seq->tables[i].first = 0;
    }
  }
  return status;
}
