/* grammar_machine.c - see grammar_machine.h.
 *
 * Work is counted where it is done: a thread that is looked at, a thread that is followed, a state that is made. The
 * prices are about what they take beside each other; a unit is one or two nanoseconds.
 */
#include "text/grammar_machine.h"

#include <string.h>

#include "base/mem.h"

enum {
  SOFT_BYTES = 4 << 20,   /* kept: gram_trim forgets */
  HARD_BYTES = 16 << 20,  /* kept within what lies between two calls of gram_trim */
  MOST_THREADS = 1 << 14, /* of a state: what each step goes through */
  FOLLOW_WORK = 10,       /* of a thread that is followed; one that is looked at: 1 */
  STATE_WORK = 100        /* of a state that is made, beside its row */
};
#define UNKNOWN UINT32_MAX

typedef struct frame { /* of a stack: where to go on, and the stack below */
  uint32_t at, below;
} frame;

typedef struct state {
  uint32_t first, n; /* in `threads` */
  bool accepts;
} state;

/* Numbers by hash, open addressing; 0: free. */
typedef struct numbers {
  uint32_t *slots;
  size_t mask, n;
} numbers;

struct gram_machine {
  const grammar *g;
  uint32_t start;
  frame *frames; /* [n_frames]: stacks by number; 0: the empty one */
  size_t n_frames, frames_capacity;
  numbers frame_index;
  state *states; /* [n_states]; 0: GRAM_DEAD */
  size_t n_states, states_capacity;
  numbers state_index;
  uint32_t *next; /* [n_states, n_classes] */
  size_t next_capacity;
  uint64_t *threads; /* place << 32 | stack, sorted within a state */
  size_t n_threads, threads_capacity;
  /* what one closure needs */
  uint64_t *work, *found;
  size_t n_work, work_capacity, n_found, found_capacity;
  uint64_t *seen; /* open addressing; UINT64_MAX: free */
  size_t seen_mask, n_seen;
  uint64_t left; /* work that may still be done */
  size_t floor;  /* kept behind the last trim: of a deep stack nothing can be forgotten */
  bool failed, over, costly;
};

/* ---- numbers by hash ---- */

static uint64_t mix(uint64_t x)
{
  x ^= x >> 32;
  x *= 0x9e3779b97f4a7c15u;
  return x ^ x >> 29;
}

static uint64_t hash_threads(const uint64_t *threads, size_t n)
{
  uint64_t h = n;
  for (size_t i = 0; i < n; i++)
    h = mix(h * 31 + threads[i]);
  return h;
}

static uint64_t hash_frame(frame f)
{
  return mix((uint64_t)f.at << 32 | f.below);
}

static uint64_t hash_of(const gram_machine *m, const numbers *x, uint32_t number)
{
  if (x == &m->frame_index)
    return hash_frame(m->frames[number]);
  return hash_threads(m->threads + m->states[number].first, m->states[number].n);
}

static void put(const gram_machine *m, numbers *x, uint32_t number)
{
  size_t at = hash_of(m, x, number) & x->mask;
  while (x->slots[at])
    at = (at + 1) & x->mask;
  x->slots[at] = number;
}

static bool make_room(const gram_machine *m, numbers *x)
{
  if (x->slots && x->n * 2 <= x->mask)
    return true;
  numbers more = {.mask = x->slots ? x->mask * 2 + 1 : 255, .n = x->n};
  more.slots = mem_array(more.mask + 1, sizeof *more.slots);
  if (!more.slots)
    return false;
  numbers old = *x;
  *x = more;
  for (size_t i = 0; old.slots && i <= old.mask; i++)
    if (old.slots[i])
      put(m, x, old.slots[i]);
  mem_free(old.slots);
  return true;
}

/* ---- bounds ---- */

static size_t slots_of(const numbers *x)
{
  return x->slots ? (x->mask + 1) * sizeof *x->slots : 0;
}

/* All that is held, room that is not used yet among it. */
static size_t kept(const gram_machine *m)
{
  return m->frames_capacity * sizeof *m->frames + m->threads_capacity * sizeof *m->threads +
         m->states_capacity * sizeof *m->states + m->next_capacity * sizeof *m->next + slots_of(&m->frame_index) +
         slots_of(&m->state_index) + (m->work_capacity + m->found_capacity) * sizeof *m->work +
         (m->seen ? (m->seen_mask + 1) * sizeof *m->seen : 0);
}

static void spend(gram_machine *m, uint64_t work)
{
  m->costly = m->costly || work > m->left;
  m->over = m->over || m->costly;
  m->left -= work < m->left ? work : m->left;
}

static bool may_grow(gram_machine *m)
{
  m->over = m->over || kept(m) > HARD_BYTES;
  return !m->over && !m->failed;
}

/* ---- stacks ---- */

static uint32_t push(gram_machine *m, uint32_t at, uint32_t below)
{
  frame f = {at, below};
  if (!may_grow(m))
    return 0;
  for (size_t i = hash_frame(f) & m->frame_index.mask; m->frame_index.slots[i]; i = (i + 1) & m->frame_index.mask) {
    const frame *there = &m->frames[m->frame_index.slots[i]];
    if (there->at == at && there->below == below)
      return m->frame_index.slots[i];
  }
  if (!mem_grow(&m->frames, &m->frames_capacity, m->n_frames + 1, sizeof *m->frames) ||
      !make_room(m, &m->frame_index)) {
    m->failed = true;
    return 0;
  }
  m->frames[m->n_frames] = f;
  m->frame_index.n++;
  put(m, &m->frame_index, (uint32_t)m->n_frames);
  return (uint32_t)m->n_frames++;
}

/* ---- closures ---- */

static bool make_seen_room(gram_machine *m)
{
  if (m->seen && m->n_seen * 2 <= m->seen_mask)
    return true;
  size_t mask = m->seen ? m->seen_mask * 2 + 1 : 255;
  uint64_t *seen = mem_array(mask + 1, sizeof *seen), *old = m->seen;
  if (!seen)
    return false;
  memset(seen, 0xff, (mask + 1) * sizeof *seen);
  for (size_t i = 0; old && i <= m->seen_mask; i++)
    if (old[i] != UINT64_MAX) {
      size_t at = mix(old[i]) & mask;
      while (seen[at] != UINT64_MAX)
        at = (at + 1) & mask;
      seen[at] = old[i];
    }
  mem_free(old);
  m->seen = seen;
  m->seen_mask = mask;
  return true;
}

/* Whether this is the first sight of it in this closure. */
static bool first_sight(gram_machine *m, uint64_t thread)
{
  if (!make_seen_room(m)) {
    m->failed = true;
    return false;
  }
  size_t at = mix(thread) & m->seen_mask;
  for (; m->seen[at] != UINT64_MAX; at = (at + 1) & m->seen_mask)
    if (m->seen[at] == thread)
      return false;
  m->seen[at] = thread;
  m->n_seen++;
  return true;
}

static void begin_closure(gram_machine *m)
{
  m->n_work = m->n_found = 0;
  if (m->n_seen)
    memset(m->seen, 0xff, (m->seen_mask + 1) * sizeof *m->seen);
  m->n_seen = 0;
}

/* A thread that never ends is none. */
static void add(gram_machine *m, uint32_t at, uint32_t stack)
{
  uint64_t thread = (uint64_t)at << 32 | stack;
  spend(m, FOLLOW_WORK);
  if (!m->g->code[at].alive || m->failed || m->over || !first_sight(m, thread))
    return;
  if (!mem_grow(&m->work, &m->work_capacity, m->n_work + 1, sizeof *m->work))
    m->failed = true;
  else
    m->work[m->n_work++] = thread;
}

static void keep_thread(gram_machine *m, uint64_t thread)
{
  m->over = m->over || m->n_found >= MOST_THREADS;
  if (m->over)
    return;
  if (!mem_grow(&m->found, &m->found_capacity, m->n_found + 1, sizeof *m->found))
    m->failed = true;
  else
    m->found[m->n_found++] = thread;
}

/* Follows all threads up to a byte or to acceptance. */
static void close_threads(gram_machine *m)
{
  while (m->n_work && !m->failed && !m->over) {
    uint64_t thread = m->work[--m->n_work];
    uint32_t at = (uint32_t)(thread >> 32), stack = (uint32_t)thread;
    const gram_code *c = &m->g->code[at];
    switch ((gram_op)c->op) {
    case GRAM_BYTES:
    case GRAM_ACCEPT:
      keep_thread(m, thread);
      break;
    case GRAM_SPLIT:
      add(m, c->b, stack);
      add(m, c->a, stack);
      break;
    case GRAM_JUMP:
      add(m, c->a, stack);
      break;
    case GRAM_CALL:
      add(m, m->g->rules[c->a], c->tail ? stack : push(m, at + 1, stack));
      break;
    case GRAM_RETURN:
      if (stack) /* else it began in the rule itself: gram_start_at */
        add(m, m->frames[stack].at, m->frames[stack].below);
      break;
    }
  }
}

/* ---- states ---- */

static void sort(uint64_t *x, size_t n)
{
  for (size_t gap = n / 2; gap; gap /= 2)
    for (size_t i = gap; i < n; i++) {
      uint64_t moved = x[i];
      size_t at = i;
      for (; at >= gap && x[at - gap] > moved; at -= gap)
        x[at] = x[at - gap];
      x[at] = moved;
    }
}

static uint32_t find_state(const gram_machine *m)
{
  uint64_t hash = hash_threads(m->found, m->n_found);
  for (size_t i = hash & m->state_index.mask; m->state_index.slots[i]; i = (i + 1) & m->state_index.mask) {
    const state *s = &m->states[m->state_index.slots[i]];
    if (s->n == m->n_found && memcmp(m->threads + s->first, m->found, m->n_found * sizeof *m->found) == 0)
      return m->state_index.slots[i];
  }
  return GRAM_DEAD;
}

static bool grow_states(gram_machine *m)
{
  size_t classes = (size_t)m->g->n_classes;
  return mem_grow(&m->states, &m->states_capacity, m->n_states + 1, sizeof *m->states) &&
         mem_grow(&m->next, &m->next_capacity, (m->n_states + 1) * classes, sizeof *m->next) &&
         mem_grow(&m->threads, &m->threads_capacity, m->n_threads + m->n_found, sizeof *m->threads) &&
         make_room(m, &m->state_index);
}

/* The number of the state with the threads that were found. */
static uint32_t state_of_found(gram_machine *m)
{
  size_t classes = (size_t)m->g->n_classes;
  if (m->failed || m->over || !m->n_found)
    return GRAM_DEAD;
  sort(m->found, m->n_found);
  uint32_t known = find_state(m);
  spend(m, known ? 0 : STATE_WORK + classes);
  if (known || !may_grow(m))
    return known;
  if (!grow_states(m)) {
    m->failed = true;
    return GRAM_DEAD;
  }
  state s = {.first = (uint32_t)m->n_threads, .n = (uint32_t)m->n_found};
  memcpy(m->threads + m->n_threads, m->found, m->n_found * sizeof *m->found);
  m->n_threads += m->n_found;
  for (size_t i = 0; i < m->n_found; i++)
    s.accepts |= m->g->code[m->found[i] >> 32].op == GRAM_ACCEPT;
  uint32_t number = (uint32_t)m->n_states++;
  m->states[number] = s;
  for (size_t i = 0; i < classes; i++)
    m->next[number * classes + i] = UNKNOWN;
  m->state_index.n++;
  put(m, &m->state_index, number);
  return number;
}

static uint32_t find_step(gram_machine *m, uint32_t from, uint8_t byte)
{
  state s = m->states[from];
  begin_closure(m);
  spend(m, s.n);
  for (uint32_t i = 0; i < s.n; i++) {
    uint64_t thread = m->threads[s.first + i];
    uint32_t at = (uint32_t)(thread >> 32);
    const gram_code *c = &m->g->code[at];
    if (c->op == GRAM_BYTES && byte >= c->lo && byte <= c->hi)
      add(m, at + 1, (uint32_t)thread);
  }
  close_threads(m);
  return state_of_found(m);
}

uint32_t gram_step(gram_machine *m, uint32_t from, uint8_t byte)
{
  size_t at = from * (size_t)m->g->n_classes + m->g->classes[byte];
  if (m->failed || m->over)
    return GRAM_DEAD; /* there may be no tables any more */
  if (m->next[at] != UNKNOWN)
    return m->next[at];
  uint32_t to = find_step(m, from, byte);
  if (!m->failed && !m->over)
    m->next[at] = to;
  return to;
}

bool gram_accepts(const gram_machine *m, uint32_t at)
{
  return !m->failed && !m->over && m->states[at].accepts;
}

bool gram_is_final(const gram_machine *m, uint32_t at)
{
  bool bytes = false;
  if (!gram_accepts(m, at))
    return false;
  const state *s = &m->states[at];
  for (uint32_t i = 0; i < s->n && !bytes; i++)
    bytes = m->g->code[m->threads[s->first + i] >> 32].op == GRAM_BYTES;
  return !bytes;
}

tern_status gram_fault(const gram_machine *m, tern_error *err)
{
  if (m->failed)
    return err_nomem(err, "grammar");
  if (m->costly)
    return err_set(
        err, TERN_E_LIMIT,
        "grammar: it is too costly to follow: too many ways to go on, as of a pattern that may begin anywhere "
        "and counts");
  if (m->over)
    return err_set(err, TERN_E_LIMIT, "grammar: it has too many ways to go on at once: %d, or %d MiB", MOST_THREADS,
                   HARD_BYTES >> 20);
  return TERN_OK;
}

uint32_t gram_start(const gram_machine *m)
{
  return m->start;
}

size_t gram_width(const gram_machine *m, uint32_t at)
{
  return m->failed || m->over ? 0 : m->states[at].n;
}

void gram_allow(gram_machine *m, uint64_t work)
{
  m->left = work;
}

uint64_t gram_left(const gram_machine *m)
{
  return m->left;
}

/* ---- life ---- */

static void free_tables(gram_machine *m)
{
  mem_free(m->frames);
  mem_free(m->frame_index.slots);
  mem_free(m->states);
  mem_free(m->state_index.slots);
  mem_free(m->next);
  mem_free(m->threads);
}

/* The empty stack, and the state in which nothing is allowed. */
static bool make_tables(gram_machine *m)
{
  size_t classes = (size_t)m->g->n_classes;
  m->n_found = 0;
  if (!make_room(m, &m->frame_index) || !grow_states(m) ||
      !mem_grow(&m->frames, &m->frames_capacity, 1, sizeof *m->frames))
    return false;
  m->frames[0] = (frame){0};
  m->states[0] = (state){0};
  memset(m->next, 0, classes * sizeof *m->next);
  m->n_frames = m->n_states = 1;
  return true;
}

static uint32_t state_at(gram_machine *m, uint32_t place)
{
  begin_closure(m);
  add(m, place, 0);
  close_threads(m);
  return state_of_found(m);
}

uint32_t gram_start_at(gram_machine *m, uint32_t rule)
{
  bool none = m->failed || m->over || m->g->rules[rule] == GRAM_NONE;
  return none ? GRAM_DEAD : state_at(m, m->g->rules[rule]);
}

tern_status gram_machine_open(const grammar *g, gram_machine **out, tern_error *err)
{
  gram_machine *m = mem_zalloc(sizeof *m);
  if (!m)
    return err_nomem(err, "grammar");
  m->g = g;
  m->left = GRAM_MASK_WORK;
  m->failed = !make_tables(m);
  if (!m->failed)
    m->start = state_at(m, 0);
  tern_status status = gram_fault(m, err);
  if (status == TERN_OK)
    *out = m;
  else
    gram_machine_close(m);
  return status;
}

void gram_machine_close(gram_machine *m)
{
  if (!m)
    return;
  free_tables(m);
  mem_free(m->work);
  mem_free(m->found);
  mem_free(m->seen);
  mem_free(m);
}

/* The same stack among the new ones. The way down is walked once to count and once from below. */
static uint32_t carry_over(gram_machine *m, const frame *old, uint32_t stack)
{
  size_t depth = 0;
  for (uint32_t at = stack; at; at = old[at].below)
    depth++;
  uint32_t *way = mem_array(depth, sizeof *way), out = 0;
  if (!way) {
    m->failed = true;
    return 0;
  }
  for (uint32_t at = stack, i = (uint32_t)depth; at; at = old[at].below)
    way[--i] = at;
  for (size_t i = 0; i < depth; i++)
    out = push(m, old[way[i]].at, out);
  mem_free(way);
  return out;
}

bool gram_trim(gram_machine *m, uint32_t *at)
{
  if (kept(m) <= SOFT_BYTES || kept(m) <= 2 * m->floor || m->failed || m->over)
    return false;
  gram_machine old = *m;
  state s = m->states[*at];
  m->frames = NULL;
  m->states = NULL;
  m->next = NULL;
  m->threads = NULL;
  m->frame_index = m->state_index = (numbers){0};
  m->n_frames = m->n_states = m->n_threads = 0;
  m->frames_capacity = m->states_capacity = m->next_capacity = m->threads_capacity = 0;
  m->failed = !make_tables(m);
  for (uint32_t i = 0; i < s.n && !m->failed; i++) {
    uint64_t thread = old.threads[s.first + i];
    uint32_t stack = carry_over(m, old.frames, (uint32_t)thread);
    keep_thread(m, thread >> 32 << 32 | stack);
  }
  *at = state_of_found(m);
  if (!m->failed)
    m->start = state_at(m, 0);
  free_tables(&old);
  m->floor = kept(m);
  return true;
}
