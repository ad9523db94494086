/* inspect.c - what a checkpoint is, from its headers: profile, normalised config, quantisation, tensors, audit, memory.
 *
 * No tensor data is read, but for norms and biases, which binding widens, and a few bytes of each tensor, by which a
 * file of prepared weights is found.
 */

#include "base/mem.h"
#include "base/path.h"
#include "cli/describe.h"
#include "cli/inspect_nearest.h"
#include "cli/out.h"
#include "cli/use.h"
#include "cli/verbs.h"
#include "engine/about.h"
#include "engine/fit.h"

/* Both configs' stop ids; the tokenizer's own is not read here. */
typedef struct eos_list {
  int32_t *ids;
  size_t n;
} eos_list;

/* ---- JSON ---- */

static json_t *config_json(const model_config *c)
{
  json_t *scaling = c->rope_scaling ? json_deep_copy(c->rope_scaling) : json_null();
  json_t *sliding = json_array();
  for (int i = 0; i < c->layers; i++)
    out_append(&sliding, json_string(c->layer[i].sliding ? "sliding_attention" : "full_attention"));
  return json_pack("{ss si si si si si si si si sf sf sf so sb sb sb sb sf si so}", "architecture", c->arch->name,
                   "width", c->width, "layers", c->layers, "heads", c->heads, "kv_heads", c->kv_heads, "head_dim",
                   c->head_dim, "ffn", c->ffn, "vocab", c->vocab, "max_positions", c->max_positions, "norm_eps",
                   c->norm_eps, "rope_theta", c->rope_theta, "rope_local_theta", c->rope_local_theta, "rope_scaling",
                   scaling, "rope_traditional", (int)c->rope_traditional, "attention_bias", (int)c->bias_qkv,
                   "mlp_bias", (int)c->bias_mlp, "tied", (int)c->tied, "attention_scale", model_config_scale(c),
                   "sliding_window", c->sliding_window, "layer_types", sliding);
}

static json_t *artifact_json(const profile_artifact *a)
{
  return a->repo[0] ? json_pack("{so so}", "repo", out_text(a->repo), "revision", out_text(a->revision)) : json_null();
}

static json_t *execution_json(const profile_execution *run)
{
  return json_pack("{ss ss ss ss}", "loader", profile_loader_name(run->loader), "graph", profile_graph_name(run->graph),
                   "loop", profile_loop_name(run->loop), "specialisation", profile_special_name(run->special));
}

static json_t *needs_json(uint32_t needs)
{
  json_t *names = json_array();
  for (int i = 0; i < CAPABILITIES; i++)
    if (needs >> i & 1)
      out_append(&names, json_string(profile_capability_name(i)));
  return names;
}

static json_t *quantisation_json(const model *m)
{
  if (!quant_present(m->quant))
    return json_null();
  quant_params p = quant_globals(m->quant);
  return json_pack("{ss si si ss}", "mode", quant_mode_name(p.mode), "bits", p.bits, "group_size", p.group_size,
                   "source", quant_source(m->quant));
}

static json_t *tensors_json(const model *m)
{
  json_t *all = json_array();
  for (size_t i = 0; i < ckpt_count(m->ckpt); i++) {
    const st_tensor *t = ckpt_at(m->ckpt, i);
    json_t *shape = json_array();
    for (int d = 0; d < t->rank; d++)
      out_append(&shape, json_integer(t->shape[d]));
    out_append(&all, json_pack("{ss ss so sI ss ss}", "name", t->name, "dtype", st_dtype_name(t->dtype), "shape", shape,
                               "bytes", (json_int_t)t->bytes, "file", ckpt_file(m->ckpt, t), "use",
                               ckpt_marked(m->ckpt, t) ? "bound" : "dropped"));
  }
  return all;
}

static json_t *drop_rules_json(const model *m)
{
  static const char *const kinds[] = {[MATCH_CONTAINS] = "contains",
                                      [MATCH_EXACT] = "exact",
                                      [MATCH_PREFIX] = "prefix",
                                      [MATCH_SUFFIX] = "suffix",
                                      [MATCH_MODULE] = "module"};
  json_t *rules = json_array();
  for (size_t i = 0; i < m->weights.n_drops; i++) {
    const weight_drop *d = &m->weights.drops[i];
    out_append(&rules, json_pack("{ss ss sb sb sI}", "pattern", d->rule->pattern, "match", kinds[d->rule->match],
                                 "if_tied", (int)(d->rule->when != DROP_ALWAYS), "copy",
                                 (int)(d->rule->when == DROP_IF_COPY), "matched", (json_int_t)d->matched));
  }
  return rules;
}

static size_t count_bound(const model *m)
{
  size_t bound = 0;
  for (size_t i = 0; i < ckpt_count(m->ckpt); i++)
    bound += ckpt_marked(m->ckpt, ckpt_at(m->ckpt, i));
  return bound;
}

static json_t *unread_json(const model *m)
{
  json_t *keys = json_array();
  size_t cursor = 0;
  for (const char *key; (key = cfg_unread(m->cfg, CFG_ROOT, &cursor));)
    out_append(&keys, json_string(key));
  return keys;
}

/* All ids, or those that no logit stands for. */
static json_t *eos_json(const model *m, const eos_list *eos, bool beyond_alone)
{
  json_t *ids = json_array();
  for (size_t i = 0; i < eos->n; i++)
    if (!beyond_alone || eos->ids[i] >= m->config.vocab)
      out_append(&ids, json_integer(eos->ids[i]));
  return ids;
}

static json_t *kinds_json(const fit *f)
{
  json_t *kinds = json_array();
  for (int i = 0; i < f->n_kinds; i++)
    out_append(&kinds, json_pack("{si si sI sI}", "layers", f->kinds[i].layers, "window", f->kinds[i].window,
                                 "per_token", (json_int_t)f->kinds[i].token, "bytes", (json_int_t)f->kinds[i].bytes));
  return kinds;
}

static void print_json(const model *m, const char *dir, const fit *need, const eos_list *eos)
{
  size_t total = ckpt_count(m->ckpt), bound = count_bound(m);
  json_t *memory =
      json_pack("{sI sI sI si sI sI sI sI si so}", "weights", (json_int_t)need->weights, "owned",
                (json_int_t)need->owned, "kv_per_token", (json_int_t)need->kv_token, "context", need->context, "kv",
                (json_int_t)need->kv, "scratch", (json_int_t)need->scratch, "total", (json_int_t)need->total, "free",
                (json_int_t)need->room, "largest_context", need->largest, "kv_kinds", kinds_json(need));
  json_t *layouts = m->prepared ? json_pack("{so sI}", "path", out_text(prepared_path(m->prepared)), "bytes",
                                            (json_int_t)prepared_bytes(m->prepared))
                                : json_null();
  json_t *audit = json_pack("{ss sI sI sI}", "result", "complete", "tensors", (json_int_t)total, "bound",
                            (json_int_t)bound, "dropped", (json_int_t)(total - bound));
  const model_profile *p = &m->profile;
  out_json(json_pack("{so ss ss ss ss ss ss ss? so so so ss ss ss so so so so so so so so so so}", "path",
                     out_text(dir), "model_type", cfg_model_type(m->cfg), "numerics", use_numerics_name(m->numerics),
                     "profile", p->id, "tier", profile_tier_name(p->tier), "fidelity", p->fidelity, "claim", p->claim,
                     "corrected", p->corrected, "execution", execution_json(&p->run), "needs", needs_json(p->needs),
                     "artifact", artifact_json(&p->artifact), "fingerprint", p->fingerprint, "oracle", p->oracle,
                     "backend", m->cx.backend->name, "config", config_json(&m->config), "quantisation",
                     quantisation_json(m), "audit", audit, "drop_rules", drop_rules_json(m), "unread_keys",
                     unread_json(m), "eos_ids", eos_json(m, eos, false), "eos_ids_beyond_vocab", eos_json(m, eos, true),
                     "memory", memory, "prepared", layouts, "tensors", tensors_json(m)));
}

/* ---- text ----
 *
 * Names of tensors, keys, types and directories come from whoever made the checkpoint: a terminal is shown them clean,
 * and not longer than LONGEST_SHOWN. JSON has them as they are. */

enum { LONGEST_SHOWN = 200 };

static void print_memory(const fit *f)
{
  char w[32], o[32], t[32], kv[32], s[32], all[32];
  out_printf(
      "memory        weights mapped %s, owned %s; keys and values %s a token, %s for a context of %d; scratch %s; "
      "together %s\n",
      describe_bytes((double)f->weights, w), describe_bytes((double)f->owned, o),
      describe_bytes((double)f->kv_token, t), describe_bytes((double)f->kv, kv), f->context,
      describe_bytes((double)f->scratch, s), describe_bytes((double)f->total, all));
  for (int i = 0; i < f->n_kinds; i++) {
    const fit_kind *k = &f->kinds[i];
    out_printf("              %d layers ", k->layers);
    if (k->window)
      out_printf("with a window of %d", k->window);
    else
      out_printf("that keep all positions");
    out_printf(": %s a token, %s\n", describe_bytes((double)k->token, t), describe_bytes((double)k->bytes, kv));
  }
  out_printf("fits          %s: %s are free, ",
             f->total <= f->room ? "yes"
             : f->largest        ? "not with this context"
                                 : "no",
             describe_bytes((double)f->room, all));
  if (f->largest)
    out_printf("which is enough for a context of %d\n", f->largest);
  else
    out_printf("which is not enough for any context\n");
}

static void print_config(const model_config *c)
{
  int sliding = 0;
  for (int i = 0; i < c->layers; i++)
    sliding += c->layer[i].sliding;
  out_printf("config        %d layers, width %d, %d heads of %d, %d key/value heads, ffn %d, vocab %d, context %d\n",
             c->layers, c->width, c->heads, c->head_dim, c->kv_heads, c->ffn, c->vocab, c->max_positions);
  out_printf("              rope base %.15g, norm eps %.15g, embeddings %s", c->rope_theta, c->norm_eps,
             c->tied ? "tied" : "not tied");
  if (sliding)
    out_printf(", window %d in %d of %d layers", c->sliding_window, sliding, c->layers);
  out_write("\n", 1);
}

/* The reference lets an id pass that no logit stands for, and so does tern; it never stops anything. */
static void print_eos(const model *m, const eos_list *eos)
{
  out_printf("eos ids      ");
  for (size_t i = 0; i < eos->n; i++)
    out_printf(" %d%s", (int)eos->ids[i],
               eos->ids[i] < m->config.vocab ? "" : " (beyond the vocabulary, stops nothing)");
  out_printf("%s\n", eos->n ? "" : " none in config.json or generation_config.json");
}

static void print_text(const model *m, const char *dir, const fit *need, const eos_list *eos)
{
  char quantisation[64], size[32], shape[160], path[ERR_CLEAN_PATH], clean[LONGEST_SHOWN];
  size_t total = ckpt_count(m->ckpt), bound = count_bound(m), cursor = 0;
  out_printf("path          %s\nmodel type    %s\nprofile       %s (tier %s)\nfidelity      %s: %s\noracle        %s\n",
             err_clean_copy(dir, path, sizeof path), err_clean_copy(cfg_model_type(m->cfg), clean, sizeof clean),
             m->profile.id, profile_tier_name(m->profile.tier), m->profile.fidelity, m->profile.claim,
             m->profile.oracle);
  if (m->profile.artifact.repo[0])
    out_printf("artifact      %s@%s\n", err_clean_copy(m->profile.artifact.repo, path, sizeof path),
               err_clean_copy(m->profile.artifact.revision, clean, sizeof clean));
  out_printf(
      "fingerprint   %s (of the normalised config)\nexecution     loader %s, graph %s, loop %s, specialisation %s\n",
      m->profile.fingerprint, profile_loader_name(m->profile.run.loader), profile_graph_name(m->profile.run.graph),
      profile_loop_name(m->profile.run.loop), profile_special_name(m->profile.run.special));
  print_config(&m->config);
  about_quantisation(m->cfg, m->quant, quantisation);
  err_clean(quantisation);
  out_printf("quantisation  %s\n", quantisation);
  out_printf("audit         complete: %zu tensors, %zu bound, %zu dropped by rule\n", total, bound, total - bound);
  for (size_t i = 0; i < m->weights.n_drops; i++)
    out_printf("drop rule     %s: %zu matched\n",
               err_clean_copy(m->weights.drops[i].rule->pattern, clean, sizeof clean), m->weights.drops[i].matched);
  print_eos(m, eos);
  out_printf("unread keys  ");
  for (const char *key; (key = cfg_unread(m->cfg, CFG_ROOT, &cursor));)
    out_printf(" %s", err_clean_copy(key, clean, sizeof clean));
  out_write("\n", 1);
  print_memory(need);
  if (m->prepared)
    out_printf("prepared      %s, %s\n", describe_bytes((double)prepared_bytes(m->prepared), size),
               err_clean_copy(prepared_path(m->prepared), path, sizeof path));
  else
    out_printf("prepared      no%s\n", m->cx.backend->layout ? "" : " (the backend has no layout of its own)");
  if (out_is_terminal() && !out_is_verbose()) { /* there are hundreds, and what is above would be gone */
    out_printf("tensors       %zu: -v lists them\n", total);
    return;
  }
  out_printf("\n%-56s %-22s %12s\n", "tensor", "type", "bytes");
  for (size_t i = 0; i < total && out_ok(); i++) {
    const st_tensor *t = ckpt_at(m->ckpt, i);
    out_printf("%-56s %-22s %12zu%s\n", err_clean_copy(t->name, clean, sizeof clean),
               st_describe(t, shape, sizeof shape), t->bytes, ckpt_marked(m->ckpt, t) ? "" : "  dropped");
  }
}

tern_status verb_inspect(const cli_args *a, tern_error *err)
{
  const char *name;
  char *dir = NULL;
  model *m = NULL;
  tern_model_options options;
  TRY(args_need_model(a, &name, NULL, err));
  TRY(use_options(a, &options, err));
  options.mlock = false; /* nothing stays open */
  TRY(use_dir(a, name, NEED_WEIGHTS, &dir, err));
  eos_list eos = {0};
  tern_status status = model_open(dir, &options, true, &m, err);
  if (status == TERN_OK)
    status = cfg_eos_ids(m->cfg, &eos.ids, &eos.n, err);
  path_place(dir, status, err);
  if (status == TERN_E_FORMAT || status == TERN_E_UNSUPPORTED)
    inspect_nearest(dir, err->text, a->json);
  if (status == TERN_OK) {
    use_warn_prepared(m->prepared_fault.text);
    fit need;
    fit_of(m, NULL, a->context, &need);
    if (a->json)
      print_json(m, dir, &need, &eos);
    else
      print_text(m, dir, &need, &eos);
  }
  model_close(m);
  mem_free(eos.ids);
  mem_free(dir);
  return status;
}
