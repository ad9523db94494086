/* parity.c - replays stored goldens, bit for bit. The format is docs/parity.md's, "tern-golden-1".
 *
 * Rows are compared as they come, so a golden of any size needs no more memory than its file. Per golden one line on
 * stdout: how many rows were equal, or the first difference. A golden that is not whole is refused before anything
 * runs.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/half.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/sha256.h"
#include "cli/out.h"
#include "cli/signals.h"
#include "cli/use.h"
#include "cli/verbs.h"
#include "engine/sample.h"
#include "engine/session.h"
#include "format/config.h"
#include "format/json_util.h"

enum { MOST_JSON = 64 << 20, MOST_GOLDENS = 10000, VALUE_BYTES = 4 };

typedef struct golden {
  char *path;     /* of the description */
  char name[256]; /* without folder and ".json" */
  json_t *tree;
  map rows_map;
  int rows, vocab, piece;
  bool all, greedy;
  tern_numerics numerics;
  session_split split;
  int *prompt, *generated;
  size_t n_prompt, n_generated;
} golden;

static void golden_close(golden *g)
{
  map_close(&g->rows_map);
  json_decref(g->tree);
  mem_free(g->prompt);
  mem_free(g->generated);
  mem_free(g->path);
}

/* ---- reading ---- */

/* One of the words of a list, by index. */
static tern_status read_word(const golden *g, const char *key, const char *const *words, int n, int *out,
                             tern_error *err)
{
  const char *text = NULL;
  TRY(cfg_obj_string(g->tree, g->path, key, true, NULL, &text, err));
  for (int i = 0; i < n; i++)
    if (!strcmp(text, words[i])) {
      *out = i;
      return TERN_OK;
    }
  return err_set(err, TERN_E_FORMAT, "%s: %s: \"%.40s\" is not known", g->path, key, text);
}

static tern_status check_digest(const golden *g, const char *rows_path, tern_error *err)
{
  const char *wanted = NULL;
  char have[SHA256_HEX];
  TRY(cfg_obj_string(g->tree, g->path, "sha256", true, NULL, &wanted, err));
  sha256_hex(g->rows_map.data, g->rows_map.size, have);
  if (strcmp(wanted, have) != 0)
    return err_set(err, TERN_E_FORMAT, "%s: its sha256 is %s, but %s says %s", rows_path, have, g->path, wanted);
  return TERN_OK;
}

static tern_status open_rows(golden *g, tern_error *err)
{
  const char *file = NULL;
  buf path = {0};
  TRY(cfg_obj_string(g->tree, g->path, "logits", true, NULL, &file, err));
  if (strchr(file, '/') || !*file)
    return err_set(err, TERN_E_FORMAT, "%s: logits: \"%s\" is not the name of a file beside it", g->path, file);
  buf_addf(&path, "%.*s/%s", (int)(strrchr(g->path, '/') - g->path), g->path, file);
  tern_status status = path.failed ? err_nomem(err, "golden") : map_open(path.data, &g->rows_map, err);
  if (status == TERN_OK && g->rows_map.size != (size_t)g->rows * (size_t)g->vocab * VALUE_BYTES)
    status = err_set(err, TERN_E_FORMAT, "%s: %zu bytes, but %d rows of %d values are %zu", path.data, g->rows_map.size,
                     g->rows, g->vocab, (size_t)g->rows * (size_t)g->vocab * VALUE_BYTES);
  if (status == TERN_OK)
    status = check_digest(g, path.data, err);
  buf_free(&path);
  return status;
}

static tern_status read_keys(golden *g, tern_error *err)
{
  static const char *const formats[] = {"tern-golden-1"}, *const numerics[] = {"exact", "native"};
  static const char *const splits[] = {"canonical", "mlx", "one"};
  int index = 0, *feed = NULL;
  size_t n_feed = 0;
  TRY(read_word(g, "format", formats, 1, &index, err));
  TRY(read_word(g, "numerics", numerics, 2, &index, err));
  g->numerics = index ? TERN_NATIVE : TERN_EXACT;
  TRY(read_word(g, "split", splits, 3, &index, err));
  g->split = (session_split)index;
  TRY(cfg_obj_int(g->tree, g->path, "prefill_step_size", false, 2048, &g->piece, err));
  TRY(cfg_obj_int(g->tree, g->path, "rows", true, 0, &g->rows, err));
  TRY(cfg_obj_int(g->tree, g->path, "vocab", true, 0, &g->vocab, err));
  TRY(cfg_obj_bool(g->tree, g->path, "all", true, false, &g->all, err));
  TRY(cfg_obj_ints(g->tree, g->path, "prompt", true, &g->prompt, &g->n_prompt, err));
  TRY(cfg_obj_ints(g->tree, g->path, "generated", true, &g->generated, &g->n_generated, err));
  TRY(cfg_obj_ints(g->tree, g->path, "feed", false, &feed, &n_feed, err));
  g->greedy = cfg_obj_get(g->tree, "feed") == NULL;
  bool same = g->greedy || (n_feed == g->n_generated && !memcmp(feed, g->generated, n_feed * sizeof *feed));
  mem_free(feed);
  if (!same)
    return err_set(err, TERN_E_FORMAT, "%s: feed and generated differ", g->path);
  if (g->n_prompt == 0 || g->piece < 1 || g->vocab < 1)
    return err_set(err, TERN_E_FORMAT, "%s: prompt, prefill_step_size and vocab must not be empty", g->path);
  size_t rows = (g->all ? g->n_prompt : 1) + g->n_generated;
  if ((size_t)g->rows != rows)
    return err_set(err, TERN_E_FORMAT, "%s: rows: %d, but its ids give %zu", g->path, g->rows, rows);
  return TERN_OK;
}

/* Opens FOLDER/NAME.json; the path is taken over. */
static tern_status golden_open(char *path, golden *g, tern_error *err)
{
  *g = (golden){.path = path, .rows_map = {.slot = -1}};
  const char *file = strrchr(path, '/') + 1;
  snprintf(g->name, sizeof g->name, "%.*s", (int)(strlen(file) - strlen(".json")), file);
  TRY(jsonu_file(path, MOST_JSON, &g->tree, err));
  TRY(read_keys(g, err));
  return open_rows(g, err);
}

/* ---- comparing ---- */

typedef struct comparison {
  const golden *g;
  int next; /* row that comes next, so the number of those that came */
  sampler *chooser;
  int32_t chosen;
  tern_status status; /* of the choice */
  tern_error *err;
  int row, token; /* first difference; row -1: none */
  uint32_t have, want;
} comparison;

static void compare(void *user, int64_t position, float *logits)
{
  comparison *c = user;
  const golden *g = c->g;
  (void)position;
  if (c->next >= g->rows) { /* counted: a row too many is a difference */
    c->next++;
    return;
  }
  const uint8_t *want = g->rows_map.data + (size_t)c->next * (size_t)g->vocab * VALUE_BYTES;
  for (int i = 0; i < g->vocab && c->row < 0; i++) {
    uint32_t bits;
    memcpy(&bits, want + (size_t)i * VALUE_BYTES, sizeof bits);
    if (bits == f32_bits(logits[i]))
      continue;
    c->row = c->next;
    c->token = i;
    c->have = f32_bits(logits[i]);
    c->want = bits;
  }
  c->next++;
  if (c->chooser && c->status == TERN_OK && c->row < 0)
    c->status = sampler_next(c->chooser, logits, NULL, 0, &c->chosen, c->err);
}

/* "step 3" or "prompt position 7", in the words of docs/parity.md. */
static const char *place(const golden *g, int row, char out[48])
{
  int last = g->all ? (int)g->n_prompt - 1 : 0;
  if (row < last)
    snprintf(out, 48, "prompt position %d", row);
  else
    snprintf(out, 48, "step %d", row - last);
  return out;
}

static void print_difference(const comparison *c)
{
  char where[48];
  out_printf("%s: %s, token %d: %.9g (0x%08" PRIx32 "), the golden has %.9g (0x%08" PRIx32 ")\n", c->g->name,
             place(c->g, c->row, where), c->token, (double)f32_from_bits(c->have), c->have,
             (double)f32_from_bits(c->want), c->want);
}

/* Runs the golden's ids; stops at the first difference. *equal tells how it went. */
static tern_status run(const golden *g, session *s, comparison *c, bool *equal, tern_error *err)
{
  session_sink sink = {.row = compare, .user = c};
  session_request request = {.ids = g->prompt,
                             .n = g->n_prompt,
                             .limit = (int64_t)(g->n_prompt + g->n_generated),
                             .split = g->split,
                             .piece = g->piece,
                             .all = g->all};
  *equal = false;
  TRY(session_sync(s, &request, &sink, NULL, err));
  for (size_t i = 0; i < g->n_generated && c->row < 0; i++) {
    TRY(c->status);
    if (c->chooser && c->chosen != g->generated[i]) {
      out_printf("%s: step %zu chooses %d, the golden has %d\n", g->name, i, (int)c->chosen, g->generated[i]);
      return TERN_OK;
    }
    TRY(session_step(s, g->generated[i], &sink, err));
  }
  if (c->row >= 0)
    print_difference(c);
  else if (c->next != g->rows)
    out_printf("%s: %d rows came, the golden has %d\n", g->name, c->next, g->rows);
  else
    out_printf("%s: %d rows of %d equal\n", g->name, g->rows, g->vocab);
  *equal = c->row < 0 && c->next == g->rows;
  return c->row < 0 ? c->status : TERN_OK;
}

static void cancel_session(void *s)
{
  session_cancel(s);
}

static tern_status replay(const cli_args *a, const golden *g, model *m, bool *equal, tern_error *err)
{
  static const sample_type types[] = {[DT_F32] = SAMPLE_F32, [DT_BF16] = SAMPLE_BF16, [DT_F16] = SAMPLE_F16};
  static const tern_sampling greedy = {0};
  comparison c = {.g = g, .row = -1, .err = err};
  session *s = NULL;
  if (g->vocab != m->config.vocab)
    return err_set(err, TERN_E_FORMAT, "%s: vocab: %d, but the model has %d", g->path, g->vocab, m->config.vocab);
  tern_status status = session_open(m, a->context, &s, err);
  if (status == TERN_OK && g->greedy)
    status = sampler_open(&greedy, g->vocab, types[model_logits_dtype(m)], &c.chooser, err);
  if (status == TERN_OK) {
    sig_watch(cancel_session, s);
    status = run(g, s, &c, equal, err);
    sig_release();
  }
  sampler_close(c.chooser);
  session_close(s);
  return status == TERN_OK ? status : err_prefix(err, status, "%s", g->name);
}

/* ---- the folder ---- */

static int by_name(const void *a, const void *b)
{
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Paths of the descriptions, sorted; each and the array mem_free. */
static tern_status list_goldens(const char *folder, char ***out, size_t *n, tern_error *err)
{
  size_t capacity = 0;
  tern_status status = TERN_OK;
  DIR *dir = opendir(folder);
  if (!dir)
    return err_errno(err, folder, "open");
  *out = NULL;
  *n = 0;
  for (struct dirent *e; status == TERN_OK && (e = readdir(dir));) {
    const char *end = strrchr(e->d_name, '.');
    if (e->d_name[0] == '.' || !end || strcmp(end, ".json") != 0)
      continue;
    char *text = path_join(folder, e->d_name);
    if (text && *n < MOST_GOLDENS && mem_grow(out, &capacity, *n + 1, sizeof **out)) {
      (*out)[(*n)++] = text;
    } else {
      mem_free(text);
      status = err_nomem(err, folder);
    }
  }
  closedir(dir);
  if (status == TERN_OK && *n == 0)
    status = err_set(err, TERN_E_NOT_FOUND, "%s: no golden (*.json) in this directory", folder);
  if (*n)
    qsort(*out, *n, sizeof **out, by_name);
  return status;
}

typedef struct tally {
  size_t equal, different, skipped;
} tally;

/* One golden, with the model of its numerics, which stays open for the next. */
static tern_status replay_file(const cli_args *a, const char *dir, char *path, model **open, tally *counts,
                               tern_error *err)
{
  golden g;
  bool equal = false;
  tern_model_options options;
  tern_status status = golden_open(path, &g, err);
  if (status == TERN_OK && ARGS_GIVEN(a, numerics) && g.numerics != (tern_numerics)a->numerics) {
    counts->skipped++;
    golden_close(&g);
    return TERN_OK;
  }
  if (status == TERN_OK && (!*open || (*open)->numerics != g.numerics)) {
    model_close(*open);
    *open = NULL;
    status = use_options(a, &options, err);
    options.numerics = g.numerics;
    if (status == TERN_OK)
      status = use_network(dir, &options, open, err);
  }
  if (status == TERN_OK)
    status = replay(a, &g, *open, &equal, err);
  if (status == TERN_OK)
    *(equal ? &counts->equal : &counts->different) += 1;
  golden_close(&g);
  return status;
}

tern_status verb_parity(const cli_args *a, tern_error *err)
{
  const char *name;
  char *dir = NULL, **paths = NULL;
  size_t n = 0;
  model *m = NULL;
  tally counts = {0};
  TRY(args_need_model(a, &name, NULL, err));
  if (!a->golden)
    return err_set(err, TERN_E_USAGE, "parity: --golden names the directory of goldens to replay");
  tern_status status = use_dir(a, name, NEED_WEIGHTS, &dir, err);
  if (status == TERN_OK)
    status = list_goldens(a->golden, &paths, &n, err);
  for (size_t i = 0; i < n; i++) {
    if (status == TERN_OK)
      status = replay_file(a, dir, paths[i], &m, &counts, err);
    else
      mem_free(paths[i]);
  }
  model_close(m);
  mem_free(paths);
  mem_free(dir);
  if (status != TERN_OK)
    return status;
  if (counts.skipped)
    say("%s: goldens of other numerics than %s left out: %zu", a->golden, use_numerics_name((tern_numerics)a->numerics),
        counts.skipped);
  if (counts.different)
    return err_set(err, TERN_E_FORMAT, "parity: %zu of %zu goldens differ", counts.different,
                   counts.different + counts.equal);
  if (counts.equal == 0)
    return err_set(err, TERN_E_NOT_FOUND, "%s: no golden of numerics %s", a->golden,
                   use_numerics_name((tern_numerics)a->numerics));
  return TERN_OK;
}
