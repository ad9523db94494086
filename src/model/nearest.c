/* nearest.c - see nearest.h. First all rows are ranked by names alone, then the best are compared in earnest. */
#include "model/nearest.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/distance.h"
#include "base/hash.h"
#include "format/checkpoint.h"

enum { MOST_SHAPES = 2048, NAME_BYTES = 320, MOST_KEYS = 4096 };

/* Keys that describe a checkpoint, or say what to do with its text or its training: no forward pass of any model that
 * is run here reads them, and tern or the tokenizer reads the rest of what matters elsewhere. */
static const char *const describing[] = {
    "architectures",
    "auto_map",
    "transformers_version",
    "torch_dtype",
    "dtype",
    "model_type",
    "_name_or_path",
    "name_or_path",
    "use_cache",
    "initializer_range",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "unk_token_id",
    "sep_token_id",
    "quantization",
    "quantization_config",
    "attention_dropout",
    "hidden_dropout",
    "resid_pdrop",
    "embd_pdrop",
    "attn_pdrop",
    "classifier_dropout",
    "pretraining_tp",
    "output_attentions",
    "id2label",
    "label2id",
    "problem_type",
    "gradient_checkpointing",
    "output_hidden_states",
    "return_dict",
    "is_encoder_decoder",
    "is_decoder",
    "tokenizer_class",
    "attn_implementation",
    "_attn_implementation",
    "vision_config",
    "audio_config",
    "processor_class",
    "torchscript",
};

static bool describes(const char *key)
{
  for (size_t i = 0; i < sizeof describing / sizeof *describing; i++)
    if (strcmp(describing[i], key) == 0)
      return true;
  return false;
}

/* ---- the shapes of names ---- */

/* A tensor's name without its last part, numbers as "{}": "model.layers.{}.mlp.up_proj". */
static void shape_of(const char *name, char out[NAME_BYTES])
{
  const char *dot = strrchr(name, '.');
  size_t length = dot ? (size_t)(dot - name) : strlen(name), n = 0;
  for (size_t i = 0; i < length && n + 3 < NAME_BYTES;) {
    size_t part = strcspn(name + i, "."), digits = strspn(name + i, "0123456789");
    part = i + part > length ? length - i : part;
    if (part && digits >= part) {
      out[n++] = '{', out[n++] = '}';
    } else {
      for (size_t k = 0; k < part && n + 3 < NAME_BYTES; k++)
        out[n++] = name[i + k];
    }
    i += part;
    if (i < length)
      out[n++] = name[i++];
  }
  out[n] = '\0';
}

/* What a checkpoint's names look like. */
typedef struct shapes {
  arena strings;
  strmap index;
  size_t n;   /* in index */
  int layers; /* largest first number of a name + 1 */
} shapes;

static void count_layer(shapes *s, const char *name)
{
  for (const char *at = strchr(name, '.'); at; at = strchr(at + 1, '.')) {
    if (!isdigit((unsigned char)at[1]))
      continue;
    long i = strtol(at + 1, NULL, 10);
    if (i >= s->layers && i < MODEL_MAX_LAYERS)
      s->layers = (int)i + 1;
    return;
  }
}

/* NULL: no memory. */
static shapes *shapes_make(const ckpt *c)
{
  shapes *s = mem_zalloc(sizeof *s);
  bool failed = !s;
  for (size_t i = 0; !failed && c && i < ckpt_count(c) && s->n < MOST_SHAPES; i++) {
    char shape[NAME_BYTES];
    const char *name = ckpt_at(c, i)->name;
    count_layer(s, name);
    shape_of(name, shape);
    if (strmap_get(&s->index, shape, strlen(shape), &(uint32_t){0}))
      continue;
    char *kept = arena_strndup(&s->strings, shape, strlen(shape));
    failed = !kept || !strmap_put(&s->index, kept, strlen(kept), 0, NULL, NULL);
    s->n += !failed;
  }
  if (failed && s) {
    strmap_free(&s->index);
    arena_free(&s->strings);
    mem_free(s);
    return NULL;
  }
  return s;
}

static void shapes_free(shapes *s)
{
  if (!s)
    return;
  strmap_free(&s->index);
  arena_free(&s->strings);
  mem_free(s);
}

/* struct arch_names as what it is: an array of names. */
enum { ROW_NAMES = sizeof(arch_names) / sizeof(char *) };
_Static_assert(sizeof(arch_names) % sizeof(char *) == 0, "names alone");

/* Name `i` of a text model as a shape in the file's spelling `r` (NULL: the canonical one); false: there is none. */
static bool row_shape(const arch *text, const arch *outer, int i, const arch_rename *r, char out[NAME_BYTES])
{
  const char *names[ROW_NAMES];
  char whole[NAME_BYTES];
  memcpy(names, text->names, sizeof names);
  if (!names[i])
    return false;
  snprintf(whole, sizeof whole, "%s%s", outer->prefix ? outer->prefix : "", names[i]);
  for (char *hole; (hole = strstr(whole, "{h}"));)
    memmove(hole + 1, hole + 2, strlen(hole + 2) + 1);
  size_t skip = r ? strlen(r->to) : 0;
  if (r && strncmp(whole, r->to, skip) != 0)
    return false;
  snprintf(out, NAME_BYTES, "%.100s%.*s", r ? r->from : "", NAME_BYTES - 101, whole + skip);
  return true;
}

/* The harmonic mean of the shares of shapes and of the row's names that meet; of the best of a wrapper's texts. */
static double score_tensors(const arch *a, const shapes *s)
{
  double best = 0;
  for (int t = 0; t < ARCH_MAX_WRAPS && (t == 0 || a->wraps[t].text); t++) {
    const arch *text = a->wraps[t].text ? a->wraps[t].text : a;
    size_t met = 0, names = 0;
    for (int i = 0; i < ROW_NAMES; i++) {
      char shape[NAME_BYTES];
      uint32_t at;
      bool found = false, named = row_shape(text, a, i, NULL, shape);
      found = named && strmap_get(&s->index, shape, strlen(shape), &at);
      for (int r = 0; named && !found && r < ARCH_MAX_RENAMES && a->renames[r].to; r++)
        found = row_shape(text, a, i, &a->renames[r], shape) && strmap_get(&s->index, shape, strlen(shape), &at);
      met += found;
      names += named;
    }
    double score = s->n + names ? 2.0 * (double)met / (double)(s->n + names) : 0;
    best = score > best ? score : best;
  }
  return best;
}

/* ---- keys ---- */

/* Whether `key` is one of the spellings in "a|b|c". */
static bool spelt(const char *keys, const char *key)
{
  size_t length = strlen(key);
  for (size_t n; *keys; keys += n + (keys[n] == '|')) {
    n = strcspn(keys, "|");
    if (n == length && strncmp(keys, key, n) == 0)
      return true;
  }
  return false;
}

static bool row_knows(const arch *text, const char *key)
{
  bool knows = strcmp(key, "rope_scaling") == 0 || strcmp(key, "layer_types") == 0;
  for (size_t i = 0; i < text->n_fields && !knows; i++)
    knows = spelt(text->fields[i].keys, key);
  return knows;
}

static bool config_has(const cfg *c, cfg_scope scope, const char *keys)
{
  size_t cursor = 0, n = 0;
  for (const char *key; n++ < MOST_KEYS && (key = cfg_key(c, scope, &cursor));)
    if (spelt(keys, key))
      return true;
  return false;
}

static double share(size_t part, size_t whole)
{
  return whole ? (double)part / (double)whole : 1;
}

/* The mean of the share of required keys that are there and the share of keys there that are known. Marks nothing. */
static double score_keys(const cfg *c, const arch *a)
{
  const arch *text = a->wraps[0].text ? a->wraps[0].text : a;
  cfg_scope scope = a->wraps[0].text && (cfg_has(c, CFG_TEXT) || !a->flat_config) ? CFG_TEXT : CFG_ROOT;
  size_t required = 0, there = 0, keys = 0, known = 0, cursor = 0;
  for (size_t i = 0; i < text->n_fields; i++) {
    required += text->fields[i].required;
    there += text->fields[i].required && config_has(c, scope, text->fields[i].keys);
  }
  for (const char *key; keys < MOST_KEYS && (key = cfg_key(c, scope, &cursor));) {
    if (describes(key))
      continue;
    keys++;
    known += row_knows(text, key);
  }
  double mean = keys ? (share(there, required) + share(known, keys)) / 2 : 0;
  return a->wraps[0].text && scope == CFG_ROOT ? mean / 2 : mean; /* nothing is wrapped there */
}

/* ---- ranks ---- */

static double likeness(const char *a, const char *b)
{
  size_t n = strlen(a), m = strlen(b), most = n > m ? n : m;
  size_t apart = text_distance(a, b);
  return most && apart < most ? 1 - (double)apart / (double)most : 0;
}

static double score_name(const arch *a, const char *type)
{
  double best = likeness(a->name, type);
  for (int i = 0; i < ARCH_MAX_ALIASES && a->aliases[i]; i++) {
    double one = likeness(a->aliases[i], type);
    best = one > best ? one : best;
  }
  return best;
}

/* Tensors say most of what a model is: they count as much as name and keys together. */
static double score(const arch *a, const cfg *c, const shapes *s)
{
  double words = score_name(a, cfg_model_type(c)) + score_keys(c, a);
  return s->n ? (words + 2 * score_tensors(a, s)) / 4 : words / 2;
}

/* The best rows, `own` (NULL: none) before all. Returns how many. */
static size_t rank(const cfg *c, const shapes *s, const arch *own, nearest_row rows[NEAREST_ROWS])
{
  size_t n = 0;
  const arch *a;
  for (size_t i = 0; (a = arch_at(i)); i++) {
    nearest_row one = {.arch = a, .score = a == own ? 1 : score(a, c, s)};
    size_t at = n;
    while (at > 0 && rows[at - 1].arch != own && (a == own || one.score > rows[at - 1].score))
      at--;
    if (at >= NEAREST_ROWS)
      continue;
    n += n < NEAREST_ROWS;
    memmove(&rows[at + 1], &rows[at], (n - at - 1) * sizeof *rows);
    rows[at] = one;
  }
  return n;
}

const char *nearest_names(const cfg *config, const char *dir, char *out, size_t size)
{
  ckpt *weights = NULL;
  nearest_row rows[NEAREST_ROWS] = {0};
  size_t used = 0;
  out[0] = '\0';
  if (dir && ckpt_open(dir, &weights, NULL) != TERN_OK)
    weights = NULL;
  shapes *s = shapes_make(weights);
  size_t n = s ? rank(config, s, NULL, rows) : 0;
  for (size_t i = 0; i < n && used < size; i++)
    used += (size_t)snprintf(out + used, size - used, "%s%s", !i ? "" : i + 1 < n ? ", " : " and ", rows[i].arch->name);
  shapes_free(s);
  ckpt_close(weights);
  return out;
}

/* ---- one row in earnest ---- */

typedef struct comparison {
  nearest *out;
  nearest_keys *keys; /* that add_key adds to */
  bool failed;
} comparison;

static void add_key(void *user, cfg_scope scope, const char *key)
{
  comparison *x = user;
  nearest_keys *k = x->keys;
  size_t length = strlen(key) + sizeof "text_config.";
  if (!k->names)
    k->names = arena_zalloc(&x->out->strings, NEAREST_KEYS * sizeof *k->names);
  char *name = k->names ? arena_alloc(&x->out->strings, length) : NULL;
  if (!name) {
    x->failed = true;
    return;
  }
  snprintf(name, length, "%s%s", scope == CFG_TEXT ? "text_config." : "", key);
  if (k->count < NEAREST_KEYS)
    k->names[k->count++] = name;
}

static void list_unread(comparison *x, const cfg *c, const arch *a)
{
  bool wrapper = a->wraps[0].text != NULL;
  size_t cursor = 0;
  for (const char *key; (key = cfg_unread(c, CFG_ROOT, &cursor));)
    if (!describes(key) && cfg_get(c, CFG_ROOT, key)) /* null is absent */
      add_key(x, CFG_ROOT, key);
  cursor = 0;
  if (!wrapper && cfg_has(c, CFG_TEXT))
    add_key(x, CFG_ROOT, "text_config");
  for (const char *key; wrapper && (key = cfg_unread(c, CFG_TEXT, &cursor));)
    if (!describes(key) && cfg_get(c, CFG_TEXT, key))
      add_key(x, CFG_TEXT, key);
}

/* `c` must be fresh: what the row reads is seen by its marks. */
static tern_status compare(nearest *out, nearest_row *row, const cfg *c, ckpt *weights, int layers, tern_error *err)
{
  comparison x = {.out = out};
  tern_error why = {0};
  quant_config *q = NULL;
  model_config *config = mem_zalloc(sizeof *config);
  if (!config)
    return err_nomem(err, "comparison");
  if (model_config_read(c, row->arch, config, &why) != TERN_OK) {
    snprintf(row->complaint, sizeof row->complaint, "%.299s", why.text);
    x.keys = &row->missing;
    model_config_sketch(c, row->arch, layers, config, add_key, &x);
  }
  x.keys = &row->unread;
  list_unread(&x, c, row->arch);
  if (quant_open(c, &q, NULL) != TERN_OK)
    q = NULL;
  tern_status status = weights ? weights_compare(weights, q, config, &row->gap, err) : TERN_OK;
  row->compared = weights && status == TERN_OK;
  quant_close(q);
  mem_free(config);
  return status == TERN_OK && x.failed ? err_nomem(err, "comparison") : status;
}

tern_status nearest_find(const char *dir, nearest *out, tern_error *err)
{
  cfg *c = NULL;
  ckpt *weights = NULL;
  *out = (nearest){0};
  TRY(cfg_open(dir, &c, err));
  const arch *own = arch_find(cfg_model_type(c));
  if (ckpt_open(dir, &weights, NULL) != TERN_OK)
    weights = NULL;
  shapes *s = shapes_make(weights);
  out->known = own != NULL;
  out->n = s ? rank(c, s, own, out->rows) : 0;
  tern_status status = s ? TERN_OK : err_nomem(err, "comparison");
  for (size_t i = 0; i < out->n && status == TERN_OK; i++) {
    cfg_close(c);
    c = NULL;
    status = cfg_open(dir, &c, err);
    if (status == TERN_OK)
      status = compare(out, &out->rows[i], c, weights, s->layers, err);
  }
  shapes_free(s);
  ckpt_close(weights);
  cfg_close(c);
  if (status != TERN_OK)
    nearest_free(out);
  return status;
}

void nearest_free(nearest *n)
{
  for (size_t i = 0; i < n->n; i++)
    weights_gap_free(&n->rows[i].gap);
  arena_free(&n->strings);
  *n = (nearest){0};
}

bool nearest_differs(const nearest *n)
{
  const nearest_row *first = &n->rows[0];
  return n->n && (!n->known || first->missing.count || first->gap.missing.count || first->gap.left.count);
}
