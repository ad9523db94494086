/* pull.c - a model from the hub into the Hugging Face cache: what will come, a warning where it cannot run, the bar.
 *
 * The path of the snapshot is the one result on stdout. What cannot run here is known from config.json and the sizes
 * in the file list, before any weight has come: at a terminal it is then asked for.
 */
#include <stdio.h>
#include <string.h>

#include "base/distance.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/system.h"
#include "cli/ask.h"
#include "cli/describe.h"
#include "cli/elsewhere.h"
#include "cli/models_gguf.h"
#include "cli/out.h"
#include "cli/pull.h"
#include "cli/signals.h"
#include "cli/survey.h"
#include "cli/use.h"
#include "cli/verbs.h"
#include "format/checkpoint.h"
#include "hub/address.h"
#include "hub/net/pull.h"
#include "hub/select.h"

/* The bar's own state: where and when the bytes began. */
typedef struct bar {
  double begin, seen; /* seconds */
  uint64_t first;     /* bytes that were there already */
} bar;

/* "1:02:03" */
static void clock_text(double seconds, char out[16])
{
  int s = seconds < 359999 ? (int)(seconds + 0.5) : 359999;
  if (s >= 3600)
    snprintf(out, 16, "%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
  else
    snprintf(out, 16, "%d:%02d", s / 60, s % 60);
}

static void show_progress(void *user, uint64_t done, uint64_t of_bytes)
{
  bar *b = user;
  char have[32], all[32], rate[32], left[16] = "", line[128];
  double now = use_seconds();
  if (b->begin == 0) {
    b->begin = now;
    b->first = done;
  }
  double speed = now > b->begin ? (double)(done > b->first ? done - b->first : 0) / (now - b->begin) : 0;
  if (speed > 0)
    clock_text((double)(of_bytes - done) / speed, left);
  snprintf(line, sizeof line, "%8s of %8s %8s/s %7s", describe_bytes((double)done, have),
           describe_bytes((double)of_bytes, all), describe_bytes(speed, rate), left);
  say_progress(line, (double)done, (double)of_bytes);
}

static bool is_interrupted(void *user)
{
  (void)user;
  return sig_caught() != 0;
}

static void show_note(void *user, const char *line)
{
  (void)user;
  say("%s", line);
}

/* ---- what will come ---- */

static uint64_t weight_bytes(const hub_plan *p)
{
  uint64_t bytes = 0;
  for (size_t i = 0; i < p->files.n; i++) {
    const char *end = strrchr(p->files.items[i].path, '.');
    bytes += end && !strcmp(end, ".safetensors") ? p->files.items[i].size : 0;
  }
  return bytes;
}

/* Whether it will run here, as far as config.json and sizes can tell. Warns of what stands against it. */
static tern_status foresee(const http_settings *s, const char *cache, const hub_plan *p, const hub_watch *watch,
                           bool *runs, tern_error *err)
{
  char *text = NULL, have[32], room[32];
  size_t length;
  cfg *c = NULL;
  survey v;
  double weights = (double)weight_bytes(p), available = (double)system_memory_available();
  *runs = true;
  tern_status status = hub_plan_text(s, cache, p, "config.json", watch, &text, &length, err);
  if (status == TERN_E_NOT_FOUND) /* files that were asked for by name: no model, and no claim that it is one */
    return TERN_OK;
  TRY(status);
  tern_error why = {0};
  if (cfg_parse(text, length, NULL, 0, &c, &why) == TERN_OK) {
    survey_config(c, &v);
    why = v.why;
    *runs = v.runs;
  } else {
    *runs = false;
  }
  if (!*runs)
    say_warning("%s does not run here: %s", p->repo.id, why.text);
  if (*runs && weights >= available) {
    *runs = false;
    say_warning("%s does not fit: its weights have %s, and there are %s of memory", p->repo.id,
                describe_bytes(weights, have), describe_bytes(available, room));
  }
  cfg_close(c);
  mem_free(text);
  return TERN_OK;
}

static tern_status tell_and_ask(const cli_args *a, const http_settings *s, const char *cache, const hub_plan *p,
                                const hub_watch *watch, tern_error *err)
{
  char all[32], missing[32];
  bool runs;
  if (p->missing)
    say("%s@%.12s: %zu of %zu files, %s, %s still to come", p->repo.id, p->commit, p->files.n, p->listed,
        describe_bytes((double)p->bytes, all), describe_bytes((double)p->missing, missing));
  else
    say("%s@%.12s: %zu of %zu files, %s, all here already", p->repo.id, p->commit, p->files.n, p->listed,
        describe_bytes((double)p->bytes, all));
  TRY(foresee(s, cache, p, watch, &runs, err));
  if (runs || a->yes || !p->missing || !ask_can() || ask_yes("Download it all the same?"))
    return TERN_OK;
  return err_set(err, TERN_E_IO, "%s: not downloaded", p->repo.id);
}

/* ---- the verb ---- */

static void print(const cli_args *a, const hub_plan *p, const char *path)
{
  if (a->json)
    out_json(json_pack("{ss ss ss so sI sI sI}", "repo", p->repo.id, "revision", p->repo.revision, "commit", p->commit,
                       "path", out_text(path), "files", (json_int_t)p->files.n, "bytes", (json_int_t)p->bytes,
                       "downloaded", (json_int_t)p->missing));
  else
    out_printf("%s\n", path);
}

static hub_patterns patterns_of(const cli_args *a)
{
  return (hub_patterns){a->include.items, a->include.n, a->exclude.items, a->exclude.n};
}

/* *path: mem_free. `told` gets the plan, hub_plan_clear in any case. */
static tern_status pull(const cli_args *a, const http_settings *s, const char *cache, const hub_repo *repo,
                        hub_plan *told, char **path, tern_error *err)
{
  char shown[256];
  bar b = {0};
  hub_watch watch = {.progress = show_progress, .note = show_note, .user = &b};
  hub_patterns patterns = patterns_of(a);
  say_working("asking", http_shown(s->endpoint, shown, sizeof shown));
  tern_status status = hub_plan_make(s, cache, repo, &patterns, &watch, told, err);
  if (status == TERN_OK)
    status = tell_and_ask(a, s, cache, told, &watch, err);
  if (status == TERN_OK)
    status = hub_pull(s, cache, told, &watch, path, err);
  say_progress_end();
  return status;
}

/* Whether GGUF files are there that the patterns ask for. */
static bool has_ggufs(const char *dir, const hub_patterns *patterns)
{
  gguf_files files;
  bool some = false;
  if (gguf_files_find(dir, GGUF_IN_REPO, &files, NULL) == TERN_OK)
    for (size_t i = 0; i < files.n; i++)
      some |= patterns->n_include && select_wants(patterns, files.items[i]);
  gguf_files_free(&files);
  return some;
}

/* HF_HUB_OFFLINE: what is there already, or an error. */
static tern_status find_here(const char *cache, const hub_repo *repo, const hub_patterns *patterns, hub_plan *told,
                             char **path, tern_error *err)
{
  cache_repo r;
  TRY(cache_repo_open(cache, repo->id, &r, err));
  told->repo = *repo;
  bool known = repo_is_commit(repo->revision) || cache_read_ref(&r, repo->revision, told->commit);
  if (!*told->commit && known)
    memcpy(told->commit, repo->revision, sizeof told->commit);
  *path = known ? cache_snapshot_path(&r, told->commit) : NULL;
  char *config = *path ? path_join(*path, "config.json") : NULL;
  bool there = config && file_is_regular(config);
  cache_repo_clear(&r);
  mem_free(config);
  if (*path && has_ggufs(*path, patterns))
    return TERN_OK;
  if (there) { /* with all of its weights? */
    ckpt *weights = NULL;
    tern_status status = ckpt_open(*path, &weights, err);
    ckpt_close(weights);
    return status == TERN_OK ? status : err_prefix(err, status, "HF_HUB_OFFLINE forbids to ask the hub");
  }
  return err_set(err, TERN_E_NOT_FOUND, "%s@%s: is not in the cache, and HF_HUB_OFFLINE forbids to ask the hub",
                 repo->id, repo->revision);
}

static tern_status pull_or_find(const cli_args *a, const cli_env *env, const cli_hub_env *hub, const hub_repo *repo,
                                hub_plan *told, char **path, tern_error *err)
{
  if (!env->hub_cache)
    return err_set(err, TERN_E_NOT_FOUND, "pull: no place for it: set HF_HOME or HF_HUB_CACHE");
  const hub_patterns patterns = patterns_of(a);
  if (hub->offline)
    return find_here(env->hub_cache, repo, &patterns, told, path, err);
  http_settings settings = {
      .endpoint = hub->endpoint, .token = hub->token, .stall_seconds = hub->stall_seconds, .cancelled = is_interrupted};
  sig_hold();
  tern_status status = pull(a, &settings, env->hub_cache, repo, told, path, err);
  sig_release();
  return status;
}

/* A repo that is not there: a model that is here may have been meant. */
static tern_status name_near(const cli_env *env, const char *id, tern_status missing, tern_error *err)
{
  model_list list;
  const char *near = NULL;
  size_t best = (size_t)-1;
  if (models_find(env, &list, NULL) != TERN_OK)
    return missing;
  for (size_t i = 0; i < list.n; i++) {
    size_t distance = text_distance(id, list.items[i].id);
    if (distance < best) {
      best = distance;
      near = list.items[i].id;
    }
  }
  if (near && best && text_is_slip(id, best) && err) {
    const tern_error why = *err;
    err_set(err, missing, "%s; did you mean %s, which is here?", why.text, near);
  }
  models_free(&list);
  return missing;
}

/* The environment around it. `path` is filled on success alone. */
static tern_status bring(const cli_args *a, const char *name, hub_plan *told, char **path, tern_error *err)
{
  cli_env env = {0};
  cli_hub_env hub = {0};
  hub_repo repo;
  char *found = NULL;
  *told = (hub_plan){0};
  tern_status status = env_read(&env, err);
  if (status == TERN_OK)
    status = env_read_hub(&hub, err);
  if (status == TERN_OK)
    status = elsewhere_explain(name, address_parse(name, hub.endpoint, &repo, err), err);
  bool named = status == TERN_OK;
  if (named)
    status = pull_or_find(a, &env, &hub, &repo, told, &found, err);
  if (named && status == TERN_E_NOT_FOUND && !*told->commit)
    status = name_near(&env, repo.id, status, err);
  env_clear_hub(&hub);
  env_clear(&env);
  if (status == TERN_OK)
    *path = found;
  else
    mem_free(found);
  return status;
}

tern_status pull_model(const cli_args *a, const char *name, char **dir, tern_error *err)
{
  hub_plan told;
  tern_status status = bring(a, name, &told, dir, err);
  hub_plan_clear(&told);
  return status;
}

/* Of several GGUF files one has to be named. */
static void hint(const hub_plan *p)
{
  const char *last = NULL, *end;
  size_t ggufs = 0;
  for (size_t i = 0; i < p->files.n; i++)
    if ((end = strrchr(p->files.items[i].path, '.')) && !strcmp(end, ".gguf")) {
      last = p->files.items[i].path;
      ggufs++;
    }
  if (ggufs > 1 && !weight_bytes(p))
    say_hint("tern run %s:%s answers with one of them", p->repo.id, last);
  else
    say_hint("tern run %s answers with it", p->repo.id);
}

tern_status verb_pull(const cli_args *a, tern_error *err)
{
  hub_plan told;
  char *path;
  if (a->n_words == 0)
    return err_set(err, TERN_E_USAGE,
                   "pull: no repo named: tern pull ORG/NAME, say mlx-community/Qwen2.5-0.5B-Instruct-4bit");
  tern_status status = bring(a, a->words[0], &told, &path, err);
  if (status == TERN_OK) {
    print(a, &told, path);
    hint(&told);
    mem_free(path);
  }
  hub_plan_clear(&told);
  return status;
}
