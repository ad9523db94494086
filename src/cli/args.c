/* args.c - from argv to struct cli_args, through the table in flags.c.
 *
 * Flags may stand anywhere after the verb, as `--flag value` or `--flag=value`; a value may begin with a dash. `--`
 * ends the flags. A flag given twice keeps its last value, unless it is repeatable. Refused, as usage: whatever the
 * table does not have, a value out of range, a missing value, a value for a flag that takes none, too many operands.
 */
#include "cli/args.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

static void *slot(cli_args *a, const cli_flag *f)
{
  return (char *)a + f->offset;
}

bool args_given_at(const cli_args *a, size_t offset)
{
  for (size_t i = 0; i < cli_n_flags; i++)
    if (a->given[i] && cli_flags[i].offset == offset)
      return true;
  return false;
}

/* Whether one of the row's names is `name`. */
static bool has_name(const cli_flag *f, const char *name, size_t length)
{
  for (const char *at = f->names; at; at = strchr(at, '|')) {
    at += *at == '|';
    size_t n = strcspn(at, "|");
    if (n == length && !memcmp(at, name, n))
      return true;
  }
  return false;
}

static const cli_flag *find_flag(cli_verb_id verb, const char *name, size_t length)
{
  for (size_t i = 0; i < cli_n_flags; i++)
    if (cli_flags[i].verbs >> verb & 1 && has_name(&cli_flags[i], name, length))
      return &cli_flags[i];
  return NULL;
}

/* What llama.cpp calls things, where a verb has no flag of that name: what says it here, if anything does. */
static const struct {
  const char *name, *here, *hint;
} elsewhere[] = {
    {"-m", "--model", "the model is the first operand, or --model MODEL"},
    {"-n", "--max-tokens", "the number of tokens is --max-tokens N (-m N)"},
    {"--n-predict", "--max-tokens", "the number of tokens is --max-tokens N (-m N)"},
    {"--num-predict", "--max-tokens", "the number of tokens is --max-tokens N (-m N)"},
    {"--num_predict", "--max-tokens", "the number of tokens is --max-tokens N (-m N)"},
    {"-c", "--ctx", "the context is --ctx N"},
    {"--ctx-size", "--ctx", "the context is --ctx N"},
    {"-t", "--threads", "the number of threads is --threads N"},
    {"-s", "--seed", "the seed is --seed N"},
    {"--temperature", "--temp", "the temperature is --temp X"},
    {"-md", "--draft-model", "the draft model is --draft-model MODEL"},
    {"--model-draft", "--draft-model", "the draft model is --draft-model MODEL"},
    {"--draft", "--num-draft-tokens", "the number of drafted tokens is --num-draft-tokens N"},
    {"--draft-max", "--num-draft-tokens", "the number of drafted tokens is --num-draft-tokens N"},
    {"-ngl", NULL, "this build has no GPU to put layers on"},
    {"--n-gpu-layers", NULL, "this build has no GPU to put layers on"},
};

static tern_status unknown_flag(cli_verb_id verb, const char *name, size_t length, tern_error *err)
{
  char room[64];
  const char *verb_name = cli_verbs[verb].name, *nearest = help_nearest_flag(verb, name, length, room);
  for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
    if (strlen(elsewhere[i].name) == length && !memcmp(elsewhere[i].name, name, length) &&
        (!elsewhere[i].here || find_flag(verb, elsewhere[i].here, strlen(elsewhere[i].here))))
      return err_set(err, TERN_E_USAGE, "%s: unknown flag %s: %s", verb_name, elsewhere[i].name, elsewhere[i].hint);
  for (size_t i = 0; i < cli_n_flags; i++) {
    if (!has_name(&cli_flags[i], name, length))
      continue;
    for (int other = 0; other < VERB_COUNT; other++)
      if (cli_flags[i].verbs >> other & 1 && cli_verbs[other].name)
        return err_set(err, TERN_E_USAGE, "%s: %.*s is a flag of %s, not of %s%s%s", verb_name, (int)length, name,
                       cli_verbs[other].name, verb_name, nearest ? "; the nearest that it has is " : "",
                       nearest ? nearest : "");
  }
  if (nearest)
    return err_set(err, TERN_E_USAGE, "%s: unknown flag %.*s: did you mean %s?", verb_name, (int)length, name, nearest);
  return err_set(err, TERN_E_USAGE, "%s: unknown flag %.*s (tern help %s lists all)", verb_name, (int)length, name,
                 verb_name);
}

/* ---- values ---- */

bool args_read_int(const char *text, int64_t lo, int64_t hi, int64_t *out)
{
  char *end;
  if (!*text || strspn(text, "+-0123456789") != strlen(text))
    return false;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (errno || *end || value < lo || value > hi)
    return false;
  *out = value;
  return true;
}

tern_status args_read_ints(const char *what, const char *text, int64_t lo, int64_t hi, cli_ints *out, tern_error *err)
{
  out->n = 0;
  for (const char *at = text;; at++) {
    char number[24];
    size_t length = strcspn(at, ",");
    const char *end = at + length, *first = at, *last = end;
    while (first < last && (*first == ' ' || *first == '\t' || *first == '\n' || *first == '\r'))
      first++;
    while (last > first && (last[-1] == ' ' || last[-1] == '\t' || last[-1] == '\n' || last[-1] == '\r'))
      last--;
    int64_t value;
    size_t n = (size_t)(last - first);
    if (n < sizeof number) {
      memcpy(number, first, n);
      number[n] = 0;
    }
    if (n >= sizeof number || !args_read_int(number, lo, hi, &value))
      return err_set(err, TERN_E_USAGE, "%s: \"%.*s\" is not a number from %lld to %lld (number %zu of the list)", what,
                     (int)(n < 40 ? n : 40), first, (long long)lo, (long long)hi, out->n + 1);
    if (!mem_grow(&out->items, &out->capacity, out->n + 1, sizeof *out->items))
      return err_nomem(err, what);
    out->items[out->n++] = (int)value;
    at = end;
    if (!*at)
      return TERN_OK;
  }
}

static bool read_truth(const char *text, bool *out)
{
  static const char *const words[2][3] = {{"false", "f", "0"}, {"true", "t", "1"}};
  for (int truth = 0; truth < 2; truth++)
    for (int i = 0; i < 3; i++)
      if (!strcasecmp(text, words[truth][i])) {
        *out = truth;
        return true;
      }
  return false;
}

static bool read_real(const char *text, double lo, double hi, double *out)
{
  char *end;
  if (!*text || strspn(text, "+-.0123456789eE") != strlen(text))
    return false;
  *out = strtod(text, &end);
  return !*end && *out >= lo && *out <= hi;
}

static bool read_seed(const char *text, uint64_t *out)
{
  char *end;
  if (!*text || strspn(text, "0123456789") != strlen(text))
    return false;
  errno = 0;
  *out = strtoull(text, &end, 10);
  return !errno && !*end;
}

/* Which of "a|b|c" `text` is, or -1. */
static int choice_index(const char *choices, const char *text)
{
  size_t length = strlen(text);
  int index = 0;
  for (const char *at = choices; at; at = strchr(at, '|'), index++) {
    at += *at == '|';
    if (strcspn(at, "|") == length && !memcmp(at, text, length))
      return index;
  }
  return -1;
}

/* Turns the bars of a list into words: "a, b or c". */
static const char *choices_in_words(const char *choices, char out[128])
{
  char *to = out;
  for (const char *at = choices; *at && to < out + 120; at++) {
    if (*at != '|') {
      *to++ = *at;
      continue;
    }
    const char *link = strchr(at + 1, '|') ? ", " : " or ";
    memcpy(to, link, strlen(link));
    to += strlen(link);
  }
  *to = 0;
  return out;
}

static tern_status bad_value(const cli_args *a, const char *name, const char *text, const char *wanted, tern_error *err)
{
  return err_set(err, TERN_E_USAGE, "%s: %s: \"%.60s\" is not %s", cli_verbs[a->verb].name, name, text, wanted);
}

static tern_status bad_range(const cli_args *a, const cli_flag *f, const char *name, const char *text, tern_error *err)
{
  const char *kind = f->kind == FLAG_REAL ? "a number" : "a whole number";
  /* llama.cpp's -m is the model */
  const char *hint = !strcmp(name, "-m") ? " (-m is --max-tokens; the model is the first operand, or --model)" : "";
  return err_set(err, TERN_E_USAGE, "%s: %s: \"%.60s\" is not %s from %.15g to %.15g%s", cli_verbs[a->verb].name, name,
                 text, kind, f->lo, f->hi, hint);
}

/* Stores one value. `name` is the flag as it was spelled. */
static tern_status store(cli_args *a, const cli_flag *f, const char *name, const char *text, tern_error *err)
{
  void *to = slot(a, f);
  char words[128];
  int64_t whole;
  switch (f->kind) {
  case FLAG_TRUTH:
    return read_truth(text, to) ? TERN_OK : bad_value(a, name, text, "true or false", err);
  case FLAG_STRING:
    *(const char **)to = text;
    return TERN_OK;
  case FLAG_STRINGS: {
    cli_strings *list = to;
    if (!mem_grow(&list->items, &list->capacity, list->n + 1, sizeof *list->items))
      return err_nomem(err, name);
    list->items[list->n++] = text;
    return TERN_OK;
  }
  case FLAG_INT:
    if (!args_read_int(text, (int64_t)f->lo, (int64_t)f->hi, &whole))
      return bad_range(a, f, name, text, err);
    *(int *)to = (int)whole;
    return TERN_OK;
  case FLAG_SEED:
    return read_seed(text, to) ? TERN_OK : bad_value(a, name, text, "a whole number from 0 to 2^64 - 1", err);
  case FLAG_REAL:
    return read_real(text, f->lo, f->hi, to) ? TERN_OK : bad_range(a, f, name, text, err);
  case FLAG_CHOICE:
  case FLAG_WORD: {
    int index = choice_index(f->choices, text);
    if (index < 0)
      return bad_value(a, name, text, choices_in_words(f->choices, words), err);
    if (f->kind == FLAG_CHOICE)
      *(int *)to = index;
    else
      *(const char **)to = text;
    return TERN_OK;
  }
  case FLAG_INTS: {
    char where[96];
    snprintf(where, sizeof where, "%s: %s", cli_verbs[a->verb].name, name);
    return args_read_ints(where, text, (int64_t)f->lo, (int64_t)f->hi, to, err);
  }
  default:
    return err_set(err, TERN_E_INTERNAL, "%s: no way to read its value", name);
  }
}

/* ---- the line ---- */

/* One flag at argv[*i]; *i moves to its last argument. */
static tern_status take_flag(cli_args *a, int argc, char **argv, int *i, tern_error *err)
{
  const char *word = argv[*i];
  size_t length = strcspn(word, "=");
  const char *value = word[length] ? word + length + 1 : NULL;
  char name[64];
  const cli_flag *f = find_flag(a->verb, word, length);
  if (!f)
    return unknown_flag(a->verb, word, length, err);
  snprintf(name, sizeof name, "%.*s", (int)length, word);
  a->given[f - cli_flags] = true;
  bool truth;
  if (f->kind == FLAG_BOOL || f->kind == FLAG_TRUTH) {
    *(bool *)slot(a, f) = true;
    if (f->kind == FLAG_TRUTH && !value && *i + 1 < argc && !args_read_int(argv[*i + 1], 0, 1, &(int64_t){0}) &&
        read_truth(argv[*i + 1], &truth))
      value = argv[++*i];
    if (!value)
      return TERN_OK;
    return f->kind == FLAG_TRUTH ? store(a, f, name, value, err)
                                 : err_set(err, TERN_E_USAGE, "%s: %s: takes no value", cli_verbs[a->verb].name, name);
  }
  if (!value) {
    if (*i + 1 >= argc)
      return err_set(err, TERN_E_USAGE, "%s: %s: needs a value (%s)", cli_verbs[a->verb].name, name, f->value);
    value = argv[++*i];
  }
  return store(a, f, name, value, err);
}

static void set_defaults(cli_args *a)
{
  for (size_t i = 0; i < cli_n_flags; i++) {
    const cli_flag *f = &cli_flags[i];
    if (!(f->verbs >> a->verb & 1))
      continue;
    if (f->kind == FLAG_INT)
      *(int *)slot(a, f) = (int)f->fallback;
    else if (f->kind == FLAG_REAL)
      *(double *)slot(a, f) = f->fallback;
  }
}

/* The verb's place, where `--help` and `--version` are welcome too. */
static tern_status take_verb(cli_args *a, const char *word, tern_error *err)
{
  const char *nearest = NULL;
  if (!strcmp(word, "--version") || !strcmp(word, "-V"))
    word = "version";
  else if (!strcmp(word, "--help") || !strcmp(word, "-h"))
    word = "help";
  a->verb = help_find_verb(word, &nearest);
  if (a->verb == VERB_COUNT)
    return help_unknown_verb("", word, nearest, err);
  return TERN_OK;
}

tern_status args_parse(int argc, char **argv, cli_args *out, tern_error *err)
{
  *out = (cli_args){.verb = VERB_HELP};
  if (argc < 2)
    return err_set(err, TERN_E_USAGE, "no verb: tern VERB [MODEL] [flags] (tern help lists the verbs)");
  TRY(take_verb(out, argv[1], err));
  set_defaults(out);
  bool flags = true;
  const char *truth = NULL; /* the word before is a flag that could have had a truth value */
  for (int i = 2; i < argc; i++) {
    const char *word = argv[i], *before = truth;
    truth = NULL;
    if (flags && !strcmp(word, "--")) {
      flags = false;
    } else if (flags && word[0] == '-' && word[1]) {
      TRY(take_flag(out, argc, argv, &i, err));
      const cli_flag *f = find_flag(out->verb, argv[i], strlen(argv[i]));
      truth = f && f->kind == FLAG_TRUTH ? word : NULL;
    } else {
      if (before && out->n_words == cli_verbs[out->verb].max_words && !out->help)
        return err_set(err, TERN_E_USAGE, "%s: %s: \"%.60s\" is not true or false, and an operand too many",
                       cli_verbs[out->verb].name, before, word);
      if (out->n_words == cli_verbs[out->verb].max_words && !out->help)
        return err_set(err, TERN_E_USAGE, "%s: \"%.60s\" is one operand too many: tern %s%s%s%s",
                       cli_verbs[out->verb].name, word, cli_verbs[out->verb].name,
                       *cli_verbs[out->verb].operands ? " " : "", cli_verbs[out->verb].operands,
                       out->verb == VERB_RUN ? " (a prompt of several words stands in quotes)" : "");
      if (out->n_words < CLI_MAX_WORDS)
        out->words[out->n_words++] = word;
    }
  }
  return TERN_OK;
}

void args_clear(cli_args *a)
{
  for (size_t i = 0; i < cli_n_flags; i++) {
    if (cli_flags[i].kind == FLAG_STRINGS) {
      cli_strings *list = slot(a, &cli_flags[i]);
      mem_free(list->items);
      *list = (cli_strings){0};
    } else if (cli_flags[i].kind == FLAG_INTS) {
      cli_ints *list = slot(a, &cli_flags[i]);
      mem_free(list->items);
      *list = (cli_ints){0};
    }
  }
}

void args_model_and_text(const cli_args *a, const char **model, const char **text)
{
  int next = 0;
  *model = a->model ? a->model : a->n_words > next ? a->words[next++] : NULL;
  *text = a->n_words > next ? a->words[next] : NULL;
}

tern_status args_need_model(const cli_args *a, const char **model, const char **text, tern_error *err)
{
  const char *ignored, *name = cli_verbs[a->verb].name;
  const char **rest = text ? text : &ignored;
  args_model_and_text(a, model, rest);
  if (!*model)
    return err_set(err, TERN_E_USAGE, "%s: no MODEL: tern %s %s", name, name, cli_verbs[a->verb].operands);
  int most = cli_verbs[a->verb].max_words - (a->model ? 1 : 0);
  if (a->n_words > most)
    return err_set(err, TERN_E_USAGE, "%s: \"%.60s\": --model names the model already", name, a->words[a->n_words - 1]);
  return TERN_OK;
}
