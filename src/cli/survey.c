/* survey.c - see survey.h. */
#include "cli/survey.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/path.h"
#include "cli/describe.h"
#include "cli/out.h"
#include "convert/import.h"
#include "engine/about.h"
#include "text/chat.h"

/* ---- config.json ---- */

static tern_status look(const cfg *c, const char *dir, quant_config **q, survey *s)
{
  model_profile profile;
  model_config config;
  profile_artifact artifact = {0};
  const arch *a;
  snprintf(s->type, sizeof s->type, "%.63s", cfg_model_type(c));
  TRY(quant_open(c, q, &s->why));
  about_quantisation(c, *q, s->quantisation);
  TRY(profile_arch(c, NULL, &a, &s->why));
  TRY(model_config_read(c, a, &config, &s->why));
  if (dir)
    profile_artifact_of(dir, &artifact);
  const profile_subject subject = {
      .arch = a, .config = &config, .ternary = quant_is_ternary(*q), .numerics = TERN_EXACT, .artifact = &artifact};
  TRY(profile_resolve(profile_builtin(), &subject, &profile, &s->why));
  s->tier = profile_tier_name(profile.tier);
  s->fidelity = profile.fidelity;
  return TERN_OK;
}

static void look_at_config(const cfg *c, const char *dir, survey *out)
{
  quant_config *q = NULL;
  *out = (survey){.type = "-", .quantisation = "-", .tier = "-", .fidelity = "-"};
  out->runs = look(c, dir, &q, out) == TERN_OK;
  quant_close(q);
}

void survey_config(const cfg *c, survey *out)
{
  look_at_config(c, NULL, out);
}

/* ---- headers ---- */

/* Bytes of DIR/.safetensors files. */
static double weight_bytes(const char *path)
{
  double bytes = 0;
  DIR *dir = opendir(path);
  for (struct dirent *e; dir && (e = readdir(dir));) {
    const char *end = strrchr(e->d_name, '.');
    struct stat st;
    if (end && !strcmp(end, ".safetensors") && fstatat(dirfd(dir), e->d_name, &st, 0) == 0)
      bytes += (double)st.st_size;
  }
  if (dir)
    closedir(dir);
  return bytes;
}

static void look_at_headers(const char *dir, survey *s)
{
  model *m = NULL;
  const tern_model_options options = {.backend = TERN_BACKEND_CPU, .prepare = TERN_PREPARE_NEVER};
  s->runs = model_open(dir, &options, true, &m, &s->why) == TERN_OK;
  if (!s->runs)
    return;
  s->measured = true;
  s->parameters = about_parameters(m);
  fit_of(m, NULL, 0, &s->fit);
  model_close(m);
}

static bool holds(const char *dir, const char *file)
{
  char *path = path_join(dir, file);
  bool there = path && file_is_regular(path);
  mem_free(path);
  return there;
}

/* Whether a template reads the word: tools are a variable of that name. */
static bool mentions(const char *source, size_t n, const char *word)
{
  return memmem(source, n, word, strlen(word)) != NULL;
}

static unsigned look_at_text(const char *dir)
{
  chat *c = NULL;
  unsigned can = holds(dir, "tokenizer.json") || holds(dir, "tokenizer.model") ? SURVEY_TEXT : 0;
  if (can && chat_open(dir, &c, NULL) == TERN_OK && chat_has_template(c)) {
    size_t n = 0;
    const char *source = chat_template_source(c, true, &n);
    can |= SURVEY_CHAT | (source && mentions(source, n, "tools") ? SURVEY_TOOLS : 0);
  }
  chat_close(c);
  return can;
}

void survey_dir(const char *dir, survey *out)
{
  cfg *c = NULL;
  tern_error why = {0};
  tern_status status = cfg_open(dir, &c, &why);
  if (status == TERN_OK) {
    look_at_config(c, dir, out);
    if (out->runs)
      look_at_headers(dir, out);
  } else {
    *out = (survey){.type = "-", .quantisation = "-", .tier = "-", .fidelity = "-", .why = why};
  }
  if (!out->runs) {
    path_place(dir, out->why.status, &out->why);
    out->tier = out->fidelity = "-";
  }
  out->bytes = weight_bytes(dir);
  if (out->runs)
    out->can = look_at_text(dir);
  else if (!holds(dir, "config.json")) /* a tokenizer alone */
    out->can = look_at_text(dir) & SURVEY_TEXT;
  cfg_close(c);
}

/* ---- GGUF files ---- */

static void survey_gguf(const char *path, survey *out)
{
  import_look look;
  *out = (survey){.type = "-", .quantisation = "-", .tier = "-", .fidelity = "-"};
  out->runs = import_look_at(path, &look, &out->why) == TERN_OK;
  out->bytes = look.bytes;
  if (!out->runs)
    return;
  snprintf(out->type, sizeof out->type, "%s", look.model_type);
  snprintf(out->quantisation, sizeof out->quantisation, "gguf %s", look.quantisation);
  out->parameters = look.parameters;
  out->can = (look.text ? SURVEY_TEXT : 0) | (look.text && look.template ? SURVEY_CHAT : 0) |
             (look.text && look.tools ? SURVEY_TOOLS : 0);
}

void survey_entry(const cli_env *env, const model_entry *e, survey *out)
{
  char *place = e->gguf ? models_imported(env, e->path) : NULL;
  struct stat st;
  if (e->gguf && !place)
    survey_gguf(e->path, out);
  else
    survey_dir(place ? place : e->path, out);
  if (e->gguf && stat(e->path, &st) == 0)
    out->bytes = (double)st.st_size;
  mem_free(place);
}

/* ---- words ---- */

const char *survey_fits(const survey *s, char out[32])
{
  if (!s->measured)
    return "-";
  if (!s->fit.largest)
    return "no";
  if (s->fit.total <= s->fit.room)
    return "yes";
  snprintf(out, 32, "to %d", s->fit.largest);
  return out;
}

static const char *const abilities[] = {"text", "chat", "tools"};

const char *survey_can(const survey *s, char out[32])
{
  out[0] = 0;
  for (size_t i = 0; i < sizeof abilities / sizeof *abilities; i++)
    if (s->can >> i & 1) {
      size_t n = strlen(out);
      snprintf(out + n, 32 - n, "%s%s", n ? " " : "", abilities[i]);
    }
  return *out ? out : "-";
}

const char *survey_count(double parameters, char out[16])
{
  static const struct {
    double from;
    const char *unit;
  } units[] = {{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "k"}};
  if (parameters <= 0)
    return "-";
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (parameters >= units[i].from) {
      snprintf(out, 16, "%.3g%s", parameters / units[i].from, units[i].unit);
      return out;
    }
  snprintf(out, 16, "%.0f", parameters);
  return out;
}

json_t *survey_json(const char *id, const char *path, const survey *s)
{
  json_t *can = json_array(), *memory = json_null();
  const fit *f = &s->fit;
  for (size_t i = 0; i < sizeof abilities / sizeof *abilities; i++)
    if (s->can >> i & 1)
      out_append(&can, json_string(abilities[i]));
  if (s->measured)
    memory = json_pack("{sI sI sI si sI sI sI sI si}", "weights", (json_int_t)f->weights, "owned", (json_int_t)f->owned,
                       "kv_per_token", (json_int_t)f->kv_token, "context", f->context, "kv", (json_int_t)f->kv,
                       "scratch", (json_int_t)f->scratch, "total", (json_int_t)f->total, "free", (json_int_t)f->room,
                       "largest_context", f->largest);
  json_t *fits = s->runs && !s->measured ? json_null() : json_boolean(s->measured && f->largest > 0);
  return json_pack("{so so ss ss ss ss sI sI so so so ss*}", "id", out_text(id), "path", out_text(path), "type",
                   s->type, "tier", s->tier, "fidelity", s->fidelity, "quantisation", s->quantisation, "size",
                   (json_int_t)s->bytes, "parameters", (json_int_t)s->parameters, "capabilities", can, "fits", fits,
                   "memory", memory, "error", s->runs ? NULL : s->why.text);
}
