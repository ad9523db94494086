/* use.c - see use.h. */
#include "cli/use.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cores.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/threads.h"
#include "base/utf8.h"
#include "cli/ask.h"
#include "cli/elsewhere.h"
#include "cli/env.h"
#include "cli/out.h"
#include "cli/pull.h"
#include "cli/signals.h"
#include "format/json_scan.h"
#include "hub/address.h"

/* mlx_lm.generate's --quantized-kv-start. */
enum { KV_START = 5000 };
/* Above this many native is no longer quick enough to go unremarked. */
enum { MANY_PARAMETERS = 50000000 };
enum { MOST_TEXT = 1 << 30, READ_AT_ONCE = 1 << 16 };

#ifdef TERN_HUB
/* A repo that is not there, for a verb that answers: with --yes, or where a terminal says so, it is pulled. `err` holds
 * why it is not there, and keeps it where nobody wants it. */
static tern_status offer_pull(const cli_args *a, const char *name, char **dir, tern_status missing, tern_error *err)
{
  char question[400];
  hub_repo repo;
  bool answers = a->verb == VERB_RUN || a->verb == VERB_CHAT || a->verb == VERB_SERVE;
  if (missing != TERN_E_NOT_FOUND || !answers || !name || repo_parse(name, &repo, NULL) != TERN_OK)
    return missing;
  snprintf(question, sizeof question, "%s is not here. Download it?", name);
  if (!a->yes && !(ask_can() && ask_yes(question)))
    return missing;
  return pull_model(a, name, dir, err);
}
#else
static tern_status offer_pull(const cli_args *a, const char *name, char **dir, tern_status missing, tern_error *err)
{
  (void)a, (void)name, (void)dir, (void)err;
  return missing;
}
#endif

/* The id of a repo whose address was pasted in place of it (mem_free); *id is NULL where `name` is no address. */
static tern_status read_address(const char *name, char **id, tern_error *err)
{
  hub_repo repo;
  buf text = {0};
  char *endpoint = env_endpoint();
  *id = NULL;
  tern_status status = endpoint ? TERN_OK : err_nomem(err, "environment");
  if (endpoint && name && access(name, F_OK) != 0 && address_is_one(name, endpoint)) {
    status = address_parse(name, endpoint, &repo, err);
    if (status == TERN_OK) {
      buf_addf(&text, "%s%s%s", repo.id, strcmp(repo.revision, "main") ? "@" : "",
               strcmp(repo.revision, "main") ? repo.revision : "");
      *id = buf_take(&text);
      status = *id ? TERN_OK : err_nomem(err, "model name");
    }
  }
  mem_free(endpoint);
  return status;
}

static tern_status find_dir(const cli_args *a, const char *name, models_need need, char **dir, tern_error *err)
{
  cli_env env;
  tern_status status = env_read(&env, err);
  if (status == TERN_OK)
    status = models_resolve(&env, name, need, dir, err);
  bool several = status == TERN_E_NOT_FOUND && name && models_names(&env, name);
  env_clear(&env);
  if (status != TERN_OK)
    status = offer_pull(a, name, dir, status, err);
  return several ? status : elsewhere_explain(name, status, err);
}

tern_status use_dir(const cli_args *a, const char *name, models_need need, char **dir, tern_error *err)
{
  char *id;
  TRY(read_address(name, &id, err));
  tern_status status = find_dir(a, id ? id : name, need, dir, err);
  mem_free(id);
  if (status == TERN_OK)
    say_more("model: %s", *dir);
  return status;
}

tern_status use_options(const cli_args *a, tern_model_options *out, tern_error *err)
{
  cli_env env;
  tern_status status = env_read(&env, err);
  int threads = a->threads ? a->threads : env.threads;
  cores found;
  cores_find(&found);
  env_clear(&env);
  if (status != TERN_OK)
    return status;
  if ((ARGS_GIVEN(a, gpu) || ARGS_GIVEN(a, gpu_memory)) && a->backend != TERN_BACKEND_AUTO &&
      a->backend != TERN_BACKEND_CUDA)
    return err_set(err, TERN_E_USAGE, "--gpu and --gpu-memory-fraction: change nothing without a GPU's backend");
  if (a->prepare && a->no_prepare)
    return err_set(err, TERN_E_USAGE, "--prepare and --no-prepare exclude each other");
  if (threads > found.most)
    say_warning("%d threads on %d processor%s: slower, not faster", threads, found.most, found.most > 1 ? "s" : "");
  *out = (tern_model_options){
      .numerics = (tern_numerics)a->numerics,
      .backend = (tern_backend)a->backend,
      .threads = threads,
      .prefill_step = a->prefill_step,
      .max_kv_size = a->max_kv_size,
      .kv_bits = a->kv_bits,
      .kv_group_size = a->kv_group_size,
      .quantized_kv_start = a->quantized_kv_start,
      .mlock = a->mlock,
      .simd = a->simd,
      .gpu = a->gpu,
      .gpu_memory = a->gpu_memory,
      .prepare = a->prepare      ? TERN_PREPARE_NOW
                 : a->no_prepare ? TERN_PREPARE_NEVER
                                 : TERN_PREPARE_AUTO,
      .prepared_dir = a->prepared_dir,
  };
  if (a->kv_bits && !ARGS_GIVEN(a, quantized_kv_start))
    out->quantized_kv_start = KV_START;
  if (!a->kv_bits && ARGS_GIVEN(a, quantized_kv_start))
    return err_set(err, TERN_E_USAGE, "quantized-kv-start: changes nothing without kv-bits");
  return TERN_OK;
}

static void show_preparing(void *user, size_t done, size_t of_bytes)
{
  (void)user;
  say_progress("preparing", (double)done, (double)of_bytes);
}

tern_status use_make_prepared(const char *dir, const tern_model_options *o, prepared_report *report, char **path,
                              tern_error *err)
{
  prepared_watch watch = {.cancel = sig_hold(), .progress = show_preparing};
  tern_status status = path_place(dir, model_prepare(dir, o, &watch, report, path, err), err);
  sig_release();
  say_progress_end();
  return status;
}

tern_status use_prepare(const char *dir, tern_model_options *o, tern_error *err)
{
  prepared_report report;
  char *path;
  if (o->prepare != TERN_PREPARE_NOW)
    return TERN_OK;
  TRY(use_make_prepared(dir, o, &report, &path, err));
  if (!report.was_there)
    say("prepared %s in %s", dir, path);
  mem_free(path);
  o->prepare = TERN_PREPARE_AUTO;
  if (o->backend == TERN_BACKEND_AUTO) /* it was the CPU's layout that was asked for */
    o->backend = TERN_BACKEND_CPU;
  return TERN_OK;
}

void use_warn_prepared(const char *fault)
{
  if (*fault)
    say_warning("%s: left aside, the checkpoint is read instead (tern prepare makes it again)", fault);
}

void use_warn_backend(const char *fault)
{
  if (*fault)
    say_warning("%s: going on with the CPU (--backend cpu says so from the start)", fault);
}

void use_hint_native(const model *m)
{
  double values = 0;
  int bits = quant_present(m->quant) ? quant_globals(m->quant).bits : 32;
  for (size_t i = 0; m->numerics == TERN_NATIVE && i < ckpt_count(m->ckpt); i++) {
    const st_tensor *t = ckpt_at(m->ckpt, i);
    double words = (double)t->bytes / (double)st_dtype_size(t->dtype);
    values += t->dtype == ST_U32 ? words * 32 / bits : words; /* packed */
  }
  if (values > MANY_PARAMETERS)
    say_hint("numerics native is the slow lane, for comparisons with the reference; exact is the fast one");
}

tern_status use_network(const char *dir, const tern_model_options *options, model **out, tern_error *err)
{
  tern_model_options o = *options;
  TRY(use_prepare(dir, &o, err));
  double start = use_seconds();
  TRY(path_place(dir, model_open(dir, &o, false, out, err), err));
  use_warn_backend((*out)->backend_fault.text);
  use_warn_prepared((*out)->prepared_fault.text);
  use_hint_native(*out);
  say_more("opened in %.1f ms: %s, %s, backend %s, %d threads, weights %s", 1e3 * (use_seconds() - start),
           (*out)->profile.id, use_numerics_name((*out)->numerics), (*out)->cx.backend->name,
           pool_size((*out)->workers), (*out)->prepared ? "prepared" : "as mapped");
  return TERN_OK;
}

const char *use_numerics_name(tern_numerics numerics)
{
  static const char *const names[] = {[TERN_EXACT] = "exact", [TERN_NATIVE] = "native", [TERN_FAST] = "fast"};
  return names[numerics];
}

/* ---- texts ---- */

static tern_status read_stream(FILE *f, const char *name, char **text, size_t *length, tern_error *err)
{
  size_t used = 0, capacity = 0, n;
  char *data = NULL;
  do {
    if (!mem_grow(&data, &capacity, used + READ_AT_ONCE + 1, 1)) {
      mem_free(data);
      return err_nomem(err, name);
    }
    n = fread(data + used, 1, READ_AT_ONCE, f);
    used += n;
  } while (n > 0 && used <= MOST_TEXT && !feof(f)); /* a terminal's end is told once */
  tern_status status = TERN_OK;
  if (ferror(f))
    status = err_set(err, TERN_E_IO, "%s: read: %s", name, strerror(errno));
  else if (used > MOST_TEXT)
    status = err_set(err, TERN_E_LIMIT, "%s: more than %d bytes", name, MOST_TEXT);
  if (status != TERN_OK) {
    mem_free(data);
    return status;
  }
  data[used] = 0;
  *text = data;
  *length = used;
  return TERN_OK;
}

tern_status use_text(const char *path, char **text, size_t *length, tern_error *err)
{
  if (!strcmp(path, "-"))
    return read_stream(stdin, "stdin", text, length, err);
  FILE *f = fopen(path, "re"); /* a pipe is welcome here, unlike for a model's files */
  if (!f)
    return err_errno(err, path, "open");
  tern_status status = read_stream(f, path, text, length, err);
  fclose(f);
  return status;
}

tern_status use_operand(const char *operand, char **text, size_t *length, tern_error *err)
{
  if (!operand || !strcmp(operand, "-"))
    return read_stream(stdin, "stdin", text, length, err);
  *length = strlen(operand);
  *text = mem_strndup(operand, *length);
  return *text ? TERN_OK : err_nomem(err, "text");
}

/* ---- token ids ---- */

/* One element of the array. */
static tern_status scan_id(json_scan *s, const char *name, size_t index, int32_t *id, tern_error *err)
{
  slice text;
  bool whole;
  int64_t value;
  char number[24];
  TRY(scan_number(s, "a token id", &text, &whole));
  snprintf(number, sizeof number, "%.*s", text.n < sizeof number ? (int)text.n : 0, text.s);
  if (!whole || !args_read_int(number, 0, INT32_MAX, &value))
    return err_set(err, TERN_E_FORMAT, "%s: element %zu of the array is not a token id", name, index);
  *id = (int32_t)value;
  return TERN_OK;
}

static tern_status scan_ids(json_scan *s, const char *name, int32_t **ids, size_t *n, tern_error *err)
{
  size_t capacity = 0;
  TRY(scan_expect(s, '[', "a JSON array of token ids"));
  if (!mem_grow(ids, &capacity, 1, sizeof **ids))
    return err_nomem(err, "token ids");
  if (!scan_accept(s, ']')) {
    do {
      if (!mem_grow(ids, &capacity, *n + 1, sizeof **ids))
        return err_nomem(err, "token ids");
      TRY(scan_id(s, name, *n, *ids + *n, err));
      ++*n;
    } while (scan_accept(s, ','));
    TRY(scan_expect(s, ']', "',' or ']'"));
  }
  return scan_end(s);
}

tern_status use_ids_array(const char *name, const char *text, size_t length, int32_t **ids, size_t *n, tern_error *err)
{
  json_scan s = {.begin = text, .p = text, .end = text + length, .err = err};
  *ids = NULL;
  *n = 0;
  tern_status status = scan_ids(&s, name, ids, n, err);
  if (status == TERN_OK)
    return TERN_OK;
  mem_free(*ids);
  *ids = NULL;
  *n = 0;
  return s.failed ? err_prefix(err, status, "%s: not a JSON array of token ids: byte %zu", name, s.at) : status;
}

tern_status use_ids_list(const char *name, char *text, size_t length, cli_ints *out, tern_error *err)
{
  if (memchr(text, 0, length))
    return err_set(err, TERN_E_FORMAT, "%s: a NUL byte between the token ids", name);
  while (length && strchr(" \t\r\n", text[length - 1]))
    text[--length] = 0;
  text += strspn(text, " \t\r\n");
  for (char *at = text; *at; at++) { /* blanks between numbers separate as well as commas do */
    size_t blanks = strspn(at, " \t\r\n");
    if (blanks && at > text && at[-1] != ',' && at[blanks] != ',')
      *at = ',';
  }
  tern_status status = args_read_ints(name, text, 0, INT32_MAX, out, err);
  if (status == TERN_E_USAGE && err)
    err->status = TERN_E_FORMAT; /* a bad file is bad input, not bad usage */
  return status == TERN_E_USAGE ? TERN_E_FORMAT : status;
}

json_t *use_ids_json(const int32_t *ids, size_t n)
{
  json_t *array = json_array();
  for (size_t i = 0; array && i < n; i++)
    if (json_array_append_new(array, json_integer(ids[i])) != 0) {
      json_decref(array);
      return NULL;
    }
  return array;
}

tern_status use_check_utf8(const char *name, const char *text, size_t length, tern_error *err)
{
  size_t bad;
  if (utf8_valid(text, length, &bad))
    return TERN_OK;
  return err_set(err, TERN_E_FORMAT, "%s: byte %zu is not UTF-8", name, bad);
}

/* ---- time and memory ---- */

double use_seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double use_peak_mb(void)
{
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)usage.ru_maxrss * 1024 / 1e6;
}

double use_rate(double count, double seconds)
{
  return seconds > 0 ? count / seconds : 0;
}
