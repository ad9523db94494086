/* grammar.c - see grammar.h: emitting code, and what sealing finds out about it. */
#include "text/grammar.h"

#include <string.h>

#include "base/mem.h"

void gram_free(grammar *g)
{
  mem_free(g->code);
  mem_free(g->rules);
  *g = (grammar){0};
}

/* ---- emitting ---- */

uint32_t gram_here(const grammar *g)
{
  return (uint32_t)g->n;
}

static uint32_t emit(grammar *g, gram_code code)
{
  if (g->failed || g->over)
    return 0;
  g->over = g->n >= GRAM_MOST_CODE;
  g->failed = !g->over && !mem_grow(&g->code, &g->capacity, g->n + 1, sizeof *g->code);
  if (g->over || g->failed)
    return 0;
  g->code[g->n] = code;
  return (uint32_t)g->n++;
}

uint32_t gram_rule(grammar *g)
{
  if (g->failed || g->over)
    return 0;
  g->over = g->n_rules >= GRAM_MOST_RULES;
  g->failed = !g->over && !mem_grow(&g->rules, &g->rules_capacity, g->n_rules + 1, sizeof *g->rules);
  if (g->over || g->failed)
    return 0;
  g->rules[g->n_rules] = GRAM_NONE;
  return (uint32_t)g->n_rules++;
}

void gram_begin(grammar *g, uint32_t rule)
{
  if (!g->failed && !g->over)
    g->rules[rule] = gram_here(g);
}

void gram_bytes(grammar *g, uint8_t lo, uint8_t hi)
{
  emit(g, (gram_code){.op = GRAM_BYTES, .lo = lo, .hi = hi});
}

void gram_text(grammar *g, const char *s, size_t n)
{
  for (size_t i = 0; i < n; i++)
    gram_bytes(g, (uint8_t)s[i], (uint8_t)s[i]);
}

void gram_call(grammar *g, uint32_t rule)
{
  emit(g, (gram_code){.op = GRAM_CALL, .a = rule});
}

void gram_return(grammar *g)
{
  emit(g, (gram_code){.op = GRAM_RETURN});
}

void gram_accept(grammar *g)
{
  emit(g, (gram_code){.op = GRAM_ACCEPT});
}

void gram_jump_to(grammar *g, uint32_t at)
{
  emit(g, (gram_code){.op = GRAM_JUMP, .a = at});
}

void gram_split_to(grammar *g, uint32_t at)
{
  emit(g, (gram_code){.op = GRAM_SPLIT, .a = gram_here(g) + 1, .b = at});
}

uint32_t gram_split(grammar *g)
{
  return emit(g, (gram_code){.op = GRAM_SPLIT, .a = gram_here(g) + 1, .b = GRAM_NONE});
}

void gram_land(grammar *g, uint32_t split)
{
  if (!g->failed && !g->over)
    g->code[split].b = gram_here(g);
}

uint32_t gram_jump(grammar *g, uint32_t before)
{
  return emit(g, (gram_code){.op = GRAM_JUMP, .a = before});
}

void gram_land_jumps(grammar *g, uint32_t last)
{
  while (!g->failed && !g->over && last != GRAM_NONE) {
    uint32_t before = g->code[last].a;
    g->code[last].a = gram_here(g);
    last = before;
  }
}

void gram_branch(grammar *g, gram_alternatives *a, bool more)
{
  if (a->begun) {
    a->ends = gram_jump(g, a->ends);
    gram_land(g, a->split);
  }
  a->begun = true;
  if (more)
    a->split = gram_split(g);
}

void gram_join(grammar *g, gram_alternatives *a)
{
  gram_land_jumps(g, a->ends);
}

/* ---- characters ---- */

/* Characters from lo to hi, of one length: their bytes are one range after another, see run_end. */
static void char_range(grammar *g, uint32_t lo, uint32_t hi, int bytes)
{
  static const uint8_t leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (int i = bytes - 1; i >= 0; i--) {
    uint8_t mark = i == bytes - 1 ? leads[bytes] : 0x80, mask = i == bytes - 1 ? 0xff : 0x3f;
    gram_bytes(g, (uint8_t)(mark | (lo >> (6 * i) & mask)), (uint8_t)(mark | (hi >> (6 * i) & mask)));
  }
}

static int length_of(uint32_t c)
{
  return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
}

static uint32_t least(uint32_t a, uint32_t b)
{
  return a < b ? a : b;
}

/* The end of a run from lo that one list of ranges tells: of one length, without surrogates, with one byte that is a
 * range: those before it are the same, those behind it are free. */
static uint32_t run_end(uint32_t lo, uint32_t hi)
{
  static const uint32_t last[] = {0, 0x7f, 0x7ff, 0xffff, 0x10ffff};
  hi = least(hi, last[length_of(lo)]);
  if (lo < 0xd800)
    hi = least(hi, 0xd7ff);
  for (int i = length_of(lo) - 1; i > 0; i--) {
    uint32_t size = 1u << (6 * i), mask = size - 1;
    uint32_t most = least(hi, lo | ((size << 6) - 1));
    if ((lo & mask) == 0 && lo + mask <= most)
      return most - ((most + 1) & mask); /* the greatest end with free bits behind */
  }
  return least(hi, lo | 0x3f);
}

void gram_chars(grammar *g, uint32_t lo, uint32_t hi)
{
  gram_alternatives any = GRAM_ALTERNATIVES;
  while (lo <= hi) {
    if (lo >= 0xd800 && lo <= 0xdfff) {
      lo = 0xe000;
      continue;
    }
    uint32_t end = length_of(lo) == 1 ? least(hi, 0x7f) : run_end(lo, hi);
    bool more = end < hi && !(end + 1 >= 0xd800 && hi <= 0xdfff);
    gram_branch(g, &any, more);
    if (length_of(lo) == 1)
      gram_bytes(g, (uint8_t)lo, (uint8_t)end);
    else
      char_range(g, lo, end, length_of(lo));
    lo = end + 1;
  }
  gram_join(g, &any);
}

/* ---- sealing ---- */

static void find_classes(grammar *g)
{
  bool cuts[257] = {false};
  for (size_t i = 0; i < g->n; i++)
    if (g->code[i].op == GRAM_BYTES)
      cuts[g->code[i].lo] = cuts[g->code[i].hi + 1] = true;
  int class = 0;
  for (int byte = 0; byte < 256; byte++) {
    class += byte && cuts[byte];
    g->classes[byte] = (uint8_t) class;
  }
  g->n_classes = class + 1;
}

/* Whether what the instruction leads to holds, where it holds at ends; `bytes`: whether it may take a byte. */
static bool reaches(const grammar *g, const bool *holds, size_t at, bool bytes)
{
  const gram_code *c = &g->code[at];
  switch ((gram_op)c->op) {
  case GRAM_BYTES:
    return bytes && holds[at + 1];
  case GRAM_SPLIT:
    return holds[c->a] || holds[c->b];
  case GRAM_JUMP:
    return holds[c->a];
  case GRAM_CALL:
    return holds[g->rules[c->a]] && holds[at + 1];
  case GRAM_RETURN:
  case GRAM_ACCEPT:
    break;
  }
  return true;
}

/* Rules mostly stand behind those that call them: backwards is quick. */
static void spread(const grammar *g, bool *holds, bool bytes)
{
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t at = g->n; at-- > 0;)
      if (!holds[at] && reaches(g, holds, at, bytes))
        changed = holds[at] = true;
  }
}

typedef enum visit { UNSEEN = 0, OPEN, DONE } visit;

/* Where the instruction leads without a byte: up to two places. */
static int steps_of(const grammar *g, const bool *nullable, size_t at, uint32_t to[2])
{
  const gram_code *c = &g->code[at];
  int n = 0;
  if (c->op == GRAM_SPLIT || c->op == GRAM_JUMP)
    to[n++] = c->a;
  if (c->op == GRAM_SPLIT)
    to[n++] = c->b;
  if (c->op == GRAM_CALL) {
    to[n++] = g->rules[c->a];
    if (nullable[g->rules[c->a]])
      to[n++] = (uint32_t)at + 1;
  }
  return n;
}

/* Depth first without recursion: whether some call leads back to itself with no byte between. path: [n] places on the
 * way. A loop without a call is harmless: a machine goes through it once. */
static bool circles(const grammar *g, const bool *nullable, uint8_t *visits, uint32_t *path)
{
  for (size_t root = 0; root < g->n; root++) {
    size_t depth = 0;
    if (visits[root] != UNSEEN)
      continue;
    path[depth++] = (uint32_t)root;
    while (depth) {
      uint32_t at = path[depth - 1], to[2];
      int n = steps_of(g, nullable, at, to);
      bool deeper = false;
      visits[at] = OPEN;
      for (int i = 0; i < n && !deeper; i++) {
        if (visits[to[i]] == OPEN) {
          for (size_t k = depth; k-- > 0 && (k == depth - 1 || path[k + 1] != to[i]);)
            if (g->code[path[k]].op == GRAM_CALL)
              return true;
        } else if (visits[to[i]] == UNSEEN) {
          path[depth++] = to[i];
          deeper = true;
        }
      }
      if (!deeper) {
        visits[at] = DONE;
        depth--;
      }
    }
  }
  return false;
}

static bool is_tail(const grammar *g, size_t at)
{
  size_t left = g->n;
  while (left-- && g->code[at].op == GRAM_JUMP)
    at = g->code[at].a;
  return g->code[at].op == GRAM_RETURN;
}

tern_status gram_seal(grammar *g, tern_error *err)
{
  gram_return(g); /* so that there is an instruction behind each */
  if (g->over)
    return err_set(err, TERN_E_LIMIT, "it becomes more than %d instructions or %d rules", GRAM_MOST_CODE,
                   GRAM_MOST_RULES);
  bool *alive = mem_array(g->n, sizeof *alive), *nullable = mem_array(g->n, sizeof *nullable);
  uint8_t *visits = mem_array(g->n, sizeof *visits);
  uint32_t *path = mem_array(g->n, sizeof *path);
  tern_status status = TERN_OK;
  if (g->failed || !alive || !nullable || !visits || !path)
    status = err_nomem(err, "grammar");
  if (status == TERN_OK) {
    find_classes(g);
    spread(g, alive, true);
    spread(g, nullable, false);
    for (size_t at = 0; at < g->n; at++) {
      g->code[at].alive = alive[at];
      g->code[at].tail = g->code[at].op == GRAM_CALL && is_tail(g, at + 1);
    }
    if (circles(g, nullable, visits, path))
      status = err_set(err, TERN_E_USAGE, "it refers to itself with nothing between");
    else if (!alive[0])
      status = err_set(err, TERN_E_USAGE, "nothing can satisfy it");
  }
  mem_free(alive);
  mem_free(nullable);
  mem_free(visits);
  mem_free(path);
  return status;
}
