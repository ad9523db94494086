/* tok_added.c - added tokens: strings that are cut out of the text before anything else looks at it.
 *
 * Matching is leftmost-longest over two sets: tokens that match raw text, and tokens ("normalized") that match what
 * the normaliser made of it, in their own normalised form. A match that a flag rejects (single_word) is passed over
 * whole: the search goes on behind it, as in the reference. lstrip and rstrip swallow white space around a token.
 *
 * Numbering follows the reference, which does not read the ids in the file: a token whose text the model knows has the
 * model's id, others are numbered on from the size of the vocabulary.
 */
#include <string.h>

#include "base/utf8.h"
#include "text/tok_impl.h"
#include "text/tok_unicode.h"

typedef struct trie_node {
  uint32_t child, sibling; /* 0: none */
  int32_t token;           /* -1: no token ends here */
  uint8_t byte;
} trie_node;

struct added_trie {
  trie_node *nodes; /* nodes[0] is not used */
  size_t count, capacity;
  uint32_t root[256];
};

/* ---- the matcher ----------------------------------------------------------------------------------------------- */

static uint32_t new_node(added_trie *trie, uint8_t byte)
{
  if (trie->count >= UINT32_MAX || !mem_grow(&trie->nodes, &trie->capacity, trie->count + 1, sizeof *trie->nodes))
    return 0;
  trie->nodes[trie->count] = (trie_node){.token = -1, .byte = byte};
  return (uint32_t)trie->count++;
}

static uint32_t find_child(const added_trie *trie, uint32_t node, uint8_t byte)
{
  uint32_t c = trie->nodes[node].child;
  while (c && trie->nodes[c].byte != byte)
    c = trie->nodes[c].sibling;
  return c;
}

/* False: no memory. */
static bool trie_add(added_trie *trie, tok_span s, int32_t token)
{
  uint32_t node = trie->root[(uint8_t)s.s[0]];
  if (!node)
    node = trie->root[(uint8_t)s.s[0]] = new_node(trie, (uint8_t)s.s[0]);
  for (size_t i = 1; i < s.n && node; i++) {
    uint32_t child = find_child(trie, node, (uint8_t)s.s[i]);
    if (!child && (child = new_node(trie, (uint8_t)s.s[i])) != 0) {
      trie->nodes[child].sibling = trie->nodes[node].child;
      trie->nodes[node].child = child;
    }
    node = child;
  }
  if (node)
    trie->nodes[node].token = token;
  return node != 0;
}

void added_trie_free(added_trie *trie)
{
  if (trie)
    mem_free(trie->nodes);
  mem_free(trie);
}

/* The longest token at s, or -1. */
static int32_t longest_at(const added_trie *trie, const char *s, size_t n, size_t *length)
{
  int32_t token = -1;
  uint32_t node = trie->root[(uint8_t)s[0]];
  for (size_t i = 0; node;) {
    if (trie->nodes[node].token >= 0) {
      token = trie->nodes[node].token;
      *length = i + 1;
    }
    if (++i == n)
      break;
    node = find_child(trie, node, (uint8_t)s[i]);
  }
  return token;
}

/* The next match at or after c->search, flags not yet looked at. */
static bool find_next(added_cursor *c, size_t *begin, size_t *end, int32_t *token)
{
  for (size_t i = c->search; i < c->n; i++) {
    if (!c->trie->root[(uint8_t)c->s[i]])
      continue;
    size_t length;
    *token = longest_at(c->trie, c->s + i, c->n - i, &length);
    if (*token >= 0) {
      *begin = i;
      *end = c->search = i + length;
      return true;
    }
  }
  c->search = c->n;
  return false;
}

static uint32_t character_before(const char *s, size_t at, size_t *begin)
{
  size_t i = at;
  while (i > 0 && ((uint8_t)s[--i] & 0xc0) == 0x80)
    ;
  uint32_t c = 0;
  utf8_decode(s + i, at - i, &c);
  *begin = i;
  return c;
}

static bool stands_alone(const added_cursor *c, size_t begin, size_t end)
{
  uint32_t next = 0;
  size_t unused;
  if (begin > 0 && unicode_is_word(character_before(c->s, begin, &unused)))
    return false;
  return end >= c->n || !utf8_decode(c->s + end, c->n - end, &next) || !unicode_is_word(next);
}

static size_t strip_before(const added_cursor *c, size_t at)
{
  size_t begin;
  while (at > 0 && unicode_is_space(character_before(c->s, at, &begin)))
    at = begin;
  return at;
}

static size_t strip_after(const added_cursor *c, size_t at)
{
  uint32_t next;
  size_t n;
  while ((n = utf8_decode(c->s + at, c->n - at, &next)) != 0 && unicode_is_space(next))
    at += n;
  return at;
}

bool added_next(added_cursor *c, added_match *out)
{
  if (c->has_queued) {
    c->has_queued = false;
    *out = c->queued;
    return true;
  }
  size_t begin, end;
  int32_t index;
  while (c->trie && find_next(c, &begin, &end, &index)) {
    const added_token *token = &c->tokens[index];
    if (token->single_word && !stands_alone(c, begin, end))
      continue;
    if (token->lstrip) {
      size_t stripped = strip_before(c, begin);
      begin = stripped > c->done ? stripped : c->done;
    }
    if (token->rstrip)
      end = strip_after(c, end);
    added_match match = {begin, end, token->id};
    size_t done = c->done;
    c->done = end;
    if (done < begin) {
      c->queued = match;
      c->has_queued = true;
      *out = (added_match){done, begin, -1};
    } else
      *out = match;
    return true;
  }
  if (c->done >= c->n)
    return false;
  *out = (added_match){c->done, c->n, -1};
  c->done = c->n;
  return true;
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

tern_status added_read(const char *file, const jt *value, bool strict, added_token *out, tern_error *err)
{
  *out = (added_token){.id = -1};
  const jt *content = jt_get(value, "content");
  if (!content || content->kind != JT_STRING)
    return err_set(err, TERN_E_FORMAT, "%s: added_tokens: an entry without \"content\"", file);
  out->content = (tok_span){content->s, content->n};
  const struct {
    const char *key;
    bool *flag;
  } flags[] = {{"single_word", &out->single_word},
               {"lstrip", &out->lstrip},
               {"rstrip", &out->rstrip},
               {"special", &out->special},
               {"normalized", &out->normalized}};
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
    const jt *v = jt_get(value, flags[i].key);
    if (v ? v->kind != JT_TRUE && v->kind != JT_FALSE : strict)
      return err_set(err, TERN_E_FORMAT, "%s: added_tokens: '%.80s': %s: %s", file, content->s, flags[i].key,
                     v ? "not true or false" : "missing");
    *flags[i].flag = v ? v->kind == JT_TRUE : flags[i].flag == &out->normalized && !out->special;
  }
  return TERN_OK;
}

/* ---- building -------------------------------------------------------------------------------------------------- */

/* Drops empty entries; of entries with the same text the last one's flags count, in the first one's place. */
static tern_status make_unique(tok *t, tern_error *err)
{
  size_t kept = 0;
  if (!strmap_reserve(&t->added_ids, t->n_added + 1))
    return err_nomem(err, "the tokenizer's added tokens");
  for (size_t i = 0; i < t->n_added; i++) {
    added_token *a = &t->added[i];
    bool present;
    uint32_t old;
    if (a->content.n == 0)
      continue;
    if (!strmap_put(&t->added_ids, a->content.s, a->content.n, (uint32_t)kept, &present, &old))
      return err_nomem(err, "the tokenizer's added tokens");
    if (present) {
      a->special |= t->added[old].special; /* once special, a text stays so */
      t->added[old] = *a;
    } else
      t->added[kept++] = *a;
  }
  t->n_added = kept;
  return TERN_OK;
}

static tern_status number(tok *t, vocab_entry *beyond, size_t *n_beyond, tern_error *err)
{
  uint32_t next = (uint32_t)(t->model == MODEL_UNIGRAM ? t->vocab.size : t->vocab.count), size = t->vocab.size;
  for (size_t i = 0; i < t->n_added; i++) {
    added_token *a = &t->added[i];
    int32_t wanted = a->id;
    a->id = vocab_find(&t->vocab, a->content.s, a->content.n);
    if (wanted >= 0 && wanted != (a->id >= 0 ? a->id : (int32_t)next))
      return err_set(err, TERN_E_FORMAT, "added_tokens.json: '%.80s': id %d, but the next free one is %u", a->content.s,
                     wanted, next);
    if (a->id >= 0)
      continue;
    if (next >= TOK_MAX_ID || a->content.n > INT32_MAX)
      return err_set(err, TERN_E_LIMIT, "%s: added_tokens: too many", t->file);
    a->id = (int32_t)next++;
    size_t n;
    if ((uint32_t)a->id >= size || !vocab_get(&t->vocab, (uint32_t)a->id, &n))
      beyond[(*n_beyond)++] = (vocab_entry){a->content.s, (uint32_t)a->content.n, (uint32_t)a->id};
  }
  return TERN_OK;
}

static tern_status normalize_pattern(tok *t, added_token *a, tern_error *err)
{
  if (a->pattern.s)
    return TERN_OK;
  a->pattern = a->content;
  if (!a->normalized || !t->n_norm)
    return TERN_OK;
  buf one = {0}, two = {0};
  tok_text text = {a->content.s, a->content.n, 0};
  tern_status status = norm_apply(t->norm, t->n_norm, &text, true, &one, &two, err);
  if (status == TERN_OK && (text.n != a->content.n || memcmp(text.s, a->content.s, text.n) != 0)) {
    a->pattern = (tok_span){arena_strndup(&t->arena, text.s, text.n), text.n};
    if (!a->pattern.s)
      status = err_nomem(err, "the tokenizer's added tokens");
  }
  buf_free(&one);
  buf_free(&two);
  return status;
}

static tern_status add_to_trie(tok *t, added_trie **trie, size_t index, tern_error *err)
{
  const added_token *a = &t->added[index];
  if (a->pattern.n == 0)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: added_tokens: '%.80s' is normalised to nothing", t->file,
                   a->content.s);
  if (!*trie) {
    *trie = mem_zalloc(sizeof **trie);
    if (!*trie || (new_node(*trie, 0), (*trie)->count != 1))
      return err_nomem(err, "the tokenizer's added tokens");
  }
  size_t length = 0;
  int32_t other = longest_at(*trie, a->pattern.s, a->pattern.n, &length);
  if (other >= 0 && length == a->pattern.n)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: added_tokens: '%.80s' and '%.80s' are the same once normalised",
                   t->file, t->added[other].content.s, a->content.s);
  return trie_add(*trie, a->pattern, (int32_t)index) ? TERN_OK : err_nomem(err, "the tokenizer's added tokens");
}

static tern_status set_flags(tok *t, tern_error *err)
{
  t->flags = mem_zalloc((size_t)t->vocab.size + 1);
  if (!t->flags)
    return err_nomem(err, "the tokenizer's added tokens");
  for (size_t i = 0; i < t->n_added; i++) {
    const added_token *a = &t->added[i];
    size_t n = 0;
    const char *piece = vocab_get(&t->vocab, (uint32_t)a->id, &n);
    bool same = piece && n == a->pattern.n && memcmp(piece, a->pattern.s, n) == 0;
    t->flags[a->id] |= (uint8_t)(TOKEN_ADDED | (same ? 0 : TOKEN_SHOWN_OTHERWISE));
  }
  for (uint32_t id = 0; id < t->vocab.size; id++) {
    size_t n = tok_shown(t, (int32_t)id).n;
    t->longest_shown = n > t->longest_shown ? n : t->longest_shown;
  }
  /* Special is a property of the text that decoding sees: a token shown in another form is not, and a twin is. */
  bool twins = t->vocab.count < t->vocab.size;
  for (uint32_t id = 0; id < t->vocab.size; id++) {
    uint32_t index;
    tok_span shown = twins || t->flags[id] ? tok_shown(t, (int32_t)id) : (tok_span){0};
    if (shown.s && strmap_get(&t->added_ids, shown.s, shown.n, &index) && t->added[index].special)
      t->flags[id] |= TOKEN_SPECIAL;
  }
  return TERN_OK;
}

tern_status added_build(tok *t, tern_error *err)
{
  TRY(make_unique(t, err));
  vocab_entry *beyond = mem_array(t->n_added + 1, sizeof *beyond);
  if (!beyond)
    return err_nomem(err, "the tokenizer's added tokens");
  size_t n_beyond = 0;
  tern_status status = number(t, beyond, &n_beyond, err);
  if (status == TERN_OK)
    status = vocab_append(&t->vocab, beyond, n_beyond, err);
  mem_free(beyond);
  TRY(status);
  for (size_t i = 0; i < t->n_added; i++) {
    TRY(normalize_pattern(t, &t->added[i], err));
    TRY(add_to_trie(t, t->added[i].normalized ? &t->normalized_trie : &t->raw_trie, i, err));
  }
  return set_flags(t, err);
}
