/* constraint.c - see constraint.h.
 *
 * The tokens stand sorted by their bytes, so that a token goes on from where its bytes and those of the one before it
 * part; behind a byte that leads nowhere, all that begin alike are out.
 */
#include "engine/constraint.h"

#include <string.h>

#include "base/mem.h"

enum {
  MOST_MASKS = 4 << 20, /* bytes that are kept of them */
  MOST_WORK = GRAM_MASK_WORK,
  TOKEN_WORK = MOST_WORK / 4 /* what each mask adds to what may be done, up to MOST_WORK */
};

struct constraint {
  const tern_grammar *of;
  gram_machine *machine;
  int32_t *stop_ids; /* below the vocabulary */
  size_t n_stop_ids, words;
  uint64_t **masks; /* [n_masks] by state; NULL: not made yet */
  size_t n_masks, capacity, bytes;
  uint64_t left;   /* work that the next mask may take */
  uint64_t *first; /* of an answer's first token */
  uint32_t *way;   /* [longest token + 1]: states behind each of its bytes */
};

/* ---- the grammar ---- */

/* The bytes of a model's tokens are the same for all its grammars; they are made when the first asks. */
static tern_status open_bytes(tern_model *m, tern_error *err)
{
  tern_status status = TERN_OK;
  pthread_mutex_lock(&m->bytes_lock);
  if (!m->bytes)
    status = tok_bytes_open(m->tok, m->info.vocab, false, &m->bytes, err);
  if (status == TERN_OK && !m->first_bytes && tok_bytes_differ(m->tok))
    status = tok_bytes_open(m->tok, m->info.vocab, true, &m->first_bytes, err);
  pthread_mutex_unlock(&m->bytes_lock);
  return status;
}

tern_status grammar_open(tern_model *m, const grammar_wish *wish, tern_grammar **out, tern_error *err)
{
  if (wish->reasoning && wish->reasoning->channels)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: answers in channels cannot be constrained yet", wish->form.place);
  TRY(open_bytes(m, err));
  tern_grammar *g = mem_zalloc(sizeof *g);
  if (!g)
    return err_nomem(err, "grammar");
  g->model = m;
  answer_form form = wish->form;
  form.frame = (schema_frame){.start = wish->reasoning && !wish->opened ? wish->reasoning->start : NULL,
                              .end = wish->reasoning ? wish->reasoning->end : NULL};
  form.again = wish->reasoning ? wish->reasoning->start : NULL;
  g->calls = form.calls != NULL;
  tern_status status = answer_compile(&form, &g->grammar, err);
  if (status == TERN_OK)
    *out = g;
  else
    tern_grammar_close(g);
  return status;
}

void tern_grammar_close(tern_grammar *g)
{
  if (!g)
    return;
  gram_free(&g->grammar);
  mem_free(g);
}

tern_status tern_grammar_open(tern_model *m, const char *schema, size_t length, tern_grammar **out, tern_error *err)
{
  json_error_t why;
  json_t *tree = NULL;
  if (schema) {
    tree = json_loadb(schema, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (!tree)
      return err_set(err, TERN_E_USAGE, "schema: line %d, column %d: %s", why.line, why.column, why.text);
  }
  const grammar_wish wish = {.form = {.value = true, .schema = tree, .place = "schema"}};
  tern_status status = grammar_open(m, &wish, out, err);
  json_decref(tree);
  return status;
}

/* ---- open ---- */

static void add_stop(constraint *c, int32_t id)
{
  if (id >= 0 && id < c->of->model->info.vocab)
    c->stop_ids[c->n_stop_ids++] = id;
}

static size_t longest(const tok_bytes *b)
{
  size_t most = 0;
  for (size_t i = 0; b && i < b->n; i++)
    most = b->offsets[i + 1] - b->offsets[i] > most ? b->offsets[i + 1] - b->offsets[i] : most;
  return most;
}

tern_status constraint_open(const tern_grammar *g, const tern_generate_options *o, constraint **out, tern_error *err)
{
  const tern_model *m = g->model;
  if (o->ignore_eos)
    return err_set(err, TERN_E_USAGE, "ignore-eos: an answer with a grammar ends where the grammar says so");
  constraint *c = mem_zalloc(sizeof *c);
  if (!c)
    return err_nomem(err, "grammar");
  c->of = g;
  c->left = MOST_WORK;
  c->words = ((size_t)m->info.vocab + 63) / 64;
  c->stop_ids = mem_array(m->n_stop_ids + o->n_stop_ids, sizeof *c->stop_ids);
  size_t most = longest(m->bytes), other = longest(m->first_bytes);
  c->way = mem_array((most > other ? most : other) + 1, sizeof *c->way);
  tern_status status = c->stop_ids && c->way ? TERN_OK : err_nomem(err, "grammar");
  if (status == TERN_OK)
    status = gram_machine_open(&g->grammar, &c->machine, err);
  if (status != TERN_OK) {
    constraint_close(c);
    return status;
  }
  for (size_t i = 0; i < m->n_stop_ids; i++)
    add_stop(c, m->stop_ids[i]);
  for (size_t i = 0; i < o->n_stop_ids; i++)
    add_stop(c, o->stop_ids[i]);
  *out = c;
  return TERN_OK;
}

static void forget_masks(constraint *c)
{
  for (size_t i = 0; i < c->n_masks; i++)
    mem_free(c->masks[i]);
  c->n_masks = c->bytes = 0;
}

void constraint_close(constraint *c)
{
  if (!c)
    return;
  forget_masks(c);
  gram_machine_close(c->machine);
  mem_free(c->masks);
  mem_free(c->first);
  mem_free(c->stop_ids);
  mem_free(c->way);
  mem_free(c);
}

/* ---- masks ---- */

static const tok_bytes *bytes_of(const constraint *c, bool first)
{
  const tern_model *m = c->of->model;
  return first && m->first_bytes ? m->first_bytes : m->bytes;
}

static void set(uint64_t *mask, int32_t id, bool on)
{
  uint64_t bit = UINT64_C(1) << (id & 63);
  mask[id >> 6] = on ? mask[id >> 6] | bit : mask[id >> 6] & ~bit;
}

static void fill(constraint *c, uint32_t state, const tok_bytes *b, uint64_t *mask)
{
  size_t alive = SIZE_MAX; /* of the token before: bytes that lead somewhere */
  memset(mask, 0, c->words * sizeof *mask);
  c->way[0] = state;
  for (size_t i = 0; i < b->n; i++) {
    const uint8_t *s = (const uint8_t *)b->bytes + b->offsets[i];
    size_t n = b->offsets[i + 1] - b->offsets[i], at = b->shared[i];
    if (at > alive)
      continue; /* they part behind where the one before was lost */
    while (at < n && (c->way[at + 1] = gram_step(c->machine, c->way[at], s[at])) != GRAM_DEAD)
      at++;
    alive = at;
    if (at == n && (c->of->calls || !b->of_calls[i]))
      set(mask, b->ids[i], true);
  }
  for (size_t i = 0; i < c->n_stop_ids; i++)
    set(mask, c->stop_ids[i], gram_accepts(c->machine, state));
}

/* As fill, within what an answer may take of the thread that serves all. */
static tern_status fill_within(constraint *c, uint32_t state, const tok_bytes *b, uint64_t *mask, tern_error *err)
{
  c->left = c->left < MOST_WORK - TOKEN_WORK ? c->left + TOKEN_WORK : MOST_WORK;
  gram_allow(c->machine, c->left);
  fill(c, state, b, mask);
  c->left = gram_left(c->machine);
  return gram_fault(c->machine, err);
}

static bool is_empty(const constraint *c, const uint64_t *mask)
{
  for (size_t i = 0; i < c->words; i++)
    if (mask[i])
      return false;
  return true;
}

/* Room for the mask of a state; NULL: no memory. */
static uint64_t **mask_place(constraint *c, uint32_t state)
{
  if (c->bytes > MOST_MASKS)
    forget_masks(c);
  if (state >= c->n_masks) {
    size_t before = c->n_masks;
    if (!mem_grow(&c->masks, &c->capacity, (size_t)state + 1, sizeof *c->masks))
      return NULL;
    memset(c->masks + before, 0, ((size_t)state + 1 - before) * sizeof *c->masks);
    c->n_masks = (size_t)state + 1;
  }
  return &c->masks[state];
}

tern_status constraint_mask(constraint *c, uint32_t state, bool first, const uint64_t **out, tern_error *err)
{
  uint64_t **place = first ? &c->first : mask_place(c, state);
  if (!place)
    return err_nomem(err, "grammar");
  if (!*place) {
    *place = mem_array(c->words, sizeof **place);
    if (!*place)
      return err_nomem(err, "grammar");
    c->bytes += first ? 0 : c->words * sizeof **place;
    tern_status status = fill_within(c, state, bytes_of(c, first), *place, err);
    if (status == TERN_OK && is_empty(c, *place))
      status = err_set(err, TERN_E_UNSUPPORTED, "grammar: no token of this model can go on with the answer");
    if (status != TERN_OK) {
      mem_free(*place);
      *place = NULL;
      return status;
    }
  }
  *out = *place;
  return TERN_OK;
}

uint32_t constraint_start(const constraint *c)
{
  return gram_start(c->machine);
}

uint32_t constraint_after(constraint *c, uint32_t state, bool first, int32_t id)
{
  size_t n = 0;
  for (size_t i = 0; i < c->n_stop_ids; i++)
    if (c->stop_ids[i] == id)
      return state;
  const char *s = tok_bytes_of(bytes_of(c, first), id, &n);
  for (size_t i = 0; s && i < n; i++)
    state = gram_step(c->machine, state, (uint8_t)s[i]);
  return s ? state : GRAM_DEAD;
}

bool constraint_is_over(const constraint *c, uint32_t state)
{
  return gram_is_final(c->machine, state);
}

void constraint_trim(constraint *c, uint32_t *state)
{
  if (gram_trim(c->machine, state))
    forget_masks(c);
}
