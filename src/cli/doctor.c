/* doctor.c - what this machine offers, what the build uses of it, and what is missing. */
#include <dirent.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cores.h"
#include "cli/describe.h"
#include "cli/gpus.h"
#include "cli/machine.h"
#include "cli/out.h"
#include "cli/use.h"
#include "cli/verbs.h"
#include "ops/ops.h"

typedef struct feature {
  const char *name;
  bool there;
} feature;

enum { MOST_FEATURES = 12 };

/* SIMD features that kernels could use. */
static int cpu_features(feature out[MOST_FEATURES])
{
#if defined(__x86_64__)
#define FEATURE(name) {name, __builtin_cpu_supports(name) != 0}
  feature all[] = {FEATURE("avx2"),     FEATURE("fma"),        FEATURE("avx512f"),   FEATURE("avx512bw"),
                   FEATURE("avx512vl"), FEATURE("avx512vnni"), FEATURE("avx512bf16")};
  int n = sizeof all / sizeof *all;
  for (int i = 0; i < n; i++)
    out[i] = all[i];
  return n;
#elif defined(__aarch64__)
  out[0] = (feature){"asimd", true};
  out[1] = (feature){"asimddp", ops_simd_has(SIMD_DOTPROD)};
  out[2] = (feature){"i8mm", ops_simd_has(SIMD_I8MM)};
  return 3;
#else
  (void)out;
  return 0;
#endif
}

typedef struct findings {
  char cpu[128];
  feature features[MOST_FEATURES];
  int n_features;
  gpus gpus;
  cores cores;
  double memory_gb, available_gb, bandwidth;
  cli_env env;
  size_t models, prepared; /* how many */
  double prepared_bytes;
  tern_error closed; /* a cache that cannot be read */
  const char *missing[5];
  int n_missing;
} findings;

/* DIR/IDENTITY/weights */
static void count_prepared(const char *dir, findings *f)
{
  DIR *d = dir ? opendir(dir) : NULL;
  for (const struct dirent *e; d && (e = readdir(d));) {
    struct stat st;
    buf path = {0};
    buf_addf(&path, "%s/%s/weights", dir, e->d_name);
    if (e->d_name[0] != '.' && !path.failed && stat(path.data, &st) == 0) {
      f->prepared++;
      f->prepared_bytes += (double)st.st_size;
    }
    buf_free(&path);
  }
  if (d)
    closedir(d);
}

static tern_status look(const cli_args *a, findings *f, tern_error *err)
{
  model_list list;
  machine_cpu_name(f->cpu, sizeof f->cpu);
  f->n_features = cpu_features(f->features);
  cores_find(&f->cores);
  gpus_find(&f->gpus, true);
  f->memory_gb = (double)machine_memory() / 1e9;
  f->available_gb = (double)machine_memory_available() / 1e9;
  TRY(env_read(&f->env, err));
  TRY(models_find(&f->env, &list, err));
  f->models = list.n;
  f->closed = list.closed;
  models_free(&list);
  count_prepared(a->prepared_dir, f);
  if (f->gpus.fault.status != TERN_OK && cuda_driver_there())
    f->missing[f->n_missing++] = f->gpus.fault.text;
  if (f->n_features && ops_simd_best() == SIMD_BASELINE) /* a processor that could have it */
    f->missing[f->n_missing++] = "avx2: without it kernels run in plain C";
  if (f->closed.status != TERN_OK)
    f->missing[f->n_missing++] = f->closed.text;
  else if (f->models == 0)
    f->missing[f->n_missing++] =
        "models: none in the Hugging Face cache or under TERN_HOME (name a directory or a .gguf file)";
  return machine_bandwidth(a->threads ? a->threads : f->env.threads, &f->bandwidth, err);
}

static json_t *gpus_json(const gpus *g)
{
  json_t *list = json_array();
  for (int i = 0; i < g->count && i < GPUS_MOST; i++) {
    const cuda_device *d = &g->devices[i];
    out_append(&list, json_pack("{ss sf si sf sf sf sb}", "name", d->name, "capability", d->capability / 10.0,
                                "processors", d->processors, "memory_gb", (double)d->memory / 1e9, "available_gb",
                                (double)d->available / 1e9, "bandwidth_gb_s", g->gb_s[i], "built_for", d->built_for));
  }
  return list;
}

static void print_gpus(const gpus *g)
{
  out_printf("gpus       %d; %s\n", g->count, gpus_state(g));
  for (int i = 0; i < g->count && i < GPUS_MOST; i++) {
    const cuda_device *d = &g->devices[i];
    out_printf("gpu %-6d %s, capability %d.%d%s, %d processors, %.1f GB, %.1f GB free, %.0f GB/s read\n", i, d->name,
               d->capability / 10, d->capability % 10, d->built_for ? "" : " (this build has no code for it)",
               d->processors, (double)d->memory / 1e9, (double)d->available / 1e9, g->gb_s[i]);
  }
}

static void print_json(const findings *f, const char *prepared_dir)
{
  json_t *features = json_object(), *levels = json_array(), *missing = json_array();
  json_t *backends = json_pack("[ss]", "ref", "cpu");
  for (int i = 0; features && i < f->n_features; i++) {
    if (json_object_set_new(features, f->features[i].name, json_boolean(f->features[i].there)) != 0) {
      json_decref(features);
      features = NULL; /* json_pack then fails, which out_json tells */
    }
  }
  for (int i = 0; i < SIMD_LEVELS; i++)
    if (ops_cpu((ops_simd)i))
      out_append(&levels, json_string(ops_simd_name((ops_simd)i)));
  if (gpus_usable(&f->gpus))
    out_append(&backends, json_string("cuda"));
  for (int i = 0; i < f->n_missing; i++)
    out_append(&missing, json_string(f->missing[i]));
  out_json(json_pack("{ss ss si s{si si si sf si} so so ss sf sf sf si so ss so ss? ss? sI s{ss? sI sf} so}", "version",
                     tern_version(), "cpu", f->cpu, "cores", f->cores.threads, "threads", "allowed", f->cores.allowed,
                     "separate", f->cores.separate, "fast", f->cores.fast, "quota", f->cores.quota, "default",
                     f->cores.threads, "features", features, "simd_usable", levels, "simd",
                     ops_simd_name(ops_simd_best()), "memory_gb", f->memory_gb, "available_gb", f->available_gb,
                     "bandwidth_gb_s", f->bandwidth, "gpus", f->gpus.count, "gpu", gpus_json(&f->gpus), "cuda",
                     gpus_state(&f->gpus), "backends", backends, "tern_home", f->env.tern_home, "hub_cache",
                     f->env.hub_cache, "models", (json_int_t)f->models, "prepared", "path", prepared_dir, "files",
                     (json_int_t)f->prepared, "bytes", f->prepared_bytes, "missing", missing));
}

/* How the default number of threads comes about, in the order in which it shrinks. */
static void print_cores(const cores *c)
{
  out_printf("cores      %d: %d processor%s allowed", c->threads, c->allowed, c->allowed == 1 ? "" : "s");
  if (c->separate < c->allowed)
    out_printf(", %d without SMT siblings", c->separate);
  if (c->fast < c->separate)
    out_printf(", %d of them fast", c->fast);
  if (c->quota > 0)
    out_printf(", time for %.4g by cgroup", c->quota);
  out_printf("\n");
}

static void print_text(const findings *f, const char *prepared_dir)
{
  char bytes[32];
  out_printf("version    tern %s\ncpu        %s\n", tern_version(), *f->cpu ? f->cpu : "unknown");
  print_cores(&f->cores);
  out_printf("simd       machine:");
  for (int i = 0; i < f->n_features; i++)
    if (f->features[i].there)
      out_printf(" %s", f->features[i].name);
  out_printf("; usable:");
  for (int i = 0; i < SIMD_LEVELS; i++)
    if (ops_cpu((ops_simd)i))
      out_printf(" %s", ops_simd_name((ops_simd)i));
  out_printf("; in use: %s\n", ops_simd_name(ops_simd_best()));
  out_printf("memory     %.1f GB, %.1f GB available, %.1f GB/s read\n", f->memory_gb, f->available_gb, f->bandwidth);
  print_gpus(&f->gpus);
  out_printf("backends   ref, cpu%s\n", gpus_usable(&f->gpus) ? ", cuda" : "");
  out_printf("models     %zu in %s and %s\n", f->models, f->env.hub_cache ? f->env.hub_cache : "(no hub cache)",
             f->env.tern_home ? f->env.tern_home : "(no TERN_HOME)");
  out_printf("prepared   %zu of them, %s in %s\n", f->prepared, describe_bytes(f->prepared_bytes, bytes),
             prepared_dir ? prepared_dir : "(no TERN_HOME)");
  for (int i = 0; i < f->n_missing; i++)
    out_printf("missing    %s\n", f->missing[i]);
  if (!f->n_missing)
    out_printf("missing    nothing\n");
}

tern_status verb_doctor(const cli_args *a, tern_error *err)
{
  findings f = {0};
  tern_status status = look(a, &f, err);
  if (status == TERN_OK) {
    if (a->json)
      print_json(&f, a->prepared_dir);
    else
      print_text(&f, a->prepared_dir);
  }
  env_clear(&f.env);
  return status;
}
