/* tok_unigram.c - Unigram: of all ways to cut a word into pieces, the one whose scores add up highest (Viterbi).
 *
 * Pieces are found with a trie over bytes, one walk per character of the word, so the time is the word's length times
 * the longest piece. Where no piece covers a single character, an unknown piece of one character stands in at the
 * lowest score minus 10; runs of unknown characters become one id, or their bytes.
 */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tok_impl.h"

#define UNKNOWN_PENALTY 10.0

typedef struct trie_node {
  uint32_t child, sibling; /* 0: none */
  int32_t id;              /* -1: no piece ends here */
  uint8_t byte;
} trie_node;

struct unigram_trie {
  trie_node *nodes; /* nodes[0] is not used */
  size_t count, capacity;
  uint32_t root[256];
  uint32_t *pairs; /* [65536]: node of a first and second byte, which have the most siblings */
};

typedef struct path { /* the best way to the position behind it */
  double score;
  uint32_t begin; /* UINT32_MAX: not reached */
  int32_t id;
} path;

static uint32_t new_node(struct unigram_trie *trie, uint8_t byte)
{
  if (trie->count >= UINT32_MAX || !mem_grow(&trie->nodes, &trie->capacity, trie->count + 1, sizeof *trie->nodes))
    return 0;
  trie->nodes[trie->count] = (trie_node){.id = -1, .byte = byte};
  return (uint32_t)trie->count++;
}

static uint32_t find_child(const struct unigram_trie *trie, uint32_t node, uint8_t byte)
{
  uint32_t c = trie->nodes[node].child;
  while (c && trie->nodes[c].byte != byte)
    c = trie->nodes[c].sibling;
  return c;
}

static bool trie_add(struct unigram_trie *trie, const char *s, size_t n, int32_t id)
{
  uint8_t first = (uint8_t)s[0];
  uint32_t node = trie->root[first];
  if (!node)
    node = trie->root[first] = new_node(trie, first);
  for (size_t i = 1; i < n && node; i++) {
    uint8_t byte = (uint8_t)s[i];
    uint32_t *pair = i == 1 ? &trie->pairs[first << 8 | byte] : NULL;
    uint32_t child = pair ? *pair : find_child(trie, node, byte);
    if (!child && (child = new_node(trie, byte)) != 0) {
      trie->nodes[child].sibling = trie->nodes[node].child;
      trie->nodes[node].child = child;
      if (pair)
        *pair = child;
    }
    node = child;
  }
  if (node)
    trie->nodes[node].id = id;
  return node != 0;
}

tern_status unigram_build(tok *t, const uint8_t *types, tern_error *err)
{
  unigram_model *m = &t->unigram;
  m->trie = mem_zalloc(sizeof *m->trie);
  if (!m->trie || !(m->trie->pairs = mem_array(65536, sizeof *m->trie->pairs)) ||
      !mem_grow(&m->trie->nodes, &m->trie->capacity, t->vocab.n_bytes + 1, sizeof *m->trie->nodes))
    return err_nomem(err, "the tokenizer's vocabulary");
  new_node(m->trie, 0);
  m->min_score = __builtin_inf();
  for (uint32_t id = 0; id < t->vocab.size; id++) {
    size_t n = 0;
    const char *s = vocab_get(&t->vocab, id, &n);
    if (types && types[id] != 1)
      continue;
    if (m->scores[id] < m->min_score)
      m->min_score = m->scores[id];
    if (s && n && !trie_add(m->trie, s, n, vocab_find(&t->vocab, s, n)))
      return err_nomem(err, "the tokenizer's vocabulary");
  }
  for (int b = 0; b < 256; b++) {
    char name[8];
    int n = snprintf(name, sizeof name, "<0x%02X>", b);
    m->byte_ids[b] = m->byte_fallback ? vocab_find(&t->vocab, name, (size_t)n) : -1;
  }
  return TERN_OK;
}

void unigram_free(unigram_model *m)
{
  if (m->trie) {
    mem_free(m->trie->nodes);
    mem_free(m->trie->pairs);
  }
  mem_free(m->trie);
  mem_free(m->scores);
}

static void reach(path *to, double score, size_t begin, int32_t id)
{
  if (to->begin == UINT32_MAX || score > to->score)
    *to = (path){score, (uint32_t)begin, id};
}

/* Fills best[1..n]. False: an unknown character, and the model has no unknown piece; or it was given up. */
static bool find_paths(const unigram_model *m, const char *s, size_t n, path *best, tok_work *work)
{
  for (size_t i = 0; i <= n; i++)
    best[i] = (path){0, UINT32_MAX, 0};
  for (size_t at = 0; at < n;) {
    double here = best[at].score;
    size_t single = utf8_size(s + at);
    bool has_single = false;
    uint32_t node = m->trie->root[(uint8_t)s[at]];
    for (size_t i = at; node;) {
      int32_t id = m->trie->nodes[node].id;
      i++;
      if (id >= 0) {
        reach(&best[i], m->scores[id] + here, at, id);
        has_single |= i - at == single;
      }
      if (i == n)
        break;
      node =
          i == at + 1 ? m->trie->pairs[(uint8_t)s[at] << 8 | (uint8_t)s[i]] : find_child(m->trie, node, (uint8_t)s[i]);
    }
    if (!has_single) {
      if (m->unk < 0)
        return false;
      reach(&best[at + single], m->min_score - UNKNOWN_PENALTY + here, at, m->unk);
    }
    if (!tok_work_on(work, single))
      return false;
    at += single;
  }
  return true;
}

/* A piece of the path: its id, the one its text has, or its bytes. */
static bool push_piece(const tok *t, const char *s, size_t n, tok_ids *out)
{
  const unigram_model *m = &t->unigram;
  int32_t id = vocab_find(&t->vocab, s, n);
  if (id >= 0)
    return tok_ids_push(out, id);
  bool all = m->byte_fallback;
  for (size_t i = 0; i < n && all; i++)
    all = m->byte_ids[(uint8_t)s[i]] >= 0;
  if (!all)
    return tok_ids_push(out, m->unk);
  for (size_t i = 0; i < n; i++)
    if (!tok_ids_push(out, m->byte_ids[(uint8_t)s[i]]))
      return false;
  return true;
}

tern_status unigram_word(const tok *t, tok_scratch *scratch, const char *s, size_t n, tok_ids *out, tern_error *err)
{
  const unigram_model *m = &t->unigram;
  if (n >= UINT32_MAX)
    return err_set(err, TERN_E_LIMIT, "text: a word of more than 4 GiB");
  if (!mem_grow(&scratch->nodes, &scratch->nodes_capacity, n + 1, sizeof(path)))
    return err_nomem(err, "the tokens of a text");
  path *best = scratch->nodes;
  if (!find_paths(m, s, n, best, &scratch->work))
    return scratch->work.given_up
               ? tok_given_up(err)
               : err_set(err, TERN_E_FORMAT, "%s: model.unk_id: missing, but the text has an unknown character",
                         t->file);
  /* Turn the chain around: next[at] is where the piece that begins at `at` ends. */
  size_t at = n, next = n;
  while (at > 0) {
    size_t begin = best[at].begin;
    best[at].begin = (uint32_t)next;
    next = at;
    at = begin;
  }
  best[0].begin = (uint32_t)next;
  for (at = 0; at < n;) {
    size_t end = best[at].begin;
    if (best[end].id == m->unk) /* a run of unknown pieces is one */
      while (end < n && best[best[end].begin].id == m->unk)
        end = best[end].begin;
    if (!push_piece(t, s + at, end - at, out))
      return err_nomem(err, "the tokens of a text");
    at = end;
  }
  return TERN_OK;
}
