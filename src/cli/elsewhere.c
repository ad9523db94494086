/* elsewhere.c - see elsewhere.h. The models are those that this engine runs; a name that is not in the table gets no
 * guess. */
#include "cli/elsewhere.h"

#include <string.h>
#include <strings.h>

/* What brings a model. */
#ifdef TERN_HUB
#define BRINGS "tern pull "
#else
#define BRINGS "huggingface-cli download "
#endif

static const struct {
  const char *name, *here;
} verbs[] = {
    {"list", "tern ls lists the models that are here"},
    {"models", "tern ls lists the models that are here"},
    {"show", "tern inspect MODEL tells what a model is"},
    {"info", "tern inspect MODEL tells what a model is"},
    {"create", "tern import FILE.gguf OUTDIR makes a model of a GGUF file"},
    {"convert", "tern import FILE.gguf OUTDIR makes a model of a GGUF file"},
    {"quantize", "mlx_lm.convert -q quantises; tern runs what it writes"},
    {"download", BRINGS "ORG/NAME gets a model"},
    {"get", BRINGS "ORG/NAME gets a model"},
    {"search", "huggingface.co/mlx-community lists models; " BRINGS "ORG/NAME gets one"},
    {"generate", "tern run MODEL PROMPT answers"},
    {"complete", "tern run MODEL PROMPT --raw goes on with a text"},
    {"cli", "tern chat MODEL is a conversation, tern run MODEL PROMPT one answer"},
    {"server", "tern serve MODEL answers over HTTP"},
    {"start", "tern serve MODEL answers over HTTP"},
    {"stop", "tern serve ends with Ctrl-C"},
    {"ps", "a server's GET /api/ps tells what it runs; without one nothing stays loaded"},
    {"load", "there is no need to: run, chat and serve open a model as they start"},
    {"delete", "tern rm MODEL removes a model"},
    {"remove", "tern rm MODEL removes a model"},
    {"prune", "tern gc removes what no model uses"},
    {"perplexity", "tern ppl MODEL --text FILE measures it"},
    {"benchmark", "tern bench MODEL measures speed"},
    {"-m", "the verb comes first: tern run MODEL PROMPT"},
    {"--model", "the verb comes first: tern run MODEL PROMPT"},
    {"-hf", "the verb comes first: " BRINGS "ORG/NAME, then tern run ORG/NAME PROMPT"},
};

const char *elsewhere_verb(const char *name)
{
  for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
    if (!strcmp(name, verbs[i].name))
      return verbs[i].here;
  return NULL;
}

/* By their tags, up to the first '-'; of a name without one the tag is "latest". Another tag means another model, and
 * gets no guess. */
static const struct {
  const char *name, *tags, *repo; /* tags: |a|b| */
} models[] = {
    {"llama3.2", "|1b|", "mlx-community/Llama-3.2-1B-Instruct-4bit"},
    {"llama3.2", "|3b|latest|", "mlx-community/Llama-3.2-3B-Instruct-4bit"},
    {"llama3.1", "|8b|latest|", "mlx-community/Llama-3.1-8B-Instruct-4bit"},
    {"llama3.3", "|70b|latest|", "mlx-community/Llama-3.3-70B-Instruct-4bit"},
    {"mistral", "|7b|latest|", "mlx-community/Mistral-7B-Instruct-v0.3-4bit"},
    {"qwen2.5", "|0.5b|", "mlx-community/Qwen2.5-0.5B-Instruct-4bit"},
    {"qwen2.5", "|7b|latest|", "mlx-community/Qwen2.5-7B-Instruct-4bit"},
    {"qwen3", "|0.6b|", "mlx-community/Qwen3-0.6B-4bit"},
    {"qwen3", "|1.7b|", "mlx-community/Qwen3-1.7B-4bit"},
    {"qwen3", "|8b|latest|", "mlx-community/Qwen3-8B-4bit"},
    {"gemma3", "|1b|", "mlx-community/gemma-3-1b-it-qat-4bit"},
    {"phi3", "|mini|3.8b|latest|", "mlx-community/Phi-3-mini-4k-instruct-4bit"},
    {"deepseek-r1", "|14b|", "mlx-community/DeepSeek-R1-Distill-Qwen-14B-4bit"},
};

static bool has_tag(const char *tags, const char *tag, size_t n)
{
  for (const char *at = tags; at[1]; at += 1 + strcspn(at + 1, "|"))
    if (strcspn(at + 1, "|") == n && !strncasecmp(at + 1, tag, n))
      return true;
  return false;
}

/* Whether the name is in the table. *repo: that has the model of its tag; NULL: none is known. */
static bool find(const char *name, const char **repo)
{
  size_t n = strcspn(name, ":");
  const char *tag = name[n] && name[n + 1] ? name + n + 1 : "latest";
  bool known = false;
  *repo = NULL;
  for (size_t i = 0; !*repo && i < sizeof models / sizeof *models; i++) {
    if (strlen(models[i].name) != n || strncasecmp(name, models[i].name, n) != 0)
      continue;
    known = true;
    if (has_tag(models[i].tags, tag, strcspn(tag, "-")))
      *repo = models[i].repo;
  }
  return known;
}

bool elsewhere_is_model(const char *name)
{
  const char *repo;
  return find(name, &repo);
}

tern_status elsewhere_explain(const char *name, tern_status status, tern_error *err)
{
  const char *repo;
  if (!name || (status != TERN_E_NOT_FOUND && status != TERN_E_USAGE) || !find(name, &repo))
    return status;
  if (!repo)
    return err_set(err, status,
                   "%.100s: is another program's name; huggingface.co/mlx-community lists models: " BRINGS
                   "mlx-community/NAME gets one",
                   name);
  return err_set(err, status, "%.100s: is another program's name; the hub has such a model as %s: " BRINGS "%s", name,
                 repo, repo);
}
