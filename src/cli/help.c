/* help.c - help texts made from the tables, and the nearest name for what was misspelt. */
#include <stdio.h>
#include <string.h>

#include "base/distance.h"
#include "cli/args.h"
#include "cli/elsewhere.h"
#include "cli/examples.h"
#include "cli/out.h"

enum { HELP_COLUMN = 34, EXAMPLE_COLUMN = 60 };

/* ---- nearest names ---- */

const char *help_nearest_flag(cli_verb_id verb, const char *name, size_t length, char out[64])
{
  char asked[64];
  size_t best = (size_t)-1;
  snprintf(asked, sizeof asked, "%.*s", (int)(length < 63 ? length : 63), name);
  for (size_t i = 0; i < cli_n_flags; i++) {
    if (!(cli_flags[i].verbs >> verb & 1))
      continue;
    for (const char *at = cli_flags[i].names; at; at = strchr(at, '|')) {
      char one[64];
      at += *at == '|';
      snprintf(one, sizeof one, "%.*s", (int)strcspn(at, "|"), at);
      size_t distance = text_distance(asked, one);
      if (distance < best) {
        best = distance;
        memcpy(out, one, sizeof one);
      }
    }
  }
  return text_is_slip(asked, best) ? out : NULL;
}

cli_verb_id help_find_verb(const char *name, const char **nearest)
{
  size_t best = (size_t)-1;
  for (int i = 0; i < VERB_COUNT; i++) {
    if (!cli_verbs[i].name)
      continue;
    if (!strcmp(cli_verbs[i].name, name))
      return (cli_verb_id)i;
    size_t distance = text_distance(name, cli_verbs[i].name);
    if (nearest && distance < best) {
      best = distance;
      *nearest = cli_verbs[i].name;
    }
  }
  if (nearest && !text_is_slip(name, best))
    *nearest = NULL;
  return VERB_COUNT;
}

tern_status help_unknown_verb(const char *where, const char *name, const char *nearest, tern_error *err)
{
  const char *shown = *name ? name : "\"\"";
  const char *here = elsewhere_verb(name);
  if (here)
    return err_set(err, TERN_E_USAGE, "%sunknown verb %s: %s (tern help lists all)", where, name, here);
  if (nearest)
    return err_set(err, TERN_E_USAGE, "%sunknown verb %s: did you mean %s? (tern help lists all)", where, shown,
                   nearest);
  return err_set(err, TERN_E_USAGE, "%sunknown verb %s (tern help lists all)", where, shown);
}

/* ---- texts ---- */

/* "--temp, -t X" into out. */
static void left_column(const cli_flag *f, char out[128])
{
  char *to = out, *end = out + 127;
  for (const char *at = f->names; *at && to < end - 2; at++) {
    if (*at != '|') {
      *to++ = *at;
      continue;
    }
    *to++ = ',';
    *to++ = ' ';
  }
  *to = 0;
  if (f->value)
    snprintf(to, (size_t)(end - to), " %s", f->value);
  else if (f->choices)
    snprintf(to, (size_t)(end - to), " %s", f->choices);
}

/* What is too long for its column has a line of its own. */
static void print_left(const char *left)
{
  out_printf("  %-*s", HELP_COLUMN, left);
  if (strlen(left) >= HELP_COLUMN)
    out_printf("\n  %-*s", HELP_COLUMN, "");
}

bool help_shows_default(const cli_flag *f)
{
  return (f->kind == FLAG_INT && (f->fallback != 0 || f->lo < 0)) || f->kind == FLAG_REAL;
}

static void print_flag(const cli_flag *f)
{
  char left[128];
  left_column(f, left);
  print_left(left);
  out_printf(" %s", f->help);
  if (f->choices) {
    out_write(" (", 2);
    for (const char *at = f->choices; *at; at++)
      out_write(*at == '|' ? ", " : at, *at == '|' ? 2 : 1);
    out_write(")", 1);
  }
  if (help_shows_default(f))
    out_printf(" [%.15g]", f->fallback);
  out_printf("\n");
}

const char *const help_model =
    "Runs MLX-format checkpoints with the numbers of mlx-lm. MODEL is a directory, a .gguf file, a repo id\n"
    "(org/name[@revision]) found in the Hugging Face cache or under TERN_HOME, or a unique part of one.";
const char *const help_environment =
    "HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE, TERN_HOME (~/.cache/tern), TERN_THREADS, NO_COLOR.";

static void print_examples(cli_verb_id verb, const char *heading)
{
  for (size_t i = 0; i < examples_n; i++) {
    const example *e = &examples[i];
    if (e->verb != verb || !cli_verbs[verb].name)
      continue;
    out_printf("%s  %-*s", heading, EXAMPLE_COLUMN, e->line);
    if (strlen(e->line) >= EXAMPLE_COLUMN)
      out_printf("\n  %-*s", EXAMPLE_COLUMN, "");
    out_printf("  %s\n", e->what);
    heading = "";
  }
}

void help_verb(cli_verb_id verb)
{
  const cli_verb *v = &cli_verbs[verb];
  out_printf("tern %s%s%s [flags]\n\n%s\n\n", v->name, *v->operands ? " " : "", v->operands, v->summary);
  for (size_t i = 0; i < cli_n_flags; i++)
    if (cli_flags[i].verbs >> verb & 1)
      print_flag(&cli_flags[i]);
  for (const char *const *at = examples_notes; *at; at += 2)
    if (!strcmp(at[0], v->name))
      out_printf("\n%s\n", at[1]);
  print_examples(verb, "\nExamples:\n");
}

void help_all(void)
{
  out_printf("tern VERB [MODEL] [flags]\n\n%s\n\n", help_model);
  for (int i = 0; i < VERB_COUNT; i++) {
    char left[64];
    if (!cli_verbs[i].name)
      continue;
    snprintf(left, sizeof left, "%s %s", cli_verbs[i].name, cli_verbs[i].operands);
    print_left(left);
    out_printf(" %s\n", cli_verbs[i].summary);
  }
  if (cli_verbs[VERB_PULL].name)
    out_printf(
        "\nTo begin with: tern pull ORG/NAME gets a model (huggingface.co/mlx-community has many,\n"
        "Qwen2.5-0.5B-Instruct-4bit is a small one), tern ls shows what is here, tern run MODEL PROMPT answers,\n"
        "tern chat MODEL is a conversation, tern serve MODEL a server.\n");
  out_printf(
      "\ntern help VERB tells the flags of a verb, with examples. Exit status: 0; 1: bad input; 2: bad usage; 130: "
      "interrupted.\n"
      "Environment: %s\n",
      help_environment);
}
